"""Headers of offsets: committed, at a queue's ends, by time, reset.

Codes 14, 15, 29 to 32, 222 with 220, 223 with 221, 314.

Source: the classes of the same names in apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqcli.wire.header import BoundaryType


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryConsumerOffsetRequestHeader:
    """The offset a group has committed for a queue (14)."""

    consumer_group: str
    topic: str
    queue_id: int
    set_zero_if_not_found: bool | None = None  # 5.0; false: say 22 instead of guessing


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryConsumerOffsetResponseHeader:
    """The committed offset."""

    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateConsumerOffsetRequestHeader:
    """Commit an offset, forward or back (15)."""

    consumer_group: str
    topic: str
    queue_id: int
    commit_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOffsetRequestHeader:
    """The offset for a store time in ms (29)."""

    topic: str
    queue_id: int
    timestamp: int
    boundary_type: BoundaryType | None = None  # 5.1.4


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOffsetResponseHeader:
    """The offset found."""

    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMaxOffsetRequestHeader:
    """The next offset that will be written (30)."""

    topic: str
    queue_id: int
    committed: bool | None = None  # 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMaxOffsetResponseHeader:
    """The next offset that will be written."""

    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMinOffsetRequestHeader:
    """The oldest offset still there (31)."""

    topic: str
    queue_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMinOffsetResponseHeader:
    """The oldest offset still there."""

    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GetEarliestMsgStoretimeRequestHeader:
    """The store time of the oldest message (32)."""

    topic: str
    queue_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GetEarliestMsgStoretimeResponseHeader:
    """Epoch ms; -1 when the queue is empty."""

    timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOffsetRequestHeader:
    """Reset a group's offsets of a topic (222, 220).

    `queue_id` and `offset` only for brokers from 5.2.0 on: older ones go by `timestamp`
    alone, so it must always be one that is meant.
    """

    topic: str
    group: str
    timestamp: int  # ms; -1: the end
    is_force: bool
    queue_id: int | None = None  # 5.1.0; -1: every queue
    offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumerStatusRequestHeader:
    """The offsets live consumers are at (223, 221)."""

    topic: str
    group: str
    client_addr: str | None = None  # a client id


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneGroupOffsetRequestHeader:
    """Copy one group's offsets to another (314)."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False
