"""Which queues are ours, and what it takes to get and to give them up.

Decisions, where this is not what Java does:
- All queues that are new ask for their offsets side by side, and for their locks one
  request a broker: a start with many queues takes two round trips, not two a queue.
- The heartbeat that tells a changed subscription is answered before the first pull
  goes out (T30); Java 5.x waits 500 ms instead.
- A queue that was dropped, could not be given up yet and is ours again begins anew as
  soon as its work has ended (T14).
- Who loses a queue ends what its listeners have of it, for HANDOVER_MS at most (a
  second where the queue is locked: nobody else can begin), and commits it; who gains
  one from others waits TAKE_OVER_MS, or for the lock, before it asks where to begin.
  So a member that comes or goes makes nothing come twice, if listeners are quick; with
  Java it does.
- A topic that is not subscribed any more is given up like any other queue, with its
  offset stored and its lock returned (T13).

Source: RebalanceImpl, RebalancePushImpl.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING, Final, Protocol

from rmqcli.engine.allocate import sort_client_ids, sort_queues
from rmqcli.engine.process_queue import ProcessQueue
from rmqcli.engine.pull_from_where import compute_pull_from_where
from rmqcli.engine.pull_message import PullRequest, may_undo
from rmqcli.engine.tasks import together
from rmqcli.errors import RmqError
from rmqcli.one_line_log import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from rmqcli.engine.member import Member
    from rmqcli.engine.message import Pulled
    from rmqcli.engine.queue_locks import QueueLocks
    from rmqcli.engine.tasks import Ask, Task
    from rmqcli.model import MessageQueue

logger = one_line(logging.getLogger(__name__))


class ConsumeService(Protocol):
    """What a rebalance has to know of who hands out messages."""

    def is_busy(self, queue: MessageQueue) -> bool:
        """Whether the queue's lock is still needed."""

    def release(self, process_queue: ProcessQueue[Pulled]) -> None:
        """Begin nothing more of it that need not be."""

    def is_working(self, process_queue: ProcessQueue[Pulled]) -> bool:
        """Whether something of it has not ended."""


LOCK_FAILED_DELAY_MS: Final = 500
HANDOVER_MS: Final = 200
HANDOVER_LOCKED_MS: Final = 1_000  # Java waits as long for the work before it unlocks
TAKE_OVER_MS: Final = 300
_LOOK_MS: Final = 5
UNLOCK_FORCE_MS: Final = 20_000  # UNLOCK_DELAY_TIME_MILLS


