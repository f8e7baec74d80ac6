"""The pull loop: when each queue is pulled, and how the answer is handled.

Each live ProcessQueue has exactly one PullRequest, which is either in flight or waiting
for a timer. It ends when its queue is dropped or released.

Differences from Java:
- When a broker repeatedly answers "nothing new" at once, the queue is pulled less and
  less often. Java pulls it in a tight loop.
- The offsets of an answer are trusted only within the queue's bounds that the answer
  states, and only OFFSET_ILLEGAL may move back. Any other answer is logged, the offset
  is kept, and the queue is pulled again, less and less often. Without a filter the next
  offset is always the one after the last message, whatever the answer says. Java trusts
  every offset, and so skips or repeats messages when one is wrong.
- When OFFSET_ILLEGAL moves back within the bounds, the consumer follows, as in Java.
  The broker may have lost its newest messages in a fail-over, and then the messages at
  lower offsets are new: following repeats messages, staying would silently lose them.
- Brokers since 4.9.4 move back to the end of the queue, beyond the messages that are
  new: those of a topic that was deleted and created again, or that were sent after a
  broker had lost its newest ones. The consumer begins at the first message stored after
  the last one that it pulled, or at one that it has not consumed. It does so too when
  another message is in the place of that one, which is compared after the broker or the
  topic was away, and every 60 s. Java skips all of them.
- A member that has pulled nothing yet, whose group committed beyond the queue's end,
  begins at the queue's first message. Which of the queue's messages are new cannot be
  known: brokers keep no time of a commit, and none of a topic's creation. If the topic
  was made anew, none was consumed; if the broker lost its newest ones, those before are
  repeated. Only a master decides this, because a slave may be behind the commits. An
  offset that `seek` or a reset set beyond the end means the end. Java always begins at
  the end.
- Where a broker has deleted the next messages, what was pulled before them is consumed,
  and the pulls go on behind the gap. Java drops it, and commits the offset behind it.
- In addition to RocketMQ's limits per queue, `cached_bytes_max` limits all queues.

Source: DefaultMQPushConsumerImpl#pullMessage, PullAPIWrapper, PullMessageService.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Final

from rmqcli.engine.interfaces import PullAsk
from rmqcli.engine.message import Origin, UndecodableMessage, decode_pulled
from rmqcli.engine.process_queue import QueueState
from rmqcli.engine.pull_from_where import compute_pull_from_where
from rmqcli.engine.pull_room import PullRequest, PullRoom
from rmqcli.errors import BrokerError, RmqError, TimeLimitError, TransportError
from rmqcli.log import get_logger
from rmqcli.position import AtTime
from rmqcli.tasks import Within, failed, start, unexpected
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.record import StoredMessage
from rmqcli.wire.pull_answer import PullStatus, lower_end
from rmqcli.wire.subscription import TAG

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmqcli.engine.member import Member
    from rmqcli.engine.message import Pulled
    from rmqcli.engine.process_queue import ProcessQueue
    from rmqcli.model import MessageQueue
    from rmqcli.tasks import Pending, Task
    from rmqcli.wire.pull_answer import PullAnswer
    from rmqcli.wire.subscription import SubscriptionData

    Submit = Callable[[ProcessQueue[Pulled], list[Pulled], bool], None]

logger = get_logger(__name__)

FLOW_CONTROL_DELAY_MS: Final = 50  # PULL_TIME_DELAY_MILLS_WHEN_FLOW_CONTROL
PAUSED_DELAY_MS: Final = 1_000  # PULL_TIME_DELAY_MILLS_WHEN_SUSPEND
BROKER_BUSY_DELAY_MS: Final = 20  # PULL_TIME_DELAY_MILLS_WHEN_BROKER_FLOW_CONTROL
SUSPEND_MS: Final = 15_000  # BROKER_SUSPEND_MAX_TIME_MILLIS
TIMEOUT_MS: Final = 30_000  # CONSUMER_TIMEOUT_MILLIS_WHEN_SUSPEND
OFFSET_ILLEGAL_DELAY_MS: Final = 10_000
#: After this many ms the broker has read a pull, so that the offset that the pull
#: carried is committed.
CARRIED_MS: Final = 200
#: A topic may be deleted, created again and filled while a broker holds one pull, so
#: now and then a message of each queue is compared with what is in its place.
COMPARE_EVERY_MS: Final = 60_000
_BROKER_FLOW_CONTROL: Final = 215
_MIB: Final = 1024 * 1024
_ANEW: Final = (
    "the topic was deleted and created again, or its broker has lost messages"
)
#: An answer without messages that comes sooner than this is early; after more than
#: `_EARLY_MAX` consecutive early answers the queue is pulled less often.
_EARLY_MS: Final = 10
_EARLY_MAX: Final = 8
_EARLY_DELAY_MS_MAX: Final = 1_000
_REFUSED_DELAY_MS_MAX: Final = 10_000
_SCAN_RACE_DELAY_MS: Final = 50
#: How long a broker's refusal that stays the same is not logged as a warning again.
_REFUSAL_LOG_MS: Final = 60_000
_REFUSALS_MAX: Final = 1_000


def has_carried_less(member: Member, process_queue: ProcessQueue[Pulled]) -> bool:
    """Whether the last pull committed a lower offset than is consumed by now."""
    carried, table = process_queue.carried, member.offsets.table
    return carried is not None and carried != table.get(process_queue.message_queue)


def may_undo(member: Member, process_queue: ProcessQueue[Pulled]) -> bool:
    """Whether a pull that was just sent may undo a commit that is sent now.

    The broker's threads may process the pull after the commit.
    """
    return (
        process_queue.is_pulling
        and has_carried_less(member, process_queue)
        and member.now_ms() - process_queue.last_pull_ms < CARRIED_MS
    )


def _is_filtered(subscription: SubscriptionData) -> bool:
    """Whether the broker filters messages."""
    is_of_tags = subscription.expression_type in (None, TAG)
    return not is_of_tags or subscription.sub_string not in ("*", "")


def _is_inside(asked_offset: int, answer: PullAnswer) -> bool:
    """Whether the next offset of an answer without messages is valid.

    It must be the requested offset, or an offset of the queue. Only OFFSET_ILLEGAL may
    move back, and it must move.
    """
    offset = answer.next_begin_offset
    is_illegal = answer.status is PullStatus.OFFSET_ILLEGAL
    if offset == asked_offset and not is_illegal:
        return True
    if offset < asked_offset and not is_illegal:
        return False
    low = answer.min_offset
    if answer.max_offset == 0:
        low = lower_end(low)
    return 0 <= low <= offset <= answer.max_offset


def _next_offset(
    asked_offset: int,
    messages: Sequence[Pulled],
    answer: PullAnswer,
    *,
    is_filtered: bool,
) -> int | None:
    """Return the next offset after FOUND; None when the answer is not valid.

    Messages may be newer than the highest offset that the answer states, but then they
    must follow the requested offset without a gap.
    """
    offset = answer.next_begin_offset
    if offset <= asked_offset:
        return None
    if not messages:
        is_believed = is_filtered and offset <= answer.max_offset
        return offset if is_believed and answer.body else None
    end = max([each.queue_offset for each in messages]) + 1
    if offset < end:
        return None
    if end > answer.max_offset and end - asked_offset > len(messages):
        return None
    return offset if is_filtered and offset <= answer.max_offset else end


class PullMessageService:
    """Pulls for all queues of one member.

    `submit` accepts messages to consume. `give_up` drops a queue, and `rebalance_soon`
    requests a rebalance, which begins the queue again.
    """

    def __init__(
        self, member: Member, submit: Submit, *, give_up: Callable[[MessageQueue], None]
    ) -> None:
        self._member = member
        #: broker name -> since when it has not known this member
        self._unknown_since_ms: dict[str, int] = {}
        #: queues of which no pull was answered yet -> the last refusal
        self.refused: dict[MessageQueue, RmqError] = {}
        #: broker name, topic and code of refused pulls -> when each was logged last
        self._refused_ms: dict[tuple[str, str, int], int] = {}
        #: names of brokers that were asked whether they answer, and have not yet
        self._probed: set[str] = set()
        self._submit = submit
        self._give_up = give_up
        self._room = PullRoom(member, self.pull, retry_ms=FLOW_CONTROL_DELAY_MS)

    def pull_later(self, request: PullRequest, delay_ms: int) -> None:
        """Pull again after `delay_ms`."""
        self._member.call_later(delay_ms, lambda: self.pull(request))

    def pull(self, request: PullRequest) -> None:
        """Check everything in Java's order, then send the request."""
        member, process_queue = self._member, request.process_queue
        if not process_queue.is_pulled:
            return
        process_queue.last_pull_ms = member.now_ms()
        delay_ms = self._delay_ms(request)
        if delay_ms is not None:
            self.pull_later(request, delay_ms)
            return
        if member.needs_lock and not request.is_locked_before:
            self._find_offset(request)
            return
        subscription = member.subscriptions.get(request.message_queue.topic)
        if subscription is None:
            self.pull_later(request, member.config.pull_time_delay_when_exception_ms)
            return
        if request.doubted is not None:
            self._compare(request, *request.doubted)
            return
        if not self._room.admits(request):
            return
        self._ask(request, subscription)

    def _delay_ms(self, request: PullRequest) -> int | None:
        """How long to wait before the pull; None when it may be sent now."""
        member, process_queue = self._member, request.process_queue
        if not member.is_running:
            return member.config.pull_time_delay_when_exception_ms
        if member.is_paused:
            return PAUSED_DELAY_MS
        size_mib = process_queue.msg_size_bytes // _MIB
        if (
            process_queue.msg_count > member.pull_threshold_for_queue
            or size_mib > member.pull_threshold_size_for_queue_mib
        ):
            return FLOW_CONTROL_DELAY_MS
        if member.needs_lock:
            if not process_queue.locked:
                return member.config.pull_time_delay_when_exception_ms
        elif (
            not member.is_orderly
            and process_queue.max_span() > member.config.consume_concurrently_max_span
        ):
            return FLOW_CONTROL_DELAY_MS
        return None

    def _find_offset(self, request: PullRequest) -> None:
        """For an orderly queue, query the first offset again under the lock."""
        member = self._member

        def found(pending: Pending[int]) -> None:
            if request.process_queue.dropped:
                return
            offset = pending.outcome()
            if isinstance(offset, RmqError):
                logger.info(
                    "offset unknown queue=%s: %s", request.message_queue, offset
                )
                delay_ms = member.config.pull_time_delay_when_exception_ms
                self.pull_later(request, delay_ms)
                return
            if offset < request.next_offset:
                logger.info(
                    "queue begins lower than its assignment said, because its last"
                    " owner committed late queue=%s offset=%d assigned=%d",
                    request.message_queue,
                    offset,
                    request.next_offset,
                )
            request.is_locked_before = True
            request.next_offset = offset
            self.pull(request)

        queue, before = request.message_queue, request.next_offset
        task = compute_pull_from_where(member, queue, before=before)
        start(task, member).on_done(found)

    def _doubt(self, request: PullRequest) -> None:
        """Have a message compared that was pulled a while ago.

        The last one may be of the new topic already.
        """
        now_ms = self._member.now_ms()
        if request.noted is None:
            request.noted, request.compared_ms = request.last, now_ms
        elif now_ms - request.compared_ms >= COMPARE_EVERY_MS:
            request.doubted = request.doubted or request.noted

    def _compare(self, request: PullRequest, offset: int, stored_ms: int) -> None:
        """Pull once it is known whether the last message is still in its place."""
        queue = request.message_queue

        def compared(pending: Pending[int | None]) -> None:
            if not request.process_queue.is_pulled:
                return
            found = pending.outcome()
            if isinstance(found, RmqError):
                self._failed(request, found)
                return
            self._is_back(queue.broker_name)
            if found is None:
                delay_ms = self._member.config.pull_time_delay_when_exception_ms
                self.pull_later(request, delay_ms)
                return
            request.doubted, request.noted = None, request.last
            request.compared_ms = self._member.now_ms()
            if found >= request.next_offset:
                self.pull(request)
                return
            logger.warning(
                "another message is at an offset that was pulled: %s; beginning at the"
                " first message that is new or not consumed queue=%s offset=%d from=%d"
                " to=%d",
                _ANEW,
                queue,
                offset,
                request.next_offset,
                found,
            )
            self._begin_again(request, found)

        task = self._first_unseen(request, offset, stored_ms)
        start(task, self._member).on_done(compared)

    def _first_unseen(
        self, request: PullRequest, offset: int, stored_ms: int
    ) -> Task[int | None]:
        """Return the next offset of a queue of which `offset` was pulled before.

        It is the one of the first message stored after `stored_ms` if another message
        has that offset, or none. None while a slave has not received it.
        """
        queue = request.message_queue
        ask = PullAsk(
            group=self._member.group,
            queue=queue,
            queue_offset=offset,
            max_msg_nums=1,
            commit_offset=None,
            suspend_ms=0,
            timeout_ms=TIMEOUT_MS,
            sub_version=0,
            expression="*",
            expression_type=TAG,
        )
        answer = yield start(self._member.network.pull(ask), self._member)
        is_same = answer.max_offset > offset
        for each in decode_messages(answer.body):
            if each.queue_offset == offset and isinstance(each, StoredMessage):
                is_same = each.store_timestamp_ms == stored_ms
        if is_same:
            return request.next_offset
        is_moved = answer.status is PullStatus.OFFSET_ILLEGAL
        if answer.body or (is_moved and _is_inside(offset, answer)):
            return (yield from self._first_unseen_after(request, stored_ms))
        return None

    def _first_unseen_after(self, request: PullRequest, stored_ms: int) -> Task[int]:
        """Return the offset of the first message that was stored after a time.

        It is a lower one while messages that were pulled are not consumed: beginning
        again drops them.
        """
        queue, time_ms = request.message_queue, stored_ms + 1
        position = AtTime(time_ms, str(time_ms))
        found = yield from self._member.network.resolve(queue, position)
        return min(found, self._member.offsets.table.get(queue) or 0)

    def _ask(self, request: PullRequest, subscription: SubscriptionData) -> None:
        member, config = self._member, self._member.config
        queue = request.message_queue
        committed = None if member.is_broadcasting else member.offsets.table.get(queue)
        request.asked_ms = member.now_ms()
        commit_offset = committed or None  # as Java: 0 is committed by the timer only
        request.process_queue.pull_begun(commit_offset)
        ask = PullAsk(
            group=member.group,
            queue=queue,
            queue_offset=request.next_offset,
            max_msg_nums=config.pull_batch_size,
            commit_offset=commit_offset,
            suspend_ms=SUSPEND_MS,
            timeout_ms=TIMEOUT_MS,
            sub_version=subscription.sub_version,
            expression=None,
            expression_type=subscription.expression_type or TAG,
        )
        pending: Pending[PullAnswer]
        try:
            pending = start(member.network.pull(ask), member)
        except RmqError as error:
            pending = failed(error)
        except Exception as error:  # noqa: BLE001  # the queue must not stand still
            pending = failed(unexpected(error))
        pending.on_done(functools.partial(self._ended, request))

    def _ended(self, request: PullRequest, pull: Pending[PullAnswer]) -> None:
        """Handle an answer; if that fails unexpectedly, begin the queue again.

        It begins at its committed offset, so messages that were handed out by then are
        delivered again.
        """
        try:
            self._answered(request, pull.outcome())
        except Exception as error:  # noqa: BLE001  # the queue must not stand still
            unexpected(error)
            request.process_queue.drop("its pull failed unexpectedly")
            self._member.rebalance_soon()

    def _answered(self, request: PullRequest, answer: PullAnswer | RmqError) -> None:
        request.process_queue.pull_ended()
        self._room.reserved_bytes -= request.reserved_bytes
        request.reserved_bytes = 0
        if not request.process_queue.is_pulled:
            return
        if not self._member.is_running:
            # A closing member could not commit messages that it consumes now.
            delay_ms = self._member.config.pull_time_delay_when_exception_ms
            self.pull_later(request, delay_ms)
            return
        subscription = self._member.subscriptions.get(request.message_queue.topic)
        if isinstance(answer, RmqError):
            self._failed(request, answer)
            return
        if self._member.lost_brokers or self._unknown_since_ms:
            self._is_back(request.message_queue.broker_name)
        if subscription is None:
            delay_ms = self._member.config.pull_time_delay_when_exception_ms
            self.pull_later(request, delay_ms)
        elif answer.status is PullStatus.FOUND:
            self._found(request, answer, subscription)
        elif not _is_inside(request.next_offset, answer):
            self._refuse(request, answer)
        elif answer.status is PullStatus.OFFSET_ILLEGAL:
            self._offset_illegal(request, answer)
        else:
            self._nothing_found(request, answer, subscription)

    def _found(
        self, request: PullRequest, answer: PullAnswer, subscription: SubscriptionData
    ) -> None:
        member, queue = self._member, request.message_queue
        before = request.next_offset
        messages = decode_pulled(
            answer.body,
            Origin(queue, answer.min_offset, answer.max_offset),
            start_offset=before,
            subscription=subscription,
        )
        end = before + len(messages)
        offsets = [each.queue_offset for each in messages]
        is_without_gap = bool(messages) and offsets == list(range(before, end))
        next_offset: int | None = answer.next_begin_offset
        if not is_without_gap or next_offset != end or end > answer.max_offset:
            if min(offsets, default=before) < before:
                # An inner batch comes as a whole, even if only its end was requested.
                messages = [each for each in messages if each.queue_offset >= before]
            next_offset = _next_offset(
                before, messages, answer, is_filtered=_is_filtered(subscription)
            )
        if next_offset is None:
            self._refuse(request, answer)
            return
        self._note_answer(request)
        if next_offset - before > len(messages):
            self._log_skipped(request, next_offset, len(messages), subscription)
        has_more = answer.max_offset > next_offset
        if not self._room.keeps(request, len(answer.body), has_more=has_more):
            self.pull_later(request, FLOW_CONTROL_DELAY_MS)
            return
        request.next_offset = next_offset
        for each in reversed(messages):
            if not isinstance(each, UndecodableMessage):
                if each.store_timestamp_ms > 0:
                    request.last = each.queue_offset, each.store_timestamp_ms
                break
        self._doubt(request)
        stats = member.stats.of(queue.topic)
        stats.pulls += 1
        stats.pull_rt_ms += member.now_ms() - request.asked_ms
        if not messages:
            # As in Java, the skipped offsets are committed with the next message.
            self.pull(request)
            return
        stats.pulled += len(messages)
        request.is_chosen = False
        dispatch = request.process_queue.put_message(
            messages, is_ascending=is_without_gap
        )
        self._submit(request.process_queue, messages, dispatch)
        request.early_times = 0
        if member.config.pull_interval_ms:
            self.pull_later(request, member.config.pull_interval_ms)
        else:
            self.pull(request)

    def _nothing_found(
        self, request: PullRequest, answer: PullAnswer, subscription: SubscriptionData
    ) -> None:
        """Continue to pull; when no messages are cached, advance the offset, too."""
        member = self._member
        self._note_answer(request)
        self._doubt(request)
        moved = answer.next_begin_offset > request.next_offset
        if moved:
            self._log_skipped(request, answer.next_begin_offset, 0, subscription)
        request.next_offset = answer.next_begin_offset
        if not request.process_queue.msg_count:  # correctTagsOffset
            member.offsets.table.increase(request.message_queue, request.next_offset)
        is_early = not moved and member.now_ms() - request.asked_ms < _EARLY_MS
        request.early_times = request.early_times + 1 if is_early else 0
        if request.early_times > _EARLY_MAX:
            over = min(request.early_times - _EARLY_MAX, 20)
            self.pull_later(request, min(over * 50, _EARLY_DELAY_MS_MAX))
        else:
            self.pull(request)

    def _log_skipped(
        self,
        request: PullRequest,
        next_offset: int,
        message_count: int,
        subscription: SubscriptionData,
    ) -> None:
        """Log that a broker moves past offsets of which it returned no messages.

        Without a filter every offset has a message, so messages may be lost.
        """
        if not _is_filtered(subscription):
            logger.warning(
                "offsets skipped by the broker queue=%s from=%d to=%d messages=%d"
                " skipped=%d",
                request.message_queue,
                request.next_offset,
                next_offset,
                message_count,
                next_offset - request.next_offset - message_count,
            )

    def _offset_illegal(self, request: PullRequest, answer: PullAnswer) -> None:
        """Begin the queue again at the broker's offset, or before it.

        A queue that ends before what was pulled may have new messages before its end.
        """
        offset = answer.next_begin_offset
        is_deleted = request.next_offset < offset == answer.min_offset
        if is_deleted and request.process_queue.msg_count:
            self._log_correction(request, answer, offset)
            request.next_offset = offset
            self.pull(request)
            return
        if request.is_chosen or answer.max_offset >= request.next_offset:
            self._follow(request, answer, offset)
            return
        if request.last is None:
            self._follow(request, answer, lower_end(answer.min_offset))
            return

        def found(pending: Pending[int]) -> None:
            if not request.process_queue.is_pulled:
                return
            first = pending.outcome()
            if isinstance(first, RmqError):
                self._failed(request, first)
            else:
                self._follow(request, answer, min(first, offset))

        task = self._first_unseen_after(request, request.last[1])
        start(task, self._member).on_done(found)

    def _follow(self, request: PullRequest, answer: PullAnswer, offset: int) -> None:
        """Log a correction, and begin the queue again."""
        self._log_correction(request, answer, offset)
        self._begin_again(request, offset)

    def _log_correction(
        self, request: PullRequest, answer: PullAnswer, offset: int
    ) -> None:
        before = request.next_offset
        if offset > before:
            effect = f"offsets that are skipped: {offset - before}"
        elif answer.max_offset >= before:
            effect = f"offsets that are consumed again: {before - offset}"
        else:
            count = answer.max_offset - offset
            effect = f"{_ANEW}; "
            if request.last is not None:
                effect += f"messages that are new or not consumed: {count}"
            else:
                effect += f"offsets that are consumed, maybe again: {count}"
        logger.warning(
            "offset corrected by the broker queue=%s from=%d to=%d min=%d max=%d; %s",
            request.message_queue,
            before,
            offset,
            answer.min_offset,
            answer.max_offset,
            effect,
        )

    def _begin_again(self, request: PullRequest, offset: int) -> None:
        """Begin a queue again at another offset, which is stored first."""
        queue, process_queue = request.message_queue, request.process_queue
        request.next_offset = offset
        if self._member.config.like_4_6_offset_illegal:
            process_queue.change(QueueState.RESTING, "its offset was corrected")
            self._member.call_later(
                OFFSET_ILLEGAL_DELAY_MS,
                lambda: self._correct(process_queue, offset),
            )
            return
        process_queue.drop("its offset was corrected")
        self._member.offsets.table.freeze(queue, offset)
        self._correct(process_queue, offset)
        self._member.rebalance_soon()

    def _correct(self, process_queue: ProcessQueue[Pulled], offset: int) -> None:
        member, queue = self._member, process_queue.message_queue
        process_queue.drop("its corrected offset is stored")
        if member.process_queues.get(queue) is not process_queue:
            return
        member.offsets.table.put(queue, offset)
        member.offsets.persist([queue])
        self._give_up(queue)

    def _refuse(self, request: PullRequest, answer: PullAnswer) -> None:
        delay_ms = self._member.config.pull_time_delay_when_exception_ms
        if answer.status is PullStatus.NO_MATCHED_MSG and not request.refused_times:
            # A broker reads its highest offset before it scans the queue. If messages
            # arrive in between, the next offset is beyond it in this one answer.
            delay_ms = _SCAN_RACE_DELAY_MS
        delay_ms = min(
            delay_ms << min(request.refused_times, 10),
            max(delay_ms, _REFUSED_DELAY_MS_MAX),
        )
        request.refused_times += 1
        logger.warning(
            "invalid pull result queue=%s offset=%d status=%s next=%d min=%d max=%d"
            " bytes=%d; retrying in %d ms",
            request.message_queue,
            request.next_offset,
            answer.status.name,
            answer.next_begin_offset,
            answer.min_offset,
            answer.max_offset,
            len(answer.body),
            delay_ms,
        )
        self.pull_later(request, delay_ms)

    def _note_answer(self, request: PullRequest) -> None:
        request.refused_times = 0
        if not request.has_answered:
            request.has_answered = True
            self.refused.pop(request.message_queue, None)

    def _failed(self, request: PullRequest, error: RmqError) -> None:
        """Pull again later, or soon when the broker is only too busy.

        Of a broker that does not answer, only the first failure is logged as a warning,
        and of one that refuses a topic, as it does while the group is paused, one each
        minute.
        """
        broker_name = request.message_queue.broker_name
        delay_ms = self._member.config.pull_time_delay_when_exception_ms
        code = error.code if isinstance(error, BrokerError) else None
        if code == _BROKER_FLOW_CONTROL:
            delay_ms = BROKER_BUSY_DELAY_MS
        if isinstance(error, TransportError) or code == ResponseCode.TOPIC_NOT_EXIST:
            request.doubted = request.doubted or request.last
        level = logging.WARNING
        if (
            code == ResponseCode.SUBSCRIPTION_NOT_LATEST
            or request.message_queue.topic == self._member.retry_topic
            or self._awaits_heartbeat(broker_name, error)
        ):
            level = logging.DEBUG
        elif isinstance(error, TransportError):
            self._lose(broker_name, f"{broker_name}: {error}")
            level = logging.DEBUG
        elif isinstance(error, BrokerError):
            if not (request.has_answered or error.retriable):
                self.refused[request.message_queue] = error
            if not self._is_news(request, error):
                level = logging.DEBUG
        logger.log(level, "pull failed queue=%s: %s", request.message_queue, error)
        self.pull_later(request, delay_ms)

    def _is_news(self, request: PullRequest, error: BrokerError) -> bool:
        """Whether a refusal was not logged in the last minute; note that it is now."""
        queue, now_ms = request.message_queue, self._member.now_ms()
        key = queue.broker_name, queue.topic, error.code
        since_ms = self._refused_ms.get(key)
        if since_ms is not None and now_ms - since_ms < _REFUSAL_LOG_MS:
            return False
        if len(self._refused_ms) >= _REFUSALS_MAX:  # codes are a peer's choice
            self._refused_ms.clear()
        self._refused_ms[key] = now_ms
        return True

    def _awaits_heartbeat(self, broker_name: str, error: RmqError) -> bool:
        """Whether a broker does not know this member yet.

        After its restart, a broker knows no members until their next heartbeats. It
        answers in the same way, with another text, when members subscribe differently.
        """
        if not isinstance(error, BrokerError) or (
            error.code != ResponseCode.SUBSCRIPTION_NOT_EXIST
        ):
            return False
        is_lost = broker_name in self._member.lost_brokers
        if not is_lost and "group info not exist" not in error.remark:
            return False
        now_ms = self._member.now_ms()
        since_ms = self._unknown_since_ms.setdefault(broker_name, now_ms)
        return now_ms - since_ms <= 2 * self._member.config.heartbeat_broker_interval_ms

    def probe_brokers(self) -> None:
        """Ask each broker that holds all its pulls whether it still answers.

        A broker that was stopped, or whose machine is gone, holds a pull just as one
        does that waits for messages.
        """
        member = self._member
        held: dict[str, tuple[int, MessageQueue]] = {}
        for queue, process_queue in member.process_queues.items():
            if process_queue.is_pulling:
                last = (process_queue.last_pull_ms, queue)
                held[queue.broker_name] = max(held.get(queue.broker_name, last), last)
        interval_ms = member.config.probe_broker_interval_ms or 0
        for broker_name, (last_ms, queue) in held.items():
            is_held = member.now_ms() - last_ms >= interval_ms
            if is_held and broker_name not in self._probed:
                self._probed.add(broker_name)
                start(self._probe(queue, interval_ms), member)

    def _probe(self, queue: MessageQueue, limit_ms: int) -> Task[None]:
        broker_name = queue.broker_name
        try:
            yield Within(self._member.network.max_offset(queue), limit_ms)
        except (TransportError, TimeLimitError):
            self._lose(broker_name, f"{broker_name} does not answer")
        except RmqError:
            self._is_back(broker_name)  # any answer will do
        else:
            self._is_back(broker_name)
        finally:
            self._probed.discard(broker_name)

    def _lose(self, broker_name: str, why: str) -> None:
        """Note that a broker does not answer, and log it once."""
        if broker_name not in self._member.lost_brokers:
            self._member.lost_brokers.add(broker_name)
            logger.warning("%s; retrying", why)

    def _is_back(self, broker_name: str) -> None:
        """Note that a broker answers."""
        self._unknown_since_ms.pop(broker_name, None)
        if broker_name in self._member.lost_brokers:
            self._member.lost_brokers.discard(broker_name)
            logger.warning("%s is back; continuing", broker_name)
