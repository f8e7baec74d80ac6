"""Backups of committed offsets: one is saved before every reset, and `--undo` reads it.

Each backup is a separate JSON file, readable by its owner only, in
`$XDG_STATE_HOME/rmqcli/reset-offset` (else `~/.local/state/...`). It appears whole or
not at all, is on the disk before any offset changes, and is never overwritten.

A backup belongs to one cluster, which `cluster_identity` recognises, and to the topics
as they were: it notes where each queue ended and its last message (`witness`).

Backups are ordered as they were saved, even after the machine's clock was set back:
each gets a `sequence` above every other in the folder.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from rmqcli.admin.reset.cluster_identity import (
    ClusterIdentity,
    identity_json,
    is_same_cluster,
    parse_identity,
)
from rmqcli.admin.witness import Noted, Witness
from rmqcli.dataclass import dataclass
from rmqcli.errors import ConfigError, NotFoundError, RefusedError, RmqError
from rmqcli.files import create_file, file_name_fault, read_regular, state_folder
from rmqcli.hint import Hint, LibraryCall, Setting
from rmqcli.log import get_logger
from rmqcli.model import MessageQueue
from rmqcli.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = get_logger(__name__)

_VERSION = 2
#: Larger than any backup; a file of another kind is not read to its end.
_BYTES_MAX = 64 << 20
_SAME_MS_MAX = 1000
#: What `backup_id_of` returns.
_ID = re.compile(r"\d{8}-\d{6}-\d{3}", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_MS_MAX = 253_402_300_799_999  # the end of the year 9999


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """The committed offsets of a group before a reset; None where it had none.

    `targets` are the offsets to set. `noted` has the ends of the queues, and their last
    messages. `undo_of` is the id of the backup that the reset restored, empty for any
    other reset. `sequence` orders backups: the time in ms at which it was saved, or one
    above the highest in the folder when the clock is behind that. `save_backup` sets
    it, and the id.
    """

    backup_id: str = ""
    created_ms: int
    sequence: int = 0
    namesrv: tuple[str, ...]
    cluster: ClusterIdentity
    group: str
    topic: str
    committed: dict[MessageQueue, int | None]
    targets: dict[MessageQueue, int]
    noted: dict[MessageQueue, Noted]
    undo_of: str = ""


def backup_directory(environ: Mapping[str, str]) -> Path:
    """Return the folder that holds the backups.

    Raises ConfigError when there is no home directory.
    """
    folder = state_folder(environ, "reset-offset")
    if folder is None:
        raise ConfigError(
            "there is no folder for backups: this user has no home directory",
            hint="set XDG_STATE_HOME to a folder you can write to",
        )
    return Path(folder)


def backup_id_of(created_ms: int) -> str:
    """Return the id of a backup of that time, such as `20260102-030405-678` (UTC)."""
    moment = _EPOCH + timedelta(milliseconds=created_ms)
    return f"{moment:%Y%m%d-%H%M%S}-{created_ms % 1000:03}"


def save_backup(directory: Path, backup: Backup) -> str:
    """Write a backup to the disk with the next sequence and a free id; return the id.

    Raises RmqError when that fails; the caller must then not change any offset.
    """
    created_ms = backup.created_ms
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        newest = max((each.sequence for each in list_backups(directory)), default=0)
        for at_ms in range(created_ms, created_ms + _SAME_MS_MAX):
            backup = replace(
                backup,
                backup_id=backup_id_of(at_ms),
                created_ms=at_ms,
                sequence=max(at_ms, newest + 1),
            )
            if _write_new(directory, backup):
                return backup.backup_id
    except OSError as error:
        raise RmqError(
            f"no backup could be saved in {directory}: {error.strerror or error}",
            hint="nothing was changed; set XDG_STATE_HOME to a folder you can write to",
        ) from error
    first, last = backup_id_of(created_ms), backup_id_of(created_ms + _SAME_MS_MAX - 1)
    raise RmqError(
        f"no backup could be saved: {directory} already has backups for all ids from"
        f" {first} to {last}"
    )


def load_backup(directory: Path, backup_id: str) -> Backup:
    """Read one backup.

    Raises NotFoundError without one, ConfigError for a damaged or unreadable file, and
    UsageError for an invalid id.
    """
    name = f"{backup_id}.json"
    if not backup_id or backup_id.startswith(".") or file_name_fault(name) is not None:
        raise ConfigError(f"{backup_id!r} is not the id of a backup")
    path = directory / name
    try:
        data = read_regular(path, _BYTES_MAX)
    except FileNotFoundError:
        raise _no_backup(f"there is no backup {backup_id} in {directory}") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    try:
        return _from_json(backup_id, json.loads(data))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ConfigError(f"{path} is not a backup: {error!r}") from error


def list_backups(
    directory: Path, *, group: str | None = None, topic: str | None = None
) -> list[Backup]:
    """Return the backups of a group and topic, or of all, in the order of their saving.

    Damaged and unreadable files are left out, with a warning, and so are those that are
    not named as a backup (of an editor or a file manager).
    """
    found, damaged = _read_all(directory)
    for error in damaged.values():
        logger.warning("left out: %s", error.message)
    return [
        each
        for each in found
        if group in (None, each.group) and topic in (None, each.topic)
    ]


def _read_all(directory: Path) -> tuple[list[Backup], dict[str, ConfigError]]:
    """Return the backups in the order of their saving, and the errors of others by id.

    What has another name than a backup that was saved here may be anything.
    """
    found: list[Backup] = []
    damaged: dict[str, ConfigError] = {}
    for path in sorted(directory.glob("*.json")) if directory.is_dir() else ():
        try:
            found.append(load_backup(directory, path.stem))
        except NotFoundError:
            continue
        except ConfigError as error:
            if _ID.fullmatch(path.stem):
                damaged[path.stem] = error
    return sorted(found, key=lambda each: (each.sequence, each.backup_id)), damaged


def latest_backup(
    directory: Path,
    *,
    group: str,
    topic: str,
    cluster: ClusterIdentity,
) -> Backup:
    """Return the newest backup of this cluster that was not saved by an undo.

    `--undo` without an id restores it, so that a second `--undo` changes nothing.
    Raises NotFoundError without a backup of the group and topic, RefusedError when all
    of them are of other clusters, and ConfigError for a damaged file that may be newer.
    """
    backups, damaged = _read_all(directory)
    found = [
        each
        for each in backups
        if (each.group, each.topic) == (group, topic) and not each.undo_of
    ]
    newest = max(damaged, default="")
    if newest > max((each.backup_id for each in found), default=""):
        raise ConfigError(
            f"the newest backup may be one that is damaged: {damaged[newest].message}",
            hint="choose one that is not by its id, or move that file away",
        )
    for backup in reversed(found):
        if is_same_cluster(backup.cluster, cluster):
            return backup
    if found:
        raise RefusedError(
            f"there is no backup of group {group} and topic {topic} of this cluster,"
            f" {cluster}; the latest, {found[-1].backup_id}, is of {found[-1].cluster}",
            hint=Hint(
                "plan the undo with a client of that cluster, or pass backup_id and ",
                Setting("other_cluster", True),
            ),
        )
    raise _no_backup(f"there is no backup of group {group} and topic {topic}")


def begun_by(directory: Path, backup_id: str) -> Backup | None:
    """Return the backup of the reset that a later one has completed; None without.

    `backup_id` is that of the later reset, or of its undo. The reset before it had the
    same offsets to move in all of its queues, and moved only others.
    """
    later = load_backup(directory, backup_id)
    if later.undo_of:
        later = load_backup(directory, later.undo_of)
    before = [
        each
        for each in list_backups(directory, group=later.group, topic=later.topic)
        if each.sequence < later.sequence and not each.undo_of
    ]
    if not before or not is_same_cluster(before[-1].cluster, later.cluster):
        return None
    is_rest = later.committed.items() <= before[-1].committed.items()
    return before[-1] if is_rest and later.committed != before[-1].committed else None


def _write_new(directory: Path, backup: Backup) -> bool:
    """Write the file; return False if another process took the same millisecond."""
    path = directory / f"{backup.backup_id}.json"
    data = json.dumps(_to_json(backup), indent=1) + "\n"
    try:
        create_file(path, data.encode(), mode=0o600)
    except FileExistsError:
        return False
    return True


def _to_json(backup: Backup) -> dict[str, object]:
    return {
        "version": _VERSION,
        "created_ms": backup.created_ms,
        "sequence": backup.sequence,
        "namesrv": list(backup.namesrv),
        "cluster": identity_json(backup.cluster),
        "group": backup.group,
        "topic": backup.topic,
        "undo_of": backup.undo_of or None,
        "queues": [
            {
                "topic": queue.topic,
                "broker_name": queue.broker_name,
                "queue_id": queue.queue_id,
                "committed": committed,
                "target": backup.targets.get(queue),
                "max_offset": backup.noted[queue].until,
                "last_message": backup.noted[queue].witness,
            }
            for queue, committed in backup.committed.items()
        ],
    }


def _from_json(backup_id: str, data: dict[str, object]) -> Backup:
    if data["version"] != _VERSION:
        raise ValueError(f"version {data['version']!r} is not {_VERSION}")
    committed: dict[MessageQueue, int | None] = {}
    targets: dict[MessageQueue, int] = {}
    noted: dict[MessageQueue, Noted] = {}
    rows, namesrv, created_ms = data["queues"], data["namesrv"], data["created_ms"]
    if not (isinstance(rows, list) and isinstance(namesrv, list)):
        raise TypeError("queues and namesrv are lists")
    for row in rows:
        queue = MessageQueue(
            str(row["topic"]), str(row["broker_name"]), _number(row["queue_id"])
        )
        at, target = row["committed"], row["target"]
        committed[queue] = None if at is None else _number(at)
        if target is not None:
            targets[queue] = _number(target)
        noted[queue] = Noted(
            _number(row["max_offset"]), parse_witness(row["last_message"])
        )
    return Backup(
        backup_id=backup_id,
        created_ms=_number(created_ms, _EPOCH_MS_MAX),
        sequence=_number(data["sequence"]),
        namesrv=tuple(map(str, namesrv)),
        cluster=parse_identity(data["cluster"]),
        group=str(data["group"]),
        topic=str(data["topic"]),
        committed=committed,
        targets=targets,
        noted=noted,
        undo_of=str(data["undo_of"] or ""),
    )


def parse_witness(value: object) -> Witness | None:
    """Read the JSON of a Witness. Raises TypeError or ValueError for anything else."""
    if value is None:
        return None
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not a message")
    queue_offset, msg_id, stored_ms = value
    return Witness(
        _number(queue_offset),
        None if msg_id is None else str(msg_id),
        None if stored_ms is None else _number(stored_ms),
    )


def _number(value: object, max_: int = 2**63 - 1) -> int:
    """Check a number of a file. JSON also has 1e999, 0.5 and numbers of any length."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not a whole number")
    if not 0 <= value <= max_:
        raise ValueError(f"{value} is not in 0..{max_}")
    return value


def _no_backup(message: str) -> NotFoundError:
    return NotFoundError(
        message,
        code=ResponseCode.QUERY_NOT_FOUND,
        hint=Hint("see: ", LibraryCall("Admin.backups")),
    )
