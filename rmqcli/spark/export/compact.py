"""Merge the many small files and runs of an export directory, without Spark.

Consecutive runs, each of which began where the previous one ended (`since_last`), are
merged into one run, and files of the same queue and folder into larger files, up to the
size limits. The merged files are first written to a folder below `_rmq`. When all of
them are on disk, a journal records which files they replace, and
`ExportDirectory.finish_compaction` carries it out: at once or, after a kill, when the
directory is next opened. Until the journal is written, the export is unchanged.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from rmqcli.dataclass import dataclass
from rmqcli.errors import PartialError, RefusedError, UsageError
from rmqcli.hint import Hint, Setting
from rmqcli.spark.counts import joined
from rmqcli.spark.export import layout
from rmqcli.spark.export.directory import Journal, open_directory
from rmqcli.spark.export.export import SINCE_LAST
from rmqcli.spark.export.manifest import FileRow, Manifest, PartResult, RunRecord
from rmqcli.spark.export.parquet_file import ParquetFile, body_crc32
from rmqcli.spark.export.plan import PartSpec
from rmqcli.spark.rows import row_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rmqcli.spark.export.directory import ExportDirectory
    from rmqcli.spark.export.disk import Disk
    from rmqcli.spark.extent import QueueKey, QueueRange

_BATCH_ROWS = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLimits:
    """The size limits of a merged file: its rows, and the bytes of its source files."""

    rows: int
    file_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactSummary:
    """Counts of runs, files and bytes before and after a compaction."""

    topic: str
    runs_before: int
    runs: int
    files_before: int
    files: int
    bytes_before: int
    bytes: int


@dataclass(frozen=True, slots=True)
class _Merge:
    """Files of one queue and folder, in offset order, to be merged into one file."""

    run: RunRecord
    part: PartResult
    rows: tuple[FileRow, ...]


def compact(
    path: str,
    *,
    disk: Disk,
    limits: FileLimits,
    watch: Callable[[int, int], None] = lambda done, rows: None,
) -> CompactSummary:
    """Merge the files and runs of an export directory.

    While files are merged, `watch(done, rows)` is called repeatedly with the number of
    rows written so far, and the number of rows to write in total.

    Readers must wait until the compaction has finished: they might see rows twice, and
    `_SUCCESS` is absent in the meantime. Raises UsageError when there is no export,
    RefusedError when a run is unfinished or a foreign file has the name of a merged
    file, and PartialError when a file differs from the one that the export wrote.
    """
    with open_directory(path, disk=disk, create=False) as directory:
        manifest = directory.manifest()
        if manifest is None:
            raise UsageError(f"{directory.paths.root} holds no finished export")
        unfinished = directory.unfinished(manifest)
        if unfinished is not None:
            raise RefusedError(
                f"{path} holds the unfinished run {unfinished.run_id}",
                hint=Hint(
                    "finish that run first: export again with ", Setting("resume", True)
                ),
            )
        runs, merges = [], []
        for run in _join_runs(manifest.runs):
            run, of_run = _plan_merges(run, limits)
            runs.append(run)
            merges += of_run
        total = sum(row.rows for merge in merges for row in merge.rows)
        done = 0

        def count(rows: int) -> None:
            nonlocal done
            done += rows
            watch(done, total)

        if merges or len(runs) < len(manifest.runs):
            try:
                _write(directory, Manifest(manifest.topic, tuple(runs)), merges, count)
            finally:
                # If an error came before the journal, this removes the merged files.
                directory.finish_compaction()
                directory.sweep()
        after = directory.manifest() or manifest
    return _summary(manifest, after)


def _summary(before: Manifest, after: Manifest) -> CompactSummary:
    old = [file_bytes for run in before.runs for _, file_bytes in run.files()]
    new = [file_bytes for run in after.runs for _, file_bytes in run.files()]
    return CompactSummary(
        topic=before.topic,
        runs_before=len(before.runs),
        runs=len(after.runs),
        files_before=len(old),
        files=len(new),
        bytes_before=sum(old),
        bytes=sum(new),
    )


def _join_runs(runs: Iterable[RunRecord]) -> list[RunRecord]:
    """Join each run to the previous run where this loses no information."""
    chains: list[list[RunRecord]] = []
    for run in runs:
        if chains and _continues(chains[-1][-1], run):
            chains[-1].append(run)
        else:
            chains.append([run])
    return [_join(chain) for chain in chains]


def _continues(before: RunRecord, run: RunRecord) -> bool:
    """Whether two runs can be recorded as one run.

    A run with a different request stays separate, so that repeating that request still
    finds nothing to do. A run with gaps or undecodable messages stays separate, so that
    the record of them is kept.
    """
    ends = {queue.key: queue.end for queue in before.queues}
    return (
        run.request.from_position == SINCE_LAST
        and run.request == before.request
        and not any(each.gone or each.undecodable for each in (before, run))
        and not any(q.trimmed for q in (*before.queues, *run.queues))
        and all(ends.get(queue.key, queue.start) == queue.start for queue in run.queues)
    )


def _join(chain: Sequence[RunRecord]) -> RunRecord:
    """Return one record for consecutive runs; it has the id of the last one."""
    last = chain[-1]
    queues: dict[QueueKey, QueueRange] = {}
    for queue in (queue for run in chain for queue in run.queues):
        known = queues.get(queue.key)
        queues[queue.key] = replace(queue, start=known.start) if known else queue
    absorbed = [i for run in chain for i in (*run.absorbed, run.run_id)]
    return replace(
        last,
        queues=tuple(queue for _, queue in sorted(queues.items())),
        parts=_join_parts([part for run in chain for part in run.parts]),
        gaps_allowed=all(run.gaps_allowed or not run.gaps() for run in chain),
        empty_file=next((run.empty_file for run in chain if run.empty_file), None),
        absorbed=tuple(i for i in absorbed if i != last.run_id),
    )


def _join_parts(parts: Sequence[PartResult]) -> tuple[PartResult, ...]:
    """Return one part for each queue, by joining the consecutive parts of the queue."""
    by_queue: dict[QueueKey, list[PartResult]] = {}
    for part in parts:
        by_queue.setdefault(part.key, []).append(part)
    found: list[PartResult] = []
    for _, group in sorted(by_queue.items()):
        group.sort(key=lambda part: part.start)
        found.append(
            replace(
                group[0],
                index=len(found),
                end=group[-1].end,
                rows=sum(part.rows for part in group),
                filtered=sum(part.filtered for part in group),
                undecodable=sum(part.undecodable for part in group),
                corrupt=sum(part.corrupt for part in group),
                missing=joined(span for part in group for span in part.missing),
                files=tuple(row for part in group for row in part.files),
            )
        )
    return tuple(found)


def _plan_merges(run: RunRecord, limits: FileLimits) -> tuple[RunRecord, list[_Merge]]:
    """Return the run with one part for each queue, and the merges to make.

    The run still lists the old files; `_write` replaces them by the merged ones.
    """
    run = replace(run, parts=_join_parts(run.parts))
    merges = []
    for part in run.parts:
        folders: dict[str, list[FileRow]] = {}
        for row in part.files:
            folders.setdefault(os.path.dirname(row.path), []).append(row)
        for rows in folders.values():
            rows.sort(key=lambda row: row.start)
            merges += [_Merge(run, part, group) for group in _groups(rows, limits)]
    return run, merges


def _groups(rows: Sequence[FileRow], limits: FileLimits) -> list[tuple[FileRow, ...]]:
    """Return groups of two or more adjacent files that fit in one file."""
    groups: list[list[FileRow]] = []
    count = size = 0
    for row in rows:
        count, size = count + row.rows, size + row.file_bytes
        if groups and count <= limits.rows and size <= limits.file_bytes:
            groups[-1].append(row)
        else:
            groups.append([row])
            count, size = row.rows, row.file_bytes
    return [tuple(group) for group in groups if len(group) > 1]


def _write(
    directory: ExportDirectory,
    manifest: Manifest,
    merges: Sequence[_Merge],
    count: Callable[[int], None],
) -> None:
    """Write the merged files to a separate folder, and then a journal.

    `count` is called with the numbers of rows that were written.
    """
    disk, paths = directory.disk, directory.paths
    folder = disk.make_folders(paths.meta, layout.COMPACTION)
    merged: dict[str, FileRow] = {}  # by the path of each file that was merged
    new: list[str] = []
    for number, merge in enumerate(merges):
        row = _merge_files(directory, merge, paths.merged_file(number), count)
        target = os.path.join(paths.root, row.path)
        if os.path.lexists(target):
            raise RefusedError(
                f"{target} exists and was not written by this export",
                hint="move the file to another folder",
            )
        new.append(row.path)
        merged |= {old.path: row for old in merge.rows}
    disk.scratch.sync_folder(folder)
    runs = tuple(_with_files(run, merged) for run in manifest.runs)
    journal = Journal(new=tuple(new), old=tuple(merged), success=directory.is_success())
    directory.begin_replacing(journal, Manifest(manifest.topic, runs))


def _with_files(run: RunRecord, merged: dict[str, FileRow]) -> RunRecord:
    parts = []
    for part in run.parts:
        files = {row.path: row for row in (merged.get(f.path, f) for f in part.files)}
        rows = sorted(files.values(), key=lambda row: row.path)
        parts.append(replace(part, files=tuple(rows)))
    return replace(run, parts=tuple(parts))


def _merge_files(
    directory: ExportDirectory, merge: _Merge, path: str, count: Callable[[int], None]
) -> FileRow:
    """Write the rows of a merge's files into one file, and check each source file."""
    run, part, rows = merge.run, merge.part, merge.rows
    start, end = rows[0].start, rows[-1].end
    spec = PartSpec(part.index, part.broker_name, part.queue_id, start, end)
    file = ParquetFile(
        path,
        row_schema(run.request.decoding),
        compression=run.request.compression,
        disk=directory.disk.scratch,
    )
    try:
        for row in rows:
            source = os.path.join(directory.paths.root, row.path)
            _append(file, row, source, count)
        folder = os.path.dirname(rows[0].path)
        return file.finish(run.run_id, run.request.topic, spec, folder, start, end)
    except BaseException:
        file.abort()
        raise


def _append(
    file: ParquetFile, row: FileRow, source: str, count: Callable[[int], None]
) -> None:
    """Add all rows of `source`. Raises PartialError unless they match `row`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = crc = 0
    try:
        with pq.ParquetFile(source, pre_buffer=False) as parquet:
            for batch in parquet.iter_batches(_BATCH_ROWS, use_threads=False):
                rows += batch.num_rows
                crc = body_crc32(batch.column("body"), crc)
                file.add(batch)
                count(batch.num_rows)
    except (pa.ArrowException, FileNotFoundError) as error:
        raise PartialError(f"{source} cannot be read: {error}") from error
    if (rows, crc) != (row.rows, row.body_crc32):
        raise PartialError(f"{source} is not the file that the export wrote there")
