"""A table of Apache Iceberg: read its snapshots, and append one.

The record is a property of the snapshot. Iceberg accepts concurrent appends one after
the other, whichever snapshot they are based on. So the snapshots are read before the
write and after it, and an export that committed in between is reported.

Source: SnapshotProducer and SparkWriteOptions in apache/iceberg.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.errors import RmqError
from rmqcli.spark.tables.formats import parse_name, quoted
from rmqcli.spark.tables.record import (
    PROPERTY,
    Snapshot,
    record_to_json,
    records_in_iceberg,
)
from rmqcli.spark.tables.table import Commit, TableState, state_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rmqcli.spark.tables.record import TableRecord


class IcebergTable:
    """A table in a catalog. Use it from one thread at a time."""

    def __init__(self, spark: SparkSession, target: str) -> None:
        self._spark = spark
        self._sql = quoted(parse_name(target))
        self.name = target

    def state(self) -> TableState:
        """The state of the table."""
        if not self._spark.catalog.tableExists(self._sql):
            return TableState()
        # The table may have been loaded before another export's commit.
        self._spark.catalog.refreshTable(self._sql)
        current_id = self._current_id()
        records = records_in_iceberg(self._snapshots(), current_id, table=self.name)
        newest = records[0][1] if records else None
        return state_of(
            self._spark.table(self._sql).schema,
            newest=newest,
            sequence=0 if newest is None else newest.sequence + 1,
            position=current_id,
        )

    def is_empty(self) -> bool:
        """Whether the table has no rows."""
        return not self._spark.table(self._sql).take(1)

    def write(self, frame: DataFrame, record: TableRecord) -> None:
        """Append rows in one snapshot, which contains the record."""
        writer = frame.writeTo(self._sql).option(
            f"snapshot-property.{PROPERTY}", record_to_json(record)
        )
        if self._spark.catalog.tableExists(self._sql):
            writer.append()
        else:
            # This creates the table together with its first snapshot.
            writer.using("iceberg").create()

    def committed(self, run_id: str, before: TableState) -> Commit:
        """The snapshot of a run.

        Raises RmqError when another export committed in between; then the rows of both
        are in the table.
        """
        self._spark.catalog.refreshTable(self._sql)
        snapshots = self._snapshots()
        records = records_in_iceberg(snapshots, self._current_id(), table=self.name)
        ids = [record.run_id for _, record in records]
        if run_id not in ids:
            raise RmqError(f"{self.name} does not have the snapshot that was written")
        snapshot_id, _ = records[ids.index(run_id)]
        earlier = ids[ids.index(run_id) + 1 :]
        expected = before.newest.run_id if before.newest is not None else None
        if earlier and earlier[0] != expected:
            raise RmqError(
                f"the export {earlier[0]} committed to {self.name} while this one, the"
                f" snapshot {snapshot_id}, was written: rows may be duplicated",
                hint="roll back to the snapshot before it (rollback_to_snapshot), and"
                " run one export at a time",
            )
        (summary,) = (s.summary for s in snapshots if s.snapshot_id == snapshot_id)
        return Commit(
            version=str(snapshot_id),
            rows=int(summary.get("added-records", 0)),
            files=int(summary.get("added-data-files", 0)),
            file_bytes=int(summary.get("added-files-size", 0)),
        )

    def _current_id(self) -> int | None:
        refs = self._spark.table(f"{self._sql}.refs").where("name = 'main'")
        rows = refs.select("snapshot_id").collect()
        return rows[0].snapshot_id if rows else None

    def _snapshots(self) -> list[Snapshot]:
        found = self._spark.table(f"{self._sql}.snapshots")
        return [
            Snapshot(
                snapshot_id=row.snapshot_id,
                parent_id=row.parent_id,
                summary=row.summary or {},
            )
            for row in found.select("snapshot_id", "parent_id", "summary").collect()
        ]
