"""Pulling messages: 11 and 361.

Imitated: the checks of a pull in RocketMQ's order, with code and remark; the code for
each case of an illegal offset; the rules of slaves; the commit that a pull carries;
long polling.
Not imitated: `litePullMessageEnable` (361 is always served); static topics; cold data;
`rejectPullConsumerEnable`; the groups that 5.x registers, and the broadcast offsets
that it keeps, for proxies.

Source: `PullMessageProcessor`, `DefaultPullMessageResultHandler` in apache/rocketmq.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from rmqcli.broker.dispatch import handles
from rmqcli.broker.filter.message_filter import MessageFilter, is_tag_type, tag_filter
from rmqcli.broker.filter.sql92 import compile_sql92
from rmqcli.broker.message.get import GetMessageResult, GetStatus, get_message
from rmqcli.broker.request import Refusal, Reply, no_group, no_topic, system_error
from rmqcli.broker.state.topics import PERM_READ
from rmqcli.broker.topic_names import OFFSET_MOVED_EVENT
from rmqcli.errors import UsageError
from rmqcli.model import MessageQueue
from rmqcli.store.message_store import StoreFullError
from rmqcli.wire.bodies.offset import OffsetMovedEvent
from rmqcli.wire.body import encode_body
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.headers.pull import PullMessageRequestHeader
from rmqcli.wire.message.encode import MessageFields
from rmqcli.wire.message.properties import KEYS, TAGS
from rmqcli.wire.subscription import SQL92, SUB_ALL, parse_subscription

if TYPE_CHECKING:
    from rmqcli.broker.filter.message_filter import Condition
    from rmqcli.broker.request import BrokerRequest
    from rmqcli.broker.state.broker import BrokerState
    from rmqcli.clock import Now
    from rmqcli.wire.bodies.config import SubscriptionGroupConfig, TopicConfig
    from rmqcli.wire.subscription import SubscriptionData

FLAG_COMMIT_OFFSET: Final = 1
FLAG_SUSPEND: Final = 2
FLAG_SUBSCRIPTION: Final = 4

# ForbiddenType (5.x)
_GROUP_FORBIDDEN: Final = 2
_TOPIC_FORBIDDEN: Final = 3
_BROADCASTING_DISABLE_FORBIDDEN: Final = 4
_SUBSCRIPTION_FORBIDDEN: Final = 5

_SUCCESS: Final = int(ResponseCode.SUCCESS)
_NOT_FOUND: Final = int(ResponseCode.PULL_NOT_FOUND)
_RETRY_IMMEDIATELY: Final = int(ResponseCode.PULL_RETRY_IMMEDIATELY)
_OFFSET_MOVED: Final = int(ResponseCode.PULL_OFFSET_MOVED)

_CODES: Final = {
    GetStatus.FOUND: _SUCCESS,
    GetStatus.MESSAGE_WAS_REMOVING: _RETRY_IMMEDIATELY,
    GetStatus.NO_MATCHED_MESSAGE: _RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: _NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: _NOT_FOUND,
}


@handles(RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
def pull_message(broker: BrokerState, request: BrokerRequest) -> Reply | None:
    """Answer a pull (11, 361), or hold it and return None."""
    header = request.header(PullMessageRequestHeader)
    return _pull(broker, request, header, request.now, may_suspend=True)


def _pull(
    broker: BrokerState,
    request: BrokerRequest,
    header: PullMessageRequestHeader,
    now: Now,
    *,
    may_suspend: bool,
) -> Reply | None:
    """Answer a pull, or with `may_suspend` hold it, and return None."""
    group = _check_group(broker, header.consumer_group)
    topic = _check_topic(broker, request, header)
    message_filter = _find_filter(broker, header, group)
    result = _result(broker, header, message_filter)
    code, broker_id = _code(broker, header, group, result)
    _commit(broker, header, result, may_commit=may_suspend)
    may_hold = may_suspend and code == _NOT_FOUND and header.sys_flag & FLAG_SUSPEND
    if may_hold and broker.holds.hold(
        request,
        header,
        message_filter,
        lambda later: _pull(broker, request, header, later, may_suspend=False),
    ):
        return None
    fields = {
        "suggestWhichBrokerId": str(broker_id),
        "nextBeginOffset": str(result.next_begin_offset),
        "minOffset": str(result.min_offset),
        "maxOffset": str(result.max_offset),
    }
    if broker.profile.answers_sys_flags:
        fields["topicSysFlag"] = str(topic.topic_sys_flag)
        fields["groupSysFlag"] = str(group.group_sys_flag)
    if code == _OFFSET_MOVED and broker.profile.writes_offset_moved_events:
        _store_offset_moved_event(broker, header, result.next_begin_offset, now)
    body = result.body if code == _SUCCESS else b""
    broker.stats.got(header.topic, header.consumer_group, body, now)
    return Reply(code, result.status, None, fields, body)


def _result(
    broker: BrokerState,
    header: PullMessageRequestHeader,
    message_filter: MessageFilter | None,
) -> GetMessageResult:
    topic, queue_id = header.topic, header.queue_id
    reset = broker.offsets.take_pending_reset(header.consumer_group, topic, queue_id)
    if reset is not None:
        low, high = broker.store.queue_bounds(topic, queue_id) or (0, 0)
        return GetMessageResult(GetStatus.OFFSET_RESET, reset, low, high)
    if header.max_msg_nums < 0 and broker.profile.refuses_negative_max_msg_nums:
        raise system_error(
            f"java.lang.IllegalArgumentException: Illegal Capacity: "
            f"{header.max_msg_nums}"
        )
    return get_message(
        broker,
        topic,
        queue_id,
        offset=header.queue_offset,
        max_msg_nums=header.max_msg_nums,
        message_filter=message_filter,
    )


def _code(
    broker: BrokerState,
    header: PullMessageRequestHeader,
    group: SubscriptionGroupConfig,
    result: GetMessageResult,
) -> tuple[int, int]:
    """The answer's code, and the id of the broker to pull from next."""
    if result.status == GetStatus.NO_MESSAGE_IN_QUEUE:
        code = _NOT_FOUND if header.queue_offset == 0 else _OFFSET_MOVED
    else:
        code = _CODES.get(result.status, _OFFSET_MOVED)
    settings = broker.settings
    broker_id = 0
    if settings.slave_read_enable:
        slow, usual = group.which_broker_when_consume_slowly, group.broker_id
        broker_id = slow if result.is_slow else usual
    if settings.broker_id == 0:
        return code, broker_id
    if broker.profile.slave_sends_to_master and not result.is_slow:
        broker_id = 0
        if result.status != GetStatus.FOUND:
            code = _RETRY_IMMEDIATELY
    if code == _OFFSET_MOVED and not settings.offset_check_in_slave:
        return _RETRY_IMMEDIATELY, group.broker_id
    return code, broker_id


