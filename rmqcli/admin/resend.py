"""Has one member of a group consume one stored message now, and says what it answered.

The broker that stores the message passes it to the member, which calls its listener and
reports the result. A client of gRPC is asked by its proxy, if that is part of the
broker (local mode); brokers do not know the clients of other proxies. Offsets, retries
and dead letters are not touched: a message that the listener refuses is not tried
again. So only the member's answer says what happened, and where none arrives, the
listener may have been called all the same.

Source: AdminBrokerProcessor.consumeMessageDirectly, Broker2Client.callClient,
NettyRemotingAbstract.processRequestCommand, ConsumeMessageService
#consumeMessageDirectly, ClientActivity.buildConsumeMessageDirectlyResult in
apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.admin.brokers import reader_addresses
from rmqcli.admin.groups import chosen_member, online_members
from rmqcli.admin.message.find import (
    find_messages,
    is_id,
    missing_message,
)
from rmqcli.admin.message.place import set_removed_aside
from rmqcli.admin.message.records import PENDING_TOPICS
from rmqcli.api.calls.consumer import (
    consume_message_directly,
    get_consumer_connection_list,
)
from rmqcli.api.calls.stats import query_topic_consume_by_who
from rmqcli.client_id import is_grpc_client
from rmqcli.dataclass import dataclass
from rmqcli.errors import (
    BrokerError,
    ChangeUnknownError,
    NoBrokerError,
    NotFoundError,
    PartialError,
    RefusedError,
    RmqError,
    TransportError,
    UsageError,
    WireError,
)
from rmqcli.units import counted
from rmqcli.wire.codes import ResponseCode

if TYPE_CHECKING:
    from rmqcli.api.client import Client
    from rmqcli.engine.message import PulledMessage

#: Results of a listener that consumed the message.
GOOD: Final = ("CR_SUCCESS", "CR_COMMIT")
#: How long a broker waits for the member.
_MEMBER_TIMEOUT_MS: Final = 10_000  # Broker2Client.callClient
#: How much later the broker's answer may come.
_MARGIN_MS: Final = 2_000
#: Characters of an exception's text that are kept.
_REMARK_MAX: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ResendPlan:
    """One message, and the member that will be asked to consume it."""

    message: PulledMessage
    group: str
    client_id: str
    broker_name: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResendResult:
    """What the member answered.

    `consume_result` is CR_SUCCESS, CR_LATER, CR_ROLLBACK, CR_COMMIT, CR_THROW_EXCEPTION
    or CR_RETURN_NULL, as in Java's CMResult; None when the answer names none, as that
    of a gRPC client that does not consume on request. `remark` is the text of the
    listener's exception, cut to 2,000 characters. `spent_ms` is how long the listener
    took. Proxies report neither, so that both are None for a gRPC client.
    """

    plan: ResendPlan
    consume_result: str | None
    remark: str | None
    spent_ms: int | None

    @property
    def is_consumed(self) -> bool:
        """Whether the listener consumed the message."""
        return self.consume_result in GOOD


def plan_resend(
    client: Client,
    ref: str,
    *,
    topic: str | None,
    group: str | None,
    client_id: str | None,
) -> ResendPlan:
    """Find the message and a member that its broker can pass it to; change nothing.

    Without `client_id` the first member by client id is chosen, one of gRPC only if
    there is no other: its proxy may not be part of the broker, and simple consumers do
    not consume on request. Without `group` it is the group of the topic to which that
    client belongs. Raises NotFoundError without the message or the member, UsageError
    when several messages have the id or several groups the client, RefusedError for a
    half or delayed message, or for one that is no longer in its topic, and PartialError
    when not every broker could be searched for it, or for others with its key.
    """
    if group is None and client_id is None:
        raise UsageError(
            "neither a group nor a client was named", hint="name the group"
        )
    found = find_messages(client, ref, topic)
    set_removed_aside(client, found)
    if len(found.messages) > 1:
        places = ", ".join(
            f"{each.message_queue}:{each.queue_offset}" for each in found.messages[:3]
        )
        raise UsageError(
            f"{counted(len(found.messages), 'message')} have {ref}: {places}",
            hint="name one by its place: TOPIC@BROKER:QUEUE:OFFSET",
        )
    if not found.messages:
        raise missing_message(found, ref)
    (message,) = found.messages
    if not (found.is_complete or is_id(ref)):
        raise PartialError(
            f"other messages may have {ref}: {found.unsearched or found.silence}",
            hint="name one by its place: TOPIC@BROKER:QUEUE:OFFSET",
        )
    if message.topic in PENDING_TOPICS:
        raise RefusedError(
            f"{message.message_queue}:{message.queue_offset} is a record of a half or a"
            " delayed message, which consumers do not get yet",
            hint="name the message in its own topic, once it is there",
        )
    if group is None:
        group = _group_of(client, message, client_id or "")
    members, _ = online_members(client, group, broker_name=message.broker_name)
    first = min(members, key=lambda each: (is_grpc_client(each), each))
    chosen = chosen_member(members, group, client_id or first)
    return ResendPlan(
        message=message,
        group=group,
        client_id=chosen.client_id,
        broker_name=chosen.broker_name,
        address=chosen.address,
    )


def _group_of(client: Client, message: PulledMessage, client_id: str) -> str:
    """Return the group of the topic that has this client, by the message's broker."""
    addresses = reader_addresses(client.cluster_info().brokers.values())
    name = message.broker_name
    if name not in addresses:
        raise NoBrokerError(f"no broker {name} is registered", address="")
    address = addresses[name]
    groups = client.invoke(address, query_topic_consume_by_who(message.topic))
    answers = client.ask_many(
        {group: (address, get_consumer_connection_list(group)) for group in groups},
    )
    having = [
        group
        for group, answer in sorted(answers.items())
        if answer is not None
        and not isinstance(answer, RmqError)
        and any(each.client_id == client_id for each in answer.connections)
    ]
    if len(having) == 1:
        return having[0]
    if having:
        raise UsageError(
            f"client {client_id} is a member of {', '.join(having)}",
            hint="name one of these groups",
        )
    for group, answer in answers.items():
        if isinstance(answer, RmqError):
            raise PartialError(
                f"whether client {client_id} is a member of group {group} is not known:"
                f" {answer.message}",
                hint=answer.hint,
            )
    raise NotFoundError(
        f"{name} knows no group of {message.topic} with a client {client_id}",
        code=ResponseCode.CONSUMER_NOT_ONLINE,
        hint="name the group, and list its members first",
    )


