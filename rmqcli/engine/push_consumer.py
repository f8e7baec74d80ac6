"""One member of a consumer group, from its start to its end.

Pure: the thread that owns the engine calls `run_due` when `next_due_ms` says so, and
passes in the answers of the network and the outcomes of the listeners.

Differences from Java:
- The first rebalance follows the answer to the first heartbeat. That heartbeat makes
  each broker create the retry topic; its route is fetched until it has all of them, so
  that its queues are consumed at once. A Java member waits for its next rebalance.
- Added or removed queues cause a rebalance when the route is fetched, not 20 s later.
- The member begins as soon as one broker has accepted the first heartbeat. A close
  handles each broker separately, so that a broker that does not answer delays neither
  the commits to other brokers nor the end.
- A close waits for running listeners, commits with an answer, and unregisters last. It
  does not wait for messages that no listener has. A pull in flight carries an older
  commit, which a broker may process after the last one (seen with 5.5.0 in 24 of 60
  runs on a busy machine): the close waits for that pull, and reads the commit back. A
  reset does the same before the queue is consumed again; without this, 8 of 60 resets
  were undone (with 4.6.0).
- A periodic task survives its own failure; in 4.6 one exception ended it for good.

Source: DefaultMQPushConsumerImpl, MQClientInstance.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any, Final

from rmqcli.engine.consume.concurrently import ConsumeMessageConcurrentlyService
from rmqcli.engine.consume.orderly import ConsumeMessageOrderlyService
from rmqcli.engine.process_queue import QueueState
from rmqcli.engine.pull_message import PullMessageService, has_carried_less, may_undo
from rmqcli.engine.queue_locks import (
    FIRST_RENEWAL_MS,
    RENEW_INTERVAL_MS,
    QueueLocks,
    queues_by_broker,
)
from rmqcli.engine.rebalance import (
    NEXT_BROKER_MS,
    Rebalance,
    RebalanceService,
    no_broker_of,
)
from rmqcli.engine.reports import report_revoked
from rmqcli.engine.stats import SAMPLE_INTERVAL_MS
from rmqcli.engine.subscription_check import LEAD_MS, SubscriptionCheck
from rmqcli.errors import (
    BrokerError,
    NotFoundError,
    RmqError,
    TimeLimitError,
    TransportError,
)
from rmqcli.log import get_logger
from rmqcli.tasks import All, Race, Sleep, Within, every, start, unexpected
from rmqcli.wire.bodies.heartbeat import ConsumerData, HeartbeatData
from rmqcli.wire.subscription import TAG

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rmqcli.clock import Now
    from rmqcli.engine.member import Member
    from rmqcli.engine.message import Pulled
    from rmqcli.engine.process_queue import ProcessQueue
    from rmqcli.model import MessageQueue
    from rmqcli.tasks import Pending, Task
    from rmqcli.wire.subscription import SubscriptionData

logger = get_logger(__name__)

_HEARTBEAT_AGAIN_MS: Final = 1_000
#: When to fetch the retry topic's route, after the heartbeat that creates the topic.
_RETRY_ROUTE_DELAYS_MS: Final = (0, 100, 200, 400, 800, 1_600, 3_200, 6_400)
_DRAIN_CHECK_MS: Final = 5
#: The bounds of the time for which a close waits for brokers after listeners have
#: ended; within them, it is the rest of the close's timeout.
_LEAVE_MS_MIN: Final = 3_000
_LEAVE_MS_MAX: Final = 5_000


class PushConsumer:
    """One member: its parts, and its start, resets and close."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.locks = QueueLocks(member)
        self.service: ConsumeMessageOrderlyService | ConsumeMessageConcurrentlyService
        self.service = (
            ConsumeMessageOrderlyService(member, self.locks)
            if member.is_orderly
            else ConsumeMessageConcurrentlyService(member)
        )
        #: where consume threads report their outcomes, which are those of its service
        self.consumed: Callable[[Any], None] = self.service.consumed
        self.pulls = PullMessageService(
            member, self.service.submit, give_up=self.give_up
        )
        self.rebalance = Rebalance(
            member,
            self.locks,
            service=self.service,
            pull=self.pulls.pull,
            heartbeat=self._heartbeat,
        )
        self.rebalances = RebalanceService(member, self.rebalance)
        member.rebalance_soon = self.rebalances.soon
        self.subscription_check = SubscriptionCheck(member)
        self.is_closing = False
        #: resets whose offsets are not stored yet
        self._moving = 0
        #: why the last fetch of a topic's route failed
        self._route_errors: dict[str, RmqError] = {}
        #: the error because of which a start waits; None while nothing has failed
        self.start_error: RmqError | None = None
        #: until when a close waits for listeners
        self._close_by_ms = 0
        #: False after a close whose commits got no answer
        self.is_confirmed = True
        #: after the close: queues of which no pull was answered, and the last refusal
        self.refused: dict[MessageQueue, RmqError] = {}

    def next_due_ms(self) -> int | None:
        """When to call `run_due` (monotonic); None when no timer is set."""
        return self.member.timers.next_ms()

    def run_due(self, now: Now) -> None:
        """Run the actions that are due."""
        self.member.timers.run_due(now)

    def give_up(self, queue: MessageQueue) -> None:
        """Drop a queue at once."""
        self.rebalance.give_up(queue)

    def start(self, *, wait_for_cluster: bool = True) -> Pending[None]:
        """Begin to consume; done once a broker has accepted the heartbeat.

        It retries while no broker can be reached. It fails when a broker refuses a
        filter expression, and, without `wait_for_cluster`, when no topic has a route.
        """
        return start(self._start(wait_for_cluster=wait_for_cluster), self.member)

    def _start(self, *, wait_for_cluster: bool) -> Task[None]:
        member = self.member
        member.is_running = True
        is_raised = not wait_for_cluster
        yield from self._fetch_routes(member.subscriptions, is_raised=is_raised)
        # The retry topic exists since another member was there, and says nothing.
        found = member.topic_queues.keys() - {member.retry_topic}
        if not (wait_for_cluster or found) and self._route_errors:
            raise self._why_no_route()
        yield from every(
            *(
                self._check_surely(subscription, wait_for_cluster=wait_for_cluster)
                for subscription in member.subscriptions.values()
                if subscription.expression_type not in (None, TAG)
            )
        )
        yield from self._first_heartbeat()
        if self.is_closing:
            return
        self._plan_timers()
        self.rebalances.start()
        if not member.is_broadcasting:
            start(self._find_retry_route(), member).on_done(_log_failure)

    def _why_no_route(self) -> RmqError:
        """The error of the topics' routes, preferably one other than "not found"."""
        errors = [
            error
            for topic, error in self._route_errors.items()
            if topic != self.member.retry_topic
        ]
        return next((e for e in errors if not isinstance(e, NotFoundError)), errors[0])

    def _check_surely(
        self, subscription: SubscriptionData, *, wait_for_cluster: bool
    ) -> Task[None]:
        """Let a broker check the expression, as soon as one can be reached."""
        topic = subscription.topic
        while not self.is_closing:
            if topic in self.member.topic_queues:
                try:
                    yield from self._check(subscription)
                except TransportError as error:
                    self.start_error = error
                else:
                    return
            elif not wait_for_cluster:
                return  # the other topics are consumed; a warning was logged
            yield Sleep(_HEARTBEAT_AGAIN_MS)
            yield from self._fetch_routes([topic])

    def _check(self, subscription: SubscriptionData) -> Task[None]:
        """Let any broker check the expression. Raises the broker's refusal."""
        names = self.member.network.brokers(subscription.topic)
        if not names:
            raise no_broker_of(subscription.topic)
        checks = [self._check_at(name, subscription) for name in names]
        for refusal in (yield Race(checks, NEXT_BROKER_MS)):
            raise refusal

    def _check_at(
        self, broker_name: str, subscription: SubscriptionData
    ) -> Task[list[BrokerError]]:
        """The error with which this broker refuses the expression; empty if it accepts.

        A refusal is a result, so that no other broker is asked.
        """
        member = self.member
        try:
            yield from member.network.check_subscription(
                member.client_id, member.group, subscription, broker_name
            )
        except BrokerError as error:
            return [error]
        return []

    def _first_heartbeat(self) -> Task[None]:
        """Send heartbeats until one broker has accepted one."""
        while not self.is_closing:
            answers = list(self._heartbeat().values())
            if answers:
                try:
                    yield Race(answers, next_after_ms=0)
                except RmqError as error:
                    self.start_error = error
                    logger.warning(
                        "no broker accepted the heartbeat brokers=%d; retrying: %s",
                        len(answers),
                        error,
                    )
                else:
                    return
            yield Sleep(_HEARTBEAT_AGAIN_MS)
            yield from self._fetch_routes(self.member.subscriptions)

    def _find_retry_route(self) -> Task[None]:
        member = self.member
        for delay_ms in _RETRY_ROUTE_DELAYS_MS:
            yield Sleep(delay_ms)
            if self.is_closing or self._is_retry_route_complete():
                return
            yield from self._fetch_routes([member.retry_topic])

    def _is_retry_route_complete(self) -> bool:
        """Whether the retry topic is on every broker of the subscribed topics.

        Each broker creates it at its own first heartbeat.
        """
        member = self.member
        queues = member.topic_queues.get(member.retry_topic, [])
        topics = member.subscriptions.keys() - {member.retry_topic}
        names = {name for topic in topics for name in member.network.brokers(topic)}
        return bool(queues) and names <= {queue.broker_name for queue in queues}

    def heartbeat(self) -> None:
        """Send a heartbeat to all brokers; failures are logged."""
        for broker_name, answer in self._heartbeat().items():
            answer.on_done(functools.partial(self._log_heartbeat, broker_name))

    def _log_heartbeat(self, broker_name: str, pending: Pending[None]) -> None:
        outcome = pending.outcome()
        if isinstance(outcome, RmqError):
            # A pull has reported that the broker is lost, and will say when it is back.
            is_known = broker_name in self.member.lost_brokers
            level = logging.DEBUG if is_known else logging.WARNING
            logger.log(level, "heartbeat failed broker=%s: %s", broker_name, outcome)

    def _heartbeat(self) -> dict[str, Pending[None]]:
        """Send a heartbeat to all brokers; broker name -> its answer."""
        member = self.member
        config = member.config
        consumer = ConsumerData(
            group_name=member.group,
            consume_type="CONSUME_PASSIVELY",
            message_model=config.message_model.name,
            consume_from_where=config.consume_from_where.name,
            subscriptions=tuple(member.subscriptions.values()),
        )
        heartbeat = HeartbeatData(client_id=member.client_id, consumers=(consumer,))
        return {
            name: start(member.network.heartbeat(heartbeat, name), member)
            for name in member.network.brokers()
        }

    def _fetch_routes(
        self, topics: Iterable[str], *, is_raised: bool = False
    ) -> Task[None]:
        """Fetch the topics' routes; a topic whose fetch fails keeps its queues.

        Failures are logged, unless they are all and `is_raised` says that the caller
        raises one of them.
        """
        member = self.member
        member.network.keep_topics({*member.subscriptions, member.retry_topic})
        wanted = list(topics)
        outcomes = yield All([member.network.fetch_queues(topic) for topic in wanted])
        is_raised = is_raised and all(
            isinstance(outcome, RmqError)
            for topic, outcome in zip(wanted, outcomes, strict=True)
            if topic != member.retry_topic
        )
        is_changed = False
        for topic, queues in zip(wanted, outcomes, strict=True):
            if isinstance(queues, RmqError):
                is_retry = topic == member.retry_topic
                level = logging.DEBUG if is_retry or is_raised else logging.WARNING
                logger.log(level, "no route topic=%s: %s", topic, queues)
                self._route_errors[topic] = queues
                if not is_retry:
                    self.start_error = queues
                continue
            self._route_errors.pop(topic, None)
            if queues != member.topic_queues.get(topic):
                is_changed = True
                member.topic_queues[topic] = queues
        if is_changed:
            self.rebalances.soon()

    def _plan_timers(self) -> None:
        member, config = self.member, self.member.config
        beat_ms = config.heartbeat_broker_interval_ms
        persist_ms = config.persist_consumer_offset_interval_ms
        lead_ms = min(LEAD_MS, beat_ms // 10)
        every = self._every
        every(
            config.poll_namesrv_interval_ms,
            lambda: self._run(self._fetch_routes(member.subscriptions)),
        )
        every(beat_ms, self.heartbeat)
        every(persist_ms, self.persist_all, first_ms=2 * persist_ms)
        every(SAMPLE_INTERVAL_MS, lambda: member.stats.sample(member.now_ms()))
        every(beat_ms, self.subscription_check.run, first_ms=beat_ms - lead_ms)
        if member.needs_lock:
            every(
                RENEW_INTERVAL_MS,
                lambda: self._run(self.locks.lock_all()),
                first_ms=FIRST_RENEWAL_MS,
            )
        if isinstance(self.service, ConsumeMessageConcurrentlyService):
            every(config.consume_timeout_ms, self.service.sweep)
        if config.probe_broker_interval_ms is not None:
            every(config.probe_broker_interval_ms, self.pulls.probe_brokers)

    def _every(
        self,
        interval_ms: int,
        action: Callable[[], None],
        *,
        first_ms: int | None = None,
    ) -> None:
        """Repeat `action` until the consumer closes; failures are logged."""

        def run() -> None:
            if self.is_closing:
                return
            self.member.call_later(interval_ms, run)
            try:
                action()
            except Exception:
                logger.exception("a periodic task failed; it continues")

        self.member.call_later(interval_ms if first_ms is None else first_ms, run)

    def _run(self, task: Task[None]) -> None:
        """Run a task in the background; its failure is logged."""
        start(task, self.member).on_done(_log_failure)

    def persist_all(self) -> None:
        """Commit the offsets of this member's queues; forget those of other queues."""
        member = self.member
        for queue in member.offsets.table.all():
            if queue not in member.process_queues:
                member.offsets.table.remove(queue)
        member.offsets.persist(member.live_queues())

    def pause(self) -> None:
        """Stop pulls and rebalances. Messages that were pulled are consumed."""
        self.member.is_paused = True

    def resume(self) -> None:
        """End a pause."""
        self.member.is_paused = False
        self.rebalances.soon()

    def reset(self, offsets: dict[MessageQueue, int]) -> None:
        """Do the same as `move`, for offsets from a broker; refuse invalid ones.

        An offset is invalid when it is outside of its queue. The end of each queue is
        queried, because the queue may have grown.
        """
        ours = {q: at for q, at in offsets.items() if q in self.member.process_queues}
        for queues in queues_by_broker(ours).values():
            self._run(self._reset({queue: ours[queue] for queue in queues}))

    def _reset(self, offsets: dict[MessageQueue, int]) -> Task[None]:
        ends = yield All([self.member.network.max_offset(queue) for queue in offsets])
        wanted = {}
        for (queue, offset), end in zip(offsets.items(), ends, strict=True):
            if isinstance(end, RmqError):
                logger.warning(
                    "reset failed queue=%s offset=%d: %s", queue, offset, end
                )
            elif not 0 <= offset <= end:
                logger.warning(
                    "reset refused, offset outside the queue queue=%s offset=%d end=%d",
                    queue,
                    offset,
                    end,
                )
            else:
                wanted[queue] = offset
        if not self.is_closing:
            self.move(wanted)

    def move(self, offsets: dict[MessageQueue, int]) -> None:
        """Consume these queues from other offsets (reset, seek).

        Queues of other members are ignored. Messages that are being consumed are not
        committed. Java pauses the whole consumer for 10 s; here a dropped queue cannot
        commit any more, and it rests until the new offset is stored.
        """
        member = self.member
        moved: dict[MessageQueue, ProcessQueue[Pulled]] = {}
        for queue, offset in offsets.items():
            process_queue = member.process_queues.get(queue)
            if process_queue is None:
                continue
            process_queue.change(QueueState.RESTING, f"moved to {offset}")
            member.offsets.table.freeze(queue, offset)
            moved[queue] = process_queue
        for queues in queues_by_broker(moved).values():
            self._moving += 1
            task = self._move([moved[queue] for queue in queues])
            start(task, member).on_done(self._moved)

    def _move(self, process_queues: list[ProcessQueue[Pulled]]) -> Task[None]:
        yield from self._commit_surely(process_queues)
        for process_queue in process_queues:
            self.rebalance.begin_again(process_queue)

    def _moved(self, pending: Pending[None]) -> None:
        self._moving -= 1
        _log_failure(pending)

    def close(self, timeout_ms: int) -> Pending[None]:
        """Stop the member; done when everything is ended. Call it once.

        See `close_sooner`.
        """
        self._close_by_ms = self.member.now_ms() + timeout_ms
        return start(self._close(timeout_ms), self.member)

    def close_sooner(self, timeout_ms: int) -> None:
        """Shorten the time for which a running close waits for listeners."""
        by_ms = self.member.now_ms() + timeout_ms
        self._close_by_ms = min(self._close_by_ms, by_ms)

    def _close(self, timeout_ms: int) -> Task[None]:
        member = self.member
        self.is_closing = True
        self.rebalances.stop()
        member.is_running = False
        self.rebalance.stop()
        self.service.cancel()
        while self._has_work() and member.now_ms() < self._close_by_ms:
            yield Sleep(_DRAIN_CHECK_MS)
        if not self.service.is_idle:
            logger.warning(
                "closing although a listener has not returned waited_ms=%d; its"
                " messages will be consumed again",
                timeout_ms,
            )
        leaving_ms = max(self._close_by_ms - member.now_ms(), _LEAVE_MS_MIN)
        brokers = {q.broker_name for q in member.process_queues}
        brokers.update(member.network.brokers())
        leave = All([self._leave(name) for name in sorted(brokers)])
        try:
            yield Within(leave, min(leaving_ms, _LEAVE_MS_MAX))
        except TimeLimitError:
            logger.warning(
                "closing although not all brokers answered; a broker that did not may"
                " notice later that this member left brokers=%d",
                len(brokers),
            )
        self._note_unconfirmed()
        self.refused = {
            queue: error
            for queue, error in sorted(self.pulls.refused.items())
            if queue in member.process_queues
        }
        for process_queue in member.process_queues.values():
            process_queue.drop("the consumer closed")
        report_revoked(member.listener, sorted(member.process_queues))
        member.process_queues.clear()

    def _note_unconfirmed(self) -> None:
        """Log the queues whose last commit got no answer."""
        member = self.member
        unconfirmed = sorted(member.offsets.unconfirmed(member.live_queues()))
        if unconfirmed:
            self.is_confirmed = False
            logger.warning(
                "the last commit is not confirmed, so messages may be consumed again"
                " queues=%s",
                ", ".join(map(str, unconfirmed)),
            )

    def _leave(self, broker_name: str) -> Task[None]:
        """Commit to one broker, unlock its queues, and unregister from it."""
        member = self.member
        yield from self._commit_surely(
            [
                each
                for queue, each in member.process_queues.items()
                if queue.broker_name == broker_name and not each.dropped
            ]
        )
        if member.needs_lock:
            yield from self.locks.unlock_all(broker_name)
        try:
            yield from member.network.unregister(
                member.client_id, member.group, broker_name
            )
        except RmqError as error:
            logger.warning(
                "unregister failed, the broker will notice later that this member left"
                " broker=%s: %s",
                broker_name,
                error,
            )

    def _has_work(self) -> bool:
        return bool(self._moving) or not self.service.is_idle

    def _commit_surely(self, process_queues: list[ProcessQueue[Pulled]]) -> Task[None]:
        """Commit, and make sure that no earlier pull overwrites the offsets.

        This never fails: a queue that rests until this is done must continue, and a
        member that closes must still unlock and unregister.
        """
        try:
            yield from self._commit_and_read_back(process_queues)
        except Exception as error:  # noqa: BLE001  # the caller must continue
            unexpected(error)

    def _commit_and_read_back(
        self, process_queues: list[ProcessQueue[Pulled]]
    ) -> Task[None]:
        member = self.member
        raced = [each for each in process_queues if has_carried_less(member, each)]
        while any(may_undo(member, each) for each in process_queues):
            yield Sleep(_DRAIN_CHECK_MS)
        offsets, queues = (
            member.offsets,
            [each.message_queue for each in process_queues],
        )
        yield from offsets.persist_last(queues)
        stored = yield All([offsets.read(each.message_queue) for each in raced])
        undone = [
            each.message_queue
            for each, offset in zip(raced, stored, strict=True)
            if isinstance(offset, int) and self._is_undone(offset, each)
        ]
        if undone:
            logger.info(
                "older commits overwrote newer ones, committing again %s", undone
            )
            yield from offsets.persist_last(undone)

    def _is_undone(self, stored: int, process_queue: ProcessQueue[Pulled]) -> bool:
        wanted = self.member.offsets.table.get(process_queue.message_queue)
        if wanted is None or stored == wanted:
            return False
        return stored < wanted or stored == process_queue.carried


def _log_failure(pending: Pending[None]) -> None:
    """Log the failure of a background task, which is retried in its next turn."""
    outcome = pending.outcome()
    if isinstance(outcome, RmqError):
        logger.warning("background task failed: %s", outcome)
