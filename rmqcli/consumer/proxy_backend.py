"""The back end of a `Consumer` that consumes through a proxy (gRPC).

The proxy assigns brokers, or queues of a FIFO group, to the member. For each of them a
receive request is open, which the proxy holds until messages arrive. `HeldMessages`
keeps the received messages and decides what happens to them; this module carries its
decisions out. While an ack request is in flight, further acks of its topic and server
are gathered and sent together in the next request.

No message is skipped silently. An ack, a change of the invisible time or the forwarding
of a dead letter is retried until the message's lease is over; then the broker delivers
the message again. A change of the invisible time is not sent again when the first may
have been carried out, because the message would then be delivered twice.

Everything here runs in the thread rmq-proxy, except the listeners and the methods of
`ConsumerBackend`.

Source: PushConsumerImpl, ProcessQueueImpl in apache/rocketmq-clients.
"""

from __future__ import annotations

import functools
import uuid
from collections import deque
from dataclasses import field
from typing import TYPE_CHECKING, Final, cast

from rmqcli import tasks
from rmqcli.clock import Deadline
from rmqcli.consumer.backend import not_started
from rmqcli.dataclass import dataclass
from rmqcli.engine.config import ConsumerConfig
from rmqcli.engine.consume.request import (
    call_batch,
    call_directly,
    call_orderly,
    is_success,
)
from rmqcli.engine.held_messages import (
    INVISIBLE_MS,
    HeldMessages,
    HeldState,
    Settlement,
    Verdict,
)
from rmqcli.engine.listener import (
    ConsumeOrderlyContext,
    ConsumeOrderlyStatus,
    LeaveRest,
)
from rmqcli.engine.reports import (
    FailedDelivery,
    Fate,
    report_assigned,
    report_failed,
    report_revoked,
)
from rmqcli.errors import (
    BrokerError,
    BusyError,
    FilterError,
    NotFoundError,
    RmqError,
    TimeLimitError,
    TransportError,
    UnsupportedError,
)
from rmqcli.hint import Argument, ForPrograms, Hint, LibraryCall, Setting
from rmqcli.log import get_logger
from rmqcli.proxy.rpc import (
    ack_messages,
    change_invisible_duration,
    forward_to_dead_letter_queue,
    query_assignment,
    receive_message,
)
from rmqcli.proxy.session import PUSH_CONSUMER, Session
from rmqcli.wire.protobuf import definition_pb2 as pb
from rmqcli.wire.subscription import SQL92

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rmqcli.consumer.backend import MemberParts, Offsets
    from rmqcli.engine.held_messages import Held
    from rmqcli.engine.message import Pulled
    from rmqcli.model import MessageQueue
    from rmqcli.proxy.endpoints import Endpoints
    from rmqcli.proxy.message import ProxyMessage
    from rmqcli.proxy.rpc import AckFailure, ProxyQueue, Received
    from rmqcli.proxy.settings import ServerSettings

logger = get_logger(__name__)

_SCAN_MS: Final = 5_000
#: The pause after a proxy answered that it is too busy.
_BUSY_MS: Final = 20
#: A receive that ends without a message before this fraction of its time is early. The
#: member then waits before the next one, longer each time.
_EARLY: Final = 0.5
_EARLY_MS: Final = 50
_EARLY_MS_MAX: Final = 1_000
#: The interval of warnings about a source whose receives keep failing.
_WARN_AGAIN_MS: Final = 10_000
#: The pause before an ack, a change or a forwarding is retried.
_AGAIN_MS: Final = 1_000
_ACKS_MAX: Final = 256
#: The most concurrent receives of one broker, while it has many messages.
_RECEIVES_MAX: Final = 4
#: How long a close waits for acks, and for messages to be given back.
_SETTLE_MS: Final = 5_000
_START_AGAIN_MS: Final = 1_000
#: A start waits for answers to SQL expressions for a third of a request's timeout. A
#: refusal comes at once, but a receive that finds no message is held for seconds.
_FILTER_SHARE: Final = 3
_INVALID_HANDLE: Final = int(pb.Code.INVALID_RECEIPT_HANDLE)
#: How long `join` waits for listeners.
_JOIN_MS: Final = 500
_NEAR_THE_END: Final = (
    "new groups begin near the end, and in a young topic at the first message"
)
_GENERATED_IDS: Final = "a proxy identifies clients by generated ids"
#: Settings that have no meaning through a proxy -> the reason, and what to do instead;
#: each may be empty.
_NOT_BY_PROXY: Final = {
    "message_model": ("", "give each program its own group"),
    "consume_from_where": (_NEAR_THE_END, "reset the group with Admin"),
    "consume_timestamp_ms": (_NEAR_THE_END, "reset the group with Admin"),
    "consume_ago_ms": (_NEAR_THE_END, "reset the group with Admin"),
    "strategy": ("the proxy assigns the messages", ""),
    "max_reconsume_times": ("", "set the group's retryMaxTimes"),
    "client_ip": (_GENERATED_IDS, ""),
    "instance_name": (_GENERATED_IDS, ""),
}
#: The methods of Consumer that need offsets -> what to do instead.
_NEEDS_OFFSETS: Final = {
    "commit": "leave it out: a message is acknowledged when its listener returns",
    "lag": Hint("ask ", LibraryCall("Admin.lag"), ", with name servers"),
    "offsets": Hint("ask ", LibraryCall("Admin.lag"), ", with name servers"),
    "running_info": "see Consumer.queues()",
    "seek": "reset the group with Admin, with name servers",
}
#: Setting -> how it is given, where an argument of the consumer may have set it.
_ARGUMENTS: Final = {"consume_from_where": "consume_from or consume_from_where"}


