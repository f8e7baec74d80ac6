"""Headers of queries to a broker's store (codes 12, 33, 321).

Offsets without a queue are positions in the commit log, in bytes.

Source: the classes of the same names in apache/rocketmq.
"""

from __future__ import annotations

from rmqcli.wire.fields import declared
from rmqcli.wire.header import Header


@declared
class QueryMessageRequestHeader(Header):
    """Query messages by key, with the index (12). Times are ms.

    The broker compares only hashes, so the caller must check topic and key of the
    messages in the answer.
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
    """How far the index has been built: store time and commit log offset."""

    index_last_update_timestamp: int
    index_last_update_phyoffset: int


@declared
class ViewMessageRequestHeader(Header):
    """Query the message at a commit log offset (33). The broker does not check it."""

    offset: int
    topic: str | None = None  # 5.3


@declared
class QueryConsumeQueueRequestHeader(Header):
    """Query entries of a consume queue (321)."""

    topic: str | None = None
    queue_id: int
    index: int
    count: int
    consumer_group: str | None = None