def _commit(
    broker: BrokerState,
    header: PullMessageRequestHeader,
    result: GetMessageResult,
    *,
    may_commit: bool,
) -> None:
    """Store the pull offset, and commit the offset that the pull carries.

    The commit happens before a pull is held, and not again when it is answered.
    """
    offsets, group = broker.offsets, header.consumer_group
    offsets.commit_pull(group, header.topic, header.queue_id, result.next_begin_offset)
    if not may_commit or not header.sys_flag & FLAG_COMMIT_OFFSET:
        return
    if broker.settings.broker_id == 0 or broker.profile.slave_takes_commits:
        offsets.commit(group, header.topic, header.queue_id, header.commit_offset)


def _store_offset_moved_event(
    broker: BrokerState, header: PullMessageRequestHeader, offset_new: int, now: Now
) -> None:
    """Store a message in OFFSET_MOVED_EVENT: the group and its corrected offset (4.x).

    If the store is full, nothing is stored; Java writes to its log then.
    Source: PullMessageProcessor.generateOffsetMovedEvent.
    """
    group = header.consumer_group
    event = OffsetMovedEvent(
        consumer_group=group,
        message_queue=MessageQueue(
            header.topic, broker.settings.broker_name, header.queue_id
        ),
        offset_new=offset_new,
        offset_request=header.queue_offset,
    )
    fields = MessageFields(
        topic=OFFSET_MOVED_EVENT,
        body=encode_body(event),
        born_timestamp_ms=now.epoch_ms,
        born_host=broker.settings.address,
        store_timestamp_ms=now.epoch_ms,
        store_host=broker.settings.address,
        properties={KEYS: group, TAGS: group},
    )
    with suppress(StoreFullError):
        broker.writer.put([fields], now)


def _check_group(broker: BrokerState, group: str) -> SubscriptionGroupConfig:
    """Return the group's settings; create an unknown group if that is allowed.

    Raises Refusal: 26 and 16.
    """
    config = known_group(broker, group)
    if not config.consume_enable:
        raise _forbidden(
            broker, _GROUP_FORBIDDEN, f"subscription group no permission, {group}"
        )
    return config


def _check_topic(
    broker: BrokerState, request: BrokerRequest, header: PullMessageRequestHeader
) -> TopicConfig:
    """The topic's settings. Raises Refusal: 17, 16, and 29 (1 in 4.x)."""
    topic = header.topic
    config = known_topic(broker, topic)
    if not config.perm & PERM_READ:
        raise _forbidden(
            broker, _TOPIC_FORBIDDEN, f"the topic[{topic}] pulling message is forbidden"
        )
    if not 0 <= header.queue_id < config.read_queue_nums:
        code = broker.profile.invalid_parameter_code
        raise illegal_queue(code, request, config, topic, header.queue_id)
    return config


def _find_filter(
    broker: BrokerState,
    header: PullMessageRequestHeader,
    group: SubscriptionGroupConfig,
) -> MessageFilter | None:
    """The filter of a pull; None if all messages match.

    Raises Refusal: 23, 24, 25, 27, 16 and 1.
    """
    if header.sys_flag & FLAG_SUBSCRIPTION:
        if header.subscription == SUB_ALL and is_tag_type(header.expression_type):
            return None
        subscription = parsed_subscription(
            header.topic,
            header.subscription,
            header.expression_type,
            sub_version=header.sub_version,
        )
        is_registered = False
    else:
        subscription = _registered(broker, header, group)
        is_registered = True
    if is_tag_type(subscription.expression_type):
        return tag_filter(subscription)
    return _property_filter(broker, subscription, is_registered=is_registered)


