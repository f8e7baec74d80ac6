"""Servers of the simulation: cores of the embedded cluster that can hang and crash.

A broker that crashes keeps its messages, its topics and the offsets that it had stored;
the newest of these may be 5 s old, as with RocketMQ.
"""

from __future__ import annotations

import functools
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from rmqcli.broker.core import Broker
from rmqcli.broker.effects import Send
from rmqcli.broker.handlers import BROKER_REQUESTS
from rmqcli.broker.state.broker import BrokerState
from rmqcli.broker.state.offsets import ConsumerOffsets
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.command import RESPONSE_FLAG, RemotingCommand

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rmqcli.broker.effects import Effect, Peer
    from rmqcli.broker.namesrv.core import NameServer
    from rmqcli.broker.settings import BrokerSettings
    from rmqcli.clock import Now
    from rmqcli.store.memory import MemoryStore
    from tests.simulation.link import Cluster, Link

_PERSIST_INTERVAL_MS: Final = 5_000  # BrokerConfig.flushConsumerOffsetInterval


class _Core(Protocol):
    """What brokers and name servers have in common."""

    def handle(
        self, peer: Peer, command: RemotingCommand, now: Now
    ) -> list[Effect]: ...

    def closed(self, peer: Peer, now: Now) -> list[Effect]: ...

    def run_due(self, now: Now) -> list[Effect]: ...

    def next_due_ms(self) -> int | None: ...


class SimServer:
    """The server at one address. Without a core it is down."""

    def __init__(self, cluster: Cluster, address: str) -> None:
        self.address = address
        self.core: _Core | None = None
        self.is_hung = False
        self._cluster = cluster
        self._schedule = cluster.schedule
        self._links: dict[int, Link] = {}
        self._kept: deque[Callable[[], None]] = deque()
        self._wake_ms: int | None = None

    @property
    def is_up(self) -> bool:
        """Whether connections can be made."""
        return self.core is not None

    def begun(self, link: Link) -> None:
        """Register a new connection."""
        self._links[link.peer.number] = link

    def ended(self, link: Link) -> None:
        """Handle the end of a connection, which this side notices now."""
        if self.is_hung:
            self._kept.append(lambda: self.ended(link))
            return
        if self._links.pop(link.peer.number, None) is None or self.core is None:
            return
        self.carry(self.core.closed(link.peer, self._schedule.now()))

    def receive(self, link: Link, command: RemotingCommand) -> None:
        """Handle a command that arrives."""
        if self.is_hung:
            self._kept.append(lambda: self.receive(link, command))
            return
        if self.core is None or link.peer.number not in self._links:
            return
        if command.code in self._cluster.conditions.refused and self._schedule.chance(
            0.5
        ):
            if not command.is_oneway and not command.is_response:
                self._refuse(link, command)
            return
        self.carry(self.core.handle(link.peer, command, self._schedule.now()))

    def _refuse(self, link: Link, command: RemotingCommand) -> None:
        answer = RemotingCommand(
            ResponseCode.SYSTEM_ERROR,
            opaque=command.opaque,
            flag=RESPONSE_FLAG,
            remark="refused by the simulation",
        )
        self._send(link, answer)

    def carry(self, effects: Iterable[Effect]) -> None:
        """Carry out the core's effects, and plan its next timer."""
        for effect in effects:
            link = self._links.get(effect.peer.number)
            if link is None:
                continue
            if isinstance(effect, Send):
                self._send(link, effect.command)
            else:
                del self._links[effect.peer.number]
                link.remoting.lose(link, notice_ms=None)
        self._plan()

    def _send(self, link: Link, command: RemotingCommand) -> None:
        conditions, schedule = self._cluster.conditions, self._schedule
        is_cut = (link.remoting.number, self.address) in conditions.cut
        if is_cut or schedule.chance(conditions.drop_rate):
            return
        at_ms = schedule.now_ms + int(
            schedule.rng.random() * (conditions.delay_ms_max + 1)
        )
        if not schedule.chance(conditions.reorder_rate):
            at_ms = link.back_ms = max(at_ms, link.back_ms)
        schedule.at(at_ms, functools.partial(link.remoting.receive, link, command))

    def _plan(self) -> None:
        due_ms = None if self.core is None else self.core.next_due_ms()
        if due_ms is not None and (self._wake_ms is None or due_ms < self._wake_ms):
            self._wake_ms = due_ms
            self._schedule.at(due_ms, functools.partial(self._wake, due_ms))

    def _wake(self, due_ms: int) -> None:
        if self._wake_ms == due_ms:
            self._wake_ms = None
            if not self.is_hung and self.core is not None:
                self.carry(self.core.run_due(self._schedule.now()))

    def hang(self) -> None:
        """Answer nothing from now on."""
        self.is_hung = True

    def resume(self) -> None:
        """End a hang, and first handle what arrived meanwhile."""
        self.is_hung = False
        kept, self._kept = self._kept, deque()
        for each in kept:
            each()
        self._wake_ms = None
        self._plan()

    def drop_dead_links(self) -> None:
        """Notice now which connections are broken."""
        for link in list(self._links.values()):
            if not link.is_open:
                self.ended(link)

    def start(self, core: _Core) -> None:
        """Be up, with this core."""
        self.core = core
        self._wake_ms = None
        self._plan()

    def crash(self) -> None:
        """Go down at once; all connections are lost."""
        self.core = None
        self.is_hung = False
        self._kept.clear()
        links, self._links = self._links, {}
        for link in links.values():
            link.remoting.lose(link, notice_ms=None)


