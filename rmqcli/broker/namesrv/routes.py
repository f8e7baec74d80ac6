"""The brokers and topics that a name server knows, and when it forgets them.

Imitated: a registration adds and changes topics and never removes one; only masters
register topics; the topics of a broker are removed with its last address; a broker is
removed when the connection that registered it closes.
Not imitated: acting masters, static topics, the special treatment in 5.x of a first
registration with a single topic.

Source: `RouteInfoManager` in apache/rocketmq.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from rmqcli.broker.request import system_error
from rmqcli.dataclass import dataclass
from rmqcli.model import BrokerData, QueueData, TopicRoute

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmqcli.broker.effects import Peer
    from rmqcli.clock import Now
    from rmqcli.wire.bodies.config import TopicConfig
    from rmqcli.wire.bodies.data_version import DataVersion

BROKERS_MAX: Final = 1_000
TOPICS_MAX: Final = 200_000
EXPIRED_MS: Final = 120_000
_PERM_READ, _PERM_WRITE = 4, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerId:
    """One broker: a master or a slave, and where it is."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str


@dataclass(slots=True)
class _Live:
    """A registered broker.

    `peer` is None for a broker of this process, which never expires.
    """

    given: Registration
    topics: Mapping[str, TopicConfig]
    peer: Peer | None
    seen: Now


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What a broker registers. It expires `timeout_ms` after its last sign of life."""

    broker: BrokerId
    data_version: DataVersion
    topics: Mapping[str, TopicConfig]
    ha_address: str = ""
    timeout_ms: int = EXPIRED_MS


class RouteTable:
    """Brokers by name and id, topics by name and broker."""

    def __init__(self) -> None:
        self._brokers: dict[str, BrokerData] = {}
        self._live: dict[tuple[str, int], _Live] = {}
        self._topics: dict[str, dict[str, QueueData]] = {}

    # --- brokers ---

    def register(self, given: Registration, now: Now, peer: Peer | None) -> None:
        """Process a registration. Raises Refusal(1) for too many brokers or topics.

        Topics are processed only for a master, and only if their data version differs
        from the known one.
        """
        broker = given.broker
        key = (broker.broker_name, broker.broker_id)
        if key not in self._live and len(self._live) >= BROKERS_MAX:
            raise system_error(
                f"register broker failed: more than {BROKERS_MAX} brokers"
            )
        known = self._live.get(key)
        if broker.broker_id == 0 and (
            known is None or known.given.data_version != given.data_version
        ):
            self._take_topics(given, {} if known is None else known.topics)
        self._put_address(broker)
        self._live[key] = _Live(given, given.topics, peer, now)

    def _take_topics(
        self, given: Registration, before: Mapping[str, TopicConfig]
    ) -> None:
        """Store the topics that have changed.

        The others are skipped, because brokers of this process register often. Raises
        Refusal(1) before anything is changed.
        """
        name = given.broker.broker_name
        changed = [
            (topic, config)
            for topic, config in given.topics.items()
            if before.get(topic) is not config
            or name not in self._topics.get(topic, ())
        ]
        new = sum(topic not in self._topics for topic, _ in changed)
        if len(self._topics) + new > TOPICS_MAX:
            raise system_error(f"register broker failed: more than {TOPICS_MAX} topics")
        for topic, config in changed:
            self._topics.setdefault(topic, {})[name] = _queues(name, config)

    def _put_address(self, broker: BrokerId) -> None:
        known = self._brokers.get(broker.broker_name)
        addresses = {} if known is None else dict(known.addresses)
        # An address stands for one broker: a slave that becomes master changes its id.
        for other, address in list(addresses.items()):
            if address == broker.address and other != broker.broker_id:
                del addresses[other]
                self._live.pop((broker.broker_name, other), None)
        addresses[broker.broker_id] = broker.address
        self._brokers[broker.broker_name] = BrokerData(
            cluster=broker.cluster,
            broker_name=broker.broker_name,
            addresses=dict(sorted(addresses.items())),
        )

    def unregister(self, broker: BrokerId) -> None:
        """Forget a broker, unless it is now registered at another address."""
        name = broker.broker_name
        known = self._brokers.get(name)
        if known is None or known.addresses.get(broker.broker_id) != broker.address:
            return
        self._live.pop((name, broker.broker_id), None)
        del known.addresses[broker.broker_id]
        if known.addresses:
            return
        del self._brokers[name]
        for topic, queues in list(self._topics.items()):
            if queues.pop(name, None) is not None and not queues:
                del self._topics[topic]

    def closed(self, peer: Peer) -> None:
        """Forget the brokers that a closed connection registered."""
        for live in [each for each in self._live.values() if each.peer == peer]:
            self.unregister(live.given.broker)

    def expire(self, now: Now) -> list[Peer]:
        """Forget brokers that sent nothing for too long; return their connections."""
        gone = [
            live
            for live in self._live.values()
            if live.peer is not None
            and now.monotonic_ms - live.seen.monotonic_ms > live.given.timeout_ms
        ]
        for live in gone:
            self.unregister(live.given.broker)
        return [live.peer for live in gone if live.peer is not None]

    def touch(self, broker_name: str, address: str, now: Now) -> None:
        """Record that a broker is alive."""
        for live in self._live.values():
            broker = live.given.broker
            if (broker.broker_name, broker.address) == (broker_name, address):
                live.seen = now

    def data_version(self, broker: BrokerId) -> DataVersion | None:
        """The data version of the broker's topics; None for an unknown broker."""
        live = self._live.get((broker.broker_name, broker.broker_id))
        return None if live is None else live.given.data_version

    def master(self, broker_name: str) -> tuple[str, str] | None:
        """The address and HA address of a broker's master; None if there is none."""
        live = self._live.get((broker_name, 0))
        if live is None:
            return None
        return live.given.broker.address, live.given.ha_address

    # --- topics ---

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, in all clusters or in one."""
        queues = self._topics.get(topic, {})
        for name in list(queues):
            if not cluster or self._cluster_of(name) == cluster:
                del queues[name]
        if not queues:
            self._topics.pop(topic, None)

    def put_topic(self, topic: str, queues: Iterable[QueueData]) -> None:
        """Set a topic's queues; those of unknown brokers are ignored.

        Raises Refusal(1) for too many topics.
        """
        known = [q for q in queues if q.broker_name in self._brokers]
        if not known:
            return
        if topic not in self._topics and len(self._topics) >= TOPICS_MAX:
            raise system_error(f"more than {TOPICS_MAX} topics")
        table = self._topics.setdefault(topic, {})
        table.update((each.broker_name, each) for each in known)

    def set_writable(self, broker_name: str, *, is_writable: bool) -> int:
        """Allow or forbid writing to a broker's topics; return the number of topics."""
        live = self._live.get((broker_name, 0))
        if live is not None:
            live.topics = {}  # the next changed registration sets all topics again
        count = 0
        for queues in self._topics.values():
            known = queues.get(broker_name)
            if known is None:
                continue
            perm = known.perm & ~_PERM_WRITE
            if is_writable:
                perm = _PERM_READ | _PERM_WRITE
            queues[broker_name] = dataclasses.replace(known, perm=perm)
            count += 1
        return count

    def route(self, topic: str) -> TopicRoute | None:
        """A topic's route; None if it is unknown or none of its brokers registered."""
        queues = [
            each
            for name, each in self._topics.get(topic, {}).items()
            if name in self._brokers
        ]
        if not queues:
            return None
        return TopicRoute(
            topic=topic,
            brokers=tuple(self._brokers[each.broker_name] for each in queues),
            queues=tuple(queues),
        )

    def topics(self, cluster: str | None = None) -> list[str]:
        """All topics, or those of one cluster."""
        if cluster is None:
            return list(self._topics)
        return [
            topic
            for topic, queues in self._topics.items()
            if any(self._cluster_of(name) == cluster for name in queues)
        ]

    def brokers(self) -> dict[str, BrokerData]:
        """All brokers by name; a copy."""
        return dict(self._brokers)

    def clusters(self) -> dict[str, list[str]]:
        """The names of each cluster's brokers."""
        found: dict[str, list[str]] = {}
        for name, broker in self._brokers.items():
            found.setdefault(broker.cluster, []).append(name)
        return found

    def _cluster_of(self, broker_name: str) -> str | None:
        broker = self._brokers.get(broker_name)
        return None if broker is None else broker.cluster


def _queues(broker_name: str, config: TopicConfig) -> QueueData:
    return QueueData(
        broker_name=broker_name,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm,
        topic_sys_flag=config.topic_sys_flag,
    )
