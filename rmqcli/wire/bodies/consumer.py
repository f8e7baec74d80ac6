"""Who is connected, and what a consumer is doing, as brokers and clients tell it.

Source: ConsumerConnection, ProducerConnection, Connection, ConsumerRunningInfo,
ProcessQueueInfo, PopProcessQueueInfo, ConsumeStatus in apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from rmqcli.wire import fastjson
from rmqcli.wire.bodies.read import (
    get_bool,
    get_float,
    get_int,
    get_object,
    get_objects,
    get_queue_table,
    get_table,
    get_text,
    get_texts,
    load_object,
    to_text,
)
from rmqcli.wire.bodies.subscription import read_subscription, subscription_json
from rmqcli.wire.codes import LANGUAGE_NUMBERS, language_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqcli.model import MessageQueue
    from rmqcli.wire.fastjson import JsonObject
    from rmqcli.wire.subscription import SubscriptionData


@dataclass(frozen=True, slots=True)
class Connection:
    """One client of a group. `language` is a LanguageCode, None when unknown."""

    client_id: str
    client_addr: str
    language: int | None
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConnection:
    """The members of a group that one broker sees, and what the group says it does.

    The last three are Java's enum names, None when the broker left them out.
    """

    connections: tuple[Connection, ...]
    subscriptions: dict[str, SubscriptionData]
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessQueueInfo:
    """What one consumer holds of one queue. Times are epoch ms.

    `droped` is spelled as on the wire. The `transaction_msg_*` count what an orderly
    consumer has taken and not yet committed.
    """

    commit_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_size_in_mib: int = 0
    transaction_msg_min_offset: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_count: int = 0
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_timestamp: int = 0
    droped: bool = False
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


@dataclass(frozen=True, slots=True)
class PopProcessQueueInfo:
    """What one consumer holds of one queue that it pops from (5.0)."""

    wait_ack_count: int
    droped: bool
    last_pop_timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeStatus:
    """A consumer's rates for one topic; times in ms. None: not a number."""

    pull_rt: float | None
    pull_tps: float | None
    consume_rt: float | None
    consume_ok_tps: float | None
    consume_failed_tps: float | None
    consume_failed_msgs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerRunningInfo:
    """What one consumer says of itself. `jstack` only when it was asked for."""

    properties: dict[str, str]
    subscriptions: tuple[SubscriptionData, ...] = ()
    process_queues: dict[MessageQueue, ProcessQueueInfo] = field(default_factory=dict)
    pop_process_queues: dict[MessageQueue, PopProcessQueueInfo] = field(
        default_factory=dict
    )
    statuses: dict[str, ConsumeStatus] = field(default_factory=dict)
    jstack: str | None = None


def parse_consumer_list(body: bytes) -> list[str]:
    """Client ids: the answer to GET_CONSUMER_LIST_BY_GROUP (38), in its order."""
    return get_texts(load_object(body, "consumer list"), "consumerIdList")


def encode_consumer_list(client_ids: Iterable[str]) -> bytes:
    """The body of an answer to GET_CONSUMER_LIST_BY_GROUP."""
    return fastjson.dumps({"consumerIdList": list(client_ids)}).encode()


def parse_consumer_connection(body: bytes) -> ConsumerConnection:
    """The answer to GET_CONSUMER_CONNECTION_LIST (203)."""
    data = load_object(body, "consumer connections")
    return ConsumerConnection(
        connections=_connections(data),
        subscriptions={
            topic: read_subscription({"topic": topic, **item})
            for topic, item in get_table(data, "subscriptionTable")
        },
        consume_type=get_text(data, "consumeType"),
        message_model=get_text(data, "messageModel"),
        consume_from_where=get_text(data, "consumeFromWhere"),
    )


def encode_consumer_connection(connection: ConsumerConnection) -> bytes:
    """The body of an answer to GET_CONSUMER_CONNECTION_LIST."""
    return fastjson.dump_body(
        {
            "connectionSet": list(map(_connection_json, connection.connections)),
            "consumeFromWhere": connection.consume_from_where,
            "consumeType": connection.consume_type,
            "messageModel": connection.message_model,
            "subscriptionTable": {
                topic: subscription_json(subscription)
                for topic, subscription in connection.subscriptions.items()
            },
        }
    )


def parse_producer_connection(body: bytes) -> tuple[Connection, ...]:
    """The answer to GET_PRODUCER_CONNECTION_LIST (204)."""
    return _connections(load_object(body, "producer connections"))


