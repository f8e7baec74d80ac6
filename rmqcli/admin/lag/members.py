"""The members of a group, merged from what several brokers report. Pure.

Members send heartbeats to every broker they use. A broker keeps one subscription table
for a whole group, that of the last heartbeat. So when brokers disagree, or a member
differs from them, members subscribe differently. Such a group loses messages.

Source: ConsumerConnection in apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from rmqcli.dataclass import dataclass
from rmqcli.units import listed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.admin.lag.process_queues import ClientQueues
    from rmqcli.wire.bodies.consumer import Connection, ConsumerConnection
    from rmqcli.wire.subscription import SubscriptionData

_NAMED_MAX = 3


@dataclass(slots=True)
class Members:
    """The members of a group that are online, by client id."""

    connections: dict[str, Connection] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    message_model: str | None = None
    consume_type: str | None = None
    consume_from_where: str | None = None
    #: client id -> address of its proxy, of members behind a proxy in cluster mode
    proxies: dict[str, str] = field(default_factory=dict)
    #: client id -> the addresses of members with this id, where one broker has several
    duplicates: dict[str, set[str]] = field(default_factory=dict)
    #: topic -> the expressions that brokers know for it
    _expressions: dict[str, set[str]] = field(default_factory=dict)

    def add(self, seen: ConsumerConnection) -> None:
        """Add what one broker reports."""
        addresses: dict[str, set[str]] = {}
        for connection in seen.connections:
            self.connections.setdefault(connection.client_id, connection)
            of_client = addresses.setdefault(connection.client_id, set())
            of_client.add(connection.client_addr)
        for client_id, found in addresses.items():
            if len(found) > 1:
                self.duplicates.setdefault(client_id, set()).update(found)
        self.message_model = seen.message_model or self.message_model
        self.consume_type = seen.consume_type or self.consume_type
        self.consume_from_where = seen.consume_from_where or self.consume_from_where
        for topic, subscription in seen.subscriptions.items():
            self.subscriptions.setdefault(topic, subscription)
            self._expressions.setdefault(topic, set()).add(_expression(subscription))

    def mismatches(self, clients: Mapping[str, ClientQueues] | None) -> list[str]:
        """Describe what members or brokers disagree about, one sentence each."""
        found = []
        for topic, expressions in sorted(self._expressions.items()):
            if len(expressions) > 1:
                shown = " and ".join(sorted(expressions))
                found.append(f"brokers know different filters for {topic}: {shown}")
        return found + _differences(clients or {})


def _differences(clients: Mapping[str, ClientQueues]) -> list[str]:
    """Describe the topics to which members subscribe differently, by filter."""
    tables = {
        client_id: {each.topic: _expression(each) for each in client.subscriptions}
        for client_id, client in sorted(clients.items())
        if client.failure is None
    }
    found = []
    for topic in sorted({topic for table in tables.values() for topic in table}):
        having: dict[str, list[str]] = {}
        for client_id, table in tables.items():
            having.setdefault(table.get(topic, "no subscription"), []).append(client_id)
        if len(having) > 1:
            # The filter of the fewest members first: it is the one to check.
            parts = sorted(having.items(), key=lambda item: (len(item[1]), item[1]))
            shown = "; ".join(f"{_names(ids)} {text}" for text, ids in parts)
            found.append(f"members differ on {topic}: {shown}")
    return found


def _names(client_ids: list[str]) -> str:
    """Return up to three client ids, the number of others, and `has` or `have`."""
    verb = "has" if len(client_ids) == 1 else "have"
    return f"{listed(client_ids, _NAMED_MAX)} {verb}"


def _expression(subscription: SubscriptionData) -> str:
    """Return the filter, with its tags sorted because their order has no meaning."""
    kind = subscription.expression_type
    text = subscription.sub_string or "*"
    if kind not in (None, "TAG"):
        return f"{kind} {text}"
    return " || ".join(sorted({part.strip() for part in text.split("||")}))
