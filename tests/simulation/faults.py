"""Faults of a simulation, chosen and timed by the seed; each lasts for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.simulation.conditions import (
    LOCK_CODES,
    MEMBER_CODES,
    OFFSET_CODES,
    PULL_CODES,
    SEND_BACK_CODES,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.cluster import SimCluster
    from tests.simulation.server import SimBroker

_PAUSE_MS_MEAN: Final = 60_000
_MEMBERS_MAX: Final = 10
_HOUR_MS: Final = 3_600_000
_REFUSED: Final = (
    OFFSET_CODES,
    OFFSET_CODES,
    SEND_BACK_CODES,
    LOCK_CODES,
    MEMBER_CODES,
    PULL_CODES,
)


class Faults:
    """Injects faults into a cluster between `begin` and `end`."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._schedule = cluster.schedule
        #: grows with each `end`: actions that were planned before do nothing
        self._turn = 0
        self.count = 0
        self._kinds: list[Callable[[], str]] = [
            self._storm,
            self._loss,
            self._slowness,
            self._cut,
            self._connection_lost,
            self._member_crash,
            self._member_crash,
            self._member_leaves,
            self._member_joins,
            self._member_frozen,
            self._broker_crash,
            self._broker_hang,
            self._namesrv_hang,
            self._namesrv_forgets,
            self._refusals,
            self._refusals,
            self._clock_jump,
            self._queues,
            self._trim,
            self._locks,
            self._listeners,
        ]
        if cluster.plan.has_resets:
            self._kinds += [self._reset] * 3

    def begin(self) -> None:
        """Inject faults from now on."""
        self._next(self._turn)

    def end(self) -> None:
        """Inject no more faults; `SimCluster.heal` ends the current ones."""
        self._turn += 1

    def _next(self, turn: int) -> None:
        delay_ms = int(self._schedule.rng.expovariate(1 / _PAUSE_MS_MEAN))
        self._schedule.later(delay_ms, lambda: self._strike(turn))

    def _strike(self, turn: int) -> None:
        if turn != self._turn:
            return
        fault = self._schedule.rng.choice(self._kinds)()
        self.count += 1
        self._schedule.note(f"fault {fault}")
        self._next(turn)

    def _span(self, low_ms: int, high_ms: int) -> int:
        return low_ms + int(self._schedule.rng.random() * (high_ms - low_ms))

    def _for(self, span_ms: int, undo: Callable[[], None]) -> None:
        turn = self._turn

        def end() -> None:
            if turn == self._turn:
                undo()

        self._schedule.later(span_ms, end)

    def _any_broker(self) -> SimBroker:
        return self._schedule.rng.choice(self._cluster.brokers)

    # --- members ---

    def _storm(self) -> str:
        """Let ten members join, leave or crash within ten seconds."""
        for _ in range(10):
            self._schedule.later(self._span(0, 10_000), self._come_or_go(self._turn))
        return "storm"

    def _come_or_go(self, turn: int) -> Callable[[], None]:
        def act() -> None:
            if turn == self._turn:
                if self._schedule.chance(0.5):
                    self._member_joins()
                elif self._schedule.chance(0.5):
                    self._member_leaves()
                else:
                    self._member_crash()

        return act

    def _member_crash(self) -> str:
        live = self._cluster.live()
        if not live:
            return "no member to crash"
        victim = self._schedule.rng.choice(live)
        is_half_open = self._schedule.chance(0.2)
        victim.crash(self._span(10_000, 180_000) if is_half_open else 5)
        self._for(self._span(100, 60_000), self._refill)
        return f"crash {victim.name}"

    def _refill(self) -> None:
        if len(self._cluster.live()) < self._cluster.plan.members:
            self._cluster.join()

    def _member_leaves(self) -> str:
        live = self._cluster.live()
        if not live:
            return "no member to leave"
        victim = self._schedule.rng.choice(live)
        victim.close()
        self._for(self._span(100, 60_000), self._refill)
        return f"leave {victim.name}"

    def _member_joins(self) -> str:
        if len(self._cluster.live()) >= _MEMBERS_MAX:
            return "too many to join"
        member = self._cluster.join()
        self._for(self._span(5_000, 120_000), self._thin_out)
        return f"join {member.name}"

    def _thin_out(self) -> None:
        live = self._cluster.live()
        if len(live) > self._cluster.plan.members:
            self._schedule.rng.choice(live).close()

    def _member_frozen(self) -> str:
        live = self._cluster.live()
        if not live:
            return "no member to freeze"
        victim = self._schedule.rng.choice(live)
        victim.freeze(self._span(1_000, 180_000))
        return f"freeze {victim.name}"

    def _clock_jump(self) -> str:
        live = self._cluster.live()
        if not live:
            return "no clock to jump"
        victim = self._schedule.rng.choice(live)
        victim.clock.skew_ms = self._span(-_HOUR_MS, _HOUR_MS)
        return f"clock of {victim.name} by {victim.clock.skew_ms}"

    def _listeners(self) -> str:
        behaviour = self._cluster.behaviour
        behaviour.fail_rate = self._schedule.rng.random() * 0.3
        behaviour.slow_rate = self._schedule.rng.random() * 0.1
        behaviour.stuck_rate = self._schedule.rng.choice((0.0, 0.001, 0.01))
        behaviour.poison = self._schedule.rng.choice((0, 0, 7, 50))
        self._for(self._span(5_000, 120_000), behaviour.heal)
        return "listeners"

    def _reset(self) -> str:
        owners = [each for each in self._cluster.live() if each.owned()]
        if not owners:
            return "nothing to reset"
        return self._cluster.reset(self._schedule.rng.choice(owners))

    # --- the network ---

    def _loss(self) -> str:
        conditions = self._cluster.conditions
        conditions.drop_rate = self._schedule.rng.random() * 0.3

        def undo() -> None:
            conditions.drop_rate = 0.0

        self._for(self._span(1_000, 60_000), undo)
        return f"loss {conditions.drop_rate}"

    def _slowness(self) -> str:
        conditions = self._cluster.conditions
        conditions.delay_ms_max = self._span(10, 2_000)
        conditions.reorder_rate = self._schedule.rng.random() * 0.5

        def undo() -> None:
            conditions.delay_ms_max, conditions.reorder_rate = 2, 0.0

        self._for(self._span(1_000, 60_000), undo)
        return f"delay {conditions.delay_ms_max}"

    def _cut(self) -> str:
        live = self._cluster.live()
        if not live:
            return "no member to cut"
        victim = self._schedule.rng.choice(live)
        address = self._schedule.rng.choice(sorted(self._cluster.servers))
        cut, pair = self._cluster.conditions.cut, (victim.number, address)
        cut.add(pair)
        self._for(self._span(1_000, 150_000), lambda: cut.discard(pair))
        return f"cut {pair}"

    def _connection_lost(self) -> str:
        live = self._cluster.live()
        links = [link for each in live for link in each.remoting.links()]
        if not links:
            return "no connection to lose"
        link = self._schedule.rng.choice(links)
        is_half_open = self._schedule.chance(0.3)
        notice_ms = self._span(1_000, 130_000) if is_half_open else 1
        link.remoting.lose(link, notice_ms=notice_ms)
        return f"lose {link.remoting.number} {link.address}"

    def _refusals(self) -> str:
        codes = self._schedule.rng.choice(_REFUSED)
        conditions = self._cluster.conditions
        conditions.refused = codes

        def undo() -> None:
            conditions.refused = frozenset()

        self._for(self._span(5_000, 120_000), undo)
        return f"refuse {sorted(codes)}"

    # --- servers ---

    def _broker_crash(self) -> str:
        broker = self._any_broker()
        if not broker.is_up:
            return "broker is down"
        broker.crash()
        self._for(self._span(500, 90_000), broker.restart)
        return f"crash {broker.name}"

    def _broker_hang(self) -> str:
        broker = self._any_broker()
        if not broker.is_up or broker.is_hung:
            return "broker is not well"
        broker.hang()

        def undo() -> None:
            if broker.is_hung:
                broker.resume()

        self._for(self._span(1_000, 90_000), undo)
        return f"hang {broker.name}"

    def _namesrv_hang(self) -> str:
        server = self._cluster.servers[min(self._cluster.servers)]
        if server.is_hung:
            return "name server hangs"
        server.hang()
        self._for(self._span(1_000, 90_000), server.resume)
        return "hang name server"

    def _namesrv_forgets(self) -> str:
        broker = self._any_broker()
        names, schedule = self._cluster.names, self._schedule
        if not broker.is_up:
            return "broker is forgotten"
        names.unregister(broker.broker, schedule.now())

        def undo() -> None:
            if broker.is_up:
                names.register(broker.broker, schedule.now())

        self._for(self._span(1_000, 90_000), undo)
        return f"forget {broker.name}"

    def _queues(self) -> str:
        broker, cluster = self._any_broker(), self._cluster
        if not broker.is_up:
            return "broker is down"
        count = self._span(1, 2 * cluster.queues_of(broker) + 1)
        cluster.set_queues(broker, count)

        def undo() -> None:
            if broker.is_up:
                cluster.set_queues(broker, cluster.queues_of(broker))

        self._for(self._span(10_000, 180_000), undo)
        return f"{broker.name} has {count} queues"

    def _trim(self) -> str:
        broker = self._any_broker()
        is_hard = self._schedule.chance(0.1)
        self._cluster.trim(broker, is_hard=is_hard)
        return f"trim {broker.name} {is_hard}"

    def _locks(self) -> str:
        broker = self._any_broker()
        if broker.is_up:
            self._cluster.lose_locks(broker)
        return f"locks of {broker.name}"
