"""One consumer group as a broker sees it: its members and what they subscribe.

Imitated: one member for each connection, so that one client id on two connections is
there twice; a subscription replaced only by a newer one; topics that a heartbeat does
not name forgotten. Not imitated: groups made up from pulls of a proxy (5.x).

Source: `ConsumerGroupInfo` and `ClientChannelInfo` in apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqcli.broker.effects import Peer
    from rmqcli.now import Now
    from rmqcli.wire.bodies_heartbeat import ConsumerData
    from rmqcli.wire.subscription import SubscriptionData


@dataclass(slots=True)
class Member:
    """A client on one connection. `language` is a LanguageCode number."""

    client_id: str
    peer: Peer
    language: int
    version: int
    seen: Now


@dataclass(slots=True)
class ConsumerGroup:
    """A group with at least one member. Enums by Java's names, None when unknown."""

    name: str
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    by_peer: dict[Peer, Member] = field(default_factory=dict)

    @property
    def members(self) -> list[Member]:
        """All members, in the order in which they joined."""
        return list(self.by_peer.values())

    def member(self, client_id: str) -> Member | None:
        """The first member of that client id."""
        for member in self.by_peer.values():
            if member.client_id == client_id:
                return member
        return None

    def update(self, member: Member, data: ConsumerData, *, is_partial: bool) -> bool:
        """Take one heartbeat; whether members or topics changed.

        `is_partial`: it has no subscriptions, and means those that are known.
        """
        self.consume_type = data.consume_type
        self.message_model = data.message_model
        self.consume_from_where = data.consume_from_where
        is_changed = member.peer not in self.by_peer
        self.by_peer[member.peer] = member
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
