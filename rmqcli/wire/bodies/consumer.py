"""Bodies of answers about connected clients and about the state of a consumer.

Brokers give the former; a consumer gives the latter, through its broker.

Source: ConsumerConnection, ProducerConnection, Connection, ProducerTableInfo,
ConsumerRunningInfo, ProcessQueueInfo, PopProcessQueueInfo, ConsumeStatus,
QuerySubscriptionResponseBody in apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import field

from rmqcli.model import MessageQueue
from rmqcli.wire.body import Body, to_text
from rmqcli.wire.codes import LANGUAGE_NUMBERS, language_name
from rmqcli.wire.fields import declared, wire_field
from rmqcli.wire.subscription import SubscriptionData


def language_field() -> int | None:
    """Declare the field of a LanguageCode, which is read from its name."""
    return wire_field(
        default=None,
        read=lambda value, name: LANGUAGE_NUMBERS.get(to_text(value, name).upper()),
        write=language_name,
    )


@declared
class GetConsumerListByGroupResponseBody(Body):
    """The answer to GET_CONSUMER_LIST_BY_GROUP (38)."""

    consumer_id_list: list[str] = field(default_factory=list)


@declared
class Connection(Body):
    """One client of a group. `language` is a LanguageCode, None when unknown."""

    client_id: str = ""
    client_addr: str = ""
    language: int | None = language_field()
    version: int = 0


@declared
class ConsumerConnection(Body):
    """The answer to GET_CONSUMER_CONNECTION_LIST (203).

    The members of a group that are connected to one broker, and how the group consumes.
    The last three are names of Java's enums, None when the broker left them out.
    """

    connections: tuple[Connection, ...] = wire_field("connectionSet", default=())
    subscriptions: dict[str, SubscriptionData] = wire_field(
        "subscriptionTable", default_factory=dict, key="topic"
    )
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None


@declared
class ProducerConnection(Body):
    """The answer to GET_PRODUCER_CONNECTION_LIST (204)."""

    connections: tuple[Connection, ...] = wire_field("connectionSet", default=())


@declared
class ProducerInfo(Body):
    """One producer in ProducerTableInfo."""

    client_id: str = ""
    language: int | None = language_field()
    last_update_timestamp: int = 0
    remote_ip: str = wire_field("remoteIP", default="")
    version: int = 0


@declared
class ProducerTableInfo(Body):
    """The answer to GET_ALL_PRODUCER_INFO (328), by producer group."""

    data: dict[str, list[ProducerInfo]] = field(default_factory=dict)


@declared
class QuerySubscriptionResponseBody(Body):
    """The answer to QUERY_SUBSCRIPTION_BY_CONSUMER (345)."""

    group: str | None = None
    topic: str | None = None
    subscription_data: SubscriptionData | None = None


@declared
class ProcessQueueInfo(Body):
    """One queue in a consumer: what it has cached, and its state. Times are epoch ms.

    `droped` is spelled as on the wire; clients in Go spell it `dropped`. Those in C++
    leave `cached_msg_size_in_mib` out. The `transaction_msg_*` describe the messages
    that an orderly consumer has taken and not yet committed.
    """

    commit_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_size_in_mib: int | None = wire_field("cachedMsgSizeInMiB", default=None)
    transaction_msg_min_offset: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_count: int = 0
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_timestamp: int = 0
    droped: bool = wire_field(default=False, also="dropped")
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


@declared
class PopProcessQueueInfo(Body):
    """One queue in a consumer that receives from it by POP (5.0)."""

    wait_ack_count: int = 0
    droped: bool = False
    last_pop_timestamp: int = 0


@declared
class ConsumeStatus(Body):
    """A consumer's rates for one topic; times are ms. A rate that is NaN is None."""

    pull_rt: float | None = wire_field("pullRT", default=None)
    pull_tps: float | None = wire_field("pullTPS", default=None)
    consume_rt: float | None = wire_field("consumeRT", default=None)
    consume_ok_tps: float | None = wire_field("consumeOKTPS", default=None)
    consume_failed_tps: float | None = wire_field("consumeFailedTPS", default=None)
    consume_failed_msgs: int = 0


@declared
class ConsumerRunningInfo(Body):
    """A consumer's answer to GET_CONSUMER_RUNNING_INFO (307).

    `jstack` is present only when the request asked for it.
    """

    properties: dict[str, str] = field(default_factory=dict)
    subscriptions: tuple[SubscriptionData, ...] = wire_field(
        "subscriptionSet", default=()
    )
    process_queues: dict[MessageQueue, ProcessQueueInfo] = wire_field(
        "mqTable", default_factory=dict
    )
    pop_process_queues: dict[MessageQueue, PopProcessQueueInfo] = wire_field(
        "mqPopTable", default_factory=dict
    )
    statuses: dict[str, ConsumeStatus] = wire_field("statusTable", default_factory=dict)
    jstack: str | None = None