def apply_resend(client: Client, plan: ResendPlan) -> ResendResult:
    """Have the member consume the message, and wait for its answer.

    A broker waits 10 s for the member, so this waits longer, whatever the client's
    timeout is. Raises ChangeUnknownError when there is no answer: whether the listener
    was called is not known then. Raises the broker's error when it did not pass the
    message on.
    """
    call = consume_message_directly(
        plan.group,
        plan.client_id,
        offset_msg_id=plan.message.offset_msg_id,
        topic=plan.message.topic,
    )
    timeout_ms = max(client.config.timeout_ms, _MEMBER_TIMEOUT_MS + _MARGIN_MS)
    try:
        answer = client.invoke(plan.address, call, timeout_ms=timeout_ms)
    except RmqError as error:
        if _may_be_passed_on(error):
            raise _unknown(plan, error) from error
        raise
    remark = answer.remark
    spent_ms: int | None = answer.spent_time_mills
    if is_grpc_client(plan.client_id):
        # The proxy answers "from gRPC client" and 0 ms, whatever happened.
        remark = spent_ms = None
    elif remark is not None and len(remark) > _REMARK_MAX:
        remark = remark[:_REMARK_MAX] + "..."
    result = answer.consume_result
    return ResendResult(
        plan=plan, consume_result=result, remark=remark, spent_ms=spent_ms
    )


def _may_be_passed_on(error: RmqError) -> bool:
    """Return whether the member may have got the message, although this came back.

    A proxy answers SYSTEM_BUSY when the member took longer than 5 s, and a broker
    SYSTEM_ERROR when the member's connection ended before the answer came. A broker
    that refuses a request before it looks at it answers SYSTEM_BUSY, too, with a remark
    that begins with the reason in brackets.
    """
    if isinstance(error, TransportError):
        return error.may_be_done
    if not isinstance(error, BrokerError):
        return isinstance(error, WireError)  # an answer that cannot be read
    if error.code == ResponseCode.SYSTEM_BUSY:
        return not error.remark.startswith("[")
    return error.code == ResponseCode.CONSUME_MSG_TIMEOUT or error.remark.startswith(
        "invoke consumer <"
    )


def _unknown(plan: ResendPlan, error: RmqError) -> ChangeUnknownError:
    """Return the error of an unknown result; its hint is not to try again at once."""
    return ChangeUnknownError(
        f"{plan.client_id} may have consumed the message, but its answer did not"
        f" arrive: {error.message}",
        hint="look whether it did before you ask again: its listener would be called"
        " twice",
    )