@dataclass(slots=True)
class _Source:
    """One assigned queue, or all queues of a broker, and its receives."""

    queue: ProxyQueue
    is_dropped: bool = False
    #: how many receives are in flight, and how many may be: one more after each full
    #: receive, and one after any other; always one for a FIFO queue
    receiving: int = 0
    width: int = 1
    #: whether any of its receives has ended
    has_answered: bool = False
    #: no receive is sent before this time (monotonic)
    rest_until_ms: int = 0
    early_ms: int = 0
    #: consecutive receives that failed, and when the last warning was logged
    failures: int = 0
    warned_ms: int = 0
    #: the last refusal, until a receive succeeds for the first time
    refusal: RmqError | None = None
    has_succeeded: bool = False
    #: repeated in the retry of a request whose answer was lost, so that the broker
    #: continues with a FIFO queue
    attempt_id: str = field(default_factory=lambda: str(uuid.uuid4()))


@dataclass(slots=True)
class _Acks:
    """Acknowledgements for one topic and server that wait for the next request."""

    waiting: deque[Held] = field(default_factory=deque)
    is_sending: bool = False


@dataclass(slots=True)
class _Job:
    """A batch for a listener. Implements `consume.Cancellable`."""

    message_queue: MessageQueue
    batch: list[Held]
    is_cancelled: bool = False


