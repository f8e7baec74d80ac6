"""What an import has sent: a small file, on the disk after each batch.

    DIR/<topic>.<first run of the export>.json  and  .lock beside it

The file says up to which offset each exported queue is stored in its new queue. It is
replaced as a whole, so a kill leaves the old or the new one. One process at a time
imports with it; its lock ends with the process.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from rmqcli.errors import ConfigError, RefusedError, RmqError, UsageError
from rmqcli.spark.export.disk import read_text
from rmqcli.spark.export.layout import encode_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rmqcli.model import MessageQueue
    from rmqcli.spark.export.disk import Disk
    from rmqcli.spark.export.manifest import QueueKey
    from rmqcli.spark.imports.plan import ExportContent

STATE_VERSION: Final = 1
#: Where it is kept unless the user names a folder: below the export's `_rmq`.
FOLDER: Final = "imports"


@dataclass(slots=True)
class QueueState:
    """How far one queue is. `next_offset` is the exported offset after the last sent.

    `sent` of its messages are stored.
    """

    to_broker_name: str
    to_queue_id: int
    next_offset: int = 0
    sent: int = 0


class ImportState:
    """The state of one import, opened by `open_state`. Not safe for threads."""

    def __init__(
        self,
        path: str,
        disk: Disk,
        *,
        topic: str,
        namesrv: tuple[str, ...],
        queues: dict[QueueKey, QueueState],
    ) -> None:
        self.path = path
        self._disk = disk
        self._topic = topic
        self._namesrv = namesrv
        self.queues = queues

    @property
    def sent(self) -> int:
        """How many messages are stored, of all queues."""
        return sum(queue.sent for queue in self.queues.values())

    def note(self, key: QueueKey, *, next_offset: int, sent: int) -> None:
        """Note that a batch is stored; on the disk when this returns.

        Raises RmqError when the disk does not take it.
        """
        queue = self.queues[key]
        queue.next_offset = next_offset
        queue.sent += sent
        temp = f"{self.path}.{secrets.token_hex(8)}.part"
        try:
            self._disk.write_text(self.path, self._text(), temp=temp)
        except OSError as error:
            raise RmqError(
                f"cannot write {self.path}: {error.strerror}; {sent} messages were sent"
                " that it does not list",
                hint="going on sends them again",
            ) from error

    def _text(self) -> str:
        queues = [
            {"broker_name": name, "queue_id": queue_id, **asdict(queue)}
            for (name, queue_id), queue in sorted(self.queues.items())
        ]
        value = {
            "version": STATE_VERSION,
            "topic": self._topic,
            "namesrv": sorted(self._namesrv),
            "queues": queues,
        }
        return json.dumps(value, indent=1) + "\n"


def state_path(content: ExportContent, topic: str, folder: str | None) -> str:
    """The path of the state of an export's import into a topic.

    Raises UsageError without a folder for an export in a remote storage: the state is
    written after each batch, to a disk of this machine.
    """
    if folder is None and content.storage.is_remote:
        raise UsageError(
            f"the export is in {content.root}, and what was sent is noted on this"
            " machine",
            hint="name a folder for that: state=DIR",
        )
    place = folder or os.path.join(content.root, "_rmq", FOLDER)
    return os.path.join(
        os.path.realpath(place), f"{encode_name(topic)}.{content.first_run_id}.json"
    )


@contextlib.contextmanager
def open_state(
    path: str,
    *,
    topic: str,
    namesrv: tuple[str, ...],
    places: Mapping[QueueKey, MessageQueue],
    disk: Disk,
) -> Iterator[ImportState]:
    """Read a state, or begin one, and lock it for the time of the block.

    Raises RefusedError when another process imports with it, or when it is of an import
    into another cluster or other queues; ConfigError when it is damaged; RmqError when
    its folder cannot be written.
    """
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(f"{path}.lock", flags, 0o644)
    except OSError as error:
        raise RmqError(
            f"cannot write to {os.path.dirname(path)}: {error.strerror}",
            hint="name a folder for the state: state=DIR",
        ) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RefusedError(
                f"another import into topic {topic} is running with {path}"
            ) from error
        queues = {
            key: QueueState(queue.broker_name, queue.queue_id)
            for key, queue in places.items()
        }
        for key, before in read_state(path, namesrv=namesrv).items():
            now = queues.get(key)
            if now is None or (now.to_broker_name, now.to_queue_id) != (
                before.to_broker_name,
                before.to_queue_id,
            ):
                goes = (
                    f"to {now.to_broker_name}:{now.to_queue_id}" if now else "nowhere"
                )
                raise RefusedError(
                    f"{key[0]}:{key[1]} was being sent to {before.to_broker_name}:"
                    f"{before.to_queue_id}, and now it would go {goes}",
                    hint=f"restore the topic's queues; to send everything again,"
                    f" remove {path}",
                )
            queues[key] = before
        yield ImportState(path, disk, topic=topic, namesrv=namesrv, queues=queues)
    finally:
        os.close(handle)


def read_state(path: str, *, namesrv: tuple[str, ...]) -> dict[QueueKey, QueueState]:
    """The queues of a state, none where there is no file.

    Raises RefusedError for the state of another cluster, ConfigError for a damaged one.
    """
    try:
        value = json.loads(read_text(path))
        if value["version"] != STATE_VERSION:
            raise ConfigError(f"{path} has version {value['version']!r}, not 1")
        known = tuple(map(str, value["namesrv"]))
        queues = dict(map(_queue, value["queues"]))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise RmqError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is not the state of an import: {error!r}") from error
    if sorted(known) != sorted(namesrv):
        raise RefusedError(
            f"{path} is of an import by way of {';'.join(known)}",
            hint="use these name servers, or keep another state: state=DIR",
        )
    return queues


def _queue(value: dict[str, Any]) -> tuple[QueueKey, QueueState]:
    key = str(value.pop("broker_name")), int(value.pop("queue_id"))
    state = QueueState(**value)
    if min(int(state.next_offset), int(state.sent)) < 0:
        raise ValueError(f"a number of {key} is below 0")
    return key, state
