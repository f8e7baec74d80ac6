"""Requests that a broker forwards to consumers: 307, 309 and 223.

Imitated: the fields of 307 and 309 are forwarded unchanged (309 adds brokerName and
flags), and so are the client's answers; the check of the client's version; the time
limits, which are 10 s for 307 and 309, and 5 s for each member for 223.
Not imitated: for 223, RocketMQ queries the members one after the other; here, all are
queried at once.

Source: `AdminBrokerProcessor.getConsumerRunningInfo`, `consumeMessageDirectly`,
`Broker2Client.getConsumeStatus` in apache/rocketmq.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from rmqcli.broker.dispatch import handles
from rmqcli.broker.request import BrokerRequest, Reply, system_error
from rmqcli.broker.state.client_calls import NoAnswer
from rmqcli.errors import RmqError
from rmqcli.wire.bodies.offset import GetConsumerStatusBody
from rmqcli.wire.body import decode_body, encode_body
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.headers.admin import GetConsumerRunningInfoRequestHeader
from rmqcli.wire.headers.client import ConsumeMessageDirectlyResultRequestHeader
from rmqcli.wire.headers.offset import GetConsumerStatusRequestHeader
from rmqcli.wire.ids import decode_offset_msg_id
from rmqcli.wire.version import version_name

if TYPE_CHECKING:
    from rmqcli.broker.state.broker import BrokerState
    from rmqcli.broker.state.clients import ConnectedMember
    from rmqcli.model import MessageQueue
    from rmqcli.wire.command import RemotingCommand

_V3_0_7_SNAPSHOT: Final = 28
_V3_1_8_SNAPSHOT: Final = 62
STATUS_TIMEOUT_MS: Final = 5_000


@handles(RequestCode.GET_CONSUMER_RUNNING_INFO)
def get_running_info(broker: BrokerState, request: BrokerRequest) -> Reply | None:
    """Query the running info of one consumer (307)."""
    header = request.header(GetConsumerRunningInfoRequestHeader)
    member = _member(broker, header.consumer_group, header.client_id)
    broker.client_calls.forward(
        request,
        member.peer,
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        ext_fields=request.command.ext_fields,
    )
    return None


@handles(RequestCode.CONSUME_MESSAGE_DIRECTLY)
def consume_directly(broker: BrokerState, request: BrokerRequest) -> Reply | None:
    """Make one consumer consume one stored message now (309)."""
    header = request.header(ConsumeMessageDirectlyResultRequestHeader)
    try:
        offset = decode_offset_msg_id(header.msg_id or "").commit_log_offset
    except RmqError as error:
        raise system_error(error.message) from error
    body = broker.store.message_at(offset)
    if body is None:
        raise system_error(
            f"no message found with id {header.msg_id} (commit log offset {offset})"
        )
    member = _member(broker, header.consumer_group, header.client_id or "")
    fields = {
        "topicSysFlag": "0",
        "groupSysFlag": "0",
        **request.command.ext_fields,
        "brokerName": broker.settings.broker_name,
    }
    broker.client_calls.forward(
        request,
        member.peer,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        ext_fields=fields,
        body=body,
    )
    return None


@handles(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS)
def get_consumer_status(broker: BrokerState, request: BrokerRequest) -> Reply | None:
    """Query the offsets of all members, or of one, in a topic (223)."""
    header = request.header(GetConsumerStatusRequestHeader)
    group = broker.clients.consumer_group(header.group)
    if group is None:
        raise system_error(
            f"No Any Consumer online in the consumer group: [{header.group}]"
        )
    wanted = (header.client_addr or "").strip()
    members = [m for m in group.members if wanted in ("", m.client_id)]
    for member in members:
        if member.version < _V3_0_7_SNAPSHOT:
            raise system_error(
                "the client does not support this feature. "
                f"version={version_name(member.version)}"
            )
    if not members:
        return Reply(body=_status_body({}))
    asked = GetConsumerStatusRequestHeader(topic=header.topic, group=header.group)
    missing = len(members)
    table: dict[str, dict[MessageQueue, int]] = {}

    def take(member: ConnectedMember, answer: RemotingCommand | NoAnswer) -> None:
        nonlocal missing
        missing -= 1
        if not isinstance(answer, NoAnswer) and answer.code == ResponseCode.SUCCESS:
            try:
                status = decode_body(GetConsumerStatusBody, bytes(answer.body))
            except RmqError:
                pass  # as in RocketMQ, a member with an unreadable answer is left out
            else:
                table[member.client_id] = status.message_queue_table
        if not missing:
            broker.answer(request, Reply(body=_status_body(table)))

    for member in members:
        broker.client_calls.call(
            member.peer,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
            request.now,
            done=functools.partial(take, member),
            header=asked,
            timeout_ms=STATUS_TIMEOUT_MS,
        )
    return None


def _status_body(table: dict[str, dict[MessageQueue, int]]) -> bytes:
    return encode_body(GetConsumerStatusBody(consumer_table=table))


def _member(broker: BrokerState, group: str, client_id: str) -> ConnectedMember:
    found = broker.clients.consumer_group(group)
    member = None if found is None else found.member(client_id)
    if member is None:
        raise system_error(f"The Consumer <{group}> <{client_id}> not online")
    if member.version < _V3_1_8_SNAPSHOT:
        raise system_error(
            f"The Consumer <{client_id}> Version <{version_name(member.version)}> too "
            "low to finish, please upgrade it to V3_1_8_SNAPSHOT"
        )
    return member
