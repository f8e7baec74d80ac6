"""Whether a group may pull from a queue, and what it subscribes there.

Imitated: all checks of a pull in RocketMQ's order, with code and remark. Not imitated:
static topics, cold data, `rejectPullConsumerEnable`, groups made up for a proxy.

Source: `PullMessageProcessor.processRequest` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.broker.filter.message_filter import PropertyFilter, is_tag_type, tag_filter
from rmqcli.broker.filter.sql92 import compile_sql92
from rmqcli.broker.request import Refusal
from rmqcli.broker.state.topics import PERM_READ
from rmqcli.errors import UsageError
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.subscription import SQL92, SUB_ALL, parse_subscription

if TYPE_CHECKING:
    from rmqcli.broker.core import Broker
    from rmqcli.broker.filter.message_filter import MessageFilter
    from rmqcli.broker.request import Request
    from rmqcli.wire.bodies.config import SubscriptionGroupConfig, TopicConfig
    from rmqcli.wire.headers.pull import PullMessageRequestHeader
    from rmqcli.wire.subscription import SubscriptionData

FLAG_COMMIT_OFFSET: Final = 1
FLAG_SUSPEND: Final = 2
FLAG_SUBSCRIPTION: Final = 4
FLAG_CLASS_FILTER: Final = 8

# ForbiddenType (5.x)
_GROUP_FORBIDDEN: Final = 2
_TOPIC_FORBIDDEN: Final = 3
_BROADCASTING_DISABLE_FORBIDDEN: Final = 4
_SUBSCRIPTION_FORBIDDEN: Final = 5


def check_group(broker: Broker, group: str) -> SubscriptionGroupConfig:
    """The group's settings, created where that is allowed. Raises Refusal(26, 16)."""
    config = broker.groups.get(group) or broker.groups.find_or_create(group)
    if config is None:
        raise Refusal(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"subscription group [{group}] does not exist, {_see(broker)}",
        )
    if not config.consume_enable:
        raise _forbidden(
            broker, _GROUP_FORBIDDEN, f"subscription group no permission, {group}"
        )
    return config


def check_topic(
    broker: Broker, request: Request, header: PullMessageRequestHeader
) -> TopicConfig:
    """The topic's settings. Raises Refusal: 17, 16, and 29 (1 in 4.x)."""
    topic = header.topic
    config = broker.topics.get(topic)
    if config is None:
        raise Refusal(
            ResponseCode.TOPIC_NOT_EXIST,
            f"topic[{topic}] not exist, apply first please! {_see(broker)}",
        )
    if not config.perm & PERM_READ:
        raise _forbidden(
            broker, _TOPIC_FORBIDDEN, f"the topic[{topic}] pulling message is forbidden"
        )
    if not 0 <= header.queue_id < config.read_queue_nums:
        raise Refusal(
            broker.manners.invalid_parameter_code,
            f"queueId[{header.queue_id}] is illegal, topic:[{topic}] "
            f"topicConfig.readQueueNums:[{config.read_queue_nums}] "
            f"consumer:[/{request.peer.address}]",
        )
    return config


def find_filter(
    broker: Broker, header: PullMessageRequestHeader, group: SubscriptionGroupConfig
) -> MessageFilter | None:
    """What the pull asks for; None: everything. Raises Refusal: 23, 24, 25, 27, 1."""
    if header.sys_flag & FLAG_SUBSCRIPTION:
        if header.subscription == SUB_ALL and is_tag_type(header.expression_type):
            return None
        subscription = _parsed(header)
        is_registered = False
    else:
        subscription = _registered(broker, header, group)
        is_registered = True
    if is_tag_type(subscription.expression_type):
        return tag_filter(subscription)
    return _property_filter(broker, subscription, is_registered=is_registered)


def _parsed(header: PullMessageRequestHeader) -> SubscriptionData:
    expression_type = header.expression_type
    try:
        return parse_subscription(
            header.topic,
            header.subscription,
            expression_type=None if is_tag_type(expression_type) else expression_type,
            sub_version=header.sub_version,
        )
    except UsageError:
        raise Refusal(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            "parse the consumer's subscription failed",
        ) from None


def _registered(
    broker: Broker, header: PullMessageRequestHeader, config: SubscriptionGroupConfig
) -> SubscriptionData:
    """What the group's heartbeats said."""
    name = header.consumer_group
    group = broker.clients.consumer_group(name)
    if group is None:
        raise Refusal(
            ResponseCode.SUBSCRIPTION_NOT_EXIST,
            f"the consumer's group info not exist{_see(broker)}",
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
            f"the consumer's subscription not exist{_see(broker)}",
        )
    if subscription.sub_version < header.sub_version:
        raise Refusal(
            ResponseCode.SUBSCRIPTION_NOT_LATEST,
            "the consumer's subscription not latest",
        )
    return subscription


def _property_filter(
    broker: Broker, subscription: SubscriptionData, *, is_registered: bool
) -> MessageFilter | None:
    """A text that cannot be read filters nothing in a pull that brings it along (so
    all of RocketMQ's versions), and is refused when a heartbeat brought it.
    """
    condition = None
    if subscription.expression_type == SQL92:
        condition = compile_sql92(
            subscription.sub_string,
            has_text_words=broker.manners.has_sql_text_words,
        )
    if is_registered and condition is None:
        raise Refusal(
            ResponseCode.FILTER_DATA_NOT_EXIST,
            "The broker's consumer filter data is not exist!"
            "Your expression may be wrong!",
        )
    if not broker.settings.enable_property_filter:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            "The broker does not support consumer to filter message by "
            f"{subscription.expression_type}",
        )
    return None if condition is None else PropertyFilter(condition)


def _forbidden(broker: Broker, forbidden_type: int, remark: str) -> Refusal:
    fields = None
    if broker.manners.tells_sys_flags:
        fields = {"forbiddenType": str(forbidden_type)}
    return Refusal(ResponseCode.NO_PERMISSION, remark, ext_fields=fields)


def _see(broker: Broker) -> str:
    """Source: FAQUrl.suggestTodo."""
    return f"\nSee {broker.manners.route_help} for further details."
