"""The state of an export directory: its finished and unfinished runs, and its lock.

One process at a time may export into a directory; its lock ends with the process. A
Parquet file is ours if the manifest lists it, or if its footer names an unfinished run;
all other files are foreign and never touched.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rmqcli.errors import (
    ConfigError,
    PartialError,
    RefusedError,
    RmqError,
    UsageError,
)
from rmqcli.spark.export import layout
from rmqcli.spark.export.disk import check_real_folder, read_text, walk_files, write_all
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
    from collections.abc import Iterator

    from rmqcli.spark.export.disk import Disk
    from rmqcli.spark.export.plan import ExportPlan, PartSpec


@dataclass(frozen=True, slots=True)
class Journal:
    """What a compaction replaces: paths of new files, of old ones, and `_SUCCESS`.

    The new file number n lies at `Layout.merged_file(n)` until it has its path.
    """

    new: tuple[str, ...]
    old: tuple[str, ...]
    success: bool


class ExportDirectory:
    """One directory, opened by `open_directory` and locked. Not safe for threads."""

    def __init__(
        self, paths: layout.Layout, disk: Disk, *, was_ours: bool = False
    ) -> None:
        self.paths = paths
        self.disk = disk
        #: whether an export had begun here before this one opened it
        self.was_ours = was_ours

    def manifest(self) -> Manifest | None:
        """Return the finished runs, if any. Raises ConfigError when it is damaged."""
        return read_manifest(self.paths)

    def unfinished(self, manifest: Manifest | None) -> ExportPlan | None:
        """Return the plan of a run that is not in the manifest, or None."""
        try:
            names = sorted(filter(layout.is_run_id, os.listdir(self.paths.runs)))
        except FileNotFoundError:
            return None
        finished = manifest.run_ids() if manifest is not None else set()
        for name in reversed(names):
            if name in finished:
                continue
            path = self.paths.plan(name)
            # A run without a plan was killed before it had written one.
            with contextlib.suppress(FileNotFoundError):
                return plan_from_json(read_text(path), path=path)
        return None

    def refuse_foreign(self, manifest: Manifest | None) -> None:
        """Raise RefusedError for Parquet files that no finished run lists."""
        ours = set(_listed(manifest))
        for path in walk_files(self.paths.root):
            if path.endswith(layout.SUFFIX) and path not in ours:
                raise RefusedError(
                    f"{self.paths.root} holds {path}, which rmq did not write",
                    hint="choose an empty folder; nothing was changed",
                )
        if manifest is None and os.path.lexists(self.paths.success):
            raise RefusedError(
                f"{self.paths.root} holds a {layout.SUCCESS} that rmq did not write",
                hint="choose an empty folder; nothing was changed",
            )

    def write_plan(self, plan: ExportPlan) -> None:
        """Write the plan of a run, which from now on exists and can be resumed."""
        self.disk.make_folders(self.paths.meta, f"runs/{plan.run_id}")
        self._write(self.paths.plan(plan.run_id), plan_to_json(plan))

    def new_attempt(self, run_id: str) -> str:
        """Make a new temp folder for workers, which never make it themselves."""
        return self.disk.make_folders(
            self.paths.meta, f"{layout.TEMP}/{run_id}.{secrets.token_hex(8)}"
        )

    def log_path(self, run_id: str, temp: str) -> str:
        """Return where Spark logs: with a run that exists, else in its temp folder."""
        path = self.paths.log(run_id)
        return path if os.path.exists(os.path.dirname(path)) else _temp_log(temp)

    def keep_log(self, run_id: str, temp: str) -> None:
        """Move Spark's log to its run, which exists now. Spark still writes to it."""
        with contextlib.suppress(FileNotFoundError):
            os.rename(_temp_log(temp), self.paths.log(run_id))

    def sweep(self) -> None:
        """Remove all temporary files, of this run and of earlier ones.

        This also fences off workers that outlived a killed driver: the folder that they
        write to is gone, so they can neither create nor rename files. The folder is
        renamed first, because while a worker creates files in it, it may never become
        empty, but it cannot keep its name.
        """
        meta = self.paths.meta
        with contextlib.suppress(FileNotFoundError):
            check_real_folder(self.paths.temp)
            os.rename(self.paths.temp, f"{self.paths.temp}.{secrets.token_hex(4)}")
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(meta):
                if name.startswith(f"{layout.TEMP}."):
                    shutil.rmtree(os.path.join(meta, name), ignore_errors=True)

    def finished_parts(self, plan: ExportPlan) -> dict[int, PartResult]:
        """Return the parts whose record adds up and whose files match it."""
        found = {
            part.index: self.finished_part(plan.run_id, part) for part in plan.parts()
        }
        return {index: result for index, result in found.items() if result is not None}

    def finished_part(self, run_id: str, part: PartSpec) -> PartResult | None:
        """Return the result of a part that is complete; None if it has to be written.

        One whose files do not match is written again, to the same names.
        """
        try:
            text = read_text(self.paths.part_record(run_id, part.index))
            result = part_from_json(text)
            result.check(part)
            self.check_files(run_id, result)
        except (OSError, ValueError, PartialError):
            return None
        return result

    def check_files(self, run_id: str, result: PartResult) -> None:
        """Raise PartialError unless each file of a part exists and matches."""
        check_files(self.paths.root, run_id, result)

    def remove_strays(self, plan: ExportPlan, results: list[PartResult]) -> None:
        """Remove the files of this run that no part lists.

        An attempt that was killed between two files of a part may leave a file under a
        name that the next attempt does not use.
        """
        listed = {row.path for result in results for row in result.files}
        for path in list(walk_files(self.paths.root)):
            if path in listed or not path.endswith(layout.SUFFIX):
                continue
            whole = os.path.join(self.paths.root, path)
            footer = read_footer(whole)
            if footer is not None and footer.run_id == plan.run_id:
                self.disk.remove(whole)

    def merge_undecodable(self, plan: ExportPlan, temp: str) -> None:
        """Join the side files of the parts to `undecodable.jsonl`, if there are any."""
        sources = [
            path
            for part in plan.parts()
            if os.path.exists(
                path := self.paths.part_undecodable(plan.run_id, part.index)
            )
        ]
        if not sources:
            return
        path = os.path.join(temp, "undecodable.jsonl")
        self.disk.remove(path)
        with self.disk.create(path) as merged:
            for source in sources:
                with open(source, "rb") as file:
                    for line in file:
                        write_all(merged, line)
            self.disk.sync(merged)
        self.disk.replace(path, self.paths.undecodable(plan.run_id))

    def commit(self, topic: str, record: RunRecord) -> None:
        """Add a run to the manifest, or replace it there.

        The first one is the manifest; later ones go to segments, because a manifest of
        a year of hourly runs is large.
        """
        text = manifest_to_json(Manifest(topic, (record,)))
        if not os.path.exists(self.paths.manifest):
            self._write(self.paths.manifest, text)
            return
        last = max(_segments(self.paths), default=0)
        self.disk.make_folders(self.paths.meta, layout.SEGMENTS)
        self._write(self.paths.segment(last + 1), text)

    def new_compaction(self) -> str:
        """Make the folder of a compaction, in which nothing lies yet."""
        return self.disk.make_folders(self.paths.meta, layout.COMPACTION)

    def begin_replacing(self, journal: Journal, manifest: Manifest) -> None:
        """Write what a compaction is to replace; from now on it will be done."""
        self._write(self.paths.merged_manifest, manifest_to_json(manifest))
        self._write(self.paths.journal, json.dumps(asdict(journal)))

    def finish_compaction(self) -> None:
        """Do what the journal says, also again; without a journal undo the compaction.

        Raises ConfigError when the journal is damaged.
        """
        paths, disk = self.paths, self.disk
        try:
            journal = _journal(read_text(paths.journal), path=paths.journal)
        except FileNotFoundError:
            if os.path.lexists(paths.compaction):
                check_real_folder(paths.compaction)
                shutil.rmtree(paths.compaction, ignore_errors=True)
            return
        text = read_text(paths.merged_manifest)
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
        for number in _segments(paths):
            disk.remove(paths.segment(number))
        with contextlib.suppress(OSError):
            os.rmdir(paths.segments)
        if journal.success:
            self.set_success()
        self._drop_absorbed(manifest_from_json(text, path=paths.merged_manifest))
        # The journal goes first: without it the rest of the folder means nothing.
        disk.remove(paths.journal)
        shutil.rmtree(paths.compaction, ignore_errors=True)

    def _drop_absorbed(self, manifest: Manifest) -> None:
        """Remove the plans and logs of runs that are part of others now."""
        for run in manifest.runs:
            for run_id in run.absorbed:
                shutil.rmtree(self.paths.run(run_id), ignore_errors=True)

    def is_success(self) -> bool:
        """Whether the directory is marked as complete."""
        return os.path.exists(self.paths.success)

    def set_success(self) -> None:
        """Mark the directory as complete."""
        if not os.path.exists(self.paths.success):
            self._write(self.paths.success, "")

    def clear_success(self) -> None:
        """Remove that mark, because a run begins."""
        self.disk.remove(self.paths.success)

    def drop_part_records(self, run_id: str) -> None:
        """Remove the part records of a committed run, which the manifest holds too."""
        folder = self.paths.run(run_id)
        for name in sorted(os.listdir(folder)):
            if name.startswith(("part-", "undecodable-")):
                self.disk.remove(os.path.join(folder, name))

    def _write(self, path: str, text: str) -> None:
        folder = self.disk.make_folders(self.paths.meta, layout.TEMP)
        temp = os.path.join(folder, secrets.token_hex(8))
        self.disk.write_text(path, text, temp=temp)


