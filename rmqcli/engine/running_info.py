"""Answers to requests of brokers: running info, offsets, consuming one message.

Source: DefaultMQPushConsumerImpl#consumerRunningInfo, ClientRemotingProcessor,
MQClientInstance#resetOffset, #consumeMessageDirectly.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING

from rmqcli.engine.consume.request import call_directly, is_success, orderly_status
from rmqcli.engine.listener import ConsumeOrderlyStatus
from rmqcli.wire.bodies.consumer import ConsumerRunningInfo
from rmqcli.wire.bodies.heartbeat import ConsumeMessageDirectlyResult

if TYPE_CHECKING:
    from rmqcli.clock import Clock
    from rmqcli.engine.listener import Listener
    from rmqcli.engine.member import Member
    from rmqcli.engine.message import Readable
    from rmqcli.model import MessageQueue

_ORDERLY_RESULTS = {
    ConsumeOrderlyStatus.SUCCESS: "CR_SUCCESS",
    ConsumeOrderlyStatus.COMMIT: "CR_COMMIT",
    ConsumeOrderlyStatus.ROLLBACK: "CR_ROLLBACK",
    ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT: "CR_LATER",
}


def running_info(
    member: Member,
    *,
    namesrv: str,
    version_name: str,
    started_epoch_ms: int,
    jstack: str | None = None,
) -> ConsumerRunningInfo:
    """The member's current settings, subscriptions, queues and rates."""
    now = member.now()
    properties = {
        _java_name(field.name): _java_value(getattr(member.config, field.name))
        for field in dataclasses.fields(member.config)
    }
    properties |= {
        "consumerGroup": member.group,
        "pullThresholdForQueue": str(member.pull_threshold_for_queue),
        "pullThresholdSizeForQueue": str(member.pull_threshold_size_for_queue_mib),
        # Java has settings for these, and members here the default of each.
        "postSubscriptionWhenPull": "false",
        "unitMode": "false",
        "unitName": "-1",
        "PROP_CONSUMEORDERLY": str(member.is_orderly).lower(),
        "PROP_THREADPOOL_CORE_SIZE": str(member.config.consume_threads),
        "PROP_CONSUMER_START_TIMESTAMP": str(started_epoch_ms),
        "PROP_NAMESERVER_ADDR": namesrv,
        "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
        "PROP_CLIENT_VERSION": version_name,
    }
    offsets = member.offsets.table
    return ConsumerRunningInfo(
        properties=properties,
        subscriptions=tuple(member.subscriptions.values()),
        process_queues={
            queue: each.fill_info(commit_offset=offsets.get(queue) or 0, now=now)
            for queue, each in member.process_queues.items()
        },
        statuses={
            topic: member.stats.of(topic).status(now.monotonic_ms)
            for topic in member.subscriptions
        },
        jstack=jstack,
    )


def consumer_status(member: Member, topic: str) -> dict[MessageQueue, int]:
    """The offsets in memory of a topic's queues (GET_CONSUMER_STATUS_FROM_CLIENT)."""
    offsets = member.offsets.table.all()
    return {queue: at for queue, at in offsets.items() if queue.topic == topic}


async def consume_directly(
    message: Readable, listener: Listener, queue: MessageQueue, clock: Clock
) -> ConsumeMessageDirectlyResult:
    """Call the listener for one message, without affecting queues and offsets."""
    started_ms = clock.monotonic_ms()
    message.consume_start_ms = started_ms
    result, error = await call_directly(message, listener, queue)
    remark = None
    if error is not None:
        outcome, remark = "CR_THROW_EXCEPTION", f"{type(error).__name__}: {error}"
    elif listener.is_orderly:
        outcome = _ORDERLY_RESULTS[orderly_status(result, listener)]
    else:
        outcome = "CR_SUCCESS" if is_success(result, listener) else "CR_LATER"
    return ConsumeMessageDirectlyResult(
        order=listener.is_orderly,
        auto_commit=True,
        consume_result=outcome,
        remark=remark,
        spent_time_mills=clock.monotonic_ms() - started_ms,
    )


def _java_name(name: str) -> str:
    first, *rest = name.removesuffix("_ms").removesuffix("_mib").split("_")
    return first + "".join(map(str.capitalize, rest))


def _java_value(value: object) -> str:
    if value is None:
        return "-1"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, enum.Enum):
        return value.name
    return str(getattr(value, "name", value))
