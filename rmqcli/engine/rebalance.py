"""Rebalancing: which queues this member owns, and how it gains and gives them up.

`Rebalance` does one run for one topic, and `RebalanceService` decides when: soon after
a change, and otherwise every 20 s. A topic has one run at a time; requests during a run
cause one more run. Two runs are at least a second apart, so that many members that join
or leave at once cost little; while a queue is missing, the next run follows after that
second.

Differences from Java:
- A notification that members changed does not wait for that second, but only for
  NEWS_INTERVAL_MS: the member that gains a queue queries its offset at once, and by
  then the member that loses the queue must have committed.
- The offsets of new queues are queried concurrently, and their locks with one request
  per broker: a start with many queues takes two round trips, not two per queue.
- Each topic is rebalanced separately, each broker's queues are acquired separately, and
  the first broker that answers tells the members. So a broker that does not answer
  delays only its own queues. Java does all of this in one thread.
- The heartbeat that announces a changed subscription is sent with the decision, and
  each broker answers it before its first pull. Java 5.x waits 500 ms instead.
- A queue that was dropped, could not be given up yet and is assigned again begins again
  as soon as its consumption has ended. Java does not pull it for 120 s.
- A member that loses a queue lets its listeners finish the messages that they have
  begun, for at most HANDOVER_MS (a second if the queue is locked, because no other
  member can begin), and commits. A member that gains a queue from another member waits
  for TAKE_OVER_MS, or for the lock, before it queries the offset. So a member that
  joins or leaves causes no duplicates while listeners are quick; in Java it does.
- The queues of an unsubscribed topic are given up like all others: committed and
  unlocked. Java drops them without that.

Source: RebalanceService, RebalanceImpl, RebalancePushImpl.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

from rmqcli.checked import check_returned
from rmqcli.dataclass import dataclass
from rmqcli.engine.allocate import sort_client_ids, sort_queues
from rmqcli.engine.process_queue import ProcessQueue, QueueState
from rmqcli.engine.pull_from_where import compute_pull_from_where
from rmqcli.engine.pull_message import may_undo
from rmqcli.engine.pull_room import PullRequest
from rmqcli.engine.queue_locks import queues_by_broker
from rmqcli.engine.reports import report_assigned, report_revoked
from rmqcli.errors import RmqError
from rmqcli.log import get_logger
from rmqcli.tasks import All, Race, Sleep, start

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from rmqcli.engine.consume.service import ConsumeService
    from rmqcli.engine.member import Member
    from rmqcli.engine.message import Pulled
    from rmqcli.engine.queue_locks import QueueLocks
    from rmqcli.model import MessageQueue
    from rmqcli.tasks import Pending, Task

    Heartbeat = Callable[[], dict[str, Pending[None]]]


logger = get_logger(__name__)

LOCK_FAILED_DELAY_MS: Final = 500
HANDOVER_MS: Final = 200
HANDOVER_LOCKED_MS: Final = 1_000  # Java waits as long for the work before it unlocks
TAKE_OVER_MS: Final = 300
_POLL_MS: Final = 5
UNLOCK_FORCE_MS: Final = 20_000  # UNLOCK_DELAY_TIME_MILLS
#: After this long without an answer another broker is asked as well.
NEXT_BROKER_MS: Final = 100
MIN_INTERVAL_MS: Final = 1_000  # rocketmq.client.rebalance.minInterval
NEWS_INTERVAL_MS: Final = 100


@dataclass(slots=True, eq=False)
class _Change:
    """A changed subscription that is sent to the brokers with one heartbeat.

    `heartbeat()` sends it, and returns the answers by broker name. It is called once:
    by `send`, or for the first queue that waits for its broker.
    """

    heartbeat: Heartbeat
    _answers: dict[str, Pending[None]] | None = field(default=None, init=False)

    def send(self) -> dict[str, Pending[None]]:
        """Send the heartbeat, unless it was sent; return the answers."""
        if self._answers is None:
            self._answers = {}
            try:
                self._answers = self.heartbeat()
            except Exception:
                logger.exception("heartbeat failed unexpectedly")
        return self._answers

    def registered_at(self, broker_name: str) -> Task[None]:
        """Wait until this broker has accepted the heartbeat, or that has failed."""
        answer = self.send().get(broker_name)
        if answer is None:
            return
        try:
            yield answer
        except RmqError as error:
            logger.info("heartbeat failed broker=%s: %s", broker_name, error)


@dataclass(slots=True, eq=False)
class _Gain:
    """A queue that is being acquired, and whether it is still assigned to us."""

    is_wanted: bool = True


@dataclass(slots=True, eq=False)
class Rebalance:
    """The queues of one member. `service` hands out their messages.

    `heartbeat()` sends the member's heartbeat to every broker; see `_Change`.
    """

    member: Member
    locks: QueueLocks
    service: ConsumeService[Any]
    pull: Callable[[PullRequest], None]
    heartbeat: Heartbeat
    #: queues that begin as soon as their lock is granted and their offset is known
    _gains: dict[MessageQueue, _Gain] = field(default_factory=dict, init=False)
    #: assigned queues that were tried and have not begun; brokers know the change
    _tried: set[MessageQueue] = field(default_factory=set, init=False)
    #: topics whose last rebalance failed, and the error that was logged
    _failing: dict[str, str] = field(default_factory=dict, init=False)
    #: topics and brokers of queues whose offsets are unknown, which was logged
    _without_offsets: set[tuple[str, str]] = field(default_factory=set, init=False)

    def run(self, topic: str) -> Task[bool]:
        """Rebalance one topic; return whether this member owns its assigned queues.

        Queues that are being acquired count as owned: this does not wait for them, and
        a queue that cannot be acquired requests the next rebalance itself.
        """
        member = self.member
        if topic not in member.subscriptions:
            self._failing.pop(topic, None)
            for queue in [q for q in member.process_queues if q.topic == topic]:
                self.give_up(queue)
            self._cancel(q for q in self._gains if q.topic == topic)
            return True
        if member.is_paused:
            return False
        try:
            is_balanced = yield from self._topic(topic)
        except RmqError as error:
            is_retry = topic == member.retry_topic
            # While a broker is away, it also does not know the group's members.
            is_known = is_retry or bool(member.lost_brokers)
            # A broker that hangs fails every second rebalance, for hours.
            is_known = is_known or self._failing.get(topic) == str(error)
            if not is_known:
                self._failing[topic] = str(error)
            level = logging.DEBUG if is_known else logging.WARNING
            logger.log(level, "rebalance failed topic=%s: %s", topic, error)
            return is_retry
        if self._failing.pop(topic, None) is not None:
            logger.info("rebalance works again topic=%s", topic)
        return is_balanced

    def stop(self) -> None:
        """Acquire no more queues; unlock the queues that have not begun."""
        self._cancel(self._gains)

    def _cancel(self, queues: Iterable[MessageQueue]) -> None:
        for queue in queues:
            self._tried.discard(queue)
            gain = self._gains[queue]
            if gain.is_wanted:
                gain.is_wanted = False
                self._unlock(queue)

    def _unlock(self, queue: MessageQueue) -> None:
        if self.member.needs_lock:
            self.locks.unlock(queue)

    def give_up(self, queue: MessageQueue) -> None:
        """Drop a queue at once, even while it is consumed (removeProcessQueue)."""
        process_queue = self.member.process_queues.pop(queue, None)
        if process_queue is not None:
            process_queue.drop("given up")
            self._release(process_queue)
            report_revoked(self.member.listener, [queue])

    def begin_again(self, before: ProcessQueue[Pulled]) -> None:
        """Consume a resting queue from its frozen offset."""
        member, queue = self.member, before.message_queue
        table = member.offsets.table
        before.drop("its new offset is stored")
        offset = table.get(queue)
        is_ours = member.process_queues.get(queue) is before
        if not is_ours or offset is None or not member.is_running:
            return
        process_queue: ProcessQueue[Pulled] = ProcessQueue(
            queue,
            member.now_ms(),
            locked=before.locked,
            last_lock_ms=before.last_lock_ms,
            story=before.story,
        )
        member.process_queues[queue] = process_queue
        table.remove(queue)
        table.put(queue, offset)
        request = PullRequest(queue, process_queue, offset)
        request.is_locked_before = request.is_chosen = True
        self.pull(request)

    def _topic(self, topic: str) -> Task[bool]:
        member = self.member
        started_ms = member.now_ms()
        queues = member.topic_queues.get(topic)
        if queues is None:
            queues = yield from member.network.fetch_queues(topic)
            member.topic_queues[topic] = queues
        others = 0
        if member.is_broadcasting:
            assigned = set(queues)
        else:
            cids = yield from self._consumer_ids(topic)
            others = len({*cids} - {member.client_id})
            assigned = self._allocated(queues, cids)
        yield from self._hand_over(topic, assigned)
        free_ms = started_ms + TAKE_OVER_MS if others else started_ms
        self._update(topic, assigned, free_ms=free_ms)
        ours = {
            queue: not each.dropped
            for queue, each in member.process_queues.items()
            if queue.topic == topic
        }
        for queue, gain in self._gains.items():
            if queue.topic == topic and gain.is_wanted:
                ours.setdefault(queue, True)
        return ours.keys() == assigned and all(ours.values())

    def _allocated(
        self, queues: Sequence[MessageQueue], cids: Sequence[str]
    ) -> set[MessageQueue]:
        """The queues that the strategy, which may be the program's, gives us."""
        member = self.member
        try:
            allocated = member.config.strategy.allocate(
                group=member.group,
                current_cid=member.client_id,
                queues=sort_queues(queues),
                cids=sort_client_ids(cids),
            )
        except Exception:
            raise
        except BaseException as error:
            if member.listener.is_orphaned:
                raise
            # A task ends with an Exception, and the next rebalance tries again.
            what = f"strategy.allocate raised {type(error).__name__}"
            raise RuntimeError(what) from error
        check_returned(allocated, "strategy.allocate")
        return set(allocated)

    def _consumer_ids(self, topic: str) -> Task[list[str]]:
        """The members of the group, from the first broker that answers."""
        member = self.member
        queries = [
            member.network.consumer_ids(member.group, broker_name)
            for broker_name in member.network.brokers(topic)
        ]
        if not queries:
            raise no_broker_of(topic)
        cids: list[str] = yield Race(queries, NEXT_BROKER_MS)
        return cids

    def _update(
        self, topic: str, assigned: Collection[MessageQueue], *, free_ms: int
    ) -> None:
        """updateProcessQueueTableInRebalance, then messageQueueChanged.

        Each broker's queues are acquired separately, so that a broker that does not
        answer does not delay queues of other brokers. `free_ms` is when the previous
        owners of new queues have committed.
        """
        member = self.member
        if not member.is_running:
            return  # the member closed while this waited for the previous owner
        is_changed = self._drop(topic, assigned)
        self._cancel(q for q in self._gains if q.topic == topic and q not in assigned)
        self._tried = {q for q in self._tried if q.topic != topic or q in assigned}
        missing = sorted(
            q
            for q in assigned
            if q not in member.process_queues and q not in self._gains
        )
        is_changed = is_changed or not self._tried.issuperset(missing)
        # A broker that was down at the first try gets the heartbeat now.
        change = _Change(self.heartbeat)
        if is_changed:
            self._changed(topic)
            change.send()
        for queues in queues_by_broker(missing).values():
            gains = {queue: _Gain() for queue in queues}
            self._gains |= gains
            self._tried.update(gains)
            task = self._acquire(gains, change, free_ms=free_ms)
            acquired = start(task, member)
            acquired.on_done(functools.partial(self._acquired, gains))

    def _acquire(
        self, gains: dict[MessageQueue, _Gain], change: _Change, *, free_ms: int
    ) -> Task[None]:
        """Acquire queues of one broker, and begin each as soon as it is ready."""
        member = self.member
        locked_ms: int | None = None
        queues = list(gains)
        if member.needs_lock:
            locked_ms = member.now_ms()
            granted = yield from self.locks.lock(queues)
            if len(granted) < len(queues):
                member.call_later(LOCK_FAILED_DELAY_MS, member.rebalance_soon)
            for queue in gains.keys() - granted:
                del self._gains[queue]  # its turn comes with the next rebalance
            queues = [queue for queue in queues if queue in granted]
        elif free_ms > member.now_ms():
            yield Sleep(free_ms - member.now_ms())
        outcomes = yield All(
            [self._begin(queue, gains[queue], change, locked_ms) for queue in queues]
        )
        errors = [each for each in outcomes if isinstance(each, RmqError)]
        if not queues:
            return
        broker_name, topic = queues[0].broker_name, queues[0].topic
        if not errors:
            self._without_offsets.discard((topic, broker_name))
        else:
            place = (topic, broker_name)
            is_said = (
                place in self._without_offsets or broker_name in member.lost_brokers
            )
            if not is_said:
                self._without_offsets.add(place)
            logger.log(
                logging.DEBUG if is_said else logging.WARNING,
                "offsets unknown, queues cannot begin yet; retrying topic=%s broker=%s"
                " queues=%d: %s",
                topic,
                broker_name,
                len(errors),
                errors[-1],
            )

    def _acquired(
        self, gains: dict[MessageQueue, _Gain], pending: Pending[None]
    ) -> None:
        """Record that the acquisition has ended, with or without success."""
        left = [
            queue for queue, gain in gains.items() if self._gains.get(queue) is gain
        ]
        for queue in left:
            del self._gains[queue]
        if left or isinstance(pending.outcome(), RmqError):
            self.member.rebalance_soon()

    def _begin(
        self,
        queue: MessageQueue,
        gain: _Gain,
        change: _Change,
        locked_ms: int | None,
    ) -> Task[None]:
        """Create the ProcessQueue of a queue once its first offset is known.

        Raises RmqError when the offset cannot be determined now.
        """
        member = self.member
        offset: int | None = None
        failure: RmqError | None = None
        try:
            if gain.is_wanted:
                member.offsets.table.remove(queue)
                offset = yield from compute_pull_from_where(member, queue)
        except RmqError as error:
            failure = error
        del self._gains[queue]
        if not gain.is_wanted or not member.is_running:
            # A lock that was granted after the last unlock is given back, too.
            member.offsets.table.remove(queue)
            self._unlock(queue)
            self.member.rebalance_soon()
            return
        if offset is None:
            self.member.rebalance_soon()
            if failure is not None:
                raise failure
            return
        process_queue: ProcessQueue[Pulled] = ProcessQueue(
            queue, member.now_ms(), locked=member.needs_lock, last_lock_ms=locked_ms
        )
        member.process_queues[queue] = process_queue
        self._tried.discard(queue)
        share_limits(member)
        report_assigned(member.listener, [queue])
        yield from change.registered_at(queue.broker_name)
        self.pull(PullRequest(queue, process_queue, offset))

    def _hand_over(self, topic: str, assigned: Collection[MessageQueue]) -> Task[None]:
        """Let the consumption of lost queues end, so that it can be committed."""
        member = self.member
        if member.is_broadcasting:
            return
        lost = [
            each
            for queue, each in member.process_queues.items()
            if queue.topic == topic and queue not in assigned and not each.dropped
        ]
        for process_queue in lost:
            process_queue.change(QueueState.RELEASED, "assigned to another member")
            self.service.release(process_queue)
        until_ms = member.now_ms()
        until_ms += HANDOVER_LOCKED_MS if member.needs_lock else HANDOVER_MS
        while member.now_ms() < until_ms and any(
            self.service.is_working(each) or may_undo(member, each) for each in lost
        ):
            yield Sleep(_POLL_MS)

    def _drop(self, topic: str, assigned: Collection[MessageQueue]) -> bool:
        """Give up queues of other members, and queues whose pull loop has ended."""
        member = self.member
        is_changed = False
        for queue, process_queue in list(member.process_queues.items()):
            if queue.topic != topic:
                continue
            is_lost = queue not in assigned
            if not is_lost and process_queue.state is QueueState.RESTING:
                continue
            if not is_lost and not process_queue.dropped:
                if not process_queue.is_pull_expired(member.now_ms()):
                    continue
                logger.error("pull loop ended, the queue begins anew queue=%s", queue)
            process_queue.drop("lost" if is_lost else "to begin anew")
            if self._release(process_queue):
                del member.process_queues[queue]
                report_revoked(member.listener, [queue])
                is_changed = True
        return is_changed

    def _release(self, process_queue: ProcessQueue[Pulled]) -> bool:
        """removeUnnecessaryMessageQueue of 5.2; False while a listener holds it."""
        member, queue = self.member, process_queue.message_queue
        member.offsets.persist([queue])
        if member.needs_lock:
            held_ms = member.now_ms() - process_queue.last_lock_ms
            if self.service.is_busy(queue) and held_ms <= UNLOCK_FORCE_MS:
                process_queue.try_unlock_times += 1
                return False
            process_queue.lock_lost()
            self.locks.unlock(queue)
        member.offsets.table.remove(queue)
        return True

    def _changed(self, topic: str) -> None:
        """messageQueueChanged: a new version of the subscription, and shared limits."""
        member = self.member
        subscription = member.subscriptions.get(topic)
        if subscription is not None:
            member.subscriptions[topic] = dataclasses.replace(
                subscription, sub_version=member.clock.epoch_ms()
            )
        share_limits(member)