def read_manifest(paths: layout.Layout) -> Manifest | None:
    """Return the finished runs, if any. Raises ConfigError when it is damaged.

    Raises OSError when a file of it cannot be read.
    """
    path = paths.manifest
    try:
        manifest = manifest_from_json(read_text(path), path=path)
    except FileNotFoundError:
        return None
    later: list[RunRecord] = []
    for number in _segments(paths):
        path = paths.segment(number)
        segment = manifest_from_json(read_text(path), path=path)
        if segment.topic != manifest.topic:
            raise ConfigError(f"{path} is of topic {segment.topic}, not this export's")
        later += segment.runs
    return manifest.with_runs(later)


def _segments(paths: layout.Layout) -> list[int]:
    """Return the numbers of the manifest's segments, in order."""
    try:
        names = os.listdir(paths.segments)
    except FileNotFoundError:
        return []
    return sorted(
        number for name in names if (number := layout.segment_number(name)) is not None
    )


def check_files(root: str, run_id: str, result: PartResult) -> None:
    """Raise PartialError unless each file of a part of a run exists and matches."""
    for row in result.files:
        path = os.path.join(root, row.path)
        try:
            file_bytes = os.lstat(path).st_size
            footer = read_footer(path)
        except OSError as error:
            raise PartialError(f"{path} cannot be read: {error.strerror}") from error
        if (
            footer is None
            or (footer.run_id, footer.part) != (run_id, result.index)
            or (footer.start, footer.end) != (row.start, row.end)
            or (footer.rows, file_bytes) != (row.rows, row.file_bytes)
        ):
            raise PartialError(f"{path} is not the file that was written there")


