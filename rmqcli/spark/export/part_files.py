"""The Parquet files of one part: one file, one per date or hour, or more if they grow.

All files stay in the temp folder until the part is complete; then each file gets its
final name. An existing file with that name is replaced only if this run wrote it.
"""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING, Final

from rmqcli.dataclass import dataclass
from rmqcli.errors import RefusedError
from rmqcli.spark.export import layout
from rmqcli.spark.export.manifest import EmptyFile
from rmqcli.spark.export.parquet_file import ROW_GROUP_BYTES, ParquetFile, read_footer
from rmqcli.spark.export.plan import PartSpec
from rmqcli.spark.rows import row_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqcli.spark.export.layout import ExportLayout
    from rmqcli.spark.export.manifest import FileRow
    from rmqcli.spark.export.plan import ExportRequest
    from rmqcli.spark.export.storage import Storage
    from rmqcli.spark.extent import QueueRange

#: The most files open at once. Store times are nearly in order, so a part needs more
#: open files only if its store times are corrupt.
OPEN_FILES_MAX: Final = 8

_US_PER_HOUR: Final = 3_600_000_000
_NO_TIME_US: Final = -(1 << 63)  # outside the calendar: folder dt=unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesContext:
    """The values that the files of all parts of one run share. Pickled to the workers.

    `temp` is a local folder for files without a final name. Only the driver creates it,
    so that a worker that outlives a killed driver finds it removed and can no longer
    give a file its final name. With a remote storage each task has a folder of its own,
    and the storage refuses to publish files once the lease is gone.
    """

    layout: ExportLayout
    run_id: str
    temp: str
    request: ExportRequest
    disk: Storage

    def new_file(self, schema: pa.Schema) -> ParquetFile:
        """Return a new Parquet file in the temp folder."""
        return ParquetFile(
            os.path.join(self.temp, f"{secrets.token_hex(8)}.parquet"),
            schema,
            compression=self.request.compression,
            disk=self.disk.scratch,
        )


class PartFiles:
    """Writes the rows of a part, which are added in offset order. Not thread-safe."""

    def __init__(self, part: PartSpec, context: FilesContext) -> None:
        self._part = part
        self._context = context
        self._by_time = context.request.partition_by in ("date", "hour")
        self._open: dict[str, ParquetFile] = {}
        #: where each complete file is in the temp folder, and its record
        self._written: list[tuple[str, FileRow]] = []
        self._covered_to = part.start

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows. They are written when a row group is full."""
        if not batch.num_rows:
            return
        if not self._by_time:
            folder = ""
            if self._context.request.partition_by == "queue":
                folder = layout.queue_folder(self._part)
            self._add_to(folder, batch)
            return
        for folder, rows in self._split_by_time(batch):
            self._add_to(folder, rows)

    def finish(self) -> tuple[FileRow, ...]:
        """Give every file its final name; return the files' records, sorted by path.

        Raises RefusedError when a file that this run did not write has one of the
        names.
        """
        for folder in list(self._open):
            self._close(folder, end=self._part.end)
        for temp_path, row in self._written:
            _publish(self._context, temp_path, row.path)
        return tuple(sorted((row for _, row in self._written), key=lambda r: r.path))

    def abort(self) -> None:
        """Remove the files without a final name. May be called after `finish`."""
        for file in self._open.values():
            file.abort()
        self._open.clear()
        for temp_path, _ in self._written:
            self._context.disk.scratch.remove(temp_path)

    def _add_to(self, folder: str, batch: pa.RecordBatch) -> None:
        file = self._open.pop(folder, None)
        if file is None:
            if len(self._open) >= OPEN_FILES_MAX:
                self._close(next(iter(self._open)), end=self._part.end)
            file = self._context.new_file(batch.schema)
        self._open[folder] = file  # the last in the dict is the most recently used
        file.add(batch)
        if sum(f.pending_bytes for f in self._open.values()) >= ROW_GROUP_BYTES:
            max(self._open.values(), key=lambda f: f.pending_bytes).write_row_group()
        if file.file_bytes >= self._context.request.bytes_per_file:
            self._close(folder, end=file.extent.last_offset + 1)

    def _close(self, folder: str, *, end: int) -> None:
        file, context = self._open[folder], self._context
        start = file.extent.first_offset if self._by_time else self._covered_to
        end = file.extent.last_offset + 1 if self._by_time else end
        row = file.finish(
            context.run_id, context.request.topic, self._part, folder, start, end
        )
        del self._open[folder]
        self._covered_to = end
        self._written.append((file.path, row))

    def _split_by_time(self, batch: pa.RecordBatch) -> list[tuple[str, pa.RecordBatch]]:
        """Split a batch by the folders of its store times, nearly always into one."""
        import numpy as np

        from rmqcli.wire.message.arrays import mask_of, numbers_of

        with_hour = self._context.request.partition_by == "hour"
        times = batch.column("store_timestamp").cast("int64")
        if times.null_count:
            times = times.fill_null(_NO_TIME_US)
        stores = numbers_of(times)
        hours = stores // _US_PER_HOUR
        if not with_hour:
            hours -= hours % 24
        found = np.unique(hours)
        if len(found) == 1:
            folder = layout.time_folder(int(found[0]), with_hour=with_hour)
            return [(folder, batch)]
        pieces: dict[str, list[pa.RecordBatch]] = {}
        for hour in found:
            folder = layout.time_folder(int(hour), with_hour=with_hour)
            pieces.setdefault(folder, []).append(batch.filter(mask_of(hours == hour)))
        return [(folder, piece) for folder, rows in pieces.items() for piece in rows]


def write_empty(
    queue: QueueRange, context: FilesContext, *, epoch_ms: int
) -> EmptyFile:
    """Write a file without rows, named after an empty range of `queue`.

    In an export that is partitioned by time, the file is put in the folder for
    `epoch_ms`, because readers expect partition columns in the path of every file.
    Raises the errors of `PartFiles.finish`.
    """
    at = queue.start
    part = PartSpec(0, queue.broker_name, queue.queue_id, at, at)
    folder = ""
    if context.request.partition_by == "queue":
        folder = layout.queue_folder(part)
    elif context.request.partition_by != "none":
        with_hour = context.request.partition_by == "hour"
        folder = layout.time_folder(epoch_ms // 3_600_000, with_hour=with_hour)
    file = context.new_file(row_schema(context.request.decoding))
    try:
        row = file.finish(context.run_id, context.request.topic, part, folder, at, at)
        _publish(context, file.path, row.path)
    finally:
        file.abort()
    return EmptyFile(path=row.path, file_bytes=row.file_bytes)


def _publish(context: FilesContext, temp_path: str, path: str) -> None:
    """Give a complete file its final name.

    Raises RefusedError when a file that this run did not write has that name.
    """
    disk, root = context.disk, context.layout.root
    if folder := os.path.dirname(path):
        disk.make_folders(root, folder)
    target = os.path.join(root, path)
    if disk.exists(target):
        footer = read_footer(target, disk)
        if footer is None or footer.run_id != context.run_id:
            raise RefusedError(
                f"{target} exists and was not written by this export",
                hint="choose an empty folder, or move the file away",
            )
    disk.publish(temp_path, target)
