"""A table of Delta Lake: read its history, and append one commit.

The record is the `userMetadata` of the commit. The commit also has a transaction id
whose version is the record's `sequence`: when two exports try to follow the same
commit, Delta Lake accepts only one of them. It ignores the other without an error, so
the caller must check that its own commit exists.

Source: OptimisticTransaction, DeltaSQLConf and WriteIntoDelta in delta-io/delta.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from rmqcli.errors import RefusedError
from rmqcli.hint import Hint, Setting
from rmqcli.spark.tables.formats import absolute, is_path, parse_name, quoted
from rmqcli.spark.tables.record import (
    DeltaCommit,
    newest_in_delta,
    next_in_delta,
    record_from_json,
    record_to_json,
)
from rmqcli.spark.tables.table import Commit, TableState, state_of
from rmqcli.units import read_count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rmqcli.spark.tables.record import TableRecord

#: The setting for the `userMetadata` of every commit of the session.
_METADATA: Final = "spark.databricks.delta.commitInfo.userMetadata"
#: How many commits are read first: the newest record is almost always among them.
_RECENT: Final = 100
#: What a run that was killed before its commit may leave in a folder: also the folder
#: by which it asked whether the executors see this one.
_LEFTOVER = re.compile(
    r"_delta_log|\.rmq-[0-9a-f]{16}|\.?part-\d+-[0-9a-f-]+.*\.parquet(\.crc)?"
)
_SHOWN_MAX: Final = 3


class DeltaTable:
    """A table at a path or in a catalog. Use it from one thread at a time."""

    def __init__(self, spark: SparkSession, target: str) -> None:
        self._spark = spark
        self._path = absolute(target) if is_path(target) else None
        self.name = self._path or target
        if self._path is None:
            self._sql = quoted(parse_name(target))
        else:
            self._sql = quoted(("delta", self._path))

    def state(self) -> TableState:
        """The state of the table.

        Raises RefusedError for a folder that is not a table and holds other files, and
        for a table without a history.
        """
        if not self._exists():
            return TableState()
        recent = self._history(_RECENT)
        if not recent:
            raise RefusedError(
                f"the log of {self.name} has no commit that can be read",
                hint="check that its files are complete, or give another table",
            )
        newest = newest_in_delta(recent, table=self.name)
        if newest is None and len(recent) == _RECENT:
            recent = self._history(None)
            newest = newest_in_delta(recent, table=self.name)
        return state_of(
            self._frame().schema,
            newest=newest,
            sequence=next_in_delta(recent, table=self.name),
            position=recent[0].version,
        )

    def is_empty(self) -> bool:
        """Whether the table has no rows."""
        return not self._frame().take(1)

    def write(self, frame: DataFrame, record: TableRecord) -> None:
        """Append rows in one commit, which contains the record."""
        text = record_to_json(record)
        writer = (
            frame.write.format("delta")
            .mode("append")
            .option("userMetadata", text)
            .option("txnAppId", f"rmqcli/{record.topic}")
            .option("txnVersion", str(record.sequence))
        )
        if self._path is not None:
            writer.save(self._path)
        elif self._exists():
            writer.saveAsTable(self._sql)
        else:
            # Delta Lake ignores the option when the write creates the table.
            self._spark.conf.set(_METADATA, text)
            try:
                writer.saveAsTable(self._sql)
            finally:
                self._spark.conf.unset(_METADATA)

    def committed(self, run_id: str, before: TableState) -> Commit:
        """The commit of a run. Raises RefusedError when the table does not have it."""
        # Other writers may have made many commits since.
        commit = self._commit(run_id, _RECENT) or self._commit(run_id, None)
        if commit is None:
            raise RefusedError(
                f"another export committed to {self.name} first, and nothing was"
                " written",
                hint=Hint("continue after it with ", Setting("since_last", True)),
            )
        return commit

    def _commit(self, run_id: str, count: int | None) -> Commit | None:
        """The commit of a run if it is among the newest `count`, or all of them."""
        for row in self._rows(count):
            record = record_from_json(row.userMetadata, table=self.name)
            if record is not None and record.run_id == run_id:
                metrics: dict[str, str] = row.operationMetrics or {}
                return Commit(
                    version=str(row.version),
                    rows=read_count(metrics.get("numOutputRows")),
                    files=read_count(metrics.get("numFiles")),
                    file_bytes=read_count(metrics.get("numOutputBytes")),
                )
        return None

    def _exists(self) -> bool:
        if self._path is None:
            return bool(self._spark.catalog.tableExists(self._sql))
        jvm: Any = self._spark.sparkContext._jvm  # noqa: SLF001  # the API of Delta Lake is in Java
        session = self._spark._jsparkSession  # noqa: SLF001
        if jvm.io.delta.tables.DeltaTable.isDeltaTable(session, self._path):
            return True
        self._check_folder(jvm, self._path)
        return False

    def _check_folder(self, jvm: Any, folder: str) -> None:  # noqa: ANN401  # py4j's
        path = jvm.org.apache.hadoop.fs.Path(folder)
        context: Any = self._spark.sparkContext._jsc  # noqa: SLF001
        files = path.getFileSystem(context.hadoopConfiguration())
        if not files.exists(path):
            return
        names = sorted(each.getPath().getName() for each in files.listStatus(path))
        foreign = [name for name in names if not _LEFTOVER.fullmatch(name)]
        if foreign:
            shown = ", ".join(foreign[:_SHOWN_MAX])
            raise RefusedError(
                f"{folder} is not a Delta Lake table, but contains {shown}",
                hint="give a new or empty path, or the path of a Delta Lake table",
            )

    def _frame(self) -> DataFrame:
        if self._path is None:
            return self._spark.table(self._sql)
        return self._spark.read.format("delta").load(self._path)

    def _history(self, count: int | None) -> list[DeltaCommit]:
        return [
            DeltaCommit(
                version=row.version,
                operation=row.operation or "",
                parameters=row.operationParameters or {},
                metadata=row.userMetadata,
            )
            for row in self._rows(count)
        ]

    def _rows(self, count: int | None) -> list[Any]:
        limit = "" if count is None else f" LIMIT {count}"
        history = self._spark.sql(f"DESCRIBE HISTORY {self._sql}{limit}")
        rows: list[Any] = history.collect()
        return rows
