"""What a client tells its brokers of itself: heartbeats, locks, direct consumption.

Source: HeartbeatData, ConsumerData, ProducerData, LockBatchRequestBody,
LockBatchResponseBody, ConsumeMessageDirectlyResult in apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmqcli.wire import fastjson
from rmqcli.wire.bodies.read import (
    get_bool,
    get_int,
    get_objects,
    get_text,
    load_object,
    need_text,
    read_queue,
)
from rmqcli.wire.bodies.subscription import read_subscription, subscription_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqcli.model import MessageQueue
    from rmqcli.wire.fastjson import JsonObject
    from rmqcli.wire.subscription import SubscriptionData

# Java's enums, by ordinal: heartbeats may give either.
CONSUME_TYPES = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
MESSAGE_MODELS = ("BROADCASTING", "CLUSTERING")
CONSUME_FROM_WHERES = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerData:
    """One consumer group of a client. Enums by their Java names, None when unknown."""

    group_name: str
    consume_type: str | None
    message_model: str | None
    consume_from_where: str | None
    subscriptions: tuple[SubscriptionData, ...]
    unit_mode: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatData:
    """Everything a client is, once a heartbeat.

    The broker forgets the topics that are not in it. The fingerprint of 5.1.3 is never
    sent: it would switch the broker to another protocol. `without_sub` belongs to it:
    the subscriptions are left out because they are as before.
    """

    client_id: str
    producer_groups: tuple[str, ...] = ()
    consumers: tuple[ConsumerData, ...] = ()
    without_sub: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeMessageDirectlyResult:
    """How one message went. `consume_result`: CR_SUCCESS, CR_LATER, CR_ROLLBACK,
    CR_COMMIT, CR_THROW_EXCEPTION or CR_RETURN_NULL; None when unknown.
    """

    order: bool
    auto_commit: bool
    consume_result: str | None
    remark: str | None
    spent_time_mills: int


def parse_heartbeat(body: bytes) -> HeartbeatData:
    """The body of HEART_BEAT (34)."""
    data = load_object(body, "heartbeat")
    return HeartbeatData(
        # 4.x and 5.3 also read it in the usual spelling.
        client_id=get_text(data, "clientID") or need_text(data, "clientId"),
        producer_groups=tuple(
            need_text(item, "groupName")
            for item in get_objects(data, "producerDataSet")
        ),
        consumers=tuple(map(_consumer, get_objects(data, "consumerDataSet"))),
        without_sub=get_bool(data, "withoutSub"),
    )


def encode_heartbeat(heartbeat: HeartbeatData) -> bytes:
    """The body of HEART_BEAT."""
    data: dict[str, object] = {
        "clientID": heartbeat.client_id,
        "consumerDataSet": list(map(_consumer_json, heartbeat.consumers)),
        "producerDataSet": [{"groupName": g} for g in heartbeat.producer_groups],
    }
    if heartbeat.without_sub:
        data["withoutSub"] = True
    return fastjson.dumps(data).encode()


def parse_lock_request(body: bytes) -> tuple[str, str, list[MessageQueue]]:
    """Group, client id and queues of LOCK_BATCH_MQ (41) or UNLOCK_BATCH_MQ (42)."""
    data = load_object(body, "lock request")
    queues = [read_queue(item) for item in get_objects(data, "mqSet")]
    return need_text(data, "consumerGroup"), need_text(data, "clientId"), queues


def encode_lock_request(
    consumer_group: str, client_id: str, queues: Iterable[MessageQueue]
) -> bytes:
    """The body of LOCK_BATCH_MQ or UNLOCK_BATCH_MQ."""
    return fastjson.dumps(
        {
            "clientId": client_id,
            "consumerGroup": consumer_group,
            "mqSet": list(queues),
            "onlyThisBroker": False,
        }
    ).encode()


def parse_lock_answer(body: bytes) -> list[MessageQueue]:
    """The queues that are locked now: the answer to LOCK_BATCH_MQ."""
    data = load_object(body, "lock answer")
    return [read_queue(item) for item in get_objects(data, "lockOKMQSet")]


def encode_lock_answer(queues: Iterable[MessageQueue]) -> bytes:
    """The body of an answer to LOCK_BATCH_MQ."""
    return fastjson.dumps({"lockOKMQSet": list(queues)}).encode()


def parse_consume_directly_result(body: bytes) -> ConsumeMessageDirectlyResult:
    """The answer to CONSUME_MESSAGE_DIRECTLY (309)."""
    data = load_object(body, "result of direct consumption")
    return ConsumeMessageDirectlyResult(
        order=get_bool(data, "order"),
        auto_commit=get_bool(data, "autoCommit"),
        consume_result=get_text(data, "consumeResult"),
        remark=get_text(data, "remark"),
        spent_time_mills=get_int(data, "spentTimeMills", 0),
    )


def encode_consume_directly_result(result: ConsumeMessageDirectlyResult) -> bytes:
    """The body of an answer to CONSUME_MESSAGE_DIRECTLY."""
    return fastjson.dump_body(
        {
            "autoCommit": result.auto_commit,
            "consumeResult": result.consume_result,
            "order": result.order,
            "remark": result.remark,
            "spentTimeMills": result.spent_time_mills,
        }
    )


def _consumer_json(consumer: ConsumerData) -> dict[str, object]:
    data: dict[str, object] = {
        "groupName": consumer.group_name,
        "subscriptionDataSet": list(map(subscription_json, consumer.subscriptions)),
        "unitMode": consumer.unit_mode,
        "consumeFromWhere": consumer.consume_from_where,
        "consumeType": consumer.consume_type,
        "messageModel": consumer.message_model,
    }
    return {name: value for name, value in data.items() if value is not None}


def _consumer(data: JsonObject) -> ConsumerData:
    return ConsumerData(
        group_name=need_text(data, "groupName"),
        consume_type=_enum(data, "consumeType", CONSUME_TYPES),
        message_model=_enum(data, "messageModel", MESSAGE_MODELS),
        consume_from_where=_enum(data, "consumeFromWhere", CONSUME_FROM_WHERES),
        subscriptions=tuple(
            map(read_subscription, get_objects(data, "subscriptionDataSet"))
        ),
        unit_mode=get_bool(data, "unitMode"),
    )


def _enum(data: JsonObject, name: str, members: tuple[str, ...]) -> str | None:
    value = data.get(name)
    if type(value) is int:
        return members[value] if 0 <= value < len(members) else None
    text = get_text(data, name)
    return text if text in members else None
