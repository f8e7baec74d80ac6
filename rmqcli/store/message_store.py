"""The interface of a store for a broker, whether it keeps messages in files or memory.

A store numbers messages and gives them their place in the commit log; it decides
nothing about topics, permissions or delays. All calls come from one thread.

Source: `MessageStore`, `ConsumeQueue` and `PutMessageResult` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from rmqcli.errors import RmqError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rmqcli.wire.message.encode import MessageFields

#: Bytes of one entry of a consume queue (ConsumeQueue.CQ_STORE_UNIT_SIZE).
UNIT_BYTES = 20


class StoreError(RmqError):
    """The store could not write or read; the message names what and where."""


class StoreFullError(StoreError):
    """Nothing can be appended now: the disk is full or read-only. Reads go on."""


class QueueUnit(NamedTuple):
    """One entry of a consume queue: where a message lies, and its tag's hash.

    `tags_code` is the due time (epoch ms) in the queues of SCHEDULE_TOPIC_XXXX.
    """

    commit_log_offset: int
    size_bytes: int
    tags_code: int


class Appended(NamedTuple):
    """Where an appended message is."""

    commit_log_offset: int
    size_bytes: int
    queue_offset: int


class StoreReader(Protocol):
    """The methods that read a store, for its broker and for readers of its folder."""

    def queues(self) -> Iterable[tuple[str, int]]:
        """Topic and id of every consume queue, in no order."""

    def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """Half-open range of queue offsets that can be read; None without a queue."""

    def units(
        self, topic: str, queue_id: int, start: int, count_max: int
    ) -> Sequence[QueueUnit]:
        """Entries from queue offset `start` on, fewer at the queue's end.

        Empty below the lower bound and from the upper one on.
        """

    def read(self, commit_log_offset: int, size_bytes: int) -> bytes | None:
        """Bytes of the log; None when they are deleted or beyond its end."""

    def read_units(self, units: Sequence[QueueUnit]) -> bytes:
        """The records of `units`, one after the other: fast where they are neighbours.

        Ends before the first that was deleted.
        """

    def message_at(self, commit_log_offset: int) -> bytes | None:
        """The record that begins there, by its size field; None if none does."""

    def log_bounds(self) -> tuple[int, int]:
        """Half-open range of commit log offsets that can be read."""

    def store_time_ms(self, topic: str, queue_id: int, queue_offset: int) -> int | None:
        """When the message was stored; None without such a message."""

    def query_index(
        self, topic: str, key: str, *, begin_ms: int, end_ms: int, count_max: int
    ) -> list[int]:
        """Commit log offsets of messages that may have the key, newest first.

        By hash and second, as RocketMQ's index: the caller compares topic and key.
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
        no queue offset. Keys (KEYS, UNIQ_KEY) are put into the index.
        Raises StoreFullError, and then the store is as before.
        """

    def flush(self) -> None:
        """Make all appended messages survive a power cut. Raises StoreError."""

    def delete_topic(self, topic: str) -> None:
        """Forget the topic's consume queues; the log keeps its bytes."""

    def trim(self, topic: str | None, before: int) -> None:
        """With a topic: delete the queue offsets below `before` (a fault for
        tests). Without: delete whole log files that end at or below that commit log
        offset, and move the queues' lower bounds after them.
        """
