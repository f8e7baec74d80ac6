"""The state of an export directory: its finished and unfinished runs, and its lock.

Only one process at a time may export into a directory; its lock ends with the process.
A Parquet file belongs to the export if the manifest lists it, or if its footer names an
unfinished run. All other files are foreign and are never changed.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
from dataclasses import asdict
from typing import TYPE_CHECKING

from rmqcli.dataclass import dataclass
from rmqcli.errors import ConfigError, PartialError, RefusedError
from rmqcli.spark.export import layout
from rmqcli.spark.export.disk import check_real_folder, write_all
from rmqcli.spark.export.document import parse_document, read_as
from rmqcli.spark.export.manifest import (
    Manifest,
    PartResult,
    RunRecord,
    manifest_from_json,
    manifest_to_json,
    part_from_json,
)
from rmqcli.spark.export.parquet_file import read_footer
from rmqcli.spark.export.plan import plan_from_json, plan_to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rmqcli.spark.export.plan import ExportPlan, PartSpec
    from rmqcli.spark.export.storage import Storage

#: Bytes of a side file that are copied at once.
_COPY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Journal:
    """What a compaction replaces: the paths of the new files and of the old files.

    The n-th new file is at `ExportLayout.merged_file(n)` until it is moved to its path.
    `success` says whether `_SUCCESS` is to exist afterwards.
    """

    new: tuple[str, ...]
    old: tuple[str, ...]
    success: bool


@dataclass(slots=True)
class ExportDirectory:
    """An export directory, opened and locked by `open_directory`. Not thread-safe."""

    paths: layout.ExportLayout
    disk: Storage
    #: whether an export had begun in this directory before it was opened
    was_ours: bool = False

    def manifest(self) -> Manifest | None:
        """Return the manifest of the finished runs, None if there is none.

        Raises ConfigError when it is damaged.
        """
        return read_manifest(self.paths, self.disk)

    def unfinished(self, manifest: Manifest | None) -> ExportPlan | None:
        """Return the plan of the latest run that is not in the manifest, or None."""
        names = filter(layout.is_run_id, self.disk.list_names(self.paths.runs))
        finished = manifest.run_ids() if manifest is not None else set()
        for name in sorted(names, reverse=True):
            if name in finished:
                continue
            path = self.paths.plan(name)
            # A run without a plan was killed before it wrote the plan.
            with contextlib.suppress(FileNotFoundError):
                return plan_from_json(self.disk.read_text(path), path=path)
        return None

    def refuse_foreign(self, manifest: Manifest | None) -> None:
        """Raise RefusedError for Parquet files that no finished run lists."""
        ours = set(_listed(manifest))
        for path in self.disk.walk_files(self.paths.root):
            if path.endswith(layout.SUFFIX) and path not in ours:
                raise RefusedError(
                    f"{self.paths.root} holds {path}, which rmq did not write",
                    hint="choose an empty folder; nothing was changed",
                )
        if manifest is None and self.disk.exists(self.paths.success):
            raise RefusedError(
                f"{self.paths.root} holds a {layout.SUCCESS} that rmq did not write",
                hint="choose an empty folder; nothing was changed",
            )

    def write_plan(self, plan: ExportPlan) -> None:
        """Write the plan of a run. From then on the run exists and can be resumed."""
        self.disk.make_folders(self.paths.meta, f"runs/{plan.run_id}")
        self._write(self.paths.plan(plan.run_id), plan_to_json(plan))

    def sweep(self) -> None:
        """Remove all temporary files, of this run and of earlier ones."""
        self.disk.sweep(self.paths)

    def finished_parts(self, plan: ExportPlan) -> dict[int, PartResult]:
        """Return the parts whose record is consistent and whose files match it."""
        found = self.disk.map(
            lambda written: self.finished_part(plan.run_id, written[0]),
            self._existing(plan, self.paths.part_record),
        )
        return {result.index: result for result in found if result is not None}

    def _existing(
        self, plan: ExportPlan, path_of: Callable[[str, int], str]
    ) -> list[tuple[PartSpec, str]]:
        """Return the parts that have a file of some kind, and its path."""
        names = set(self.disk.list_names(self.paths.run(plan.run_id)))
        paths = [(part, path_of(plan.run_id, part.index)) for part in plan.parts()]
        return [(part, path) for part, path in paths if os.path.basename(path) in names]

    def finished_part(self, run_id: str, part: PartSpec) -> PartResult | None:
        """Return the result of a complete part; None if the part must be written.

        A part whose files do not match is written again, under the same names.
        """
        try:
            text = self.disk.read_text(self.paths.part_record(run_id, part.index))
            result = part_from_json(text)
            result.check(part)
            self.check_files(run_id, result)
        except (OSError, ValueError, PartialError):
            return None
        return result

    def check_files(self, run_id: str, result: PartResult) -> None:
        """Raise PartialError unless each file of a part exists and matches."""
        check_files(self.paths.root, run_id, result, self.disk)

    def check_all_files(self, run_id: str, results: list[PartResult]) -> None:
        """Raise PartialError unless each file of all parts exists and matches."""
        list(self.disk.map(lambda part: self.check_files(run_id, part), results))

    def remove_strays(
        self,
        plan: ExportPlan,
        results: list[PartResult],
        *,
        finished: Manifest | None = None,
    ) -> None:
        """Remove the files of this run that no part lists.

        An attempt that was killed between two files of a part may leave a file with a
        name that the next attempt does not use. Files of `finished` runs are not read.
        """
        listed = {row.path for result in results for row in result.files}
        listed.update(_listed(finished))
        strays = [
            os.path.join(self.paths.root, path)
            for path in self.disk.walk_files(self.paths.root)
            if path not in listed and path.endswith(layout.SUFFIX)
        ]
        for path in strays:
            footer = read_footer(path, self.disk)
            if footer is not None and footer.run_id == plan.run_id:
                self.disk.remove(path)

    def merge_undecodable(self, plan: ExportPlan, temp: str) -> None:
        """Join the side files of the parts into `undecodable.jsonl`, if any exist."""
        sources = self._existing(plan, self.paths.part_undecodable)
        if not sources:
            return
        scratch = self.disk.scratch
        path = os.path.join(temp, "undecodable.jsonl")
        scratch.remove(path)
        with scratch.create(path) as merged:
            for _, source in sources:
                with self.disk.open_read(source) as file:
                    while data := file.read(_COPY_BYTES):
                        write_all(merged, data)
            scratch.sync(merged)
        self.disk.publish(path, self.paths.undecodable(plan.run_id))

    def commit(self, topic: str, record: RunRecord) -> None:
        """Add a run to the manifest, or replace the run there.

        The first run is written to the manifest file, later runs to segments: the
        manifest of a year of hourly runs is too large to rewrite for each run.
        """
        text = manifest_to_json(Manifest(topic, (record,)))
        if not self.disk.exists(self.paths.manifest):
            self._write(self.paths.manifest, text)
            return
        last = max(_segments(self.paths, self.disk), default=0)
        self.disk.make_folders(self.paths.meta, layout.SEGMENTS)
        self._write(self.paths.segment(last + 1), text)

    def begin_replacing(self, journal: Journal, manifest: Manifest) -> None:
        """Write the journal of a compaction, after which it is sure to be completed."""
        self._write(self.paths.merged_manifest, manifest_to_json(manifest))
        self._write(self.paths.journal, json.dumps(asdict(journal)))

    def finish_compaction(self) -> None:
        """Carry out the journal, or undo the compaction if there is no journal.

        A journal may be carried out repeatedly. Raises ConfigError when the journal is
        damaged, and RefusedError when the directory is a copy that was made during a
        compaction.
        """
        paths, disk = self.paths, self.disk.scratch
        if self.disk.is_remote:
            # A remote storage has no renames, so no compaction begins in one.
            if self.disk.exists(paths.journal):
                raise RefusedError(
                    f"{paths.root} was copied while it was being compacted",
                    hint="copy it again after the compaction has finished",
                )
            return
        try:
            journal = _journal(disk.read_text(paths.journal), path=paths.journal)
        except FileNotFoundError:
            if os.path.lexists(paths.compaction):
                check_real_folder(paths.compaction)
                shutil.rmtree(paths.compaction, ignore_errors=True)
            return
        text = disk.read_text(paths.merged_manifest)
        self.clear_success()
        for number, path in enumerate(journal.new):
            merged = paths.merged_file(number)
            if os.path.exists(merged):
                folder = os.path.dirname(path)
                whole = disk.make_folders(paths.root, folder) if folder else paths.root
                disk.replace(merged, os.path.join(paths.root, path))
                disk.sync_folder(whole)
        for path in journal.old:
            disk.remove(os.path.join(paths.root, path))
        self._write(paths.manifest, text)
        for number in _segments(paths, disk):
            disk.remove(paths.segment(number))
        with contextlib.suppress(OSError):
            os.rmdir(paths.segments)
        if journal.success:
            self.set_success()
        self._drop_absorbed(manifest_from_json(text, path=paths.merged_manifest))
        # The journal is removed first: without it the rest of the folder is ignored.
        disk.remove(paths.journal)
        shutil.rmtree(paths.compaction, ignore_errors=True)

    def _drop_absorbed(self, manifest: Manifest) -> None:
        """Remove the plans and logs of runs that have been merged into other runs."""
        for run in manifest.runs:
            for run_id in run.absorbed:
                shutil.rmtree(self.paths.run(run_id), ignore_errors=True)

    def is_success(self) -> bool:
        """Whether the directory is marked as complete."""
        return self.disk.exists(self.paths.success)

    def set_success(self) -> None:
        """Mark the directory as complete."""
        if not self.disk.exists(self.paths.success):
            self._write(self.paths.success, "")

    def clear_success(self) -> None:
        """Remove the mark that the directory is complete, because a run begins."""
        self.disk.remove(self.paths.success)

    def drop_part_records(self, run_id: str) -> None:
        """Remove the part records of a committed run: the manifest contains them."""
        folder = self.paths.run(run_id)
        records = [
            os.path.join(folder, name)
            for name in self.disk.list_names(folder)
            if name.startswith(("part-", "undecodable-"))
        ]
        list(self.disk.map(self.disk.remove, records))

    def _write(self, path: str, text: str) -> None:
        folder = self.disk.make_folders(self.paths.meta, layout.TEMP)
        temp = os.path.join(folder, secrets.token_hex(8))
        self.disk.write_text(path, text, temp=temp)


def read_manifest(paths: layout.ExportLayout, disk: Storage) -> Manifest | None:
    """Return the manifest of the finished runs, None if there is none.

    Raises ConfigError when it is damaged, and OSError or StorageError when one of its
    files cannot be read.
    """

    def read(path: str) -> Manifest:
        return manifest_from_json(disk.read_text(path), path=path)

    try:
        manifest = read(paths.manifest)
    except FileNotFoundError:
        return None
    later: list[RunRecord] = []
    segments = [paths.segment(number) for number in _segments(paths, disk)]
    for path, segment in zip(segments, disk.map(read, segments), strict=True):
        if segment.topic != manifest.topic:
            raise ConfigError(
                f"{path} belongs to topic {segment.topic}, but the export to topic"
                f" {manifest.topic}"
            )
        later += segment.runs
    return manifest.with_runs(later)


def _segments(paths: layout.ExportLayout, disk: Storage) -> list[int]:
    """Return the numbers of the manifest's segments, in order."""
    return sorted(
        number
        for name in disk.list_names(paths.segments)
        if (number := layout.segment_number(name)) is not None
    )


