"""Write one Parquet file of an export, row group by row group, and its footer.

The file is in the run's temp folder until `part_files` renames it. Each row group is
written as soon as it is full and then dropped. So one row group, which is limited in
rows and in bytes because a body may have 4 MiB, bounds the memory.

The footer says which run and part a file belongs to. It remains when the file is
renamed or the manifest is lost. A file without our key in its footer is not from an
export.
"""

from __future__ import annotations

import io
import json
import os
import zlib
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from rmqcli.dataclass import dataclass
from rmqcli.spark.export.disk import Disk, write_all
from rmqcli.spark.export.layout import file_name
from rmqcli.spark.export.manifest import FileRow

if TYPE_CHECKING:
    from typing import BinaryIO

    import pyarrow as pa

    from rmqcli.spark.export.plan import PartSpec
    from rmqcli.spark.export.storage import Storage

ROW_GROUP_ROWS: Final = 131_072
ROW_GROUP_BYTES: Final = 64 * 1024 * 1024

#: Columns that are never null, so that readers may rely on them.
REQUIRED: Final = (
    "topic",
    "broker_name",
    "queue_id",
    "queue_offset",
    "reconsume_times",
    "flag",
    "sys_flag",
    "commit_log_offset",
    "body",
)
_SORTED_BY: Final = "queue_offset"

#: Columns whose values repeat. For bodies or ids a dictionary would only cost time.
_DICTIONARY: Final = (
    "topic",
    "broker_name",
    "queue_id",
    "tags",
    "born_host",
    "store_host",
    "reconsume_times",
    "flag",
    "sys_flag",
    "properties.key_value.key",
)
#: Measured: zstd 1 halves the size of snappy's file at 8 % of its speed, and is better
#: than zstd 3 in both.
_LEVELS: Final = {"zstd": 1}
FOOTER_KEY: Final = b"rmq.export"
FOOTER_VERSION: Final = 1


@dataclass(slots=True)
class Extent:
    """The contents of a file so far; store times are in microseconds since 1970."""

    rows: int = 0
    first_offset: int = 0
    last_offset: int = 0
    first_store_us: int | None = None
    last_store_us: int | None = None
    body_crc32: int = 0


class Sink(io.RawIOBase):
    """The file object to which pyarrow writes; after `discard` it ignores all data.

    A ParquetWriter must be closed even when its file is abandoned, and then writes its
    footer. On a full disk this would raise a second error.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._discarding = False
        self.position = 0

    def write(self, data: Any) -> int:  # noqa: ANN401  # pyarrow's buffer, or bytes
        if not self._discarding:
            write_all(self._file, data)
        self.position += len(data)
        return len(data)

    def tell(self) -> int:
        return self.position

    def discard(self) -> None:
        self._discarding = True

    def writable(self) -> bool:
        return True


class ParquetFile:
    """A Parquet file that is being written. Not thread-safe."""

    def __init__(
        self, path: str, schema: pa.Schema, *, compression: str, disk: Disk
    ) -> None:
        self.path = path
        self.extent = Extent()
        self._disk = disk
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._file = disk.create(path)
        self._sink = Sink(self._file)
        self.pending_bytes = 0
        try:
            self._schema = file_schema(schema)
            self._writer = _writer(self._sink, self._schema, compression)
        except BaseException:
            self._file.close()
            disk.remove(path)
            raise

    @property
    def file_bytes(self) -> int:
        """The bytes written so far, without the pending row group."""
        return self._sink.position

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows, in offset order; write a row group when one is full."""
        self._extend(batch)
        self._pending.append(batch)
        self._pending_rows += batch.num_rows
        self.pending_bytes += batch.nbytes
        if (
            self._pending_rows >= ROW_GROUP_ROWS
            or self.pending_bytes >= ROW_GROUP_BYTES
        ):
            self.write_row_group()

    def write_row_group(self) -> None:
        """Write the pending rows as one row group."""
        import pyarrow as pa

        if self._pending_rows:
            columns = pa.Table.from_batches(self._pending).columns
            table = pa.Table.from_arrays(columns, schema=self._schema)
            self._pending.clear()
            self._writer.write_table(table, row_group_size=self._pending_rows)
        self._pending_rows = 0
        self.pending_bytes = 0

    def finish(
        self, run_id: str, topic: str, part: PartSpec, folder: str, start: int, end: int
    ) -> FileRow:
        """Write the pending rows and the footer; then the file is on the disk.

        Return its record, with the final path of the file of offsets `start <= o < end`
        of a part's queue in `folder`.
        """
        self.write_row_group()
        extent = self.extent
        footer = Footer(
            run_id=run_id,
            part=part.index,
            topic=topic,
            broker_name=part.broker_name,
            queue_id=part.queue_id,
            start=start,
            end=end,
            rows=extent.rows,
        )
        value = {"version": FOOTER_VERSION, **asdict(footer)}
        text = json.dumps(value, sort_keys=True)
        self._writer.add_key_value_metadata({FOOTER_KEY: text})
        self._writer.close()
        self._disk.sync(self._file)
        self._file.close()
        return FileRow(
            path=os.path.join(folder, file_name(topic, part, start=start, end=end)),
            start=start,
            end=end,
            rows=extent.rows,
            first_offset=extent.first_offset,
            last_offset=extent.last_offset,
            file_bytes=self.file_bytes,
            first_store_timestamp_ms=_to_ms(extent.first_store_us),
            last_store_timestamp_ms=_to_ms(extent.last_store_us),
            body_crc32=extent.body_crc32,
        )

    def abort(self) -> None:
        """Abandon the file and remove it. May be called twice, and after `finish`."""
        self._sink.discard()
        self._pending.clear()
        self._writer.close()
        self._file.close()
        self._disk.remove(self.path)

    def _extend(self, batch: pa.RecordBatch) -> None:
        from rmqcli.wire.message.arrays import numbers_of

        offsets = batch.column("queue_offset")
        extent = self.extent
        if not extent.rows:
            extent.first_offset = offsets[0].as_py()
        stored = batch.column("store_timestamp").cast("int64").drop_null()
        times = numbers_of(stored)
        if len(times):  # a time that cannot be represented is null
            known = (extent.first_store_us, extent.last_store_us)
            both = [int(times.min()), int(times.max())]
            both += [us for us in known if us is not None]
            extent.first_store_us, extent.last_store_us = min(both), max(both)
        extent.last_offset = offsets[-1].as_py()
        extent.rows += batch.num_rows
        extent.body_crc32 = body_crc32(batch.column("body"), extent.body_crc32)


