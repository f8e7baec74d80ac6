"""Headers of requests for offsets: committed, min and max, by time, and their reset.

Codes 14, 15, 29 to 32, 222 with 220, 223 with 221, 314.

Source: the classes of the same names in apache/rocketmq.
"""

from __future__ import annotations

from rmqcli.wire.fields import declared
from rmqcli.wire.header import BoundaryType, Header


@declared
class QueryConsumerOffsetRequestHeader(Header):
    """Query the offset that a group has committed for a queue (14)."""

    consumer_group: str
    topic: str
    queue_id: int
    set_zero_if_not_found: bool | None = None  # 5.0; false: answer 22, do not guess


@declared
class QueryConsumerOffsetResponseHeader(Header):
    """The committed offset."""

    offset: int


@declared
class UpdateConsumerOffsetRequestHeader(Header):
    """Commit an offset, forward or back (15)."""

    consumer_group: str
    topic: str
    queue_id: int
    commit_offset: int


@declared
class SearchOffsetRequestHeader(Header):
    """Search the offset for a store time in ms (29)."""

    topic: str
    queue_id: int
    timestamp: int
    boundary_type: BoundaryType | None = None  # 5.1.4


@declared
class SearchOffsetResponseHeader(Header):
    """The offset found."""

    offset: int


@declared
class GetMaxOffsetRequestHeader(Header):
    """Query the next offset that will be written (30)."""

    topic: str
    queue_id: int
    committed: bool | None = None  # 5.0


@declared
class GetMaxOffsetResponseHeader(Header):
    """The next offset that will be written."""

    offset: int


@declared
class GetMinOffsetRequestHeader(Header):
    """Query the oldest offset that is still stored (31)."""

    topic: str
    queue_id: int


@declared
class GetMinOffsetResponseHeader(Header):
    """The oldest offset that is still stored."""

    offset: int


@declared
class GetEarliestMsgStoretimeRequestHeader(Header):
    """Query the store time of the oldest message (32)."""

    topic: str
    queue_id: int


@declared
class GetEarliestMsgStoretimeResponseHeader(Header):
    """The time in epoch ms; -1 for an empty queue."""

    timestamp: int


@declared
class ResetOffsetRequestHeader(Header):
    """Reset a group's offsets of a topic (222, 220).

    Only brokers from 5.2.0 on use `queue_id` and `offset`. Older ones use `timestamp`
    alone, so it must always be a time that the caller intends.
    """

    topic: str
    group: str
    timestamp: int  # ms; -1: the end
    is_force: bool
    queue_id: int | None = None  # 5.1.0; -1: every queue
    offset: int | None = None


@declared
class GetConsumerStatusRequestHeader(Header):
    """Query the offsets of the connected consumers (223, 221)."""

    topic: str
    group: str
    client_addr: str | None = None  # a client id


@declared
class CloneGroupOffsetRequestHeader(Header):
    """Copy one group's offsets to another (314)."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False
