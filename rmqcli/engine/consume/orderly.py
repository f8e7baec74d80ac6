"""Orderly consumption: a queue's messages one batch at a time, under the broker's lock.

One thread takes up to `_TAKE` messages of a queue at once and consumes them; messages
that were not passed to the listener go back. While a thread has messages of a queue, no
other messages of that queue are handed out, even if the ProcessQueue was dropped in the
meantime (Java's MessageQueueLock).

A thread gives a queue back after each take, so that no queue occupies a thread for
long; in Java a queue may keep its thread for 60 s. As in Java, when one message of a
batch must be retried, the whole batch is consumed again, and messages of it that were
sent to the dead-letter queue are sent there again. Also as in Java, if a listener
without auto_commit never commits, the pulls of its queue stop at the threshold.

Source: ConsumeMessageOrderlyService.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from rmqcli.engine.consume.request import OrderlyRequest
from rmqcli.engine.consume.send_back import send_orderly_back
from rmqcli.engine.consume.service import ConsumeService
from rmqcli.engine.listener import ConsumeOrderlyStatus
from rmqcli.engine.message import UndecodableMessage
from rmqcli.engine.reports import Fate
from rmqcli.errors import RmqError
from rmqcli.log import get_logger
from rmqcli.tasks import start

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqcli.engine.consume.request import OrderlyOutcome
    from rmqcli.engine.member import Member
    from rmqcli.engine.message import Pulled
    from rmqcli.engine.process_queue import ProcessQueue
    from rmqcli.engine.queue_locks import QueueLocks
    from rmqcli.model import MessageQueue
    from rmqcli.tasks import Pending, Task

logger = get_logger(__name__)

#: Messages taken at once, if the listener's batches are smaller.
_TAKE: Final = 128
_SUSPEND_MS_MIN: Final = 10
_SUSPEND_MS_MAX: Final = 30_000
_LOCK_LOST_DELAY_MS: Final = 10
_LOCK_MISSING_DELAY_MS: Final = 100
_LOCK_REFUSED_DELAY_MS: Final = 3_000


class ConsumeMessageOrderlyService(ConsumeService["OrderlyOutcome"]):
    """Hands out a queue's messages in order, and processes the outcomes."""

    def __init__(self, member: Member, locks: QueueLocks) -> None:
        super().__init__(member)
        self._locks = locks
        #: queue -> the request with its messages that a thread has
        self._out: dict[MessageQueue, OrderlyRequest] = {}
        self._sending = 0

    @property
    def is_idle(self) -> bool:
        """Whether no message is with a listener or being sent back."""
        return not self._out and not self._sending

    def is_busy(self, queue: MessageQueue) -> bool:
        """Whether a listener has messages of the queue."""
        return queue in self._out

    def release(self, process_queue: ProcessQueue[Pulled]) -> None:
        """Begin no further batch of the queue; the current one ends."""
        for request in self._out.values():
            if request.process_queue is process_queue:
                request.is_cancelled = True

    def is_working(self, process_queue: ProcessQueue[Pulled]) -> bool:
        """Whether a listener has messages of the queue."""
        return any(each.process_queue is process_queue for each in self._out.values())

    def submit(
        self,
        process_queue: ProcessQueue[Pulled],
        messages: list[Pulled],
        dispatch: bool,  # what putMessage returned
    ) -> None:
        """Begin to consume a queue if `dispatch`: otherwise that has already begun."""
        del messages
        if dispatch:
            self._drain(process_queue)

    def _drain(self, process_queue: ProcessQueue[Pulled]) -> None:
        """Hand out the next messages, if there are any and the lock is valid."""
        member, queue = self._member, process_queue.message_queue
        if not process_queue.is_pulled or not member.is_running:
            return
        if queue in self._out:
            return  # when it ends, it takes the messages that arrived meanwhile
        now_ms = member.now_ms()
        if member.needs_lock and (
            not process_queue.locked or process_queue.is_lock_expired(now_ms)
        ):
            self._lock_later(process_queue, _LOCK_MISSING_DELAY_MS)
            return
        size = member.config.consume_message_batch_max_size
        if member.listener.one_message:
            size = 1
        count = max(size, _TAKE // size * size)
        messages = process_queue.take_messages(count, now_ms)
        if messages:
            request = OrderlyRequest(queue, process_queue, messages, size)
            self._out[queue] = request
            try:
                member.workers.consume_orderly(request)
            except Exception as error:  # noqa: BLE001  # the queue must not stand still
                del self._out[queue]
                self._begin_anew(process_queue, error)

    def _drain_later(self, process_queue: ProcessQueue[Pulled], delay_ms: int) -> None:
        delay_ms = min(max(delay_ms, _SUSPEND_MS_MIN), _SUSPEND_MS_MAX)
        self._member.call_later(delay_ms, lambda: self._drain(process_queue))

    def _lock_later(self, process_queue: ProcessQueue[Pulled], delay_ms: int) -> None:
        """tryLockLaterAndReconsume."""
        queue = process_queue.message_queue

        def locked(pending: Pending[set[MessageQueue]]) -> None:
            granted = pending.outcome()
            is_granted = not isinstance(granted, RmqError) and queue in granted
            self._drain_later(
                process_queue,
                _LOCK_LOST_DELAY_MS if is_granted else _LOCK_REFUSED_DELAY_MS,
            )

        def lock() -> None:
            if not process_queue.dropped and self._member.is_running:
                start(self._locks.lock([queue]), self._member).on_done(locked)

        self._member.call_later(delay_ms, lock)

    def _consumed(self, outcome: OrderlyOutcome) -> None:
        request = outcome.request
        process_queue = request.process_queue
        if self._out.get(request.message_queue) is request:
            del self._out[request.message_queue]
        self._count(outcome)
        shown = outcome.succeeded + len(outcome.batch)
        rest = request.messages[shown:]
        if rest:
            process_queue.make_message_to_consume_again(rest)
        if outcome.succeeded:
            self._commit_first(outcome)
        if request.is_cancelled and outcome.status is None:
            self._let_go(process_queue)
        elif outcome.status is None:
            self._go_on(process_queue, is_stopped=bool(rest))
        else:
            settled = start(self._settle(outcome), self._member)
            settled.on_done(functools.partial(self._settled, outcome))

    def _count(self, outcome: OrderlyOutcome) -> None:
        stats = self._member.stats.of(outcome.request.message_queue.topic)
        stats.consume_rt_ms += outcome.spent_ms
        stats.consume_ok += outcome.succeeded
        if outcome.status is ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT:
            stats.consume_failed += len(outcome.batch)
        else:
            stats.consume_ok += len(outcome.batch)

    def _commit_first(self, outcome: OrderlyOutcome) -> None:
        """Commit the messages that succeeded, but not the last batch."""
        process_queue = outcome.request.process_queue
        if outcome.batch:
            process_queue.make_message_to_consume_again(outcome.batch)
        self._commit(process_queue)
        if outcome.batch:
            now_ms = self._member.now_ms()
            process_queue.take_messages(len(outcome.batch), now_ms)

    def _commit(self, process_queue: ProcessQueue[Pulled]) -> None:
        offset = process_queue.commit()
        if offset is not None and not process_queue.dropped:
            self._member.offsets.table.put(process_queue.message_queue, offset)

    def _settle(self, outcome: OrderlyOutcome) -> Task[int | None]:
        """Return how long to suspend the queue, or None (processConsumeResult)."""
        process_queue = outcome.request.process_queue
        if outcome.status is ConsumeOrderlyStatus.COMMIT:
            self._commit(process_queue)
        elif outcome.status is ConsumeOrderlyStatus.ROLLBACK:
            process_queue.rollback()
            return self._suspend_ms(outcome)
        elif outcome.status is not ConsumeOrderlyStatus.SUCCESS:
            if (yield from self._check_reconsume_times(outcome.batch, process_queue)):
                process_queue.make_message_to_consume_again(outcome.batch)
                return self._suspend_ms(outcome)
            if outcome.auto_commit:
                self._commit(process_queue)
        return None

    def _suspend_ms(self, outcome: OrderlyOutcome) -> int:
        if outcome.suspend_ms is not None:
            return outcome.suspend_ms
        return self._member.config.suspend_current_queue_time_ms

    def _check_reconsume_times(
        self, batch: Sequence[Pulled], process_queue: ProcessQueue[Pulled]
    ) -> Task[bool]:
        """Give up messages that failed too often; return whether to retry the batch.

        As in Java, a single message to retry makes the whole batch be consumed again.
        While an undecodable message is not accepted, the listener is not called, and no
        attempt is counted.
        """
        unreadable = [each for each in batch if isinstance(each, UndecodableMessage)]
        if not all(each.is_taken for each in unreadable):
            return True
        limit = self._member.config.max_reconsume_times
        is_again = False
        for message in batch:
            if isinstance(message, UndecodableMessage):
                continue
            is_given_up = False
            refusal: RmqError | None = None
            if limit is not None and message.reconsume_times >= limit:
                self._sending += 1
                try:
                    yield from send_orderly_back(self._member, message)
                    is_given_up = True
                except RmqError as error:
                    logger.warning("message stays, it cannot be given up: %s", error)
                    refusal = error
                finally:
                    self._sending -= 1
            fate = Fate.RETRY_HERE
            if is_given_up:
                fate = Fate.DEAD_LETTER
            elif process_queue.dropped or not self._member.is_running:
                fate = Fate.QUEUE_LOST
            self._report(message, fate, refusal)
            if not is_given_up:
                is_again = True
                message.reconsume_times += 1
        return is_again

    def _settled(self, outcome: OrderlyOutcome, pending: Pending[int | None]) -> None:
        process_queue = outcome.request.process_queue
        try:
            suspend_ms = pending.result()
            if suspend_ms is not None:
                self._drain_later(process_queue, suspend_ms)
                self._let_go(process_queue)
            else:
                self._go_on(process_queue, is_stopped=False)
        except Exception as error:  # noqa: BLE001  # the queue must not stand still
            self._begin_anew(process_queue, error)

    def _go_on(self, process_queue: ProcessQueue[Pulled], *, is_stopped: bool) -> None:
        """Take the next messages; after a stop, first check that the lock is valid."""
        if is_stopped and self._member.needs_lock and not process_queue.dropped:
            now_ms = self._member.now_ms()
            if not process_queue.locked or process_queue.is_lock_expired(now_ms):
                self._lock_later(process_queue, _LOCK_LOST_DELAY_MS)
                return
        self._drain(process_queue)
        self._let_go(process_queue)

    def _let_go(self, process_queue: ProcessQueue[Pulled]) -> None:
        """After work on a dropped queue, continue with its successor or a rebalance."""
        if not process_queue.dropped:
            return
        successor = self._member.process_queues.get(process_queue.message_queue)
        if successor is not None and not successor.dropped:
            self._drain(successor)
        self._member.rebalance_soon()

    def cancel(self) -> None:
        """Begin no further batch; the current ones end."""
        for request in self._out.values():
            request.is_cancelled = True
