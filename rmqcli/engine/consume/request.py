"""Requests, which hold messages of one queue for the listener; and calls of it.

A request has the messages of one pull, or of one take of an orderly queue, because a
hand-over between threads costs more than consuming a message. Any thread can call the
listener for a request and return the outcome. Several threads may work on a concurrent
request at once; each takes its next batch.

What calls a listener is a coroutine. If the listener is a plain function, the coroutine
never waits, and a thread runs it to its end with `run_at_once`. If the listener is a
coroutine function, an event loop runs it, and "thread" here means such a task.

This module decides nothing about offsets, retries or queues. Whatever a listener does,
its call yields a status, also when it raises (including BaseException and sys.exit) or
returns something that is not a status. Only in a process that the listener forked is
the exception raised further: there it ends the process.

The messages of a request are consumed in order. When a listener is slow, the request is
shared, so that other threads take the later messages; if a listener does not return,
the engine notices and shares the request. Outcomes are reported at least every
REPORT_MS, so that offsets advance as messages are consumed.

Source: ConsumeRequest#run of ConsumeMessageConcurrentlyService and of
ConsumeMessageOrderlyService.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from rmqcli.dataclass import dataclass
from rmqcli.engine.listener import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyContext,
    ConsumeOrderlyStatus,
    LeaveRest,
)
from rmqcli.engine.message import UndecodableMessage
from rmqcli.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence

    from rmqcli.clock import Clock
    from rmqcli.engine.listener import Listener
    from rmqcli.engine.message import Pulled
    from rmqcli.engine.process_queue import ProcessQueue
    from rmqcli.model import Message, MessageQueue

T = TypeVar("T")

logger = get_logger(__name__)

#: A call that takes this long is slow: other threads help with the request.
SHARE_MS: Final = 2
REPORT_MS: Final = 50
_SUCCESS: Final = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
_LATER: Final = ConsumeConcurrentlyStatus.RECONSUME_LATER


@dataclass(slots=True, eq=False, repr=False)
class _Request:
    """Messages of one queue, which a listener gets in batches of `batch_size`."""

    message_queue: MessageQueue
    process_queue: ProcessQueue[Pulled]
    messages: Sequence[Pulled]
    batch_size: int
    #: set when the consumer closes: no further batch is begun
    is_cancelled: bool = False


@dataclass(slots=True, eq=False, repr=False)
class ConcurrentRequest(_Request):
    """Messages that may be consumed in any order.

    `batches` yields each batch once, to the thread that asks next; it is thread-safe.
    """

    #: how often the engine has checked whether it is done
    checks: int = 0
    #: one entry for each thread, made before it reads `is_cancelled`
    begun: list[None] = field(default_factory=list)
    #: how many of these threads have reported their end
    ended: int = 0
    #: whether other threads have been asked to help
    is_shared: bool = field(init=False)
    #: messages whose outcome has not been reported to the engine yet
    left: int = field(init=False)
    batches: Iterator[Sequence[Pulled]] | Iterator[Pulled] = field(init=False)

    def __post_init__(self) -> None:
        messages, batch_size = self.messages, self.batch_size
        self.is_shared = len(messages) <= batch_size
        self.left = len(messages)
        if batch_size == 1:
            self.batches = iter(messages)
        else:
            self.batches = iter(
                [
                    messages[at : at + batch_size]
                    for at in range(0, len(messages), batch_size)
                ]
            )


class Cancellable(Protocol):
    """Messages of one queue that are with a listener."""

    message_queue: MessageQueue
    is_cancelled: bool


class Failed(NamedTuple):
    """A message to consume again, with the delay level of the listener's context."""

    message: Pulled
    delay_level: int


class ConcurrentOutcome(NamedTuple):
    """The outcome of one thread's work on a request. `done` includes `failed` messages.

    With `is_end` the thread has ended its work; each thread reports this once.
    """

    request: ConcurrentRequest
    done: Sequence[Pulled]
    failed: Sequence[Failed]
    spent_ms: int
    is_end: bool = True


