"""Lite topics: who subscribes them, and the requests that wait for their messages.

Each message of a lite topic is in the lite topic's own queue (LMQ), too. Consumers read
it in order: a group has at most one outstanding batch of it, which is kept in memory,
so that a restart makes those messages visible. One client's request gets the messages
of all lite topics that the client subscribes, and these take turns.

Imitated: shared and exclusive subscriptions, groups of all lite topics (wildcard),
offset options but TIMESTAMP, which RocketMQ ignores, too; subscriptions expire after
3 min without a call, lite topics as their topic's lite.topic.expiration says.
Not imitated: events. RocketMQ puts the name of a lite topic with messages into a list
of one client, and finds out after 10 s that the client is gone or slow; here a request
looks at all its lite topics. So lite.sub.client.max.event.cnt has no effect, and no
message of a lite topic is delivered after the client has unsubscribed it.

Source: `LiteSubscriptionRegistryImpl`, `LiteEventDispatcher`,
`AbstractLiteLifecycleManager` in apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Final

from rmqcli.broker.attributes import (
    LITE_EXPIRATION,
    LITE_MODEL,
    LITE_RESET_EXCLUSIVE,
    LITE_RESET_UNSUBSCRIBED,
    LITE_WILDCARD,
    MESSAGE_TYPE,
)
from rmqcli.broker.request import Refusal
from rmqcli.broker.state.order_info import OrderInfos
from rmqcli.broker.state.pop_holds import ANY_QUEUE, PopHolds
from rmqcli.dataclass import dataclass
from rmqcli.wire.bodies.lite import (
    LITE_BIND_TOPIC,
    POLICY_MAX,
    POLICY_MIN,
    OffsetOption,
)
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.headers.pop import NotifyUnsubscribeLiteRequestHeader
from rmqcli.wire.message.properties import lite_topic_of, lmq_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmqcli.broker.effects import Peer
    from rmqcli.broker.state.tables import BrokerTables
    from rmqcli.clock import Now

_SUBSCRIPTIONS_MAX: Final = 100_000  # maxLiteSubscriptionCount
_CLIENTS_MAX: Final = 20_000
_CHECK_MS: Final = 120_000  # liteSubscriptionCheckInterval, liteTtlCheckInterval
_EXPIRED_MS: Final = 180_000  # liteSubscriptionCheckTimeoutMills
_IDLE_MS_MIN: Final = 15 * 60_000  # minLiteTTl

#: The first offset, as an option.
_FROM_MIN: Final = OffsetOption(type="POLICY", value=POLICY_MIN)


@dataclass(slots=True)
class _Subscriber:
    """A client with lite topics. `lmqs` has the next one to read first."""

    client_id: str
    group: str
    topic: str
    #: where the client is told that it has lost a subscription
    peer: Peer
    seen_ms: int  # monotonic
    lmqs: dict[str, None] = field(default_factory=dict)


class LiteTopics:
    """The subscriptions of one broker, by client id.

    `orders` has the outstanding batches, `holds` the requests that wait.
    """

    def __init__(self, broker: BrokerTables) -> None:
        self._broker = broker
        self._clients: dict[str, _Subscriber] = {}
        #: LMQ -> ids of its subscribers, the next to be woken first
        self._subscribers: dict[str, dict[str, None]] = {}
        #: group with a wildcard -> ids of its clients
        self._wildcards: dict[str, dict[str, None]] = {}
        self._count = 0
        self._is_checking = False
        self.holds = PopHolds(broker)
        self.orders = OrderInfos(broker)
        self.orders.on_free = lambda key, now: self.wake(key[0], key[1], now)

    # --- subscriptions ---

    def add(
        self,
        client_id: str,
        group: str,
        topic: str,
        lite_topics: Iterable[str],
        *,
        option: OffsetOption | None,
        peer: Peer,
        now: Now,
    ) -> None:
        """Subscribe some more lite topics. Raises Refusal: 2018 and 604."""
        if self._count >= _SUBSCRIPTIONS_MAX:
            raise _too_many()
        if LITE_WILDCARD in self._attributes(group):
            raise Refusal(
                ResponseCode.ILLEGAL_OPERATION,
                "java.lang.IllegalStateException: subscribe lite operation is not"
                " supported for this group",
            )
        client = self._client(client_id, group, topic, peer, now)
        for lite_topic in lite_topics:
            lmq = lmq_name(topic, lite_topic)
            if self._attributes(group).get(LITE_MODEL) == "Exclusive":
                self._exclude_others(client, lmq)
            self._reset(lmq, group, option)
            self._join(client, lmq, now)

    def replace(
        self,
        client_id: str,
        group: str,
        topic: str,
        lite_topics: Iterable[str],
        *,
        peer: Peer,
        now: Now,
    ) -> None:
        """Subscribe these lite topics and no others. Raises Refusal(2018).

        A group with lite.sub.wildcard gets all lite topics of `topic` instead.
        """
        client = self._client(client_id, group, topic, peer, now)
        if LITE_WILDCARD in self._attributes(group):
            self._wildcards.setdefault(group, {})[client_id] = None
            return
        lmqs = {lmq_name(topic, each) for each in lite_topics}
        if self._count + len(lmqs - client.lmqs.keys()) > _SUBSCRIPTIONS_MAX:
            raise _too_many()
        for lmq in client.lmqs.keys() - lmqs:
            self._leave(client, lmq)
        for lmq in sorted(lmqs):
            self._join(client, lmq, now)

    def remove(
        self, client_id: str, group: str, topic: str, lite_topics: Iterable[str]
    ) -> None:
        """Unsubscribe some lite topics."""
        client = self._clients.get(client_id)
        restarts = self._attributes(group).get(LITE_RESET_UNSUBSCRIBED) == "true"
        for lite_topic in lite_topics:
            lmq = lmq_name(topic, lite_topic)
            if client is not None and self._leave(client, lmq) and restarts:
                self._reset(lmq, group, _FROM_MIN)

    def forget(self, client_id: str, now: Now) -> None:
        """Unsubscribe all lite topics of a client that has left."""
        client = self._clients.pop(client_id, None)
        if client is None:
            return
        self._wildcards.get(client.group, {}).pop(client_id, None)
        for lmq in list(client.lmqs):
            self._leave(client, lmq)
            self.wake(lmq, client.group, now)

    def _client(
        self, client_id: str, group: str, topic: str, peer: Peer, now: Now
    ) -> _Subscriber:
        client = self._clients.get(client_id)
        if client is None or (client.group, client.topic) != (group, topic):
            if len(self._clients) >= _CLIENTS_MAX:
                raise _too_many()
            self.forget(client_id, now)
            client = _Subscriber(client_id, group, topic, peer, 0)
            self._clients[client_id] = client
        client.peer, client.seen_ms = peer, now.monotonic_ms
        self._check_from(now)
        return client

    def _join(self, client: _Subscriber, lmq: str, now: Now) -> None:
        if lmq in client.lmqs:
            return
        client.lmqs[lmq] = None
        self._subscribers.setdefault(lmq, {})[client.client_id] = None
        self._count += 1
        self.wake(lmq, client.group, now)

    def _leave(self, client: _Subscriber, lmq: str) -> bool:
        if lmq not in client.lmqs:
            return False
        del client.lmqs[lmq]
        self._count -= 1
        others = self._subscribers[lmq]
        del others[client.client_id]
        if not others:
            del self._subscribers[lmq]
        return True

    def _exclude_others(self, client: _Subscriber, lmq: str) -> None:
        """Unsubscribe a lite topic for the group's other clients, and tell them."""
        _, lite_topic = lite_topic_of(lmq) or ("", "")
        restarts = self._attributes(client.group).get(LITE_RESET_EXCLUSIVE) == "true"
        for client_id in list(self._subscribers.get(lmq, {})):
            other = self._clients[client_id]
            if other is client or other.group != client.group:
                continue
            self._leave(other, lmq)
            header = NotifyUnsubscribeLiteRequestHeader(
                lite_topic=lite_topic, consumer_group=other.group, client_id=client_id
            )
            code = RequestCode.NOTIFY_UNSUBSCRIBE_LITE
            self._broker.push(other.peer, code, header)
            if restarts:
                self._reset(lmq, client.group, _FROM_MIN)

    def _reset(self, lmq: str, group: str, option: OffsetOption | None) -> None:
        """Set the group's offset as an option says."""
        offset = self._broker.offsets.query(group, lmq, 0)
        target = None
        if option is None:
            return
        if option.type == "POLICY" and option.value == POLICY_MIN:
            target = 0
        elif option.type == "POLICY" and option.value == POLICY_MAX:
            target = (self._broker.store.queue_bounds(lmq, 0) or (0, 0))[1]
        elif option.type == "OFFSET":
            target = option.value
        elif option.type == "TAIL_N" and offset is not None:
            target = max(0, offset - option.value)
        if target is not None and target != offset:
            self._broker.offsets.reset(group, lmq, 0, target)
            self.orders.clear((lmq, group, 0))

    # --- messages ---

    def ready(self, client_id: str, group: str) -> list[str]:
        """Return the client's LMQs that may have messages, in the order of turns."""
        client = self._clients.get(client_id)
        if client is None or client.group != group:
            return []
        lmqs: Iterable[str] = client.lmqs
        if client_id in self._wildcards.get(group, {}):
            lmqs = [each for each in self._lmqs() if _is_of(each, client.topic)]
        store, offsets = self._broker.store, self._broker.offsets
        return [
            lmq
            for lmq in lmqs
            if (store.queue_bounds(lmq, 0) or (0, 0))[1]
            > (offsets.query(group, lmq, 0) or 0)
        ]

    def was_read(self, client_id: str, lmq: str) -> None:
        """Let the client's other lite topics be read first the next time."""
        lmqs = self._clients[client_id].lmqs
        if lmq in lmqs:
            del lmqs[lmq]
            lmqs[lmq] = None

    def arrived(self, lmq: str, now: Now) -> None:
        """Wake a request of each group after a message was put into an LMQ."""
        self._check_from(now)
        clients = self._subscribers.get(lmq, {})
        groups = dict.fromkeys(self._clients[each].group for each in clients)
        for group in (*groups, *self._wildcards):
            self.wake(lmq, group, now)

    def wake(self, lmq: str, group: str, now: Now) -> None:
        """Wake the request of one client that may now get messages of an LMQ."""
        clients = self._subscribers.get(lmq, {})
        if group in self._wildcards:
            clients = self._wildcards[group]
        for client_id in clients:
            client = self._clients[client_id]
            key = (client_id, group, ANY_QUEUE)
            if (
                client.group == group
                and _is_of(lmq, client.topic)
                and self.holds.waiting(*key)
            ):
                del clients[client_id]
                clients[client_id] = None
                self.holds.wake(key, now)
                return

    # --- expiry ---

    def delete(self, lmq: str) -> None:
        """Forget a lite topic: its queue, and all groups' offsets and batches."""
        for group in self._broker.offsets.groups_of(lmq):
            self.orders.clear((lmq, group, 0))
        self._broker.offsets.delete_topic(lmq)
        self._broker.store.delete_topic(lmq)
        for client_id in list(self._subscribers.get(lmq, {})):
            self._leave(self._clients[client_id], lmq)

    def _check_from(self, now: Now) -> None:
        if not self._is_checking:
            self._is_checking = True
            self._broker.background.every(_CHECK_MS, now, self._check)

    def _check(self, now: Now) -> None:
        for client in list(self._clients.values()):
            if now.monotonic_ms - client.seen_ms > _EXPIRED_MS:
                self.forget(client.client_id, now)
        if now.epoch_ms - self._broker.started.epoch_ms < _IDLE_MS_MIN:
            return
        for lmq in self._lmqs():
            if self._is_expired(lmq, now):
                self.delete(lmq)

    def _is_expired(self, lmq: str, now: Now) -> bool:
        topic, _ = lite_topic_of(lmq) or ("", "")
        config = self._broker.topics.get(topic)
        if config is None or config.attributes.get(MESSAGE_TYPE) != "LITE":
            return False
        minutes = int(config.attributes.get(LITE_EXPIRATION, "-1"))
        _, end = self._broker.store.queue_bounds(lmq, 0) or (0, 0)
        stored_ms = self._broker.store.store_time_ms(lmq, 0, end - 1) if end else None
        if minutes <= 0 or stored_ms is None:
            return False
        return now.epoch_ms - stored_ms > max(minutes * 60_000, _IDLE_MS_MIN)

    def _lmqs(self) -> list[str]:
        return [name for name, _ in self._broker.store.queues() if lite_topic_of(name)]

    def _attributes(self, group: str) -> Mapping[str, str]:
        config = self._broker.groups.get(group)
        return {} if config is None else config.attributes

    def bound_topic(self, group: str) -> str | None:
        """Return the topic whose lite topics a group consumes, or None."""
        return self._attributes(group).get(LITE_BIND_TOPIC)


def _is_of(lmq: str, topic: str) -> bool:
    return lmq.startswith(lmq_name(topic, ""))


def _too_many() -> Refusal:
    return Refusal(
        ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
        "org.apache.rocketmq.broker.lite.LiteQuotaException: lite subscription quota"
        f" exceeded {_SUBSCRIPTIONS_MAX}",
    )
