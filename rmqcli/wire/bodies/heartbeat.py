"""Bodies of heartbeats, client checks, queue locks and results of direct consumption.

Source: HeartbeatData, ConsumerData, ProducerData, LockBatchRequestBody,
LockBatchResponseBody, CheckClientRequestBody, ConsumeMessageDirectlyResult in
apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import field

from rmqcli.model import MessageQueue
from rmqcli.wire.body import Body, enum_field
from rmqcli.wire.fields import declared, wire_field
from rmqcli.wire.subscription import SubscriptionData


@declared
class ConsumerData(Body):
    """One consumer group of a client. Enums have Java's names, None when unknown."""

    group_name: str
    consume_type: str | None = enum_field(
        "CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP"
    )
    message_model: str | None = enum_field("BROADCASTING", "CLUSTERING")
    consume_from_where: str | None = enum_field(
        "CONSUME_FROM_LAST_OFFSET",
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
        "CONSUME_FROM_MIN_OFFSET",
        "CONSUME_FROM_MAX_OFFSET",
        "CONSUME_FROM_FIRST_OFFSET",
        "CONSUME_FROM_TIMESTAMP",
    )
    subscriptions: tuple[SubscriptionData, ...] = wire_field(
        "subscriptionDataSet", default=()
    )
    unit_mode: bool = False


@declared
class ProducerData(Body):
    """One producer group of a client."""

    group_name: str


@declared
class HeartbeatData(Body):
    """The body of HEART_BEAT (34): all groups and subscriptions of a client.

    The broker forgets the topics that are not in it. The fingerprint of 5.1.3 is never
    sent, because it would switch the broker to another protocol. `without_sub` belongs
    to that protocol: the subscriptions are left out because they have not changed.
    """

    # 4.x and 5.3 also read the usual spelling.
    client_id: str = wire_field("clientID", also="clientId")
    producers: tuple[ProducerData, ...] = wire_field("producerDataSet", default=())
    consumers: tuple[ConsumerData, ...] = wire_field("consumerDataSet", default=())
    without_sub: bool = wire_field(default=False, is_sent_at_default=False)


@declared
class CheckClientRequestBody(Body):
    """The body of CHECK_CLIENT_CONFIG (46)."""

    client_id: str | None = None
    group: str | None = None
    subscription_data: SubscriptionData | None = None


@declared
class LockBatchRequestBody(Body):
    """The body of LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42)."""

    client_id: str
    consumer_group: str
    mq_set: list[MessageQueue] = field(default_factory=list)
    only_this_broker: bool = False


@declared
class LockBatchResponseBody(Body):
    """The answer to LOCK_BATCH_MQ: the queues that the client has locked now."""

    lock_ok_mq_set: list[MessageQueue] = wire_field("lockOKMQSet", default_factory=list)


@declared
class ConsumeMessageDirectlyResult(Body):
    """A consumer's answer to CONSUME_MESSAGE_DIRECTLY (309).

    `consume_result`: CR_SUCCESS, CR_LATER, CR_ROLLBACK, CR_COMMIT, CR_THROW_EXCEPTION
    or CR_RETURN_NULL; None when unknown. Clients in Go send its ordinal.
    """

    order: bool = False
    auto_commit: bool = False
    consume_result: str | None = enum_field(
        "CR_SUCCESS",
        "CR_LATER",
        "CR_ROLLBACK",
        "CR_COMMIT",
        "CR_THROW_EXCEPTION",
        "CR_RETURN_NULL",
    )
    remark: str | None = None
    spent_time_mills: int = 0