class OrderlyRequest(_Request):
    """Messages taken from an orderly queue, to be consumed batch after batch."""

    __slots__ = ()


class OrderlyOutcome(NamedTuple):
    """How far a thread came: `succeeded` messages, then perhaps a last `batch`.

    The last batch did not succeed, or its listener does not want it to be committed
    automatically. Later messages were not passed to the listener.
    """

    request: OrderlyRequest
    succeeded: int
    batch: Sequence[Pulled]
    status: ConsumeOrderlyStatus | None
    auto_commit: bool
    suspend_ms: int | None
    spent_ms: int


async def consume_concurrently(
    request: ConcurrentRequest,
    listener: Listener,
    clock: Clock,
    *,
    report: Callable[[ConcurrentOutcome], None],
    share: Callable[[ConcurrentRequest], None],
) -> None:
    """Consume `request` until no messages are left, or it is dropped or cancelled."""
    request.begun.append(None)
    process_queue, batches = request.process_queue, request.batches
    is_single = request.batch_size == 1
    done: list[Pulled] = []
    failed: list[Failed] = []
    now_ms = clock.monotonic_ms
    started_ms = before_ms = now_ms()
    is_fast = listener.one_message and is_single
    call, is_async = listener.call if is_fast else None, listener.is_async
    report_ms = 0 if listener.reports_each else REPORT_MS
    # Check before taking a batch, so that the consumed messages are always a prefix.
    while not (request.is_cancelled or process_queue.dropped):
        taken = next(batches, None)
        if taken is None:
            break
        if call is not None and type(taken) is not UndecodableMessage:
            taken.consume_start_ms = before_ms  # type: ignore[union-attr]
            is_consumed = True
            try:
                result = call(taken)
                if is_async:
                    result = await result
                if result is not None:
                    is_consumed = is_success(result, listener)
                done.append(taken)  # type: ignore[arg-type]
            except LeaveRest as rest:
                request.is_cancelled = True
                if rest.consumed:
                    done.append(taken)  # type: ignore[arg-type]
            except BaseException as error:  # noqa: BLE001  # a listener must not end the thread
                is_consumed = _failure_of(error, listener, taken.message_queue)  # type: ignore[union-attr]
                done.append(taken)  # type: ignore[arg-type]
            if not is_consumed:
                failed.append(Failed(taken, 0))  # type: ignore[arg-type]
        else:
            batch: Sequence[Pulled] = [taken] if is_single else taken  # type: ignore[list-item,assignment]
            called = await call_batch(request, batch, listener, before_ms)
            done += called[0]
            failed += called[1]
        ended_ms = now_ms()
        if ended_ms - before_ms >= SHARE_MS and not request.is_shared:
            share(request)
        before_ms = ended_ms
        if ended_ms - started_ms >= report_ms:
            spent_ms = ended_ms - started_ms
            report(ConcurrentOutcome(request, done, failed, spent_ms, is_end=False))
            done, failed, started_ms = [], [], ended_ms
    report(ConcurrentOutcome(request, done, failed, before_ms - started_ms))


