"""Requests about the clients that are connected to a broker.

Source: AdminBrokerProcessor and ConsumerManageProcessor of the broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.api.call import make_call, nothing
from rmqcli.model import TOOLS_CONSUMER_GROUP
from rmqcli.wire.body import decode_body, encode_body
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.headers import admin as headers
from rmqcli.wire.version import V5_0_0

if TYPE_CHECKING:
    from rmqcli.api.call import Call
    from rmqcli.wire.bodies.consumer import ConsumerConnection, ConsumerRunningInfo
    from rmqcli.wire.bodies.heartbeat import ConsumeMessageDirectlyResult
    from rmqcli.wire.command import RemotingCommand
    from rmqcli.wire.subscription import SubscriptionData


def get_consumer_connection_list(group: str) -> Call[ConsumerConnection | None]:
    """The group's members on this broker, or None when none is online (code 206)."""
    return make_call(
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        _consumer_connection,
        what=f"members of group {group}",
        header=headers.GetConsumerConnectionListRequestHeader(consumer_group=group),
        also_ok=(ResponseCode.CONSUMER_NOT_ONLINE,),
    )


def get_consumer_list_by_group(group: str) -> Call[list[str]]:
    """The client ids of the group's members; an error (code 1) if there are none."""
    return make_call(
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        _consumer_list,
        what=f"client ids of group {group}",
        header=headers.GetConsumerListByGroupRequestHeader(consumer_group=group),
    )


def get_consumer_running_info(
    group: str, client_id: str, *, jstack: bool = False
) -> Call[ConsumerRunningInfo]:
    """The state of one member: its settings, subscriptions, queues and rates.

    The broker requests it from the member, and waits up to 10 s for the answer.
    """
    return make_call(
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        _consumer_running_info,
        what=f"running info of {client_id}",
        header=headers.GetConsumerRunningInfoRequestHeader(
            consumer_group=group, client_id=client_id, jstack_enable=jstack
        ),
    )


def consume_message_directly(
    group: str, client_id: str, *, offset_msg_id: str, topic: str
) -> Call[ConsumeMessageDirectlyResult]:
    """Have one member consume one message that the broker stores.

    The broker finds the message by the commit log offset in `offset_msg_id`, passes it
    to the member, and waits up to 10 s for the answer. Not to be repeated: without an
    answer, the listener may have been called.
    """
    from rmqcli.wire.headers.client import (  # for few commands
        ConsumeMessageDirectlyResultRequestHeader,
    )

    return make_call(
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        _direct_result,
        what=f"consumption by {client_id}",
        header=ConsumeMessageDirectlyResultRequestHeader(
            consumer_group=group, client_id=client_id, msg_id=offset_msg_id, topic=topic
        ),
    )


def query_topics_by_consumer(group: str) -> Call[list[str]]:
    """Topics in which the group has committed offsets (5.0 and later)."""
    return make_call(
        RequestCode.QUERY_TOPICS_BY_CONSUMER,
        _topic_list,
        what=f"topics of group {group}",
        header=headers.QueryTopicsByConsumerRequestHeader(group=group),
        needs_version=V5_0_0,
    )


def check_client_config(
    subscription: SubscriptionData,
    *,
    client_id: str = "rmqcli",
    group: str = TOOLS_CONSUMER_GROUP,
) -> Call[None]:
    """Ask whether the broker can filter by the expression of a subscription.

    The broker answers with code 1 if it has SQL92 switched off, and with
    SUBSCRIPTION_PARSE_FAILED if it cannot parse the expression. A pull does not reveal
    that: with an expression that cannot be parsed it returns every message.
    """
    from rmqcli.wire.bodies.heartbeat import CheckClientRequestBody

    return make_call(
        RequestCode.CHECK_CLIENT_CONFIG,
        nothing,
        what=f"check of {subscription.expression_type} for topic {subscription.topic}",
        body=encode_body(
            CheckClientRequestBody(
                client_id=client_id, group=group, subscription_data=subscription
            )
        ),
    )


# The classes of bodies are imported with the first answer that has one: most groups in
# `rmq lag` have no member online, and the imports would slow down every start.


def _consumer_connection(answer: RemotingCommand) -> ConsumerConnection | None:
    if answer.code == ResponseCode.CONSUMER_NOT_ONLINE:
        return None
    from rmqcli.wire.bodies.consumer import ConsumerConnection

    return decode_body(ConsumerConnection, answer.body)


def _consumer_list(answer: RemotingCommand) -> list[str]:
    from rmqcli.wire.bodies.consumer import GetConsumerListByGroupResponseBody

    return decode_body(GetConsumerListByGroupResponseBody, answer.body).consumer_id_list


def _consumer_running_info(answer: RemotingCommand) -> ConsumerRunningInfo:
    from rmqcli.wire.bodies.consumer import ConsumerRunningInfo

    return decode_body(ConsumerRunningInfo, answer.body)


def _direct_result(answer: RemotingCommand) -> ConsumeMessageDirectlyResult:
    from rmqcli.wire.bodies.heartbeat import ConsumeMessageDirectlyResult

    return decode_body(ConsumeMessageDirectlyResult, answer.body)


def _topic_list(answer: RemotingCommand) -> list[str]:
    from rmqcli.wire.bodies.route import TopicListBody

    return decode_body(TopicListBody, answer.body).topic_list
