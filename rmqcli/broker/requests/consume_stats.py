"""Consumer progress: 208, 300, 303, 314, 317, 343 and 345.

The requests return the lag of each queue, the groups that consume a topic, the topics
that a group consumes, and the times of stored and waiting messages; 314 copies a
group's offsets.
Imitated: which topics and queues each request covers, and how RocketMQ clamps numbers.
Not imitated: retry topics of version 2, offsets of broadcast groups.

Source: `AdminBrokerProcessor.getConsumeStats`, `fetchAllConsumeStatsInBroker`,
`queryConsumeTimeSpan`, `queryTopicConsumeByWho`, `cloneGroupOffset` in apache/rocketmq.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from rmqcli.broker.dispatch import handles
from rmqcli.broker.request import BrokerRequest, Reply, no_topic
from rmqcli.model import MessageQueue
from rmqcli.wire.bodies.broker import ConsumeStatsList
from rmqcli.wire.bodies.consumer import QuerySubscriptionResponseBody
from rmqcli.wire.bodies.offset import GroupListBody
from rmqcli.wire.bodies.route import TopicListBody
from rmqcli.wire.bodies.stats import (
    ConsumeStats,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
)
from rmqcli.wire.body import encode_body
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.headers import admin
from rmqcli.wire.headers.offset import CloneGroupOffsetRequestHeader
from rmqcli.wire.version import V5_0_0

if TYPE_CHECKING:
    from rmqcli.broker.state.broker import BrokerState
    from rmqcli.clock import Now


@handles(RequestCode.GET_CONSUME_STATS)
def get_consume_stats(broker: BrokerState, request: BrokerRequest) -> Reply:
    """GET_CONSUME_STATS (208). Unknown topics are left out, without an error."""
    header = request.header(admin.GetConsumeStatsRequestHeader)
    group = header.consumer_group
    listed = [each for each in (header.topic_list or "").split(";") if each.strip()]
    if listed:
        topics = dict.fromkeys(listed)
    else:
        topics = dict.fromkeys(
            each
            for each in _asked_topics(broker, group, header.topic)
            if _is_subscribed(broker, group, each)
        )
    table: dict[MessageQueue, OffsetWrapper] = {}
    tps = 0.0
    for topic in topics:
        rows = _consume_rows(broker, group, topic)
        if rows is not None:
            table |= rows
            tps += _tps(broker, group, topic, request.now)
    return Reply(body=encode_body(ConsumeStats(consume_tps=tps, offsets=table)))


def _asked_topics(broker: BrokerState, group: str, topic: str | None) -> list[str]:
    if topic and topic.strip():
        return [topic]
    return sorted(broker.offsets.topics_of(group))


def _is_subscribed(broker: BrokerState, group: str, topic: str) -> bool:
    """Whether the group subscribes to the topic; true for a group without members."""
    online = broker.clients.consumer_group(group)
    return online is None or not online.subscriptions or topic in online.subscriptions


def _consume_rows(
    broker: BrokerState, group: str, topic: str
) -> dict[MessageQueue, OffsetWrapper] | None:
    """A row for each read queue; None when the topic is unknown."""
    config = broker.topics.get(topic)
    if config is None:
        return None
    name = broker.settings.broker_name
    return {
        MessageQueue(topic, name, queue_id): _consume_row(
            broker, group, topic, queue_id
        )
        for queue_id in range(config.read_queue_nums)
    }


def _consume_row(
    broker: BrokerState, group: str, topic: str, queue_id: int
) -> OffsetWrapper:
    """The row of one queue. Without a commit, `consumerOffset` is 0, as in RocketMQ."""
    _, broker_offset = broker.store.queue_bounds(topic, queue_id) or (0, 0)
    consumed = max(0, broker.offsets.query(group, topic, queue_id) or 0)
    time_ms = None
    if consumed:
        time_ms = broker.store.store_time_ms(topic, queue_id, consumed - 1)
    pull_offset = None
    if broker.profile.has_bodies_of_5:
        pulled = broker.offsets.pull_offset(group, topic, queue_id)
        pull_offset = max(consumed, pulled or 0)
    return OffsetWrapper(
        broker_offset=broker_offset,
        consumer_offset=consumed,
        pull_offset=pull_offset,
        last_timestamp=time_ms or 0,
    )


def _tps(broker: BrokerState, group: str, topic: str, now: Now) -> float:
    return broker.stats.group_get_nums.recent(f"{topic}@{group}", now).tps


@handles(RequestCode.GET_BROKER_CONSUME_STATS)
def get_broker_consume_stats(broker: BrokerState, request: BrokerRequest) -> Reply:
    """GET_BROKER_CONSUME_STATS (317): for each group, a list with its topics' stats."""
    is_order = request.header(admin.GetConsumeStatsInBrokerHeader).is_order
    listed: list[dict[str, list[ConsumeStats]]] = []
    total = inflight = 0
    for group in broker.groups.all():
        stats: list[ConsumeStats] = []
        for topic in sorted(broker.offsets.topics_of(group)):
            config = broker.topics.get(topic)
            if config is None or (is_order and not config.order):
                continue
            if not _is_subscribed(broker, group, topic):
                continue
            rows = _consume_rows(broker, group, topic) or {}
            tps = _tps(broker, group, topic, request.now)
            stats.append(ConsumeStats(consume_tps=tps, offsets=rows))
            for row in rows.values():
                total += row.broker_offset - row.consumer_offset
                inflight += (row.pull_offset or 0) - row.consumer_offset
        listed.append({group: stats})
    body = ConsumeStatsList(
        broker_addr=broker.settings.address,
        consume_stats_list=listed,
        total_diff=total,
        total_inflight_diff=inflight if broker.profile.has_bodies_of_5 else None,
    )
    return Reply(body=encode_body(body))