def parsed_subscription(
    topic: str, text: str | None, expression_type: str | None, *, sub_version: int = 0
) -> SubscriptionData:
    """Return the subscription in a request. Raises Refusal(23)."""
    kind = None if is_tag_type(expression_type) else expression_type
    try:
        return parse_subscription(
            topic, text, expression_type=kind, sub_version=sub_version
        )
    except UsageError:
        raise not_parsed() from None


def not_parsed() -> Refusal:
    """The refusal (23) of a subscription that cannot be read."""
    return Refusal(
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        "parse the consumer's subscription failed",
    )


def sql_condition(
    broker: BrokerState, subscription: SubscriptionData
) -> Condition | None:
    """The condition of an SQL92 subscription; None of another or an invalid one."""
    if subscription.expression_type != SQL92:
        return None
    has_text_words = broker.profile.has_sql_text_words
    return compile_sql92(subscription.sub_string, has_text_words=has_text_words)


def _registered(
    broker: BrokerState,
    header: PullMessageRequestHeader,
    config: SubscriptionGroupConfig,
) -> SubscriptionData:
    """The subscription from the group's heartbeats. Raises Refusal: 24, 25 and 16."""
    name = header.consumer_group
    group = broker.clients.consumer_group(name)
    if group is None:
        raise Refusal(
            ResponseCode.SUBSCRIPTION_NOT_EXIST,
            f"the consumer's group info not exist{see(broker)}",
        )
    if not config.consume_broadcast_enable and group.message_model == "BROADCASTING":
        raise _forbidden(
            broker,
            _BROADCASTING_DISABLE_FORBIDDEN,
            f"the consumer group[{name}] can not consume by broadcast way",
        )
    if broker.groups.is_read_forbidden(name, header.topic):
        raise _forbidden(
            broker,
            _SUBSCRIPTION_FORBIDDEN,
            f"the consumer group[{name}] is forbidden for topic[{header.topic}]",
        )
    subscription = group.subscriptions.get(header.topic)
    if subscription is None:
        raise Refusal(
            ResponseCode.SUBSCRIPTION_NOT_EXIST,
            f"the consumer's subscription not exist{see(broker)}",
        )
    if subscription.sub_version < header.sub_version:
        raise Refusal(
            ResponseCode.SUBSCRIPTION_NOT_LATEST,
            "the consumer's subscription not latest",
        )
    return subscription


def _property_filter(
    broker: BrokerState, subscription: SubscriptionData, *, is_registered: bool
) -> MessageFilter | None:
    """The filter of an SQL92 expression; None if all messages match.

    In all versions, an invalid expression in the pull itself matches all messages. If
    the invalid expression comes from a heartbeat, the pull is refused.
    """
    condition = sql_condition(broker, subscription)
    if is_registered and condition is None:
        raise Refusal(
            ResponseCode.FILTER_DATA_NOT_EXIST,
            "The broker's consumer filter data is not exist!"
            "Your expression may be wrong!",
        )
    if not broker.settings.enable_property_filter:
        raise system_error(
            "The broker does not support consumer to filter message by "
            f"{subscription.expression_type}"
        )
    return None if condition is None else MessageFilter(condition=condition)


def _forbidden(broker: BrokerState, forbidden_type: int, remark: str) -> Refusal:
    fields = None
    if broker.profile.answers_sys_flags:
        fields = {"forbiddenType": str(forbidden_type)}
    return Refusal(ResponseCode.NO_PERMISSION, remark, ext_fields=fields)


def known_topic(broker: BrokerState, topic: str) -> TopicConfig:
    """The settings of a topic. Raises Refusal(17) for an unknown one."""
    config = broker.topics.get(topic)
    if config is None:
        raise no_topic(f"topic[{topic}] not exist, apply first please! {see(broker)}")
    return config


def known_group(broker: BrokerState, group: str) -> SubscriptionGroupConfig:
    """The settings of a group, created if that is allowed. Raises Refusal(26)."""
    config = broker.groups.find_or_create(group)
    if config is None:
        raise no_group(f"subscription group [{group}] does not exist, {see(broker)}")
    return config


def illegal_queue(
    code: int, request: BrokerRequest, config: TopicConfig, topic: str, queue_id: int
) -> Refusal:
    """The refusal of a queue id that a topic does not have."""
    return Refusal(
        code,
        f"queueId[{queue_id}] is illegal, topic:[{topic}] "
        f"topicConfig.readQueueNums:[{config.read_queue_nums}] "
        f"consumer:[/{request.peer.address}]",
    )


def see(broker: BrokerState) -> str:
    """The end of a remark: a link to the documentation. Source: FAQUrl.suggestTodo."""
    return f"\nSee {broker.profile.route_help} for further details."