def file_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of a file: the columns of REQUIRED are not nullable."""
    import pyarrow as pa

    return pa.schema(
        [field.with_nullable(field.name not in REQUIRED) for field in schema]
    )


def _to_ms(us: int | None) -> int | None:
    return None if us is None else us // 1000


def _writer(sink: Sink, schema: pa.Schema, compression: str) -> Any:  # noqa: ANN401
    import pyarrow.parquet as pq

    names = set(schema.names)
    return pq.ParquetWriter(
        sink,
        schema,
        compression=compression,
        compression_level=_LEVELS.get(compression),
        use_dictionary=[n for n in _DICTIONARY if n.split(".")[0] in names],
        version="2.6",
        # Lets readers find the pages with an offset; offsets are declared as sorted.
        write_page_index=True,
        sorting_columns=[pq.SortingColumn(schema.get_field_index(_SORTED_BY))],
    )


def body_crc32(bodies: pa.Array, crc: int) -> int:
    """Return the CRC-32 of the concatenated bodies, continued from `crc`."""
    import numpy as np

    _, offsets, values = bodies.buffers()
    if values is None:
        return crc
    edges = np.frombuffer(offsets, np.int32)
    start, end = edges[bodies.offset], edges[bodies.offset + len(bodies)]
    return zlib.crc32(memoryview(values)[start:end], crc)


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """The part that a file belongs to, and the half-open range in its name.

    When read back, `rows` is the row count of the Parquet metadata itself.
    """

    run_id: str
    part: int
    topic: str
    broker_name: str
    queue_id: int
    start: int
    end: int
    rows: int


def read_footer(path: str, disk: Storage | None = None) -> Footer | None:
    """Return the footer of a file; None unless an export wrote the file.

    Also returns None for a symbolic link and for a damaged file. `disk` is where the
    file is; None means this machine. Raises OSError or StorageError when the file
    cannot be opened.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    disk = disk or Disk()
    if not disk.is_remote and (os.path.islink(path) or not os.path.isfile(path)):
        return None
    with disk.open_read(path) as file:
        try:
            metadata = pq.read_metadata(file)
        except (pa.ArrowException, OSError) as error:
            # pyarrow reports a damaged footer as either of these errors.
            disk.raise_unanswered(error, path)
            return None
        text = (metadata.metadata or {}).get(FOOTER_KEY)
        rows = metadata.num_rows
    if text is None:
        return None
    try:
        value = json.loads(text)
        if value.pop("version") != FOOTER_VERSION:
            return None
        return Footer(**{**value, "rows": rows})
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def count_by_tag(folder: str) -> list[tuple[str, int]]:
    """Return pairs of a tag and its number of rows in the Parquet files, by tag.

    Reads the files in `folder` whose names end in `.parquet`, but not those of folders
    inside it.
    """
    import pyarrow.parquet as pq

    counts: dict[str, int] = {}
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".parquet"):
            continue
        tags = pq.read_table(os.path.join(folder, name), columns=["tags"]).column(0)
        for entry in tags.value_counts().to_pylist():
            tag = entry["values"] or "-"
            counts[tag] = counts.get(tag, 0) + entry["counts"]
    return sorted(counts.items())