class WatchedOffsets(ConsumerOffsets):
    """Offsets that report every commit."""

    def __init__(
        self, broker_name: str, committed: Callable[[str, str, str, int, int], None]
    ) -> None:
        super().__init__()
        self._name = broker_name
        self._told = committed

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """See ConsumerOffsets."""
        self._told(self._name, group, topic, queue_id, offset)
        super().commit(group, topic, queue_id, offset)


class SimBroker(SimServer):
    """A broker that can crash and restart."""

    def __init__(
        self,
        cluster: Cluster,
        settings: BrokerSettings,
        *,
        store: MemoryStore,
        names: NameServer,
        committed: Callable[[str, str, str, int, int], None],
    ) -> None:
        super().__init__(cluster, settings.address)
        self.settings = settings
        self.store = store
        self.name = settings.broker_name
        self._names = names
        self._committed = committed
        self._offsets: dict[tuple[str, str], dict[int, int]] = {}
        self._delays: dict[int, int] = {}
        #: when orderly locks were last lost; -1 for never
        self.locks_lost_ms = -1
        self.broker = self._make(None)
        self.start(Broker(self.broker, BROKER_REQUESTS))

    def _make(self, before: BrokerState | None) -> BrokerState:
        now = self._schedule.now()
        state = BrokerState(
            self.settings,
            self.store,
            now,
            on_topics_changed=lambda: self._names.register(state, self._schedule.now()),
            offsets=WatchedOffsets(self.name, self._committed),
        )
        if before is not None:
            state.topics.load(before.topics.all().values())
            state.groups.load(before.groups.all().values())
            state.offsets.load(self._offsets)
            state.schedule.load(self._delays)
        state.timers.every(_PERSIST_INTERVAL_MS, now, lambda _: self._persist())
        self._names.register(state, now)
        return state

    def _persist(self) -> None:
        self._offsets = self.broker.offsets.table()
        self._delays = dict(self.broker.schedule.offsets)

    def crash(self) -> None:
        """Go down at once; the name server forgets the broker, too."""
        self._names.unregister(self.broker, self._schedule.now())
        self.locks_lost_ms = self._schedule.now_ms
        super().crash()

    def restart(self) -> None:
        """Start again after a crash, with what was stored."""
        if self.core is None:
            self.broker = self._make(self.broker)
            self.start(Broker(self.broker, BROKER_REQUESTS))