class Rebalance:
    """The queues of one member. `service` is who hands out their messages."""

    def __init__(
        self,
        member: Member,
        locks: QueueLocks,
        *,
        service: ConsumeService,
        pull: Callable[[PullRequest], None],
        heartbeat: Ask,
    ) -> None:
        self._member = member
        self._locks = locks
        self._service = service
        self._started_ms = 0
        self._pull = pull
        self._heartbeat = heartbeat

    def run(self) -> Task[bool]:
        """Rebalance all topics; whether everything is as it should be."""
        member = self._member
        self._started_ms = member.now_ms()
        if member.is_paused:
            return False
        is_balanced = True
        for topic in list(member.subscriptions):
            try:
                done = yield from self._topic(topic)
            except RmqError as error:
                is_retry = topic == member.retry_topic
                level = logging.DEBUG if is_retry else logging.WARNING
                logger.log(level, "no rebalance of topic %s: %s", topic, error)
                done = is_retry
            is_balanced = is_balanced and done
        for queue in list(member.process_queues):
            if queue.topic not in member.subscriptions:
                self.give_up(queue)
        return is_balanced

    def give_up(self, queue: MessageQueue) -> None:
        """Drop a queue now, whatever its work is doing (removeProcessQueue)."""
        process_queue = self._member.process_queues.pop(queue, None)
        if process_queue is not None:
            process_queue.dropped = True
            self._release(queue, process_queue)

    def begin_again(self, queue: MessageQueue, before: ProcessQueue[Pulled]) -> None:
        """Consume a queue of ours, at rest until now, from where it was frozen at."""
        member = self._member
        table = member.offsets.table
        member.resting.discard(before)
        offset = table.get(queue)
        is_ours = member.process_queues.get(queue) is before
        if not is_ours or offset is None or not member.is_running:
            return
        process_queue: ProcessQueue[Pulled] = ProcessQueue(member.now_ms())
        process_queue.locked = before.locked
        process_queue.last_lock_ms = before.last_lock_ms
        member.process_queues[queue] = process_queue
        table.remove(queue)
        table.put(queue, offset)
        request = PullRequest(queue, process_queue, offset)
        request.is_locked_before = True
        self._pull(request)

    def _topic(self, topic: str) -> Task[bool]:
        member = self._member
        queues = member.topic_queues.get(topic)
        if queues is None:
            queues = yield lambda done: member.network.fetch_queues(topic, done)
            member.topic_queues[topic] = queues
        others = 0
        if member.is_broadcasting:
            assigned = set(queues)
        else:
            cids: list[str] = yield lambda done: member.network.consumer_ids(
                member.group, topic, done
            )
            others = len({*cids} - {member.client_id})
            assigned = set(
                member.config.strategy.allocate(
                    group=member.group,
                    current_cid=member.client_id,
                    queues=sort_queues(queues),
                    cids=sort_client_ids(cids),
                )
            )
        yield from self._update(topic, assigned, others=others)
        held = {
            queue: not each.dropped
            for queue, each in member.process_queues.items()
            if queue.topic == topic
        }
        return held.keys() == assigned and all(held.values())

    def _update(
        self, topic: str, assigned: Collection[MessageQueue], *, others: int
    ) -> Task[None]:
        """updateProcessQueueTableInRebalance, then messageQueueChanged."""
        member = self._member
        yield from self._hand_over(topic, assigned)
        is_changed = self._drop(topic, assigned)
        missing = sorted(q for q in assigned if q not in member.process_queues)
        if missing and member.needs_lock:
            granted = yield from self._locks.lock(missing)
            if len(granted) < len(missing):
                member.later(LOCK_FAILED_DELAY_MS, member.rebalance_soon)
            missing = [queue for queue in missing if queue in granted]
        elif missing and others:
            left_ms = self._started_ms + TAKE_OVER_MS - member.now_ms()
            if left_ms > 0:
                yield self._pause(left_ms)
        requests = yield from self._begin(missing)
        if is_changed or requests:
            yield from self._changed(topic)
        for request in requests:
            self._pull(request)

    def _hand_over(self, topic: str, assigned: Collection[MessageQueue]) -> Task[None]:
        """Let the work on queues that are lost end, so that it can be committed."""
        member = self._member
        if member.is_broadcasting:
            return
        lost = {
            queue: each
            for queue, each in member.process_queues.items()
            if queue.topic == topic and queue not in assigned and not each.dropped
        }
        for process_queue in lost.values():
            process_queue.released = True
            self._service.release(process_queue)
        until_ms = member.now_ms()
        until_ms += HANDOVER_LOCKED_MS if member.needs_lock else HANDOVER_MS
        while member.now_ms() < until_ms and any(
            self._service.is_working(each) or may_undo(member, queue, each)
            for queue, each in lost.items()
        ):
            yield self._pause(_LOOK_MS)

    def _pause(self, delay_ms: int) -> Ask:
        return lambda done: self._member.later(delay_ms, lambda: done(None))

    def _drop(self, topic: str, assigned: Collection[MessageQueue]) -> bool:
        """Give up what is not ours, or was forgotten by its pull."""
        member = self._member
        is_changed = False
        for queue, process_queue in list(member.process_queues.items()):
            if queue.topic != topic:
                continue
            is_lost = queue not in assigned
            if not is_lost and process_queue in member.resting:
                continue
            if not is_lost and not process_queue.dropped:
                if not process_queue.is_pull_expired(member.now_ms()):
                    continue
                logger.error("the pull of %s was lost: it begins anew", queue)
            process_queue.dropped = True
            if self._release(queue, process_queue):
                del member.process_queues[queue]
                is_changed = True
        return is_changed

    def _release(
        self, queue: MessageQueue, process_queue: ProcessQueue[Pulled]
    ) -> bool:
        """removeUnnecessaryMessageQueue of 5.2; False while a listener holds it."""
        member = self._member
        member.offsets.persist([queue])
        if member.needs_lock:
            held_ms = member.now_ms() - process_queue.last_lock_ms
            if self._service.is_busy(queue) and held_ms <= UNLOCK_FORCE_MS:
                process_queue.try_unlock_times += 1
                return False
            process_queue.locked = False
            self._locks.unlock(queue)
        member.offsets.table.remove(queue)
        return True

    def _begin(self, queues: list[MessageQueue]) -> Task[list[PullRequest]]:
        """Make the ProcessQueues of queues whose first offset can be known."""
        member = self._member
        offsets = yield from together([self._first_offset(queue) for queue in queues])
        requests = []
        for queue, offset in zip(queues, offsets, strict=True):
            if isinstance(offset, RmqError):
                logger.warning("no offset to begin %s at: %s", queue, offset)
            elif queue not in member.process_queues and member.is_running:
                process_queue: ProcessQueue[Pulled] = ProcessQueue(member.now_ms())
                member.process_queues[queue] = process_queue
                requests.append(PullRequest(queue, process_queue, offset))
        return requests

    def _first_offset(self, queue: MessageQueue) -> Task[int]:
        self._member.offsets.table.remove(queue)
        return (yield from compute_pull_from_where(self._member, queue))

    def _changed(self, topic: str) -> Task[None]:
        """messageQueueChanged: a new version of the subscription, and shared limits."""
        member = self._member
        subscription = member.subscriptions.get(topic)
        if subscription is not None:
            member.subscriptions[topic] = dataclasses.replace(
                subscription, sub_version=member.clock.epoch_ms()
            )
        share_limits(member)
        try:
            yield self._heartbeat
        except RmqError as error:
            logger.warning("no broker knows of the new queues yet: %s", error)


def share_limits(member: Member) -> None:
    """Divide a topic's limits by all queues there are, as Java does (T4)."""
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
