"""Headers of looking into a broker's store (codes 12, 33, 321).

Offsets without a queue are positions in the commit log, in bytes.

Source: the classes of the same names in apache/rocketmq.
"""

from __future__ import annotations

from rmqcli.wire.fields import declared
from rmqcli.wire.header import Header


@declared
class QueryMessageRequestHeader(Header):
    """Messages by key, from the index (12). Times in ms.

    The broker compares hashes: check topic and key of what it answers.
    """

    topic: str
    key: str
    max_num: int
    begin_timestamp: int
    end_timestamp: int
    index_type: str | None = None  # 5.5
    last_key: str | None = None  # 5.5


@declared
class QueryMessageResponseHeader(Header):
    """How far the index has come."""

    index_last_update_timestamp: int
    index_last_update_phyoffset: int


@declared
class ViewMessageRequestHeader(Header):
    """The message at a commit log offset (33). The broker does not check it."""

    offset: int
    topic: str | None = None  # 5.3


@declared
class QueryConsumeQueueRequestHeader(Header):
    """Entries of a consume queue (321)."""

    topic: str | None = None
    queue_id: int
    index: int
    count: int
    consumer_group: str | None = None
