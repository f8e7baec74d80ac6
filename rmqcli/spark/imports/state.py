"""The record of what an import has sent: a small file, written after each batch.

    DIR/<topic>.<first run of the export>.json  and  .lock beside it

The file records up to which offset each exported queue has been sent. It is replaced
atomically, so that a kill leaves either the old or the new file. A lock, which ends
with its process, prevents two processes from importing with the same file.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from rmqcli.dataclass import dataclass
from rmqcli.errors import ConfigError, RefusedError, RmqError, UsageError
from rmqcli.files import open_locked
from rmqcli.hint import Blank, Hint, Setting
from rmqcli.spark.export.disk import read_text
from rmqcli.spark.export.document import parse_versioned, read_as
from rmqcli.spark.export.layout import encode_name
from rmqcli.spark.extent import NotedMessage  # noqa: TC001  # for `read_as`
from rmqcli.units import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rmqcli.model import MessageQueue
    from rmqcli.spark.export.cluster import BrokerCluster
    from rmqcli.spark.export.disk import Disk
    from rmqcli.spark.extent import QueueKey
    from rmqcli.spark.imports.plan import ExportContent

STATE_VERSION: Final = 1
#: The folder of the state below the export's `_rmq`, unless the user names another one.
FOLDER: Final = "imports"

#: What the import has done with queues of its topic, in errors.
_DONE: Final = "the import has written"


class _Sent:
    """What was sent to one queue of the topic."""

    __slots__ = ()

    to_broker_name: str
    to_queue_id: int

    @property
    def target(self) -> QueueKey:
        """The queue to which it was sent."""
        return self.to_broker_name, self.to_queue_id


@dataclass(slots=True)
class SentApart(_Sent):
    """How many messages went to the queue of their message group or priority."""

    to_broker_name: str
    to_queue_id: int
    sent: int = 0
    last: NotedMessage | None = None


@dataclass(slots=True)
class ImportedQueue(_Sent):
    """How much of one exported queue has been sent, and to which queue.

    `next_offset` is the exported offset after the last message that was sent. `sent`
    counts the messages that are stored, those of `apart` too, which are in other queues
    of the topic. `last` is the last of the others; None when none was sent.
    """

    to_broker_name: str
    to_queue_id: int
    next_offset: int = 0
    sent: int = 0
    last: NotedMessage | None = None
    apart: tuple[SentApart, ...] = ()

    def written(self) -> Iterator[SentApart]:
        """Yield what was sent to each queue of the topic."""
        here = self.sent - sum(each.sent for each in self.apart)
        yield SentApart(self.to_broker_name, self.to_queue_id, here, self.last)
        yield from self.apart


@dataclass(frozen=True, slots=True)
class ImportState:
    """The state of one import, opened by `open_state`. Not thread-safe."""

    path: str
    disk: Disk
    topic: str
    namesrv: tuple[str, ...]
    queues: dict[QueueKey, ImportedQueue]

    @property
    def sent(self) -> int:
        """How many messages of all queues are stored."""
        return sum(queue.sent for queue in self.queues.values())

    def note(
        self,
        key: QueueKey,
        *,
        next_offset: int,
        sent: int,
        last: NotedMessage | None = None,
        apart: Iterable[SentApart] = (),
    ) -> None:
        """Record that a batch is stored. The file is on disk when this returns.

        `sent` includes what is `apart`. Raises RmqError when the file cannot be
        written.
        """
        queue = self.queues[key]
        queue.next_offset = next_offset
        queue.sent += sent
        queue.last = last or queue.last
        for each in apart:
            for known in queue.apart:
                if known.target == each.target:
                    known.sent += each.sent
                    known.last = each.last or known.last
                    break
            else:
                queue.apart += (each,)
        temp = f"{self.path}.{secrets.token_hex(8)}.part"
        try:
            self.disk.write_text(self.path, self._text(), temp=temp)
        except OSError as error:
            raise RmqError(
                f"cannot write {self.path}: {error.strerror}; it does not record"
                f" what was sent last: {counted(sent, 'message')}",
                hint="fix the cause, then import again: those messages are sent twice",
            ) from error

    def _text(self) -> str:
        queues = [
            {"broker_name": name, "queue_id": queue_id, **asdict(queue)}
            for (name, queue_id), queue in sorted(self.queues.items())
        ]
        value = {
            "version": STATE_VERSION,
            "topic": self.topic,
            "namesrv": sorted(self.namesrv),
            "queues": queues,
        }
        return json.dumps(value, indent=1) + "\n"


def state_path(content: ExportContent, topic: str, folder: str | None) -> str:
    """The path of the state of an export's import into a topic.

    Raises UsageError when the export is in remote storage and `folder` is None, because
    the state is written after each batch and must be on a disk of this machine.
    """
    if folder is None and content.storage.is_remote:
        raise UsageError(
            f"the export is in {content.root}, but the record of what was sent must be"
            " on this machine",
            hint=Hint("name a folder for the record: ", Setting("state", Blank("DIR"))),
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
    """Read the state, or create one, and lock it for the duration of the block.

    Raises RefusedError when another process is importing with it, or when it belongs to
    an import into another cluster or into other queues; ConfigError when it is damaged;
    RmqError when its folder cannot be written.
    """
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        handle = open_locked(f"{path}.lock")
    except BlockingIOError as error:
        raise RefusedError(
            f"another process is importing into topic {topic} with {path}",
            hint="wait until it has finished",
        ) from error
    except OSError as error:
        raise RmqError(
            f"cannot write to {os.path.dirname(path)}: {error.strerror}",
            hint=Hint("name a folder for the state: ", Setting("state", Blank("DIR"))),
        ) from error
    try:
        queues = {
            key: ImportedQueue(queue.broker_name, queue.queue_id)
            for key, queue in places.items()
        }
        for key, before in read_state(path, namesrv=namesrv).items():
            now = queues.get(key)
            if now is None or now.target != before.target:
                goes = (
                    f"it would now be sent to {now.to_broker_name}:{now.to_queue_id}"
                    if now
                    else "the export no longer has that queue"
                )
                raise RefusedError(
                    f"an earlier run sent {key[0]}:{key[1]} to {before.to_broker_name}:"
                    f"{before.to_queue_id}, but {goes}",
                    hint=f"restore the topic's queues, or {_anew(path)}",
                )
            queues[key] = before
        yield ImportState(path, disk, topic, namesrv, queues)
    finally:
        os.close(handle)


def _anew(path: str) -> str:
    return f"remove {path} to send everything again"


def check_target(
    cluster: BrokerCluster,
    topic: str,
    queues: Mapping[QueueKey, ImportedQueue],
    *,
    path: str,
) -> None:
    """Raise RefusedError unless what the state records as sent is in the topic.

    `queues` are those of the state at `path`. Raises the error of the first queue that
    cannot be read.
    """
    from rmqcli.admin.witness import SETTLE_MS

    ends: dict[QueueKey, int] = {}
    for each in (part for queue in queues.values() for part in queue.written()):
        # Several exported queues may share a queue, which has the messages of each.
        ends[each.target] = ends.get(each.target, 0) + each.sent
    cluster.check_same(
        topic,
        ends,
        last_written(queues.values()),
        done=_DONE,
        anew=_anew(path),
        settle_ms=SETTLE_MS,
    )


def last_written(queues: Iterable[ImportedQueue]) -> dict[QueueKey, NotedMessage]:
    """Return the last message that was sent to each queue of the topic."""
    found: dict[QueueKey, NotedMessage] = {}
    for each in (part for queue in queues for part in queue.written()):
        known = found.get(each.target)
        if each.last is not None and (
            known is None or known.queue_offset < each.last.queue_offset
        ):
            found[each.target] = each.last
    return found


def check_written(
    queue: MessageQueue, queue_offset: int, before: NotedMessage, *, path: str
) -> None:
    """Raise RefusedError unless a message is stored behind the one sent before.

    `path` is that of the state.
    """
    from rmqcli.admin.witness import check_written_after

    check_written_after(
        queue, queue_offset, before.queue_offset, done=_DONE, anew=_anew(path)
    )


def read_state(path: str, *, namesrv: tuple[str, ...]) -> dict[QueueKey, ImportedQueue]:
    """The queues in the state at `path`; an empty dict when there is no such file.

    Raises RefusedError when the state belongs to another cluster, and ConfigError when
    it is damaged.
    """
    try:
        value = parse_versioned(read_text(path), STATE_VERSION)
        known = tuple(map(str, value["namesrv"]))
        queues = dict(map(_queue, value["queues"]))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise RmqError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is not the state of an import: {error!r}") from error
    if sorted(known) != sorted(namesrv):
        raise RefusedError(
            f"{path} belongs to an import with name servers {';'.join(known)}, not"
            f" {';'.join(namesrv)}",
            hint=Hint(
                "use these name servers, or another folder for the state: ",
                Setting("state", Blank("DIR")),
            ),
        )
    return queues


def _queue(value: dict[str, Any]) -> tuple[QueueKey, ImportedQueue]:
    key = str(value.pop("broker_name")), int(value.pop("queue_id"))
    state = read_as(ImportedQueue, value)
    if min(state.next_offset, state.sent) < 0:
        raise ValueError(f"next_offset or sent of {key} is negative")
    return key, state
