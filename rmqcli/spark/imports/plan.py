"""Plan an import: the files of each exported queue, and the queue that receives them.

Everything is checked before anything is sent: that the export is finished, that each
file in its manifest exists unchanged, and that a queue of the topic receives each
exported queue.
"""

from __future__ import annotations

import os
from dataclasses import field
from typing import TYPE_CHECKING

from rmqcli.dataclass import dataclass
from rmqcli.errors import ConfigError, RefusedError, RmqError, UsageError
from rmqcli.hint import Hint, Setting
from rmqcli.spark.export.directory import check_files, read_manifest
from rmqcli.spark.export.disk import Disk
from rmqcli.spark.export.layout import SUCCESS, ExportLayout, is_run_id
from rmqcli.spark.export.manifest import length_of
from rmqcli.spark.extent import OfQueue
from rmqcli.units import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqcli.model import MessageQueue
    from rmqcli.spark.export.manifest import FileRow, Manifest, RunRecord
    from rmqcli.spark.export.storage import Storage
    from rmqcli.spark.extent import QueueKey


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFiles(OfQueue):
    """The messages of one exported queue. `files` are in the order of their offsets."""

    broker_name: str
    queue_id: int
    files: tuple[FileRow, ...]

    @property
    def rows(self) -> int:
        """How many messages the files hold."""
        return sum(file.rows for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportContent:
    """The contents of the finished runs in an export's folder. `queues` is sorted.

    `missing` counts the offsets that the export requested and did not get; it is None
    when the end of a gap is unknown. `undecodable` counts the messages that the export
    could not decode. Neither can be sent.
    """

    root: str
    topic: str
    first_run_id: str
    queues: tuple[QueueFiles, ...]
    missing: int | None
    undecodable: int
    storage: Storage = field(default_factory=Disk)

    @property
    def rows(self) -> int:
        """How many messages the export holds."""
        return sum(queue.rows for queue in self.queues)


def read_export(
    path: str, *, storage: Storage | None = None, allow_incomplete: bool = False
) -> ExportContent:
    """Read the manifest of a folder and check its files.

    `storage` is where the folder is; None means this machine. With `allow_incomplete`,
    the finished runs of an unfinished export are read. Raises UsageError for a folder
    without an export, RefusedError for an unfinished export or an unfinished
    compaction, ConfigError for a damaged manifest, and PartialError for a file that is
    missing or has changed since it was written.
    """
    storage = storage or Disk()
    paths = ExportLayout(storage.root_of(path))
    if storage.exists(paths.journal):
        raise RefusedError(
            f"a compaction of {paths.root} has not finished",
            hint="compact that export again",
        )
    try:
        manifest = read_manifest(paths, storage)
    except OSError as error:
        where = error.filename or paths.manifest
        raise RmqError(f"cannot read {where}: {error.strerror}") from error
    is_export = manifest is not None or storage.exists(paths.runs)
    is_unfinished = is_export and not storage.exists(paths.success)
    if is_unfinished and (manifest is None or not allow_incomplete):
        raise RefusedError(
            f"the export in {paths.root} is not complete: there is no {SUCCESS}",
            hint=Hint(
                "finish that export with ",
                Setting("resume", True),
                *(
                    ()
                    if manifest is None
                    else (", or add ", Setting("allow_incomplete", True))
                ),
            ),
        )
    if manifest is None or not manifest.runs:
        raise UsageError(
            f"{paths.root} does not contain an export",
            hint="give the folder to which an export was written",
        )
    for run_id in manifest.run_ids():
        # It becomes a part of the name of the state's file.
        if not is_run_id(run_id):
            raise ConfigError(f"{paths.manifest} lists {run_id!r}, which is not a run")
    list(storage.map(lambda run: _check_files(paths, run, storage), manifest.runs))
    return _content(paths.root, manifest, storage)


def _check_files(paths: ExportLayout, run: RunRecord, storage: Storage) -> None:
    for part in run.parts:
        for row in part.files:
            _check_path(paths, row)
        check_files(paths.root, run.run_id, part, storage)


def _check_path(paths: ExportLayout, row: FileRow) -> None:
    """Raise ConfigError for a path outside the folder: the manifest is not trusted."""
    if os.path.isabs(row.path) or ".." in row.path.split("/"):
        raise ConfigError(
            f"{paths.manifest} lists {row.path!r}, which is outside the export's folder"
        )


def _content(root: str, manifest: Manifest, storage: Storage) -> ExportContent:
    files: dict[QueueKey, list[FileRow]] = {}
    for run in manifest.runs:
        for queue in run.queues:
            files.setdefault(queue.key, [])
        for part in run.parts:
            files.setdefault(part.key, []).extend(part.files)
    return ExportContent(
        root=root,
        storage=storage,
        topic=manifest.topic,
        # Not simply the first run in the list, because a compaction may have merged
        # that run into another one.
        first_run_id=min(manifest.run_ids()),
        queues=tuple(
            QueueFiles(
                broker_name=broker_name,
                queue_id=queue_id,
                files=tuple(
                    sorted(found, key=lambda row: (row.first_offset, row.path))
                ),
            )
            for (broker_name, queue_id), found in sorted(files.items())
        ),
        missing=length_of(gap for run in manifest.runs for gap in run.gaps()),
        undecodable=sum(p.undecodable for run in manifest.runs for p in run.parts),
    )


def map_queues(
    content: ExportContent, queues: Sequence[MessageQueue], *, remap_queues: bool
) -> dict[QueueKey, MessageQueue]:
    """Return the queue of the topic that receives the messages of each exported queue.

    This is the queue with the same broker name and queue id. When broker names differ
    but the number of brokers is equal, both lists of names are sorted and paired, and
    it is the queue with the same queue id on the paired broker. If an exported queue
    then still has no counterpart, `remap_queues` assigns the n-th exported queue to
    the n-th queue of the topic, starting over at the first queue when there are fewer:
    messages keep their order, also when several exported queues share a queue. Without
    `remap_queues`, this case raises RefusedError.
    """
    found = counterparts(content, queues)
    if found is not None:
        return found
    keys = [queue.key for queue in content.queues]
    if not remap_queues:
        raise RefusedError(
            f"not every exported queue has a counterpart in topic {queues[0].topic}:"
            f" the export has {counted(len(keys), 'queue')} on"
            f" {counted(len({name for name, _ in keys}), 'broker')}, the topic has"
            f" {counted(len(queues), 'queue')} on"
            f" {counted(len({each.broker_name for each in queues}), 'broker')}",
            hint=Hint(
                "create the topic with as many queues, or add ",
                Setting("remap_queues", True),
            ),
        )
    ordered = sorted(queues)
    return {key: ordered[n % len(ordered)] for n, key in enumerate(keys)}


def counterparts(
    content: ExportContent, queues: Sequence[MessageQueue]
) -> dict[QueueKey, MessageQueue] | None:
    """Return the counterpart of each exported queue; None if one of them has none."""
    keys = [queue.key for queue in content.queues]
    there = {(queue.broker_name, queue.queue_id): queue for queue in queues}
    old_names = sorted({name for name, _ in keys})
    new_names = sorted({queue.broker_name for queue in queues})
    names = dict(zip(old_names, old_names, strict=True))
    if not set(old_names) <= set(new_names) and len(old_names) == len(new_names):
        names = dict(zip(old_names, new_names, strict=True))
    found = {key: there.get((names[key[0]], key[1])) for key in keys}
    placed = {key: queue for key, queue in found.items() if queue is not None}
    return placed if len(placed) == len(keys) else None
