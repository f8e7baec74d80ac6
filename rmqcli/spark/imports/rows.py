"""Read the messages of one queue's Parquet files in the order of their offsets.

Files that are partitioned by time can overlap if the broker's clock was set back; such
files are merged. While a file is read, its contents are compared with the manifest.
"""

from __future__ import annotations

import heapq
import os
from typing import TYPE_CHECKING, Final

from rmqcli.errors import PartialError, RmqError
from rmqcli.spark.messages import MESSAGE_COLUMNS, messages_of
from rmqcli.units import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqcli.producer.message import RecordMessage
    from rmqcli.spark.export.manifest import FileRow
    from rmqcli.spark.imports.plan import ExportContent, QueueFiles

#: Rows of a file that are decoded at once.
ROWS: Final = 1_024


def queue_messages(
    content: ExportContent, queue: QueueFiles, *, start: int, topic: str
) -> Iterator[tuple[int, RecordMessage]]:
    """Yield the messages of a queue from offset `start` on, with their offsets.

    Raises PartialError when a file does not hold the rows that the manifest states, and
    RmqError when a file cannot be read.
    """
    last = -1
    for group in overlapping([f for f in queue.files if f.last_offset >= start]):
        sources = [
            _file_messages(content, row, start=start, topic=topic) for row in group
        ]
        found = (
            sources[0]
            if len(sources) == 1
            else heapq.merge(*sources, key=lambda item: item[0])
        )
        for offset, message in found:
            if offset <= last:
                raise PartialError(
                    f"{os.path.join(content.root, group[0].path)}: offset {offset}"
                    f" comes after {last}",
                    hint="export the topic again: the files have been changed",
                )
            last = offset
            yield offset, message


def overlapping(files: list[FileRow]) -> Iterator[list[FileRow]]:
    """Yield groups of files whose offsets overlap; `files` is sorted by first offset.

    A file that overlaps with no other file is a group of its own.
    """
    group: list[FileRow] = []
    end = -1
    for row in files:
        if group and row.first_offset > end:
            yield group
            group = []
        group.append(row)
        end = max(end, row.last_offset)
    if group:
        yield group


def _file_messages(
    content: ExportContent, row: FileRow, *, start: int, topic: str
) -> Iterator[tuple[int, RecordMessage]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = os.path.join(content.root, row.path)
    columns = ["queue_offset", *(name for name in MESSAGE_COLUMNS if name != "topic")]
    rows = 0
    try:
        with (
            content.storage.open_read(path) as source,
            pq.ParquetFile(source) as file,
        ):
            names = [name for name in columns if name in file.schema_arrow.names]
            for batch in file.iter_batches(ROWS, columns=names, use_threads=False):
                rows += batch.num_rows
                offsets = batch.column("queue_offset").to_pylist()
                if not offsets or offsets[-1] < start:
                    continue
                messages = messages_of(batch, topic=topic)
                for offset, message in zip(offsets, messages, strict=True):
                    if offset >= start:
                        yield offset, message
    except (OSError, pa.ArrowException, KeyError) as error:
        raise RmqError(f"cannot read {path}: {error}") from error
    if rows != row.rows:
        raise PartialError(
            f"{path} has {counted(rows, 'row')}, but the manifest says {row.rows}",
            hint="export the topic again: the file has been changed",
        )