async def consume_orderly(
    request: OrderlyRequest,
    listener: Listener,
    clock: Clock,
    *,
    needs_lock: bool,
) -> OrderlyOutcome:
    """Consume `request` until a batch does not simply succeed, or it must stop."""
    process_queue, messages = request.process_queue, request.messages
    succeeded, size = 0, request.batch_size
    is_single = listener.one_message and size == 1
    call, is_async, monotonic_ms = listener.call, listener.is_async, clock.monotonic_ms
    started_ms = now_ms = monotonic_ms()
    checked_ms: int | None = None
    report_ms = 0 if listener.reports_each else REPORT_MS
    while succeeded < len(messages) and (
        not succeeded or now_ms - started_ms < report_ms
    ):
        if request.is_cancelled or process_queue.dropped:
            break
        if needs_lock:
            if not process_queue.locked:
                break
            if now_ms != checked_ms and process_queue.is_lock_expired(now_ms):
                break
            checked_ms = now_ms
        context: ConsumeOrderlyContext | None = None
        batch: Sequence[Pulled] = ()
        try:
            if is_single and type(messages[succeeded]) is not UndecodableMessage:
                messages[succeeded].consume_start_ms = now_ms
                result = call(messages[succeeded])
                if is_async:
                    result = await result
                if result is None:
                    succeeded += 1
                    now_ms = monotonic_ms()
                    continue  # the fast path of the usual case
                status = _auto_commit(
                    orderly_status(result, listener), request.message_queue
                )
            else:
                batch = messages[succeeded : succeeded + size]
                context = ConsumeOrderlyContext(request.message_queue)
                status = await call_orderly(batch, listener, context, now_ms)
        except LeaveRest as rest:
            shown = batch or messages[succeeded : succeeded + 1]
            succeeded += _length_of(shown, rest.consumed)
            request.is_cancelled = True
            break
        except BaseException as error:  # noqa: BLE001  # a listener must not end the thread
            _failure_of(error, listener, request.message_queue)
            status = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
        now_ms = clock.monotonic_ms()
        if status is ConsumeOrderlyStatus.SUCCESS and (
            context is None or context.auto_commit
        ):
            succeeded += len(batch) or 1
            continue
        return OrderlyOutcome(
            request,
            succeeded,
            batch or (messages[succeeded],),
            status,
            context is None or context.auto_commit,
            None if context is None else context.suspend_current_queue_time_ms,
            now_ms - started_ms,
        )
    spent_ms = now_ms - started_ms
    return OrderlyOutcome(request, succeeded, (), None, True, None, spent_ms)


def run_at_once(coroutine: Coroutine[object, None, T]) -> T:
    """Run a coroutine that calls a plain listener, which never waits, to its end."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("the coroutine of a plain listener waits")


async def call_directly(
    message: Message, listener: Listener, queue: MessageQueue
) -> tuple[object, BaseException | None]:
    """Pass one message to the listener; return its result, and the error it raised."""
    try:
        context = (
            ConsumeOrderlyContext if listener.is_orderly else ConsumeConcurrentlyContext
        )(queue)
        result = await _call(listener, [message], context)
        listener.check_result(result, "the listener")
    except BaseException as error:
        if listener.is_orphaned:
            raise
        if isinstance(error, LeaveRest) and error.__cause__ is not None:
            return None, error.__cause__  # why its result is of no use
        return None, error  # the caller reports it
    return result, None


async def _call(
    listener: Listener, batch: Sequence[Pulled | Message], context: object
) -> object:
    if listener.one_message:
        result = listener.call(batch[0])
    else:
        result = listener.call(batch, context)
    return await result if listener.is_async else result


async def call_batch(
    request: Cancellable,
    batch: Sequence[Pulled],
    listener: Listener,
    now_ms: int,
) -> tuple[list[Pulled], list[Failed]]:
    """Pass a batch to the listener; return its finished messages, and the failed ones.

    Cancels the request when the listener leaves the rest.
    """
    queue = request.message_queue
    done: list[Pulled] = []
    failed: list[Failed] = []
    try:
        for each in batch:
            if isinstance(each, UndecodableMessage):
                if not _surfaced(each, listener):
                    failed.append(Failed(each, 0))
                done.append(each)
    except LeaveRest:
        request.is_cancelled = True
        return done, failed
    readable = [each for each in batch if not isinstance(each, UndecodableMessage)]
    if not readable:
        return done, failed
    for each in readable:
        each.consume_start_ms = now_ms
    context = ConsumeConcurrentlyContext(queue)
    try:
        is_consumed = is_success(
            await _call(listener, list(readable), context), listener
        )
    except LeaveRest as rest:
        request.is_cancelled = True
        return done + readable[: rest.consumed], failed
    except BaseException as error:  # noqa: BLE001  # a listener must not end the thread
        is_consumed = _failure_of(error, listener, queue)
    succeeded = len(readable) if is_consumed else 0
    if succeeded and context.ack_index is not None:
        succeeded = min(max(context.ack_index + 1, 0), len(readable))
    level = context.delay_level_when_next_consume
    failed += [Failed(each, level) for each in readable[succeeded:]]
    return done + readable, failed


def _length_of(batch: Sequence[Pulled], readable: int) -> int:
    """The length of the part of `batch` that ends with `readable` readable messages."""
    length = 0
    for index, each in enumerate(batch):
        if readable and not isinstance(each, UndecodableMessage):
            readable -= 1
            length = index + 1
    return length


def _auto_commit(
    status: ConsumeOrderlyStatus, queue: MessageQueue
) -> ConsumeOrderlyStatus:
    """The status that replaces a listener's status while `auto_commit` is on."""
    if status in (ConsumeOrderlyStatus.COMMIT, ConsumeOrderlyStatus.ROLLBACK):
        logger.warning("listener said %s with auto_commit on %s", status.name, queue)
        return ConsumeOrderlyStatus.SUCCESS
    return status


