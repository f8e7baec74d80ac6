"""Headers of pulling messages (codes 11 and 361).

Offsets count messages of one queue, never bytes.

Source: the classes of the same names in apache/rocketmq.
"""

from __future__ import annotations

from rmqcli.wire.fields import declared
from rmqcli.wire.header import Header


@declared
class PullMessageRequestHeader(Header):
    """Pull messages of a queue for a group, and optionally commit an offset (11, 361).

    `sys_flag` holds the bits of Java's PullSysFlag.
    """

    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: int
    max_msg_nums: int
    sys_flag: int
    commit_offset: int
    suspend_timeout_millis: int
    sub_version: int
    subscription: str | None = None
    expression_type: str | None = None  # TAG or SQL92; absent is TAG
    max_msg_bytes: int | None = None  # 5.0
    request_source: int | None = None  # 5.1
    proxy_froward_client_id: str | None = None  # 5.1, spelled so


@declared
class PullMessageResponseHeader(Header):
    """The offset to pull next, and the queue's min and max offset.

    Answers with the codes 0, 19, 20 and 21 have it.
    """

    suggest_which_broker_id: int
    next_begin_offset: int
    min_offset: int
    max_offset: int
    offset_delta: int | None = None  # static topics
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None
    forbidden_type: int | None = None