def check_files(root: str, run_id: str, result: PartResult, disk: Storage) -> None:
    """Raise PartialError unless each file of a part of a run exists and matches."""
    for row in result.files:
        path = os.path.join(root, row.path)
        try:
            file_bytes = disk.size(path)
            footer = read_footer(path, disk)
        except OSError as error:
            raise PartialError(f"{path} cannot be read: {error.strerror}") from error
        if (
            footer is None
            or (footer.run_id, footer.part) != (run_id, result.index)
            or (footer.start, footer.end) != (row.start, row.end)
            or (footer.rows, file_bytes) != (row.rows, row.file_bytes)
        ):
            raise PartialError(f"{path} is not the file that the export wrote there")


@contextlib.contextmanager
def open_directory(
    path: str, *, disk: Storage, create: bool = True
) -> Iterator[ExportDirectory]:
    """Open a directory for an export and lock it for the duration of the block.

    When no run begins in the block, the folders that this call created are removed
    again. Raises UsageError when the path is not a folder, RefusedError when another
    process is exporting into it or when its `_rmq` is a symbolic link or not a folder,
    and RmqError when it cannot be written.
    """
    paths = layout.ExportLayout(disk.root_of(path))
    directory = ExportDirectory(paths, disk)
    with disk.locked(
        paths,
        create=create,
        refuse_foreign=lambda: directory.refuse_foreign(None),
    ) as was_ours:
        directory.was_ours = was_ours
        directory.finish_compaction()
        directory.sweep()
        yield directory


def _journal(text: str, *, path: str) -> Journal:
    try:
        return read_as(Journal, parse_document(text))
    except ValueError as error:
        raise ConfigError(
            f"{path} is not the journal of a compaction: {error}"
        ) from error


def _listed(manifest: Manifest | None) -> Iterator[str]:
    if manifest is not None:
        for run in manifest.runs:
            for path, _ in run.files():
                yield path
