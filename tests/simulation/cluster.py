"""The simulated cluster: brokers, a name server, members, and a producer.

Between periods of faults it is healed, and must come to rest within LIVENESS_MS: every
message is consumed or a dead letter, and every queue is owned by one member.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rmqcli.broker.effects import Peer
from rmqcli.broker.namesrv.core import NameServer
from rmqcli.broker.namesrv.handlers import NAMESRV_REQUESTS
from rmqcli.broker.settings import BrokerSettings
from rmqcli.broker.state.locks import LockTable
from rmqcli.model import MessageQueue
from rmqcli.wire.bodies.config import TopicConfig
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.command import RemotingCommand
from rmqcli.wire.header import to_ext_fields
from rmqcli.wire.headers.send import SendMessageRequestHeaderV2
from rmqcli.wire.message.properties import encode_properties
from tests.simulation.checker import (
    GROUP,
    RETRY_TOPIC,
    TOPIC,
    Checker,
    RecordingStore,
)
from tests.simulation.conditions import NetworkConditions
from tests.simulation.member import CLOSE_MS_MAX, NAMESRV, SimMember
from tests.simulation.server import SimBroker, SimServer
from tests.simulation.watch import Working
from tests.simulation.workers import ListenerBehaviour

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule

LIVENESS_MS: Final = 120_000
#: Retry delays that are short enough for all retries to end within LIVENESS_MS.
_DELAY_LEVELS: Final = "1s 2s 3s 5s 5s 5s 5s 5s 5s 5s 5s 5s 5s 5s 5s 5s 5s 5s"
_PRODUCER: Final = Peer(0, "10.0.2.1:1")
_TIMERS_MAX: Final = 1_000


class Plan(NamedTuple):
    """The parameters of a simulation."""

    seed: int
    is_orderly: bool
    members: int = 4
    queues: int = 16
    brokers: int = 2
    messages_per_s: float = 0.5
    #: whether offsets are reset, which is not a fault: then messages may be skipped
    has_resets: bool = False
    #: whether listeners are coroutines, which a close cancels
    is_async: bool = False


class SimCluster:
    """A simulated cluster. Satisfies `link.Cluster`."""

    def __init__(self, plan: Plan, schedule: Schedule) -> None:
        self.plan = plan
        self.schedule = schedule
        self.conditions = NetworkConditions()
        self.behaviour = ListenerBehaviour()
        self.checker = Checker(schedule)
        self.working = Working()
        self.servers: dict[str, SimServer] = {}
        self.names = NameServer(schedule.now(), requests=NAMESRV_REQUESTS)
        self._peers = 0
        self._produced = 0
        #: grows when producing ends: sends that were planned before do nothing
        self._turn = 0
        self._members = 0
        self.members: list[SimMember] = []
        self._settings = {
            "batch_size": schedule.rng.choice((1, 1, 3)),
            "max_reconsume_times": schedule.rng.choice((2, 5))
            if plan.is_orderly
            else None,
        }
        namesrv = self.servers[NAMESRV] = SimServer(self, NAMESRV)
        namesrv.start(self.names)
        self.brokers = [self._broker(index) for index in range(plan.brokers)]

    def next_peer(self) -> int:
        """See Cluster."""
        self._peers += 1
        return self._peers

    def _broker(self, index: int) -> SimBroker:
        name = f"broker-{'abcdefgh'[index]}"
        address = f"10.0.1.{index + 10}:10911"
        settings = BrokerSettings(
            broker_name=name, address=address, message_delay_level=_DELAY_LEVELS
        )
        broker = SimBroker(
            self,
            settings,
            store=RecordingStore(name, self.checker.stored),
            names=self.names,
            committed=self.checker.committed,
        )
        self.servers[address] = broker
        self.set_queues(broker, self.queues_of(broker))
        return broker

    def queues_of(self, broker: SimBroker) -> int:
        """The number of the topic's queues on a broker, when nothing is wrong."""
        del broker
        return max(1, self.plan.queues // self.plan.brokers)

    def set_queues(self, broker: SimBroker, count: int) -> None:
        """Expand or shrink the topic on one broker."""
        broker.broker.topics.put(
            TopicConfig(topic_name=TOPIC, read_queue_nums=count, write_queue_nums=count)
        )

    def locks_lost_ms(self, broker_name: str) -> int:
        """When a broker last lost its locks; -1 for never."""
        return next(b.locks_lost_ms for b in self.brokers if b.name == broker_name)

    def lose_locks(self, broker: SimBroker) -> None:
        """Let a broker forget which member has locked which queue."""
        broker.locks_lost_ms = self.schedule.now_ms
        broker.broker.locks = LockTable()

    # --- members ---

    def live(self) -> list[SimMember]:
        """Members that neither crashed nor are about to leave."""
        self.members = [each for each in self.members if each.is_alive]
        return [each for each in self.members if not each.is_closing]

    def join(self) -> SimMember:
        """Start a new member, and return it."""
        self._members += 1
        member = SimMember(
            self,
            self._members,
            is_orderly=self.plan.is_orderly,
            is_async=self.plan.is_async,
            batch_size=self._settings["batch_size"] or 1,
            max_reconsume_times=self._settings["max_reconsume_times"],
        )
        self.members.append(member)
        member.start()
        return member

    # --- messages ---

    def produce(self) -> None:
        """Send messages from now on, until the next `heal`."""
        turn = self._turn
        for broker in self.brokers:
            self.set_queues(broker, self.queues_of(broker))
        self.schedule.later(self._pause_ms(), lambda: self._produce(turn))

    def _pause_ms(self) -> int:
        return int(self.schedule.rng.expovariate(self.plan.messages_per_s) * 1_000)

    def _produce(self, turn: int) -> None:
        if turn != self._turn:
            return
        burst = 1
        if self.schedule.chance(0.01):
            burst = 1 + int(self.schedule.rng.random() * 100)
        for _ in range(burst):
            self._send_one()
        self.schedule.later(self._pause_ms() * burst, lambda: self._produce(turn))

    def _send_one(self) -> None:
        broker = self.schedule.rng.choice(self.brokers)
        core = broker.core
        if core is None or broker.is_hung:
            return
        topic = broker.broker.topics.get(TOPIC)
        count = 0 if topic is None else topic.write_queue_nums
        if not count:
            return
        self._produced += 1
        now = self.schedule.now()
        header = SendMessageRequestHeaderV2(
            producer_group="sim-producer",
            topic=TOPIC,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=int(self.schedule.rng.random() * count),
            sys_flag=0,
            born_timestamp=now.epoch_ms,
            flag=0,
            properties=encode_properties({"KEYS": str(self._produced)}),
            reconsume_times=0,
            unit_mode=False,
            batch=False,
        )
        command = RemotingCommand(
            RequestCode.SEND_MESSAGE_V2,
            ext_fields=to_ext_fields(header),
            body=b"%d" % self._produced,
        )
        broker.carry(core.handle(_PRODUCER, command, now))

    @property
    def produced(self) -> int:
        """The number of messages that were sent."""
        return self._produced

    def trim(self, broker: SimBroker, *, is_hard: bool) -> None:
        """Delete a broker's oldest messages; if `is_hard`, also pending ones."""
        store = broker.store
        first, end = store.log_bounds()
        before = first + int((end - first) * self.schedule.rng.random())
        if not is_hard:
            before = min(before, self.checker.oldest(broker.name, end))
        store.trim(None, before)
        minimums = {}
        for topic, queue_id in store.queues():
            bounds = store.queue_bounds(topic, queue_id)
            if bounds is not None and topic in (TOPIC, RETRY_TOPIC):
                minimums[broker.name, topic, queue_id] = bounds[0]
        self.schedule.note(f"trim {broker.name} below {before}")
        self.checker.trimmed_to(broker.name, store.log_bounds()[0], minimums)

    def reset(self, member: SimMember) -> str:
        """Reset one of a member's queues, as request 220 and `seek` do."""
        queue = self.schedule.rng.choice(member.owned())
        place = (queue.broker_name, queue.topic, queue.queue_id)
        target = int(self.schedule.rng.random() * (self.checker.end_of(place) + 1))
        member.move(queue, target)
        return f"reset {queue} to {target}"

    # --- healing ---

    def heal(self) -> None:
        """End every fault. Producing stops too."""
        self.schedule.note("heal")
        self._turn += 1
        self.conditions.heal()
        self.behaviour.heal()
        for broker in self.brokers:
            if broker.is_hung:
                broker.resume()
            broker.restart()
            # Enough queues to read what was sent while the topic was expanded.
            used = [
                q for b, t, q in self.checker.places() if (b, t) == (broker.name, TOPIC)
            ]
            self.set_queues(broker, max([self.queues_of(broker) - 1, *used]) + 1)
        for server in self.servers.values():
            if server.is_hung:
                server.resume()
            server.drop_dead_links()
        for member in self.members:
            member.clock.skew_ms = 0
            member.thaw()
            member.workers.hurry()
        for broker in self.brokers:
            self.names.register(broker.broker, self.schedule.now())
        live = self.live()
        for member in live[self.plan.members :]:
            member.close()
        for _ in range(self.plan.members - len(live)):
            self.join()

    def settle(self) -> int | None:
        """Run until the cluster is at rest, and return how many ms that took.

        Returns None, and reports a violation, if it is not at rest in LIVENESS_MS.
        """
        began_ms = self.schedule.now_ms
        while self.schedule.now_ms - began_ms < LIVENESS_MS:
            self.schedule.run_until(self.schedule.now_ms + 1_000)
            if not self.checker.pending and self._wrong_owners() is None:
                self._look()
                self.checker.forget_lives()
                return self.schedule.now_ms - began_ms
        pending = list(self.checker.pending)
        if pending:
            places = [self.checker.where(number) for number in pending[:5]]
            self.checker.violation(
                f"{len(pending)} messages are not consumed {LIVENESS_MS} ms after"
                f" healing: {places}; {self._states()}"
            )
        wrong = self._wrong_owners()
        if wrong is not None:
            self.checker.violation(f"{LIVENESS_MS} ms after healing {wrong}")
        return None

    def _states(self) -> str:
        """Describe the members' queues with messages or without recent pulls."""
        return "; ".join(
            f"{member.name} has {each.msg_count} of {queue}, offset"
            f" {member.member.offsets.table.get(queue)}, pulled"
            f" {self.schedule.now_ms - each.last_pull_ms} ms ago"
            for member in self.live()
            for queue, each in member.member.process_queues.items()
            if each.msg_count
            or self.schedule.now_ms - each.last_pull_ms > LIVENESS_MS / 2
        )

    def _wrong_owners(self) -> str | None:
        """Describe a queue that is not owned as it should be; None if all are."""
        wanted = {
            MessageQueue(name, broker.name, queue_id)
            for broker in self.brokers
            for name in (TOPIC, RETRY_TOPIC)
            for queue_id in range(self._read_queues(broker, name))
        }
        owners: dict[MessageQueue, list[str]] = {}
        for member in self.members:
            if member.is_alive:
                for queue in member.owned():
                    owners.setdefault(queue, []).append(member.name)
        for queue in sorted(wanted | owners.keys()):
            names = owners.get(queue, [])
            if queue not in wanted:
                return f"{queue} is owned by {names}, but does not exist"
            if len(names) != 1:
                return f"{queue} is owned by {names or 'no member'}"
        return None

    def _read_queues(self, broker: SimBroker, topic: str) -> int:
        config = broker.broker.topics.get(topic)
        return 0 if config is None else config.read_queue_nums

    def _look(self) -> None:
        """At rest, check the members' message counts and numbers of timers."""
        for member in self.live():
            for queue, each in member.member.process_queues.items():
                info = each.fill_info(commit_offset=0, now=member.member.now())
                cached = info.cached_msg_count + info.transaction_msg_count
                if cached != each.msg_count:
                    self.checker.violation(
                        f"{member.name} counts {each.msg_count} messages of {queue},"
                        f" and has {cached}"
                    )
            plans = len(member.member.timers)
            if plans > _TIMERS_MAX:
                self.checker.violation(f"{member.name} has {plans} timers")

    def close(self) -> None:
        """Close all members; everything must be committed then."""
        for member in self.live():
            member.close()
        self.schedule.run_until(self.schedule.now_ms + CLOSE_MS_MAX)
        for member in self.members:
            if member.is_alive:
                self.checker.violation(f"{member.name} did not finish closing")
        for place in self.checker.places():
            name, topic, queue_id = place
            broker = next(each for each in self.brokers if each.name == name)
            end = self.checker.end_of(place)
            offset = broker.broker.offsets.query(GROUP, topic, queue_id) or 0
            bounds = broker.store.queue_bounds(topic, queue_id)
            if offset < end and bounds is not None and bounds[0] < bounds[1]:
                self.checker.violation(
                    f"{topic} {name} {queue_id} is committed at {offset} of {end} after"
                    " all members left"
                )