def no_broker_of(topic: str) -> RmqError:
    """The error when no broker of a topic is known."""
    return RmqError(f"no broker of topic {topic} is known")


def share_limits(member: Member) -> None:
    """Divide a topic's limits by the number of all the member's queues, as in Java."""
    count = len(member.process_queues)
    if not count:
        return
    config = member.config
    if config.pull_threshold_for_topic is not None:
        member.pull_threshold_for_queue = max(
            1, config.pull_threshold_for_topic // count
        )
    if config.pull_threshold_size_for_topic_mib is not None:
        member.pull_threshold_size_for_queue_mib = max(
            1, config.pull_threshold_size_for_topic_mib // count
        )


@dataclass(slots=True, eq=False)
class RebalanceService:
    """Runs `rebalance` for every subscribed topic from `start` until `stop`."""

    member: Member
    rebalance: Rebalance
    _is_stopped: bool = field(default=True, init=False)
    _schedules: dict[str, _Schedule] = field(default_factory=dict, init=False)

    @property
    def runs(self) -> int:
        """The number of rebalances of the topic with the most of them."""
        return max((each.runs for each in self._schedules.values()), default=0)

    def start(self) -> None:
        """Run now, and then periodically."""
        self._is_stopped = False
        self.soon()

    def stop(self) -> None:
        """Begin no more runs."""
        self._is_stopped = True
        for schedule in self._schedules.values():
            schedule.is_stopped = True

    def soon(self) -> None:
        """Run a second after the last run, or at once."""
        self._run_after(MIN_INTERVAL_MS)

    def members_changed(self) -> None:
        """Run at once, as the other members do (NOTIFY_CONSUMER_IDS_CHANGED)."""
        self._run_after(NEWS_INTERVAL_MS)

    def _run_after(self, interval_ms: int) -> None:
        if self._is_stopped:
            return
        for topic in self.member.subscriptions:
            if topic not in self._schedules:
                self._schedules[topic] = _Schedule(
                    self.member, self.rebalance, topic, self._ended
                )
        for schedule in list(self._schedules.values()):
            schedule.run_after(interval_ms)

    def _ended(self, topic: str) -> None:
        """After a run, forget the topic if it is no longer subscribed."""
        if topic not in self.member.subscriptions:
            self._schedules.pop(topic).is_stopped = True


