"""One simulated member: a real engine over a real client, on a simulated network."""

from __future__ import annotations

import random
import traceback
from typing import TYPE_CHECKING, cast

from rmqcli.api.client import Client
from rmqcli.client_id import make_client_id
from rmqcli.config import ClientConfig
from rmqcli.consumer.peer_requests import PeerRequests
from rmqcli.engine.config import ConsumeFromWhere, ConsumerConfig
from rmqcli.engine.member import Member
from rmqcli.engine.offset_store import RemoteBrokerOffsetStore
from rmqcli.engine.push_consumer import PushConsumer
from rmqcli.errors import RmqError
from rmqcli.wire.subscription import parse_subscription
from tests.simulation.checker import GROUP, RETRY_TOPIC, TOPIC
from tests.simulation.link import SimRemoting
from tests.simulation.schedule import SimClock
from tests.simulation.watch import Watch, WatchedNetwork
from tests.simulation.workers import SimTasks, SimThreads

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.model import MessageQueue
    from rmqcli.tasks import Pending
    from rmqcli.transport.remoting import RemotingClient
    from tests.simulation.cluster import SimCluster

NAMESRV: str = "10.0.1.1:9876"
_THREADS = 4
_AWAIT_MS = 10_000
#: The longest close: the listeners, then commits, unlocking and unregistering.
CLOSE_MS_MAX = _AWAIT_MS + 12_000


class SimMember:
    """A member, from its start to its end. Its `number` is unique."""

    def __init__(
        self,
        cluster: SimCluster,
        number: int,
        *,
        is_orderly: bool,
        is_async: bool,
        batch_size: int,
        max_reconsume_times: int | None,
    ) -> None:
        self.name = f"m{number}"
        self.number = number
        self.is_alive = True
        self.is_closing = False
        self._frozen_until_ms = 0
        #: actions that arrived while the member was frozen
        self._kept: list[Callable[[], None]] = []
        self._schedule = schedule = cluster.schedule
        self._checker = cluster.checker
        self._wake_ms: int | None = None
        self.clock = SimClock(schedule)
        self.watch = Watch(
            schedule,
            cluster.checker,
            cluster.working,
            name=self.name,
            locks_lost_ms=cluster.locks_lost_ms,
        )
        self.watch.is_orderly = is_orderly
        self.remoting = SimRemoting(cluster, number, self.run)
        client = Client(
            ClientConfig(namesrv=(NAMESRV,)),
            clock=self.clock,
            remoting=cast("RemotingClient", self.remoting),
        )
        rng = random.Random(schedule.rng.getrandbits(32))  # seeded
        network = WatchedNetwork(client, rng=rng, watch=self.watch)
        make_workers = SimTasks if is_async else SimThreads
        self.workers = make_workers(
            schedule,
            self.watch,
            cluster.behaviour,
            threads=_THREADS,
            is_orderly=is_orderly,
            clock=self.clock,
            run=self.run,
        )
        config = ConsumerConfig(
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            consume_threads=_THREADS,
            consume_message_batch_max_size=batch_size,
            max_reconsume_times=max_reconsume_times,
            await_termination_ms=_AWAIT_MS,
        )
        version = self.clock.epoch_ms()
        self.member = network.member = Member(
            group=GROUP,
            client_id=make_client_id(
                ip=f"10.0.0.{number % 250}",
                instance_name=None,
                pid=number,
                nanotime=schedule.now_ms,
                is_broadcasting=False,
            ),
            config=config,
            listener=self.workers.listener,
            subscriptions={
                topic: parse_subscription(topic, "*", sub_version=version)
                for topic in (TOPIC, RETRY_TOPIC)
            },
            clock=self.clock,
            network=network,
            workers=self.workers,
            offsets=RemoteBrokerOffsetStore(GROUP, network),
        )
        self.engine = PushConsumer(self.member)
        self.workers.attach(self.engine)
        requests = PeerRequests(
            self.engine,
            namesrv=NAMESRV,
            call=self.workers.call,
            answer_later=self.remoting.answer_later,
        )
        self.remoting.set_request_handler(requests.handle)

    def start(self) -> None:
        """Join the group."""
        self._schedule.note(f"{self.name} start")
        self.run(lambda: self.engine.start().on_done(self._started))

    def _started(self, pending: Pending[None]) -> None:
        outcome = pending.outcome()
        if isinstance(outcome, RmqError):
            self._checker.violation(f"{self.name} did not start: {outcome}")

    def run(self, action: Callable[[], None]) -> None:
        """Run an action of the engine now or, while it is frozen, once it thaws."""
        if not self.is_alive:
            return
        if self._schedule.now_ms < self._frozen_until_ms:
            self._kept.append(action)
            return
        try:
            action()
        except Exception:  # noqa: BLE001  # whatever it is, it is a defect
            text = traceback.format_exc(limit=-6)
            self._checker.violation(f"{self.name} raised: {text}")
        self._plan()

    def _plan(self) -> None:
        due_ms = self.engine.next_due_ms()
        if due_ms is not None and (self._wake_ms is None or due_ms < self._wake_ms):
            self._wake_ms = due_ms
            self._schedule.at(due_ms, lambda: self._wake(due_ms))

    def _wake(self, due_ms: int) -> None:
        if self._wake_ms == due_ms:
            self._wake_ms = None
            self.run(lambda: self.engine.run_due(self.member.now()))

    def move(self, queue: MessageQueue, offset: int) -> None:
        """Let the member consume one of its queues from `offset` on."""

        def move() -> None:
            process_queue = self.member.process_queues.get(queue)
            if process_queue is not None:
                self.watch.moves(queue, process_queue, offset)
                self.engine.move({queue: offset})

        self.run(move)

    def freeze(self, for_ms: int) -> None:
        """Do nothing for a while, as after SIGSTOP."""
        self._schedule.note(f"{self.name} frozen for {for_ms}")
        until_ms = self._schedule.now_ms + for_ms
        self._frozen_until_ms = max(self._frozen_until_ms, until_ms)
        self._schedule.at(self._frozen_until_ms, self._go_on)

    def thaw(self) -> None:
        """Thaw now, and first run the actions that arrived meanwhile."""
        self._frozen_until_ms = self._schedule.now_ms
        self._go_on()

    def _go_on(self) -> None:
        if self._schedule.now_ms < self._frozen_until_ms:
            return  # frozen again, for longer
        kept, self._kept = self._kept, []
        for action in kept:
            self.run(action)

    def crash(self, notice_ms: int) -> None:
        """End without unregistering; servers notice after `notice_ms`."""
        self._schedule.note(f"{self.name} crash")
        self._end()
        for link in self.remoting.links():
            self.remoting.lose(link, notice_ms=notice_ms)
        self.remoting.is_closed = True

    def close(self) -> None:
        """Close the engine, which leaves the group."""
        if self.is_closing or not self.is_alive:
            return
        self._schedule.note(f"{self.name} close")
        self.is_closing = True
        self.run(lambda: self.workers.close_within(_AWAIT_MS))
        self.run(lambda: self.engine.close(_AWAIT_MS).on_done(self._closed))

    def _closed(self, pending: Pending[None]) -> None:
        outcome = pending.outcome()
        if isinstance(outcome, RmqError):
            self._checker.violation(f"{self.name} failed to close: {outcome}")
        self._schedule.note(f"{self.name} closed")
        self._end()
        self.remoting.close()

    def _end(self) -> None:
        self.is_alive = False
        self.watch.gone()
        self.workers.end()

    def owned(self) -> list[MessageQueue]:
        """The queues that the member consumes."""
        return [q for q, each in self.member.process_queues.items() if not each.dropped]