class ProxyConsumerBackend:
    """Implements `ConsumerBackend`. `on_end` is called in the thread rmq-proxy."""

    def __init__(self, parts: MemberParts) -> None:
        _check_settings(parts.config)
        if parts.listener.on_start is not None:
            raise UnsupportedError(
                "a proxy does not report where queues begin, so on_start is not"
                " supported",
                hint=Hint("leave on_start out, or give ", Argument("namesrv")),
            )
        #: None until `start` has made the session
        self.client_id: str | None = None
        self.has_begun = False
        self._client_config = parts.client_config
        self._group = parts.group
        self._subscriptions = dict(parts.subscriptions)
        self._config = parts.config
        self._listener = parts.listener
        self._clock = parts.clock
        self._on_end = parts.on_end
        self._runner = parts.runner
        self._session: Session
        self._held: HeldMessages
        #: assigned queue -> its receives
        self._sources: dict[MessageQueue, _Source] = {}
        self._acks: dict[tuple[str, Endpoints], _Acks] = {}
        self._jobs = 0
        self._is_paused = False
        self._is_closing = False
        self.is_confirmed = True
        self.refused: dict[MessageQueue, RmqError] = {}
        #: whether the proxy has answered the settings, and the consume threads run
        self._is_ready = False
        #: ends when all brokers have answered SQL expressions, or one refuses its own
        self._filters: tasks.Pending[None] = tasks.Pending()
        #: whether the close has given back the messages that no listener has
        self._has_given_back = False
        #: whether the member has left: then messages cannot be acknowledged any more
        self._has_left = False
        self._timer_ms: int | None = None
        #: ends as soon as no listener runs, or `close_sooner` was called
        self._idle: tasks.Pending[None] = tasks.Pending()
        #: ends as soon as no ack or change is left, during a close
        self._settled: tasks.Pending[None] = tasks.Pending()

    # --- for other threads ---

    def start(
        self,
        *,
        timeout_ms: int,
        wait_for_cluster: bool,
        is_cancelled: Callable[[], bool],
    ) -> None:
        """Get routes, settings and the first assignments, and begin to receive.

        Raises the error of the first proxy that failed, UnsupportedError when the
        listener is orderly but the group is not, and FilterError when a broker refuses
        an SQL expression. A broker that has not answered in time only causes a warning.
        With `wait_for_cluster` it waits for a missing proxy or topic.
        """
        deadline = Deadline(self._clock, timeout_ms)
        self._make_session()
        while True:
            try:
                self._session.open(
                    list(self._subscriptions), timeout_ms=max(1, deadline.left_ms())
                )
                break
            except (TransportError, NotFoundError):
                if not wait_for_cluster or deadline.is_over() or is_cancelled():
                    raise
            self._session.run(tasks.Sleep(_START_AGAIN_MS)).result()
            self._session.close()
            self._make_session()
        in_order = self._session.settings.fifo
        if self._listener.is_orderly and not in_order:
            raise UnsupportedError(
                f"group {self._group} is not a FIFO group, so a proxy does not deliver"
                " its messages in order",
                hint=Hint(
                    "make it one: ",
                    LibraryCall("Admin.update_group", self._group),
                    ForPrograms(" with"),
                    " ",
                    Setting("consume_message_orderly", True),
                    "; or consume without ",
                    Argument("orderly"),
                ),
            )
        self._held = HeldMessages(
            self._config, self._session.settings.retry, in_order=in_order
        )
        self._runner.start()
        self._is_ready = True
        self._session.run(self._scan(is_first=True)).result()
        limit_ms = min(
            max(1, deadline.left_ms()), self._client_config.timeout_ms // _FILTER_SHARE
        )
        self._session.run(self._filters_answered(limit_ms)).result()
        self.has_begun = True

    def abort(self) -> bool:
        """See ConsumerBackend. Gives received messages back, and leaves."""
        if self._is_ready:
            self._session.run(self._abandon()).result()
        self._is_closing = True
        if self.client_id is not None:
            self._session.close()
        return False

    def begin_close(self, wait_ms: int) -> None:
        """See ConsumerBackend."""
        self._session.post(lambda: self._close(wait_ms))

    def release(self) -> None:
        """See ConsumerBackend."""
        self._runner.let_end()

    def join(self) -> None:
        """See ConsumerBackend."""
        if not self.is_inside():
            self._runner.stop(_JOIN_MS)

    def is_inside(self) -> bool:
        """See ConsumerBackend."""
        is_in_io_thread = self.client_id is not None and self._session.in_io_thread()
        return is_in_io_thread or self._runner.is_current()

    def forget_after_fork(self) -> None:
        """See ConsumerBackend. The thread rmq-proxy has stayed with the parent."""

    def pause(self) -> None:
        """See ConsumerBackend. Open receives still bring messages."""
        self._set_paused(is_paused=True)

    def resume(self) -> None:
        """See ConsumerBackend."""
        self._set_paused(is_paused=False)

    def queues(self) -> list[MessageQueue]:
        """See ConsumerBackend. Queue id -1 stands for all queues of a broker."""
        if self.client_id is None:
            raise not_started()
        return sorted(self._sources)

    def offsets_for(self, method: str) -> Offsets:
        """See ConsumerBackend. A proxy has no offsets."""
        raise UnsupportedError(
            f"{method} is not possible through a proxy, which does not expose offsets",
            hint=_NEEDS_OFFSETS[method],
        )

    def _set_paused(self, *, is_paused: bool) -> None:
        if self.client_id is None:
            raise not_started()

        def change() -> None:
            self._is_paused = is_paused
            if not is_paused and self._is_ready:
                self._go_on()

        self._session.post(change)

    # --- inside ---

    def _make_session(self) -> None:
        self._session = Session(
            self._client_config,
            client_type=PUSH_CONSUMER,
            group=self._group,
            subscriptions=self._subscriptions,
            fifo=self._listener.is_orderly,
            on_verify=self._verify,
            on_settings=self._take_settings,
            clock=self._clock,
        )
        self.client_id = self._session.client_id

    def _take_settings(self, settings: ServerSettings) -> None:
        if not self._is_ready:
            return
        self._held.retry = settings.retry
        if settings.fifo != self._held.in_order:
            logger.warning(
                "group was switched to or from FIFO; restart its consumers group=%s",
                self._group,
            )

    def _now_ms(self) -> int:
        return self._clock.monotonic_ms()

    # --- assignments ---

    def _scan(self, *, is_first: bool = False) -> tasks.Task[None]:
        """Request the assignment of each topic, and repeat this every 5 s.

        A topic whose request fails keeps its assignment. The first call raises the
        error when the requests of all topics failed.
        """
        session = self._session
        topics = list(self._subscriptions)
        outcomes = yield tasks.All(
            [
                session.submit(
                    session.access_point,
                    query_assignment(topic, self._group, session.access_point),
                )
                for topic in topics
            ]
        )
        if self._is_closing:
            return
        failures = [each for each in outcomes if isinstance(each, RmqError)]
        if is_first and len(failures) == len(topics):
            raise failures[0]
        for topic, outcome in zip(topics, outcomes, strict=True):
            if isinstance(outcome, RmqError):
                logger.log(
                    session.level_of(session.access_point, outcome),
                    "assignment not refreshed topic=%s error=%s",
                    topic,
                    outcome.message,
                )
            else:
                self._assign(topic, outcome)

        def again() -> None:
            if not self._is_closing:
                tasks.start(self._scan(), session.via)

        session.call_later(_SCAN_MS, again)

    def _assign(self, topic: str, assigned: Sequence[ProxyQueue]) -> None:
        wanted = {each.queue: each for each in assigned}
        revoked = [
            queue
            for queue in self._sources
            if queue.topic == topic and queue not in wanted
        ]
        for queue in revoked:
            self._sources.pop(queue).is_dropped = True
        added = [queue for queue in wanted if queue not in self._sources]
        for queue, each in wanted.items():
            self._sources.setdefault(queue, _Source(each)).queue = each
        if added or revoked:
            logger.info(
                "assignment changed group=%s topic=%s owned=%d added=%d revoked=%d",
                self._group,
                topic,
                len(wanted),
                len(added),
                len(revoked),
            )
        report_revoked(self._listener, sorted(revoked))
        report_assigned(self._listener, sorted(added))
        self._go_on()

    def _filters_answered(self, limit_ms: int) -> tasks.Task[None]:
        """Wait until brokers have answered SQL expressions. Raises FilterError.

        Brokers do not check other filter expressions.
        """
        self._look_at_filters()
        try:
            yield tasks.Within(self._filters, limit_ms)
        except TimeLimitError:
            logger.debug("SQL expressions are not answered yet group=%s", self._group)

    def _look_at_filters(self) -> None:
        if not self._filters.is_done and all(
            source.has_answered
            for queue, source in self._sources.items()
            if self._subscriptions[queue.topic].expression_type == SQL92
        ):
            self._filters.succeed(None)

    # --- receiving ---

    def _go_on(self) -> None:
        """Do everything that is possible now: hand out, receive, and handle timers."""
        self._run_due()
        self._hand_out()
        if not self._is_closing and not self._is_paused:
            for source in self._sources.values():
                self._ask(source)
        self._set_timer()
        if self._is_closing:
            self._note_end()

    def _ask(self, source: _Source) -> None:
        settings = self._session.settings
        wanted = min(settings.receive_batch_size, self._config.pull_batch_size)
        left = self._listener.wanted()
        # A receive may fail at once, after which the source rests.
        while (
            source.receiving < source.width and source.rest_until_ms <= self._now_ms()
        ):
            if left is not None:
                # Each of several sources may have the last ones.
                room = left - self._held.held_count
                wanted = min(wanted, 0 if source.receiving else max(0, room))
            count = self._held.begin_receive(source.queue.queue, wanted)
            if not count:
                return  # tried again when a message is done
            source.receiving += 1
            self._receive_some(source, count, settings.long_polling_ms)

    def _receive_some(self, source: _Source, count: int, polling_ms: int) -> None:
        asked_ms = self._now_ms()

        def ended(pending: tasks.Pending[Received]) -> None:
            source.receiving -= 1
            source.has_answered = True
            outcome = pending.outcome()
            messages: list[ProxyMessage] = []
            if isinstance(outcome, RmqError):
                self._receive_failed(source, outcome)
            else:
                messages = outcome.messages
                self._received(source, outcome, self._now_ms() - asked_ms)
            is_full = len(messages) >= count and not self._held.in_order
            source.width = min(source.width + 1, _RECEIVES_MAX) if is_full else 1
            verdicts = self._held.end_receive(
                source.queue.queue, count, messages, now_ms=self._now_ms()
            )
            self._carry_out(verdicts)
            self._look_at_filters()
            self._go_on()

        task = self._receive(source, count, polling_ms)
        tasks.start(task, self._session.via).on_done(ended)

    def _receive(
        self, source: _Source, count: int, polling_ms: int
    ) -> tasks.Task[Received]:
        queue = source.queue
        yield from self._session.ready(queue.endpoints)
        rpc = receive_message(
            queue,
            group=self._group,
            batch_size=count,
            polling_ms=polling_ms,
            subscription=self._subscriptions[queue.queue.topic],
            invisible_ms=INVISIBLE_MS,
            attempt_id=source.attempt_id if self._held.in_order else str(uuid.uuid4()),
        )
        received: Received = yield self._session.receive(queue.endpoints, rpc)
        return received

    def _received(self, source: _Source, received: Received, spent_ms: int) -> None:
        if received.error is not None:
            self._receive_failed(source, received.error)
            return
        source.attempt_id = str(uuid.uuid4())
        source.failures = 0
        source.refusal, source.has_succeeded = None, True
        if received.messages:
            source.early_ms = 0
            self._rest(source, self._config.pull_interval_ms)
        elif spent_ms < _EARLY * self._session.settings.long_polling_ms:
            source.early_ms = min(max(_EARLY_MS, 2 * source.early_ms), _EARLY_MS_MAX)
            self._rest(source, source.early_ms)
        else:
            source.early_ms = 0

    def _receive_failed(self, source: _Source, error: RmqError) -> None:
        delay_ms = self._config.pull_time_delay_when_exception_ms
        if isinstance(error, BusyError):
            delay_ms = _BUSY_MS
        self._rest(source, delay_ms)
        if isinstance(error, FilterError) and not self._filters.is_done:
            self._filters.fail(error)  # the start raises it
            return
        source.failures += 1
        if not source.has_succeeded and isinstance(error, BrokerError):
            source.refusal = error
        now_ms = self._now_ms()
        is_news = source.failures == 1 or now_ms - source.warned_ms >= _WARN_AGAIN_MS
        if is_news and not self._is_closing and not source.is_dropped:
            source.warned_ms = now_ms
            logger.log(
                self._session.level_of(source.queue.endpoints, error),
                "receive failed topic=%s broker=%s failures=%d error=%s; next attempt"
                " in %d ms",
                source.queue.queue.topic,
                source.queue.queue.broker_name,
                source.failures,
                error.message,
                delay_ms,
            )

    def _rest(self, source: _Source, delay_ms: int) -> None:
        if delay_ms:
            source.rest_until_ms = self._now_ms() + delay_ms
            self._session.call_later(delay_ms, self._go_on)

    # --- listeners ---

    def _hand_out(self) -> None:
        """Give batches to the listener, as many at once as it takes."""
        while self._jobs < self._runner.count:
            batch = self._held.next_batch(self._now_ms())
            if not batch:
                return
            self._jobs += 1
            job = _Job(batch[0].message.message_queue, batch)
            self._runner.put(functools.partial(self._serve, job))

    async def _serve(self, job: _Job) -> None:
        """Call the listener and report the result."""
        done: dict[int, tuple[bool, int, int | None]] | None = None
        try:
            done = await self._call(job)
        finally:
            if not self._listener.is_orphaned:
                self._session.post(functools.partial(self._served, job, done))

    async def _call(self, job: _Job) -> dict[int, tuple[bool, int, int | None]]:
        """Call the listener; return (consumed, delay level, suspend ms) by `id`.

        Messages that the listener did not consume are missing.
        """
        # A listener uses only the attributes that all kinds of messages have.
        messages = cast("list[Pulled]", [each.message for each in job.batch])
        now_ms = self._now_ms()
        if self._listener.is_orderly:
            return await self._call_in_order(job, messages, now_ms)
        done, failed = await call_batch(job, messages, self._listener, now_ms)
        levels = {id(each.message): each.delay_level for each in failed}
        return {
            id(each): (id(each) not in levels, levels.get(id(each), 0), None)
            for each in done
        }

    async def _call_in_order(
        self, job: _Job, messages: list[Pulled], now_ms: int
    ) -> dict[int, tuple[bool, int, int | None]]:
        context = ConsumeOrderlyContext(job.message_queue)
        try:
            status = await call_orderly(messages, self._listener, context, now_ms)
        except LeaveRest as rest:
            return {id(each): (True, 0, None) for each in messages[: rest.consumed]}
        is_consumed = status in (
            ConsumeOrderlyStatus.SUCCESS,
            ConsumeOrderlyStatus.COMMIT,
        )
        if is_consumed and not context.auto_commit:
            logger.warning(
                "auto_commit=False has no effect through a proxy: every consumed"
                " message is acknowledged"
            )
        suspend_ms = context.suspend_current_queue_time_ms
        return {id(each): (is_consumed, 0, suspend_ms) for each in messages}

    def _served(
        self, job: _Job, done: Mapping[int, tuple[bool, int, int | None]] | None
    ) -> None:
        self._jobs -= 1
        held, now_ms = self._held, self._now_ms()
        left = []
        for each in job.batch:
            outcome: tuple[bool, int, int | None] | None = (False, 0, None)
            if done is not None:  # None: the call ended with a defect
                outcome = done.get(id(each.message))
            if outcome is None:
                left.append(each)
            elif outcome[0]:
                self._carry_out(held.succeeded(each))
            else:
                self._failed(each, outcome[1], outcome[2], now_ms)
        if left:
            held.left(left)
        self._go_on()

    def _failed(
        self, held: Held, delay_level: int, suspend_ms: int | None, now_ms: int
    ) -> None:
        verdicts = self._held.failed(
            held, now_ms=now_ms, delay_level=delay_level, suspend_ms=suspend_ms
        )
        # A decided verdict is carried out after the renewal of its lease.
        pending = [held.verdict] if held.verdict is not None else []
        mine = next(each for each in [*pending, *verdicts] if each.held is held)
        if mine.settlement is not Settlement.DEAD_LETTER:
            self._report(mine)
        if mine.settlement is Settlement.TRY_HERE:
            _message(held).count_attempt(held.attempt)
        self._carry_out(verdicts)

    def _report(self, verdict: Verdict) -> None:
        """Log what happens to a message that was not consumed."""
        fate = {
            Settlement.REDELIVER: Fate.DELIVERED_AGAIN,
            Settlement.TRY_HERE: Fate.RETRY_HERE,
            Settlement.DEAD_LETTER: Fate.DEAD_LETTER,
            Settlement.LOST: Fate.QUEUE_LOST,
        }[verdict.settlement]
        held = verdict.held
        retries = {
            Fate.DELIVERED_AGAIN: held.attempt,
            Fate.RETRY_HERE: held.attempt - 1,
        }
        retry = retries.get(fate)
        retries_max = None if retry is None else self._held.retry.max_attempts - 1
        failed = FailedDelivery(
            message=_message(held), fate=fate, retry=retry, retries_max=retries_max
        )
        report_failed(self._listener, failed)

    def _verify(self, message: ProxyMessage, answer: Callable[[bool], None]) -> None:
        """Consume a message at the proxy's request, without acknowledging it."""
        listener = self._listener
        if not self._is_ready or self._is_closing or listener.reports_each:
            answer(False)
            return

        async def call() -> None:
            queue = message.message_queue
            result, error = await call_directly(message, listener, queue)
            is_done = error is None and (
                result is ConsumeOrderlyStatus.SUCCESS or is_success(result, listener)
            )
            answer(is_done)

        self._runner.put(call)

    # --- settling ---

    def _carry_out(self, verdicts: Sequence[Verdict]) -> None:
        for each in verdicts:
            held = each.held
            match each.settlement:
                case Settlement.ACK:
                    message = _message(held)
                    key = message.topic, message.endpoints
                    acks = self._acks.setdefault(key, _Acks())
                    acks.waiting.append(held)
                    if not acks.is_sending:
                        acks.is_sending = True
                        # Acks of the same turn of the loop are sent together.
                        send = functools.partial(self._run, self._acknowledge(key))
                        self._session.post(send)
                case Settlement.REDELIVER:
                    self._run(self._redeliver(held, each.delay_ms))
                case Settlement.DEAD_LETTER:
                    self._run(self._forward(each))
                case Settlement.LOST:
                    logger.warning(
                        "lease of a message expired; it will be delivered again"
                        " message=%r",
                        held.message,
                    )
                case Settlement.TRY_HERE:
                    pass

    def _run(self, task: tasks.Task[None]) -> None:
        tasks.start(task, self._session.via).on_done(lambda _: self._go_on())

    def _acknowledge(self, key: tuple[str, Endpoints]) -> tasks.Task[None]:
        """Send the acks of one topic and server until none is waiting."""
        acks = self._acks[key]
        try:
            while acks.waiting:
                count = min(_ACKS_MAX, len(acks.waiting))
                part = [acks.waiting.popleft() for _ in range(count)]
                names = [(_message(each).msg_id, each.receipt_handle) for each in part]
                rpc = ack_messages(key[0], self._group, names)
                (outcome,) = yield tasks.All([self._session.submit(key[1], rpc)])
                self._acknowledged(part, outcome)
        finally:
            acks.is_sending = False

    def _acknowledged(
        self, part: Sequence[Held], outcome: list[AckFailure] | RmqError
    ) -> None:
        if isinstance(outcome, RmqError):
            errors = {each.receipt_handle: outcome for each in part}
        else:
            errors = {each.receipt_handle: each.error for each in outcome}
        for each in part:
            error = errors.get(each.receipt_handle)
            if error is not None and self._may_again(each, error):
                again = [Verdict(each, Settlement.ACK)]
                self._session.call_later(
                    _AGAIN_MS, functools.partial(self._carry_out, again)
                )
                continue
            if error is not None:
                self._log_unsettled(each, "ack", error)
            self._held.settled(each)
        self._go_on()

    def _redeliver(self, held: Held, delay_ms: int) -> tasks.Task[None]:
        """Have the message delivered again after the delay."""
        while True:
            (outcome,) = yield tasks.All([self._hide(held, delay_ms)])
            if not isinstance(outcome, RmqError):
                break
            if outcome.may_be_done or not self._may_again(held, outcome):
                self._log_unsettled(held, "change of the invisible time", outcome)
                break
            yield tasks.Sleep(_AGAIN_MS)
        self._held.settled(held)

    def _forward(self, verdict: Verdict) -> tasks.Task[None]:
        """Forward the message to the dead-letter queue."""
        held = verdict.held
        message = _message(held)
        while True:
            rpc = forward_to_dead_letter_queue(
                topic=message.topic,
                group=self._group,
                msg_id=message.msg_id,
                receipt_handle=held.receipt_handle,
                delivery_attempt=held.attempt,
                max_delivery_attempts=self._held.retry.max_attempts,
            )
            (outcome,) = yield tasks.All([self._session.submit(message.endpoints, rpc)])
            if not isinstance(outcome, RmqError):
                self._report(verdict)
                self._held.settled(held)
                return
            if not self._may_again(held, outcome):
                self._log_unsettled(
                    held, "forwarding to the dead-letter queue", outcome
                )
                self._report(Verdict(held, Settlement.LOST))
                self._carry_out(self._held.lost(held))
                return
            yield tasks.Sleep(_AGAIN_MS)

    def _may_again(self, held: Held, error: RmqError) -> bool:
        """Whether to retry: the lease is not over, and the retry may succeed."""
        is_refused = isinstance(error, BrokerError) and error.code == _INVALID_HANDLE
        if is_refused or self._has_left:
            return False
        return held.until_ms > self._now_ms() + _AGAIN_MS

    def _log_unsettled(self, held: Held, what: str, error: RmqError) -> None:
        logger.warning(
            "%s failed, the message will be delivered again message=%r error=%s",
            what,
            held.message,
            error.message,
        )

    # --- leases ---

    def _run_due(self) -> None:
        due = self._held.run_due(self._now_ms())
        for held in due.renew:
            self._renew(held)
        self._carry_out(due.verdicts)

    def _renew(self, held: Held) -> None:
        def ended(pending: tasks.Pending[str]) -> None:
            outcome = pending.outcome()
            now_ms = self._now_ms()
            if isinstance(outcome, RmqError):
                logger.warning(
                    "lease not renewed message=%r error=%s",
                    held.message,
                    outcome.message,
                )
                verdicts = self._held.not_renewed(
                    held,
                    now_ms=now_ms,
                    is_doubtful=outcome.may_be_done,
                    is_lost=isinstance(outcome, BrokerError)
                    and outcome.code == _INVALID_HANDLE,
                )
            else:
                verdicts = self._held.renewed(held, outcome, now_ms=now_ms)
            self._carry_out(verdicts)
            self._go_on()

        self._hide(held, INVISIBLE_MS).on_done(ended)

    def _hide(self, held: Held, invisible_ms: int) -> tasks.Pending[str]:
        """Change the invisible time of a message; it ends with the new handle."""
        message = _message(held)
        rpc = change_invisible_duration(
            topic=message.topic,
            group=self._group,
            msg_id=message.msg_id,
            receipt_handle=held.receipt_handle,
            invisible_ms=invisible_ms,
        )
        return self._session.submit(message.endpoints, rpc)

    def _set_timer(self) -> None:
        """Have `_go_on` called when the next message is due."""
        due_ms = self._held.next_due_ms()
        if due_ms is None or (self._timer_ms is not None and self._timer_ms <= due_ms):
            return
        self._timer_ms = due_ms

        def over() -> None:
            if self._timer_ms == due_ms:
                self._timer_ms = None
                self._go_on()

        self._session.call_later(max(1, due_ms - self._now_ms()), over)

    # --- the end ---

    def _close(self, wait_ms: int) -> None:
        if self._is_closing:
            # A second close shortens the wait of the first one.
            self._session.call_later(wait_ms, lambda: self._idle.succeed(None))
            return
        self._is_closing = True
        self._held.stop()
        tasks.start(self._leave(wait_ms), self._session.via).on_done(self._left)

    def _leave(self, wait_ms: int) -> tasks.Task[None]:
        """End receives, wait for listeners, give messages back, send acks, leave."""
        # The proxy would answer open receives with the messages that this member gives
        # back, and these would be lost with the connection.
        yield tasks.All([tasks.Within(self._session.end_receives(), _SETTLE_MS)])
        self._note_end()
        yield tasks.All([tasks.Within(self._idle, wait_ms)])
        self._carry_out(self._held.give_back_all())
        self._has_given_back = True
        self._note_end()
        yield tasks.All([tasks.Within(self._settled, _SETTLE_MS)])
        if unsettled := self._held.count(HeldState.SETTLING):
            self.is_confirmed = False
            logger.warning(
                "close ends with requests unanswered group=%s messages=%d; each that"
                " was not acknowledged will be delivered again",
                self._group,
                unsettled,
            )
        report_revoked(self._listener, sorted(self._sources))
        self.refused = {
            queue: source.refusal
            for queue, source in sorted(self._sources.items())
            if source.refusal is not None
        }
        self._sources.clear()
        self._has_left = True
        yield tasks.All([self._session.closing()])

    def _abandon(self) -> tasks.Task[None]:
        """Leave at once, after a start that failed."""
        if not self._is_closing:
            self._is_closing = True
            self._held.stop()
            yield from self._leave(0)

    def _note_end(self) -> None:
        """During a close, end the waits whose condition is met."""
        if not self._jobs:
            self._idle.succeed(None)
        if self._has_given_back and not self._held.count(HeldState.SETTLING):
            self._settled.succeed(None)

    def _left(self, pending: tasks.Pending[None]) -> None:
        error = pending.outcome()
        if isinstance(error, RmqError):
            logger.warning("close not finished group=%s error=%s", self._group, error)
        self._on_end()


def _check_settings(config: ConsumerConfig) -> None:
    """Raise UnsupportedError for a setting that has no meaning through a proxy."""
    default = ConsumerConfig()
    for name, (reason, hint) in _NOT_BY_PROXY.items():
        value = getattr(config, name)
        is_default = value == getattr(default, name)
        if name == "strategy":
            is_default = type(value) is type(default.strategy)
        if not is_default:
            named = _ARGUMENTS.get(name, name)
            raise UnsupportedError(
                f"{named} cannot be set for a consumer through a proxy"
                + (f": {reason}" if reason else ""),
                hint=Hint(hint, ", or give ", Argument("namesrv"))
                if hint
                else Hint("give ", Argument("namesrv")),
            )


def _message(held: Held) -> ProxyMessage:
    return cast("ProxyMessage", held.message)