@dataclass(slots=True, eq=False)
class _Schedule:
    """The schedule of one topic's rebalances."""

    member: Member
    rebalance: Rebalance
    topic: str
    ended: Callable[[str], None]
    is_stopped: bool = False
    runs: int = 0
    _is_running: bool = False
    #: the shortest interval of the requests during a run; None without one
    _wanted_after_ms: int | None = None
    _started_ms: int | None = None
    #: the number of the valid plan; timers of older plans do nothing
    _plan: int = 0

    def run_after(self, interval_ms: int) -> None:
        """Run, at the earliest `interval_ms` after the beginning of the last run."""
        if self._is_running:
            self._wanted_after_ms = min(
                interval_ms, self._wanted_after_ms or interval_ms
            )
            return
        started_ms, now_ms = self._started_ms, self.member.now_ms()
        if started_ms is None or now_ms - started_ms >= interval_ms:
            self._run()
        else:
            self._run_in(started_ms + interval_ms - now_ms)

    def _run_in(self, delay_ms: int) -> None:
        self._plan += 1
        plan = self._plan

        def run() -> None:
            if plan == self._plan and not self.is_stopped and not self._is_running:
                self._run()

        self.member.call_later(delay_ms, run)

    def _run(self) -> None:
        self._plan += 1
        self._is_running = True
        self._wanted_after_ms = None
        self._started_ms = self.member.now_ms()
        self.runs += 1
        start(self.rebalance.run(self.topic), self.member).on_done(self._ran)

    def _ran(self, pending: Pending[bool]) -> None:
        is_balanced = pending.outcome()
        self._is_running = False
        self.ended(self.topic)
        if self.is_stopped:
            return
        if isinstance(is_balanced, RmqError):
            logger.warning("rebalance failed topic=%s: %s", self.topic, is_balanced)
        if self._wanted_after_ms is not None:
            self.run_after(self._wanted_after_ms)
        elif is_balanced is True:
            self._run_in(self.member.config.rebalance_interval_ms)
        else:
            self._run_in(MIN_INTERVAL_MS)
