"""Headers of sending messages (codes 10, 310, 320, 37, 370).

The V2 form has the same fields under names of one letter.

Source: the classes of the same names in apache/rocketmq.
"""

from __future__ import annotations

from rmqcli.wire.fields import declared, wire_field
from rmqcli.wire.header import Header


@declared
class SendMessageRequestHeader(Header):
    """Store one message (10)."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    sys_flag: int
    born_timestamp: int
    flag: int
    properties: str | None = None
    reconsume_times: int | None = None
    unit_mode: bool = False
    max_reconsume_times: int | None = None
    batch: bool = False


@declared
class SendMessageRequestHeaderV2(Header):
    """Store one message (310), or a batch (320)."""

    producer_group: str = wire_field("a")
    topic: str = wire_field("b")
    default_topic: str = wire_field("c")  # TBW102
    default_topic_queue_nums: int = wire_field("d")
    queue_id: int = wire_field("e")  # negative: the broker picks
    sys_flag: int = wire_field("f")
    born_timestamp: int = wire_field("g")
    flag: int = wire_field("h")
    properties: str | None = wire_field("i", default=None)
    reconsume_times: int | None = wire_field("j", default=None)
    unit_mode: bool | None = wire_field("k", default=None)
    max_reconsume_times: int | None = wire_field("l", default=None)
    batch: bool | None = wire_field("m", default=None)
    bname: str | None = wire_field("n", default=None)  # 4.9.5


@declared
class SendMessageResponseHeader(Header):
    """Where the message was stored.

    For a batch it has the ids joined with commas, and the offset of the first message.
    """

    msg_id: str
    queue_id: int
    queue_offset: int
    transaction_id: str | None = None
    batch_uniq_id: str | None = None  # 5.0
    recall_handle: str | None = None  # 5.3.2


@declared
class EndTransactionRequestHeader(Header):
    """Commit or roll back a half message (37). `commit_or_rollback`: sysFlag bits."""

    topic: str | None = None
    producer_group: str
    tran_state_table_offset: int
    commit_log_offset: int
    commit_or_rollback: int
    from_transaction_check: bool = False
    msg_id: str
    transaction_id: str | None = None


@declared
class RecallMessageRequestHeader(Header):
    """Withdraw a message that waits for its delivery time (370, 5.3.2)."""

    producer_group: str | None = None
    topic: str
    recall_handle: str


@declared
class RecallMessageResponseHeader(Header):
    """The UNIQ_KEY of the message that was withdrawn."""

    msg_id: str