async def call_orderly(
    batch: Sequence[Pulled],
    listener: Listener,
    context: ConsumeOrderlyContext,
    now_ms: int,
) -> ConsumeOrderlyStatus:
    """Pass a batch to the listener; return its status. Passes LeaveRest on."""
    queue = context.message_queue
    for each in batch:
        if isinstance(each, UndecodableMessage):
            each.is_taken = _surfaced(each, listener)
            if not each.is_taken:
                return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
    readable = [each for each in batch if not isinstance(each, UndecodableMessage)]
    if not readable:
        return ConsumeOrderlyStatus.SUCCESS
    for each in readable:
        each.consume_start_ms = now_ms
    try:
        status = orderly_status(await _call(listener, readable, context), listener)
    except LeaveRest:
        raise
    except BaseException as error:  # noqa: BLE001  # a listener must not end the thread
        _failure_of(error, listener, queue)
        return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
    return _auto_commit(status, queue) if context.auto_commit else status


def orderly_status(result: object, listener: Listener) -> ConsumeOrderlyStatus:
    """The status for a listener's result on an orderly queue."""
    if isinstance(result, ConsumeOrderlyStatus):
        return result
    if is_success(result, listener):
        return ConsumeOrderlyStatus.SUCCESS
    return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT


def is_success(result: object, listener: Listener) -> bool:
    """Whether a listener's result means success. Raises LeaveRest for a coroutine."""
    if result is None or result is _SUCCESS or result is True:
        return True
    if result is not False and result is not _LATER:
        listener.check_result(result, "the listener")
        logger.warning(
            "listener returned %.100r, which is not a status; retrying later", result
        )
    return False


def _failure_of(error: BaseException, listener: Listener, queue: MessageQueue) -> bool:
    """Return False, for "not consumed". In a forked child, raise the error again."""
    if listener.is_orphaned:
        raise error
    if isinstance(error, Exception):
        logger.warning("listener failed on %s", queue, exc_info=error)
    else:
        logger.error(
            "listener raised %s on %s, which ends neither the consumer nor the process:"
            " the message will be consumed again; to end the consumer, close it",
            type(error).__name__,
            queue,
            exc_info=error,
        )
    return False


def _surfaced(message: UndecodableMessage, listener: Listener) -> bool:
    """Pass an undecodable message to `on_undecodable`; return whether it succeeded."""
    queue = message.message_queue
    if listener.on_undecodable is None:
        logger.error(
            "no message can be read at %s offset %d (%d bytes): %s",
            queue,
            message.queue_offset,
            message.body_bytes,
            message.failure.error,
        )
        return True
    try:
        listener.check_result(listener.on_undecodable(message), "on_undecodable")
    except LeaveRest:
        raise
    except BaseException as error:  # noqa: BLE001  # as a listener's
        return _failure_of(error, listener, queue)
    return True
