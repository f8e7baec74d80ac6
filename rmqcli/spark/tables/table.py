"""The interface of a table that an export writes, for every format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from rmqcli.dataclass import dataclass

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from rmqcli.spark.tables.record import TableRecord

#: The column with decoded bodies.
VALUE: Final = "value"
#: Names and types of columns; the types are written as in `DataType.simpleString`.
Columns = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """The state of a table before a run.

    `columns` is None when the table does not exist yet. `newest` is the newest record
    of an export, None when no commit has one. `sequence` is the number of the next
    record. `position` is the current version (Delta Lake) or snapshot id (Iceberg).
    """

    columns: Columns | None = None
    #: the type of the column `value`, as the JSON of a StructType; None without it
    value_json: str | None = None
    newest: TableRecord | None = None
    sequence: int = 0
    position: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The commit of a run: a version of Delta Lake, or a snapshot of Iceberg.

    Counts are None when the table does not record them.
    """

    version: str
    rows: int | None
    files: int | None
    file_bytes: int | None


class Table(Protocol):
    """A table of one format. Use it from one thread at a time.

    Methods raise the exceptions of Spark unchanged.
    """

    #: the name of the table in errors
    name: str

    def state(self) -> TableState:
        """The current state of the table."""

    def is_empty(self) -> bool:
        """Whether the table has no rows."""

    def write(self, frame: DataFrame, record: TableRecord) -> None:
        """Append rows in one commit, which contains the record."""

    def committed(self, run_id: str, before: TableState) -> Commit:
        """The commit of a run. Raises RmqError when another export interfered."""


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
