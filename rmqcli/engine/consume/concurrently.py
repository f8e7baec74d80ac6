"""Concurrent consumption: messages are handed out as they arrive.

The committed offset is the lowest offset that has not been consumed. A failed message
is sent back to its broker; while that fails, the message stays cached, holds the
offset, and is retried here. If the sweep of expired messages has sent a message back,
it is not sent back again when its listener finally fails.

Source: ConsumeMessageConcurrentlyService, ProcessQueue#cleanExpiredMsg.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from rmqcli.engine.consume.request import ConcurrentRequest
from rmqcli.engine.consume.send_back import retries_max_of, send_message_back
from rmqcli.engine.consume.service import ConsumeService
from rmqcli.engine.message import UndecodableMessage
from rmqcli.engine.reports import Fate
from rmqcli.errors import RmqError
from rmqcli.log import get_logger
from rmqcli.tasks import start, unexpected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqcli.engine.consume.request import ConcurrentOutcome, Failed
    from rmqcli.engine.member import Member
    from rmqcli.engine.message import Pulled, Readable
    from rmqcli.engine.process_queue import ProcessQueue
    from rmqcli.model import MessageQueue
    from rmqcli.tasks import Pending, Task

logger = get_logger(__name__)

RESUBMIT_DELAY_MS: Final = 5_000
_CHECK_INTERVAL_MS: Final = 20
_SWEEP_MAX: Final = 16
_EXPIRED_DELAY_LEVEL: Final = 3


class ConsumeMessageConcurrentlyService(ConsumeService["ConcurrentOutcome"]):
    """Hands out pulled messages, and processes the outcomes."""

    def __init__(self, member: Member) -> None:
        super().__init__(member)
        #: requests that were handed out and have not ended, oldest first
        self._open: dict[ConcurrentRequest, None] = {}
        #: messages on their way into the retry topic
        self._sending: Counter[ProcessQueue[Pulled]] = Counter()
        self._is_checking = False

    @property
    def is_idle(self) -> bool:
        """Whether no message is with a listener or being sent back."""
        return not self._open and not self._sending.total()

    def is_busy(self, queue: MessageQueue) -> bool:
        """Return False: a queue need not wait for its work to end."""
        del queue
        return False

    def submit(
        self,
        process_queue: ProcessQueue[Pulled],
        messages: list[Pulled],
        dispatch: bool,  # as the orderly one is called
    ) -> None:
        """Hand out messages that were put into the ProcessQueue. Ignores `dispatch`."""
        del dispatch
        member = self._member
        size = member.config.consume_message_batch_max_size
        if member.listener.one_message:
            size = 1
        queue = process_queue.message_queue
        request = ConcurrentRequest(queue, process_queue, messages, size)
        if not member.listener.shares_slow_pulls:
            request.is_shared = True  # so that it is never shared
        self._open[request] = None
        try:
            member.workers.consume_concurrently(request)
        except Exception:
            del self._open[request]  # no thread has it; the caller handles the error
            raise
        if not self._is_checking and not request.is_shared:
            self._is_checking = True
            member.call_later(_CHECK_INTERVAL_MS, self._check_slow)

    def _check_slow(self) -> None:
        """Share requests whose listener has not returned since the last check."""
        is_any = False
        for request in list(self._open):
            if request.is_shared or request.is_cancelled:
                continue
            if request.checks and request.begun:
                try:
                    self._member.workers.share(request)
                except Exception as error:  # noqa: BLE001  # tried again by the next check
                    unexpected(error)
                    is_any = True
            else:
                request.checks += 1
                is_any = True
        self._is_checking = is_any
        if is_any:
            self._member.call_later(_CHECK_INTERVAL_MS, self._check_slow)

    def _consumed(self, outcome: ConcurrentOutcome) -> None:
        request, done, failed, spent_ms, is_end = outcome
        request.left -= len(done)
        request.ended += is_end
        if not request.left or (
            request.is_cancelled and request.ended == len(request.begun)
        ):
            self._open.pop(request, None)
        queue, process_queue = request.message_queue, request.process_queue
        stats = self._member.stats.of(queue.topic)
        stats.consume_ok += len(done) - len(failed)
        stats.consume_failed += len(failed)
        stats.consume_rt_ms += spent_ms
        if process_queue.dropped:
            self._open.pop(request, None)
            logger.info(
                "results dropped, the queue was lost queue=%s count=%d",
                queue,
                len(done),
            )
            self._report_all(failed, Fate.QUEUE_LOST)
            return
        if failed:
            done = self._settle(process_queue, done, failed)
        self._acknowledge(process_queue, done)

    def _settle(
        self,
        process_queue: ProcessQueue[Pulled],
        done: Sequence[Pulled],
        failed: Sequence[Failed],
    ) -> Sequence[Pulled]:
        """Send back or keep failed messages; return the messages that are finished."""
        if self._member.is_broadcasting:
            logger.warning(
                "messages failed, and broadcasting has no retries queue=%s count=%d",
                process_queue.message_queue,
                len(failed),
            )
            self._report_all(failed, Fate.GIVEN_UP)
            return done
        unreadable: list[Pulled] = [
            each.message
            for each in failed
            if isinstance(each.message, UndecodableMessage)
        ]
        if unreadable:
            self._again_later(process_queue, unreadable)
        for message, delay_level in failed:
            if isinstance(message, UndecodableMessage):
                continue
            if process_queue.contains(message):  # otherwise the sweep has sent it back
                self._send_back(process_queue, message, delay_level)
            else:
                self._report(message, Fate.SENT_BACK_BEFORE)
        kept = {id(each.message) for each in failed}
        return [each for each in done if id(each) not in kept]

    def _send_back(
        self, process_queue: ProcessQueue[Pulled], message: Readable, delay_level: int
    ) -> None:
        def sent(pending: Pending[None]) -> None:
            error = pending.outcome()
            self._sending.subtract((process_queue,))
            if not self._sending[process_queue]:
                del self._sending[process_queue]
            if error is not None:
                logger.warning(
                    "send back failed, consuming again in 5 s queue=%s offset=%d: %s",
                    process_queue.message_queue,
                    message.queue_offset,
                    error,
                )
                is_lost = process_queue.dropped or not self._member.is_running
                fate = Fate.QUEUE_LOST if is_lost else Fate.RETRY_HERE
                self._report(message, fate, error)
                message.reconsume_times += 1
                self._again_later(process_queue, [message])
                return
            is_dead = delay_level < 0 or message.reconsume_times >= self._retries_max
            self._report(message, Fate.DEAD_LETTER if is_dead else Fate.RETRY_TOPIC)
            if not process_queue.dropped:
                self._acknowledge(process_queue, [message])

        self._sending[process_queue] += 1
        task = send_message_back(self._member, message, delay_level)
        start(task, self._member).on_done(sent)

    def _report_all(self, failed: Sequence[Failed], fate: Fate) -> None:
        for message, _ in failed:
            if not isinstance(message, UndecodableMessage):
                self._report(message, fate)

    @property
    def _retries_max(self) -> int:
        return retries_max_of(self._member)

    def _again_later(
        self, process_queue: ProcessQueue[Pulled], messages: list[Pulled]
    ) -> None:
        def again() -> None:
            if self._member.is_live(process_queue) and self._member.is_running:
                try:
                    self.submit(process_queue, messages, False)
                except Exception as error:  # noqa: BLE001  # they must not be lost
                    unexpected(error)
                    self._again_later(process_queue, messages)

        self._member.call_later(RESUBMIT_DELAY_MS, again)

    def _acknowledge(
        self, process_queue: ProcessQueue[Pulled], messages: Sequence[Pulled]
    ) -> None:
        """Remove messages, and advance the offset to the lowest one that is left."""
        if not messages:
            return
        offset = process_queue.remove_message(messages, self._member.now_ms())
        if offset is not None and not process_queue.dropped:
            self._member.offsets.table.increase(process_queue.message_queue, offset)

    def cancel(self) -> None:
        """Begin no further batch of any queue; see `release`."""
        for process_queue in {each.process_queue for each in self._open}:
            self.release(process_queue)

    def release(self, process_queue: ProcessQueue[Pulled]) -> None:
        """Begin no further batch; finish those that were begun, and earlier messages.

        So the consumed messages are a prefix of the queue, and none is delivered twice.
        """
        for request in reversed(list(self._open)):
            if request.process_queue is not process_queue:
                continue
            request.is_cancelled = True
            if request.begun:
                return
            del self._open[request]

    def is_working(self, process_queue: ProcessQueue[Pulled]) -> bool:
        """Whether a listener has messages of the queue, or some are being sent back."""
        return process_queue in self._sending or any(
            each.process_queue is process_queue for each in self._open
        )

    def sweep(self) -> None:
        """Send back messages that a listener has had for too long (cleanExpiredMsg)."""
        for process_queue in list(self._member.process_queues.values()):
            if not process_queue.dropped and process_queue.msg_count:
                start(self._sweep(process_queue), self._member).on_done(_swept)

    def _sweep(self, process_queue: ProcessQueue[Pulled]) -> Task[None]:
        """Send back up to 16 messages, lowest first, until one that no listener has."""
        for _ in range(_SWEEP_MAX):
            head = process_queue.first()
            if head is None or isinstance(head, UndecodableMessage):
                return
            started_ms: int | None = getattr(head, "consume_start_ms", None)
            limit_ms = self._member.config.consume_timeout_ms
            if started_ms is None or self._member.now_ms() - started_ms <= limit_ms:
                return
            logger.warning(
                "consume timeout, message is sent back queue=%s offset=%d limit_min=%d",
                process_queue.message_queue,
                head.queue_offset,
                limit_ms // 60_000,
            )
            try:
                yield from send_message_back(self._member, head, _EXPIRED_DELAY_LEVEL)
            except RmqError as error:
                logger.warning("send back failed: %s", error)
                continue
            if process_queue.first() is head and not process_queue.dropped:
                process_queue.remove_message([head], self._member.now_ms())


def _swept(pending: Pending[None]) -> None:
    outcome = pending.outcome()
    if isinstance(outcome, RmqError):
        logger.warning("sweep of expired messages failed: %s", outcome)
