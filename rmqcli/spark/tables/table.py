"""What an export needs of a table, whatever its format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from rmqcli.spark.tables.record import TableRecord

#: The column with decoded bodies.
VALUE: Final = "value"
#: Names and types of columns, the types as `DataType.simpleString` writes them.
Columns = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """What a table has before a run. `columns` None: there is no table yet.

    `newest` is the newest record of an export; None when no commit has one. `sequence`
    is the number of the next record. `position` is the version or snapshot.
    """

    columns: Columns | None = None
    #: the type of the column `value`, as the JSON of a StructType; None without one
    value_json: str | None = None
    newest: TableRecord | None = None
    sequence: int = 0
    position: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The commit of a run: a version of Delta Lake, or a snapshot of Iceberg.

    Counts are None where the table does not say them.
    """

    version: str
    rows: int | None
    files: int | None
    file_bytes: int | None


class Table(Protocol):
    """A table of one format. For one thread at a time; raises what Spark raises."""

    #: what errors call it
    name: str

    def state(self) -> TableState:
        """What the table has now."""

    def is_empty(self) -> bool:
        """Whether it has no row."""

    def write(self, frame: DataFrame, record: TableRecord) -> None:
        """Append rows in one commit, which has the record."""

    def committed(self, run_id: str, before: TableState) -> Commit:
        """The commit of a run. Raises RmqError when another export was in its way."""


def state_of(
    schema: StructType,
    *,
    newest: TableRecord | None,
    sequence: int,
    position: int | None,
) -> TableState:
    """The state of a table with this schema."""
    values = [each.dataType for each in schema if each.name == VALUE]
    return TableState(
        columns=columns_of(schema),
        value_json=values[0].json() if values else None,
        newest=newest,
        sequence=sequence,
        position=position,
    )


def columns_of(schema: StructType) -> Columns:
    """The columns of a schema."""
    return tuple((each.name, each.dataType.simpleString()) for each in schema)