@contextlib.contextmanager
def open_directory(
    path: str, *, disk: Disk, create: bool = True
) -> Iterator[ExportDirectory]:
    """Open a directory for an export and lock it for the time of the block.

    When no run begins in the block, the folders that this made are removed again.
    Raises UsageError when the path is not a folder, RefusedError when another process
    exports into it or its `_rmq` is not a folder of its own, RmqError when it cannot be
    written.
    """
    root = os.path.realpath(path)
    paths = layout.Layout(root)
    was_there, was_ours = os.path.lexists(root), os.path.lexists(paths.meta)
    try:
        handle = _open_lock(paths, disk, create=create)
    except FileExistsError as error:
        raise UsageError(f"{root} is not a folder") from error
    except OSError as error:
        raise RmqError(f"cannot write to {root}: {error.strerror}") from error
    try:
        _lock(handle, root)
        directory = ExportDirectory(paths, disk, was_ours=was_ours)
        directory.finish_compaction()
        directory.sweep()
        yield directory
        was_ours = True
    finally:
        if not was_ours and not os.path.exists(paths.runs):
            with contextlib.suppress(OSError):
                os.unlink(paths.lock)
                os.rmdir(paths.meta)
                if not was_there:
                    os.rmdir(root)
        os.close(handle)


def _open_lock(paths: layout.Layout, disk: Disk, *, create: bool) -> int:
    """Make `_rmq` in the directory, if it is not there, and open the lock file."""
    if create:
        os.makedirs(paths.root, exist_ok=True)
    if not os.path.isdir(paths.root):
        raise UsageError(f"{paths.root} is not a folder")
    if not os.path.lexists(paths.meta):
        ExportDirectory(paths, disk).refuse_foreign(None)
    with contextlib.suppress(FileExistsError):
        os.mkdir(paths.meta)
    check_real_folder(paths.meta)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(paths.lock, flags, 0o644)


def _lock(handle: int, root: str) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = os.pread(handle, 20, 0).decode("ascii", "replace").strip()
        raise RefusedError(
            f"another export (process {owner or 'unknown'}) is running in {root}"
        ) from error
    os.ftruncate(handle, 0)
    os.pwrite(handle, b"%d\n" % os.getpid(), 0)


def _journal(text: str, *, path: str) -> Journal:
    try:
        value = json.loads(text)
        return Journal(
            new=tuple(value["new"]), old=tuple(value["old"]), success=value["success"]
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is not a compaction's journal: {error!r}") from error


def _temp_log(temp: str) -> str:
    return os.path.join(temp, "spark.log")


def _listed(manifest: Manifest | None) -> Iterator[str]:
    if manifest is not None:
        for run in manifest.runs:
            for path, _ in run.files():
                yield path
