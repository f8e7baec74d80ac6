"""Waiting for messages without receiving them, and counting waiting POP requests.

NOTIFICATION (200054) waits, POLLING_INFO (200055) counts.
Imitated: the checks in RocketMQ's order; messages in the retry topic count, too; long
polling until there is a message or the poll time is over (then hasMsg is false).
Not imitated: the filter of a notification (5.5); priority and lite topics.

Source: `NotificationProcessor` and `PollingInfoProcessor` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.broker.dispatch import handles
from rmqcli.broker.request import BrokerRequest, Reply
from rmqcli.broker.requests.pop.pop_message import check_readable, with_born_time
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.headers import pop
from rmqcli.wire.receipt_handle import pop_retry_topic
from rmqcli.wire.version import V5_0_0

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqcli.broker.state.broker import BrokerState
    from rmqcli.clock import Now


@handles(RequestCode.NOTIFICATION, since=V5_0_0)
def notification(broker: BrokerState, request: BrokerRequest) -> Reply | None:
    """Answer that there are messages; hold the request if there are none (200054)."""
    header = with_born_time(request, request.now).header(pop.NotificationRequestHeader)
    return _notify(broker, request, header, request.now)


def _notify(
    broker: BrokerState,
    request: BrokerRequest,
    header: pop.NotificationRequestHeader,
    now: Now,
) -> Reply | None:
    topic, group, queue_id = header.topic, header.consumer_group, header.queue_id
    config = check_readable(broker, request, header)
    queue_ids = range(config.read_queue_nums) if queue_id < 0 else (queue_id,)
    queues = [(topic, each) for each in queue_ids]
    queues += _retry_queues(broker, topic, group)
    if any(_has_message(broker, header, queue, now) for queue in queues):
        return Reply(header=pop.NotificationResponseHeader(has_msg=True))
    refused = broker.notification_holds.hold(
        (topic, group, queue_id),
        request,
        born_time=header.born_time,
        poll_time=header.poll_time,
        now=now,
        again=lambda later: _notify(broker, request, header, later),
    )
    if refused is None:
        return None
    is_full = refused == ResponseCode.POLLING_FULL
    return Reply(header=pop.NotificationResponseHeader(polling_full=is_full))


def _retry_queues(
    broker: BrokerState, topic: str, group: str
) -> Iterator[tuple[str, int]]:
    for is_v2 in {broker.settings.enable_retry_topic_v2, False}:
        config = broker.topics.get(pop_retry_topic(topic, group, v2=is_v2))
        if config is not None:
            for queue_id in range(config.read_queue_nums):
                yield config.topic_name, queue_id


def _has_message(
    broker: BrokerState,
    header: pop.NotificationRequestHeader,
    queue: tuple[str, int],
    now: Now,
) -> bool:
    group = header.consumer_group
    key = (header.topic, group, queue[1])
    if header.order and broker.order_infos.is_blocked(
        key, now, attempt_id=header.attempt_id
    ):
        return False
    bounds = broker.store.queue_bounds(*queue)
    if bounds is None:
        return False
    offset = broker.offsets.query(group, *queue)
    return bounds[1] > (bounds[0] if offset is None else offset)


@handles(RequestCode.POLLING_INFO, since=V5_0_0)
def polling_info(broker: BrokerState, request: BrokerRequest) -> Reply:
    """The number of POP requests that wait for a group's queue (200055).

    With queue id -1, it is the number of those that wait for any queue.
    """
    header = request.header(pop.PollingInfoRequestHeader)
    topic, group, queue_id = header.topic, header.consumer_group, header.queue_id
    check_readable(broker, request, header)
    count = broker.pop_holds.waiting(topic, group, queue_id)
    return Reply(header=pop.PollingInfoResponseHeader(polling_num=count))
