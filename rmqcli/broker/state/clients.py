"""The connected clients, by consumer and producer group.

Imitated: 40 is sent to every member, also to one that joins, when a member joins,
unregisters or loses its connection, and when the subscribed topics change; each
connection is a member, so that a client id with two connections is listed twice; a
subscription is replaced only by a newer one; topics that a heartbeat does not name are
forgotten; a client that was not named in one of its groups for 120 s loses that group
and its connection, and the other members are not notified. Groups that joined with the
same heartbeat count as one: as long as one of them is named, the others stay, too.
Not imitated: batched notifications; the short form of heartbeats (V2: the broker does
not announce it, so clients do not use it); registering groups from the pulls of a proxy
(5.x).

Source: `ConsumerManager`, `ConsumerGroupInfo`, `ProducerManager`,
`DefaultConsumerIdsChangeListener` and `ClientHousekeepingService` in apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Final

from rmqcli.broker.request import system_error
from rmqcli.dataclass import dataclass
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.headers.client import NotifyConsumerIdsChangedRequestHeader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqcli.broker.context import BrokerContext
    from rmqcli.broker.effects import Peer
    from rmqcli.broker.state.groups import GroupTable
    from rmqcli.clock import Now
    from rmqcli.wire.bodies.heartbeat import ConsumerData, HeartbeatData
    from rmqcli.wire.subscription import SubscriptionData

SCAN_INTERVAL_MS: Final = 10_000
#: Limits of the groups of one connection, and of the topics that a group subscribes to.
PEER_GROUPS_MAX: Final = 1_000
GROUP_TOPICS_MAX: Final = 10_000
#: Limit of the consumer groups with members, and also of the producer groups.
MEMBER_GROUPS_MAX: Final = 20_000


@dataclass(slots=True)
class ConnectedMember:
    """A client on one connection. `language` is the number of a LanguageCode.

    All groups that joined with one heartbeat share a member, so that `seen` is the time
    of the last heartbeat that named any of them.
    """

    client_id: str
    peer: Peer
    language: int
    version: int
    seen: Now


@dataclass(slots=True)
class ConsumerGroup:
    """A consumer group with at least one member.

    `consume_type`, `message_model` and `consume_from_where` are the names of Java's
    enum constants, None when unknown.
    """

    name: str
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    by_peer: dict[Peer, ConnectedMember] = field(default_factory=dict)

    @property
    def members(self) -> list[ConnectedMember]:
        """All members, in the order in which they joined."""
        return list(self.by_peer.values())

    def member(self, client_id: str) -> ConnectedMember | None:
        """The first member with that client id."""
        for member in self.by_peer.values():
            if member.client_id == client_id:
                return member
        return None

    def update(
        self, member: ConnectedMember, data: ConsumerData, *, is_partial: bool
    ) -> bool:
        """Process a member's heartbeat. Returns whether members or topics changed.

        `is_partial`: the heartbeat has no subscriptions, and the known ones stay.
        """
        self.consume_type = data.consume_type
        self.message_model = data.message_model
        self.consume_from_where = data.consume_from_where
        is_changed = _join(self.by_peer, member)
        if is_partial:
            return is_changed
        return self._update_subscriptions(data.subscriptions) or is_changed

    def _update_subscriptions(self, given: Iterable[SubscriptionData]) -> bool:
        topics = set()
        is_changed = False
        for subscription in given:
            topics.add(subscription.topic)
            known = self.subscriptions.get(subscription.topic)
            if known is None:
                is_changed = True
            elif subscription.sub_version <= known.sub_version:
                continue
            self.subscriptions[subscription.topic] = subscription
        for topic in self.subscriptions.keys() - topics:
            del self.subscriptions[topic]
            is_changed = True
        return is_changed


class ClientTable:
    """Consumers and producers by group. A group without members is forgotten."""

    def __init__(self, context: BrokerContext, groups: GroupTable) -> None:
        self._context = context
        self._groups = groups
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[Peer, ConnectedMember]] = {}
        self._consuming: dict[Peer, set[str]] = {}
        self._producing: dict[Peer, set[str]] = {}
        #: client id of a producer -> its newest connection
        self._producer_peers: dict[str, Peer] = {}
        self._turn = 0
        context.background.every(SCAN_INTERVAL_MS, context.started, self._expire)

    # --- the groups ---

    def groups(self) -> list[str]:
        """The consumer groups that have members."""
        return list(self._consumers)

    def consumer_group(self, group: str) -> ConsumerGroup | None:
        """The group; None if it has no members."""
        return self._consumers.get(group)

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """A group's subscription to a topic; None without one."""
        found = self._consumers.get(group)
        return None if found is None else found.subscriptions.get(topic)

    def producer_groups(self) -> list[str]:
        """The producer groups that have members."""
        return list(self._producers)

    def producers(self, group: str) -> list[ConnectedMember]:
        """The members of a producer group; empty for an unknown one."""
        return list(self._producers.get(group, {}).values())

    def any_producer_peer(self, group: str) -> Peer | None:
        """A connection of one of the group's producers, in turn; None without any."""
        members = self._producers.get(group)
        if not members:
            return None
        self._turn += 1
        return list(members)[self._turn % len(members)]

    def producer_peer(self, client_id: str) -> Peer | None:
        """The connection of the producer with that client id; None without one.

        Source: ProducerManager.findChannel.
        """
        return self._producer_peers.get(client_id)

    # --- members join and leave ---

    def check(self, peer: Peer, data: HeartbeatData) -> None:
        """Check a heartbeat's numbers of groups and topics, before it has any effect.

        Raises Refusal(1) if there are too many.
        """
        joined = {consumer.group_name for consumer in data.consumers}
        groups = joined | self._consuming.get(peer, set())
        sending = {producer.group_name for producer in data.producers}
        produced = sending | self._producing.get(peer, set())
        if max(len(groups), len(produced)) > PEER_GROUPS_MAX:
            raise system_error(
                f"a connection can have at most {PEER_GROUPS_MAX} consumer groups and"
                f" {PEER_GROUPS_MAX} producer groups"
            )
        for known, named in (
            (self._consumers, joined),
            (self._producers, sending),
        ):
            new = len(named.difference(known))
            if new and len(known) + new > MEMBER_GROUPS_MAX:
                raise system_error(
                    f"the broker can have at most {MEMBER_GROUPS_MAX} groups with"
                    " members"
                )
        for consumer in data.consumers:
            if len(consumer.subscriptions) > GROUP_TOPICS_MAX:
                raise system_error(
                    f"group {consumer.group_name} subscribes to more than"
                    f" {GROUP_TOPICS_MAX} topics"
                )

    def heartbeat(self, member: ConnectedMember, data: HeartbeatData) -> None:
        """Register `member` in each group of its heartbeat."""
        for consumer in data.consumers:
            self._register_consumer(member, consumer, is_partial=data.without_sub)
        for name in (producer.group_name for producer in data.producers):
            _join(self._producers.setdefault(name, {}), member)
            self._producing.setdefault(member.peer, set()).add(name)
            self._producer_peers[member.client_id] = member.peer

    def _register_consumer(
        self, member: ConnectedMember, data: ConsumerData, *, is_partial: bool
    ) -> None:
        name = data.group_name
        group = self._consumers.get(name)
        if group is None:
            group = self._consumers[name] = ConsumerGroup(name)
        self._consuming.setdefault(member.peer, set()).add(name)
        if group.update(member, data, is_partial=is_partial):
            self._notify(group)

    def unregister_consumer(self, peer: Peer, group: str) -> None:
        """Remove a client from a group and notify the other members."""
        self._consuming.get(peer, set()).discard(group)
        left = self._remove_consumer(peer, group)
        if left is not None:
            self._notify(left)

    def unregister_producer(self, peer: Peer, group: str) -> None:
        """Remove a client from a producer group."""
        self._producing.get(peer, set()).discard(group)
        self._remove_producer(peer, group)

    def closed(self, peer: Peer, now: Now) -> None:
        """Forget a closed connection and notify the other members of its groups."""
        for group in sorted(self._consuming.pop(peer, ())):
            left = self._remove_consumer(peer, group)
            if left is not None:
                self._notify(left)
        for group in self._producing.pop(peer, set()):
            self._remove_producer(peer, group)

    def _remove_consumer(self, peer: Peer, name: str) -> ConsumerGroup | None:
        """Remove a member. Returns the group if it has other members."""
        group = self._consumers.get(name)
        if group is None:
            return None
        group.by_peer.pop(peer, None)
        if group.by_peer:
            return group
        del self._consumers[name]
        return None

    def _remove_producer(self, peer: Peer, name: str) -> None:
        members = self._producers.get(name)
        if members is not None:
            member = members.pop(peer, None)
            is_last = not self._producing.get(peer, set()) - {name}
            if member is not None and is_last:
                newest = self._producer_peers.get(member.client_id)
                if newest == member.peer:
                    del self._producer_peers[member.client_id]
            if not members:
                del self._producers[name]

    def _notify(self, group: ConsumerGroup) -> None:
        config = self._groups.get(group.name)
        if config is not None and not config.notify_consumer_ids_changed_enable:
            return
        header = NotifyConsumerIdsChangedRequestHeader(consumer_group=group.name)
        for peer in group.by_peer:
            self._context.push(peer, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header)

    def _expire(self, now: Now) -> None:
        """Close connections without a heartbeat for channelExpiredTimeout."""
        oldest_ms = now.monotonic_ms - self._context.settings.channel_expired_timeout_ms
        silent: dict[Peer, None] = {}
        for name, group in list(self._consumers.items()):
            for peer in _silent(group.by_peer, oldest_ms):
                silent[peer] = None
                self._remove_consumer(peer, name)
                self._consuming[peer].discard(name)
        for name, members in list(self._producers.items()):
            for peer in _silent(members, oldest_ms):
                silent[peer] = None
                self._remove_producer(peer, name)
                self._producing[peer].discard(name)
        for peer in silent:
            self._context.close(peer)


def _join(members: dict[Peer, ConnectedMember], member: ConnectedMember) -> bool:
    """Add a member, or renew the known one of its connection; return if it is new."""
    known = members.get(member.peer)
    if known is None or known.client_id != member.client_id:
        members[member.peer] = member
        return known is None
    known.seen = member.seen
    return False


def _silent(members: dict[Peer, ConnectedMember], oldest_ms: int) -> list[Peer]:
    return [p for p, member in members.items() if member.seen.monotonic_ms < oldest_ms]
