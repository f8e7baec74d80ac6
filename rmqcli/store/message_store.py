"""The interface of a store for a broker, whether it keeps messages in files or memory.

A store numbers messages and places them in the commit log; it decides nothing about
topics, permissions or delays. All calls come from one thread.

Source: `MessageStore`, `ConsumeQueue` and `PutMessageResult` in apache/rocketmq.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from rmqcli.errors import RmqError
from rmqcli.wire.message import system_flag
from rmqcli.wire.message.properties import (
    INNER_MULTI_DISPATCH,
    INNER_NUM,
    lmq_of,
    parse_properties,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rmqcli.wire.message.encode import MessageFields

#: Bytes of one entry of a consume queue (ConsumeQueue.CQ_STORE_UNIT_SIZE).
UNIT_BYTES = 20


class StoreError(RmqError):
    """The store could not write or read; the message names what and where."""


class StoreFullError(StoreError):
    """Nothing can be appended now: the disk is full or read-only. Reads still work."""


@contextmanager
def store_errors(what: str, kind: type[StoreError] = StoreError) -> Iterator[None]:
    """Raise a StoreError for an OSError: `what`, then the system's reason."""
    try:
        yield
    except OSError as error:
        raise kind(f"{what}: {error.strerror}") from error


def message_count(fields: MessageFields) -> int:
    """Return how many messages a record has: 1, or INNER_NUM of an inner batch."""
    if not fields.sys_flag & system_flag.INNER_BATCH:
        return 1
    return int(fields.property_table().get(INNER_NUM) or 1)


def is_in_log_only(fields: MessageFields) -> bool:
    """Whether it is a half message or a rollback, which are in no queue."""
    kind = system_flag.transaction_type(fields.sys_flag)
    return kind in (system_flag.TRANSACTION_PREPARED, system_flag.TRANSACTION_ROLLBACK)


def lmq_place(fields: MessageFields) -> tuple[str, int] | None:
    """Return the LMQ that a message is also in, and its offset there, or None."""
    properties = fields.properties
    if isinstance(properties, str):
        properties = properties.encode()
    if isinstance(properties, bytes):
        if INNER_MULTI_DISPATCH.encode() not in properties:
            return None
        properties = parse_properties(properties)
    if INNER_MULTI_DISPATCH not in properties:
        return None
    return lmq_of(fields.topic, properties)


class QueueUnit(NamedTuple):
    """One entry of a consume queue: a message's place in the log and its tag's hash.

    `tags_code` is the due time (epoch ms) in the queues of SCHEDULE_TOPIC_XXXX.
    """

    commit_log_offset: int
    size_bytes: int
    tags_code: int


class Appended(NamedTuple):
    """The place of an appended message."""

    commit_log_offset: int
    size_bytes: int
    queue_offset: int


class TimerProgress(NamedTuple):
    """How far a broker has come with its timer messages.

    All that were due at `read_ms` (epoch) or earlier were delivered or deleted. So were
    those below `queue_offset` of the timers' topic, except for messages that a real
    broker has put into the timer wheel of its folder.
    """

    read_ms: int = 0  # lastReadTimeMs
    queue_offset: int = 0  # lastTimerQueueOffset


class StoreReader(Protocol):
    """The methods that read a store, for its broker and for readers of its folder."""

    @property
    def batch_topics(self) -> set[str]:
        """The topics with queue.type=BatchCQ, whose records may be inner batches.

        A broker changes the set before the topic's first message.
        """

    def queues(self) -> Iterable[tuple[str, int]]:
        """Return topic and id of every consume queue, in no particular order."""

    def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """Return the half-open range of readable offsets; None without a queue."""

    def units(
        self, topic: str, queue_id: int, start: int, count_max: int
    ) -> Sequence[QueueUnit]:
        """Return `count_max` entries from queue offset `start` on, or fewer at the end.

        There are none below the lower bound and from the upper bound on. The messages
        of an inner batch have equal entries.
        """

    def read(self, commit_log_offset: int, size_bytes: int) -> bytes | None:
        """Return bytes of the log; None when they are deleted or beyond its end."""

    def read_units(self, units: Sequence[QueueUnit]) -> bytes:
        """Return the records of `units` one after the other.

        Adjacent records are read fast. The bytes end before the first record that was
        deleted.
        """

    def message_at(self, commit_log_offset: int) -> bytes | None:
        """Return the record that begins there, by its size field; None if none does."""

    def log_bounds(self) -> tuple[int, int]:
        """Return the half-open range of commit log offsets that can be read."""

    def store_time_ms(self, topic: str, queue_id: int, queue_offset: int) -> int | None:
        """Return when the message was stored; None without such a message."""

    def query_index(
        self, topic: str, key: str, *, begin_ms: int, end_ms: int, count_max: int
    ) -> list[int]:
        """Return commit log offsets of messages that may have the key, newest first.

        Like RocketMQ's index, this compares hashes and seconds: the caller must compare
        topic and key.
        """

    def close(self) -> None:
        """Write everything pending and close the files. Idempotent."""


class MessageStore(StoreReader, Protocol):
    """A commit log with its consume queues and its index of keys."""

    def append(
        self, messages: Sequence[MessageFields], *, tags_codes: Sequence[int]
    ) -> list[Appended]:
        """Append messages together: all of them or none.

        The store sets `queue_offset` and `commit_log_offset`, all other fields are the
        caller's. `tags_codes` (one for each message) go into the consume queue. A half
        or rolled-back message (sysFlag's transaction bits) is in the log only and takes
        no queue offset; an inner batch takes one for each of its messages. A message of
        a lite topic (see `lmq_of`) is in two queues; in the second one it must be the
        next. Keys (KEYS,
        UNIQ_KEY) are put into the index, except those of rolled-back messages.
        Raises StoreFullError, and then the store is unchanged.
        """

    def flush(self) -> None:
        """Make all appended messages survive a power cut. Raises StoreError."""

    def delete_topic(self, topic: str) -> None:
        """Remove the topic's consume queues; the log keeps the messages."""

    def delete_queue(self, topic: str, queue_id: int) -> None:
        """Remove a consume queue, which begins at offset 0 again; the log is kept."""

    def trim(self, topic: str | None, before: int) -> None:
        """Delete old messages of a topic's queues or, without a topic, of the log.

        With a topic, the queue offsets below `before` are deleted (a fault for tests).
        Without one, whole log files that end at or below the commit log offset `before`
        are deleted, and the queues' lower bounds move after them.
        """