def encode_producer_connection(connections: Iterable[Connection]) -> bytes:
    """The body of an answer to GET_PRODUCER_CONNECTION_LIST."""
    return fastjson.dumps(
        {"connectionSet": list(map(_connection_json, connections))}
    ).encode()


def parse_consumer_running_info(body: bytes) -> ConsumerRunningInfo:
    """The answer to GET_CONSUMER_RUNNING_INFO (307)."""
    data = load_object(body, "consumer running info")
    properties = get_object(data, "properties")
    return ConsumerRunningInfo(
        properties={k: to_text(v, k) for k, v in properties.items() if v is not None},
        subscriptions=tuple(
            map(read_subscription, get_objects(data, "subscriptionSet"))
        ),
        process_queues=get_queue_table(data, "mqTable", _process_queue),
        pop_process_queues=get_queue_table(data, "mqPopTable", _pop_process_queue),
        statuses={k: _status(v) for k, v in get_table(data, "statusTable")},
        jstack=get_text(data, "jstack"),
    )


def encode_consumer_running_info(info: ConsumerRunningInfo) -> bytes:
    """A client's answer to GET_CONSUMER_RUNNING_INFO."""
    data = {
        "jstack": info.jstack,
        "mqTable": {
            queue: {name: getattr(item, key) for key, name in _PROCESS_QUEUE_NAMES}
            for queue, item in info.process_queues.items()
        },
        "mqPopTable": {
            queue: {
                "droped": item.droped,
                "lastPopTimestamp": item.last_pop_timestamp,
                "waitAckCount": item.wait_ack_count,
            }
            for queue, item in info.pop_process_queues.items()
        },
        "properties": info.properties,
        "statusTable": {k: _status_json(v) for k, v in info.statuses.items()},
        "subscriptionSet": [subscription_json(item) for item in info.subscriptions],
    }
    return fastjson.dump_body(data)


def _connections(data: JsonObject) -> tuple[Connection, ...]:
    return tuple(
        Connection(
            client_id=get_text(item, "clientId") or "",
            client_addr=get_text(item, "clientAddr") or "",
            language=LANGUAGE_NUMBERS.get((get_text(item, "language") or "").upper()),
            version=get_int(item, "version", 0),
        )
        for item in get_objects(data, "connectionSet")
    )


def _connection_json(connection: Connection) -> dict[str, object]:
    return {
        "clientAddr": connection.client_addr,
        "clientId": connection.client_id,
        "language": language_name(connection.language),
        "version": connection.version,
    }


def _wire_name(attribute: str) -> str:
    first, *rest = attribute.removesuffix("_in_mib").split("_")
    ending = "InMiB" if attribute.endswith("_in_mib") else ""
    return first + "".join(map(str.capitalize, rest)) + ending


_PROCESS_QUEUE_NAMES = tuple(
    (item.name, _wire_name(item.name)) for item in fields(ProcessQueueInfo)
)
_PROCESS_QUEUE_FLAGS = ("locked", "droped")


def _process_queue(data: JsonObject) -> ProcessQueueInfo:
    numbers = {
        key: get_int(data, name, 0)
        for key, name in _PROCESS_QUEUE_NAMES
        if key not in _PROCESS_QUEUE_FLAGS
    }
    return ProcessQueueInfo(
        locked=get_bool(data, "locked"), droped=get_bool(data, "droped"), **numbers
    )


def _pop_process_queue(data: JsonObject) -> PopProcessQueueInfo:
    return PopProcessQueueInfo(
        get_int(data, "waitAckCount", 0),
        get_bool(data, "droped"),
        get_int(data, "lastPopTimestamp", 0),
    )


def _status(data: JsonObject) -> ConsumeStatus:
    return ConsumeStatus(
        pull_rt=get_float(data, "pullRT"),
        pull_tps=get_float(data, "pullTPS"),
        consume_rt=get_float(data, "consumeRT"),
        consume_ok_tps=get_float(data, "consumeOKTPS"),
        consume_failed_tps=get_float(data, "consumeFailedTPS"),
        consume_failed_msgs=get_int(data, "consumeFailedMsgs", 0),
    )


def _status_json(status: ConsumeStatus) -> dict[str, object]:
    return {
        "consumeFailedMsgs": status.consume_failed_msgs,
        "consumeFailedTPS": status.consume_failed_tps,
        "consumeOKTPS": status.consume_ok_tps,
        "consumeRT": status.consume_rt,
        "pullRT": status.pull_rt,
        "pullTPS": status.pull_tps,
    }
