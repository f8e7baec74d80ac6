"""What an account may do: rights to topics and groups, as in RocketMQ's ACL 2.0.

Which rights a request needs depends on its kind. Of the entries that match a topic or
group and an action, the most specific one decides: a name before a prefix, a longer
prefix before a shorter one, `Topic:*` before `*`. Without a matching entry the call is
refused. (Of two prefixes, RocketMQ 5.3.3 uses the shorter one.)

One call needs more than in RocketMQ: ChangeInvisibleDuration also needs the right to
the topic, as a receipt handle that was made up would reach messages of any topic.

Not imitated: addresses in an entry, disabled accounts.

Source: `DefaultAuthorizationContextBuilder` and `AclAuthorizationHandler` in
apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rmqcli.broker.proxy.caller import unauthorized
from rmqcli.broker.proxy.options import ALL, DENY, PUB, SUB
from rmqcli.broker.proxy.status import internal_error
from rmqcli.broker.topic_names import RETRY_PREFIX
from rmqcli.dataclass import dataclass
from rmqcli.wire.protobuf.definition_pb2 import ClientType, Resource

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from google.protobuf.message import Message

    from rmqcli.wire.protobuf import service_pb2 as service

_TOPIC: Final = "Topic"
_GROUP: Final = "Group"
#: Types of clients whose heartbeat needs a right to their group.
_CONSUMERS: Final = frozenset(
    (ClientType.PUSH_CONSUMER, ClientType.SIMPLE_CONSUMER, ClientType.PULL_CONSUMER)
)


@dataclass(frozen=True, slots=True)
class Need:
    """A right that a request needs: one of `actions` on `resource`.

    A resource is written as in `Topic:orders`.
    """

    resource: str
    actions: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry of an account's rights.

    `prefix` is None if `resource` is the name of a single topic or group.
    """

    resource: str
    prefix: str | None
    actions: frozenset[str]

    def matches(self, need: Need) -> bool:
        if self.actions.isdisjoint((ALL, DENY, *need.actions)):
            return False
        if self.prefix is None:
            return self.resource == need.resource
        return need.resource.startswith(self.prefix)


class Rights:
    """The rights of all accounts. Immutable."""

    def __init__(self, rights: Mapping[str, Mapping[str, str]]) -> None:
        #: access key -> entries, the most specific first
        self._entries = {
            name: sorted(map(_entry, entries.items()), key=_rank)
            for name, entries in rights.items()
        }

    def check(self, request: Message, *, account: str, address: str) -> None:
        """Raise ProxyError(UNAUTHORIZED) for a call that the account may not make.

        `address` is the client's.
        """
        for need in _needs_of(request):
            found = next(
                (each for each in self._entries.get(account, ()) if each.matches(need)),
                None,
            )
            if found is not None and DENY not in found.actions:
                continue
            detail = "no matched policies" if found is None else "the decision is deny"
            host = address.rpartition(":")[0]
            raise unauthorized(
                f"User:{account} has no permission to access {need.resource}"
                f" from {host}, {detail}."
            )


def _entry(pair: tuple[str, str]) -> _Entry:
    resource, actions = pair
    prefix = resource[:-1] if resource.endswith("*") else None
    return _Entry(resource, prefix, frozenset(actions.split(",")))


def _rank(entry: _Entry) -> tuple[bool, int]:
    return entry.prefix is not None, -len(entry.prefix or "")


# --- what requests need ---


def _needs_of(request: Message) -> list[Need]:
    """Return the rights that a request needs, in the order of the checks."""
    needs = _NEEDS.get(request.DESCRIPTOR.name)
    return [] if needs is None else needs(request)


def _topic(resource: Resource, *actions: str) -> list[Need]:
    if not resource.name.strip():
        raise unauthorized("topic is null.")
    return [Need(f"{_TOPIC}:{resource.name}", frozenset(actions))]


def _group(resource: Resource) -> list[Need]:
    if not resource.name.strip():
        raise unauthorized("group is null.")
    name = resource.name.removeprefix(RETRY_PREFIX)
    return [Need(f"{_GROUP}:{name}", frozenset((SUB,)))]


def _of_send(request: service.SendMessageRequest) -> list[Need]:
    if not request.messages:
        raise unauthorized("message is null.")
    return _topic(request.messages[0].topic, PUB)


def _of_receive(request: service.ReceiveMessageRequest) -> list[Need]:
    if not request.HasField("message_queue"):
        raise unauthorized("messageQueue is null.")
    return [*_group(request.group), *_topic(request.message_queue.topic, SUB)]


def _of_both(
    request: service.QueryAssignmentRequest
    | service.AckMessageRequest
    | service.ChangeInvisibleDurationRequest
    | service.ForwardMessageToDeadLetterQueueRequest
    | service.SyncLiteSubscriptionRequest,
) -> list[Need]:
    return [*_group(request.group), *_topic(request.topic, SUB)]


def _of_lite(request: service.SyncLiteSubscriptionRequest) -> list[Need]:
    return _of_both(request) if request.lite_topic_set else []


def _of_heartbeat(request: service.HeartbeatRequest) -> list[Need]:
    return _group(request.group) if request.client_type in _CONSUMERS else []


def _of_termination(request: service.NotifyClientTerminationRequest) -> list[Need]:
    return _group(request.group) if request.group.name.strip() else []


def _of_telemetry(command: service.TelemetryCommand) -> list[Need]:
    if command.WhichOneof("command") != "settings":
        return []
    kind = command.settings.WhichOneof("pub_sub")
    if kind == "publishing":
        topics = command.settings.publishing.topics
        return [need for topic in topics for need in _topic(topic, PUB)]
    if kind == "subscription":
        subscription = command.settings.subscription
        needs = _group(subscription.group)
        for entry in subscription.subscriptions:
            needs += _topic(entry.topic, SUB)
        return needs
    raise internal_error("settings command doesn't have publishing or subscription.")


_NEEDS: Final[Mapping[str, Callable[[Any], list[Need]]]] = {
    "QueryRouteRequest": lambda request: _topic(request.topic, PUB, SUB),
    "QueryAssignmentRequest": _of_both,
    "SendMessageRequest": _of_send,
    "RecallMessageRequest": lambda request: _topic(request.topic, PUB),
    "EndTransactionRequest": lambda request: _topic(request.topic, PUB),
    "HeartbeatRequest": _of_heartbeat,
    "NotifyClientTerminationRequest": _of_termination,
    "ReceiveMessageRequest": _of_receive,
    "AckMessageRequest": _of_both,
    "ForwardMessageToDeadLetterQueueRequest": _of_both,
    "ChangeInvisibleDurationRequest": _of_both,
    "SyncLiteSubscriptionRequest": _of_lite,
    "TelemetryCommand": _of_telemetry,
}
