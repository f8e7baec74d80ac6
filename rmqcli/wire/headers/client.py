"""Headers for unregistering and sending back, and for brokers' requests to clients.

Codes 35, 36, 39, 40, 309, 326. Heartbeats (34) and locks (41, 42) have only a body.

Source: the classes of the same names in apache/rocketmq.
"""

from __future__ import annotations

from rmqcli.wire.fields import declared, wire_field
from rmqcli.wire.header import Header


@declared
class UnregisterClientRequestHeader(Header):
    """Unregister a client from a group (35)."""

    client_id: str = wire_field("clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


@declared
class ConsumerSendMsgBackRequestHeader(Header):
    """Have the broker deliver a message again later (36).

    `offset` is its commit log offset. `max_reconsume_times` must be sent, because
    brokers up to 4.9.0 fail without it.
    """

    offset: int
    group: str
    delay_level: int
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: int | None = None


@declared
class NotifyConsumerIdsChangedRequestHeader(Header):
    """Tell a client that its group's members changed (40, from the broker, one-way)."""

    consumer_group: str


@declared
class ConsumeMessageDirectlyResultRequestHeader(Header):
    """Have a consumer consume this one message now (309)."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None


@declared
class CheckTransactionStateRequestHeader(Header):
    """Ask a producer whether this transaction is committed (39, from the broker)."""

    tran_state_table_offset: int
    commit_log_offset: int
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    topic: str | None = None  # 5.3


@declared
class ReplyMessageRequestHeader(Header):
    """Deliver the reply to a request message (326, from the broker)."""

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
    born_host: str
    store_host: str
    store_timestamp: int