@handles(RequestCode.QUERY_CONSUME_TIME_SPAN)
def get_consume_time_span(broker: BrokerState, request: BrokerRequest) -> Reply:
    """QUERY_CONSUME_TIME_SPAN (303)."""
    header = request.header(admin.QueryConsumeTimeSpanRequestHeader)
    topic, group = header.topic, header.group
    config = broker.topics.get(topic)
    if config is None:
        raise no_topic(f"topic[{topic}] not exist")
    now_ms = request.now.epoch_ms
    spans = [
        _time_span(
            broker, group, MessageQueue(topic, broker.settings.broker_name, n), now_ms
        )
        for n in range(config.write_queue_nums)
    ]
    body = QueryConsumeTimeSpanBody(consume_time_span_set=spans)
    return Reply(body=encode_body(body))


def _time_span(
    broker: BrokerState, group: str, queue: MessageQueue, now_ms: int
) -> QueueTimeSpan:
    topic, queue_id = queue.topic, queue.queue_id
    low, high = broker.store.queue_bounds(topic, queue_id) or (0, 0)
    consumed = max(0, broker.offsets.query(group, topic, queue_id) or 0)
    first = _time(broker, topic, queue_id, low)
    last = _time(broker, topic, queue_id, high - 1)
    at = _time(broker, topic, queue_id, consumed - 1) if consumed else first
    delay_ms = 0  # the age of the next message to consume, if there is one
    if consumed < high:
        delay_ms = max(0, now_ms - _time(broker, topic, queue_id, consumed))
    return QueueTimeSpan(
        queue=queue,
        min_time_stamp=first,
        max_time_stamp=last,
        consume_time_stamp=at,
        delay_time=delay_ms,
        min_time_stamp_str=_human(first),
        max_time_stamp_str=_human(last),
        consume_time_stamp_str=_human(at),
    )


def _time(broker: BrokerState, topic: str, queue_id: int, offset: int) -> int:
    time_ms = (
        broker.store.store_time_ms(topic, queue_id, offset) if offset >= 0 else None
    )
    return -1 if time_ms is None else time_ms


def _human(epoch_ms: int) -> str:
    """Local time as text, like `UtilAll.timeMillisToHumanString2`; "" before 1970."""
    if epoch_ms < 0:
        return ""
    moment = datetime.fromtimestamp(epoch_ms // 1000)  # noqa: DTZ006  # local, as Java
    return f"{moment:%Y-%m-%d#%H:%M:%S}:{epoch_ms % 1000:03d}"


@handles(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO)
def get_groups_of_topic(broker: BrokerState, request: BrokerRequest) -> Reply:
    """QUERY_TOPIC_CONSUME_BY_WHO (300): groups with members or with offsets."""
    topic = request.header(admin.QueryTopicConsumeByWhoRequestHeader).topic
    online = {
        name
        for name in broker.clients.groups()
        if broker.clients.subscription(name, topic) is not None
    }
    groups = sorted(online | broker.offsets.groups_of(topic))
    return Reply(body=encode_body(GroupListBody(group_list=groups)))


@handles(RequestCode.QUERY_TOPICS_BY_CONSUMER, since=V5_0_0)
def get_topics_of_group(broker: BrokerState, request: BrokerRequest) -> Reply:
    """QUERY_TOPICS_BY_CONSUMER (343): the topics in which the group has committed."""
    group = request.header(admin.QueryTopicsByConsumerRequestHeader).group
    topics = sorted(broker.offsets.topics_of(group))
    body = TopicListBody(broker_addr=broker.settings.address, topic_list=topics)
    return Reply(body=encode_body(body))


@handles(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, since=V5_0_0)
def get_subscription(broker: BrokerState, request: BrokerRequest) -> Reply:
    """QUERY_SUBSCRIPTION_BY_CONSUMER (345)."""
    header = request.header(admin.QuerySubscriptionByConsumerRequestHeader)
    body = QuerySubscriptionResponseBody(
        group=header.group,
        topic=header.topic,
        subscription_data=broker.clients.subscription(header.group, header.topic or ""),
    )
    return Reply(body=encode_body(body))


@handles(RequestCode.CLONE_GROUP_OFFSET)
def clone_offsets(broker: BrokerState, request: BrokerRequest) -> Reply:
    """CLONE_GROUP_OFFSET (314): copies a group's offsets to another group.

    Unknown topics are skipped. So are topics to which the target group does not
    subscribe, unless the request has `offline` or the target group has no members.
    """
    header = request.header(CloneGroupOffsetRequestHeader)
    source, target = header.src_group, header.dest_group
    for topic in _asked_topics(broker, source, header.topic):
        if broker.topics.get(topic) is None:
            continue
        if header.offline or _is_subscribed(broker, target, topic):
            broker.offsets.clone(topic, source, target)
    return Reply()
