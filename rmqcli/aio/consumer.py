"""`AsyncConsumer`: a member of a consumer group whose listener is a coroutine function.

```python
from rmqcli.aio import AsyncConsumer


async def handle(message):
    print(message.topic, message.queue_offset, message.body)


async with AsyncConsumer(
    "billing", "orders", handle, namesrv="127.0.0.1:9876"
) as consumer:
    await consumer.wait()
```

Without a listener the consumer is iterated: `async for message in consumer`.

| thread | runs | ended by |
|---|---|---|
| the event loop's | the listener, functions for reports, the methods | the program |
| that of `Consumer` | sockets, timers, all decisions | close() |
| rmq-aio_N, 4 at most | start, and methods that wait for an answer | close() |
| rmq-aio-close | the close | the end of the close |
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from rmqcli.aio.handover import AsyncClient, awaited
from rmqcli.aio.listening import (
    CANCEL_MS,
    AsyncMessageIterator,
    Iteration,
    ListenerTasks,
)
from rmqcli.checked import (
    check_callback,
    check_coroutine_function,
    check_int,
    check_returned,
    check_type,
)
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.consumer.consumer import Consumer
from rmqcli.engine.config import RANGES
from rmqcli.errors import ConfigError, UsageError
from rmqcli.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import TypeVar

    from rmqcli.clock import Clock
    from rmqcli.config import ClientConfig
    from rmqcli.consumer.backend import JobRunner
    from rmqcli.consumer.consumer import OnQueues
    from rmqcli.consumer.iteration import Offered
    from rmqcli.consumer.subscriptions import Topics
    from rmqcli.engine.config import ConsumerConfig
    from rmqcli.engine.listener import (
        ConsumeConcurrentlyContext,
        ConsumeOrderlyContext,
        ListenerResult,
    )
    from rmqcli.engine.message import UndecodableMessage
    from rmqcli.engine.reports import FailedDelivery, QueueStart
    from rmqcli.model import Message, MessageQueue
    from rmqcli.position import Position

    Result = TypeVar("Result")
    OnMessageAsync: TypeAlias = Callable[[Message], Coroutine[Any, Any, ListenerResult]]
    OnBatchAsync: TypeAlias = (
        Callable[
            [list[Message], ConsumeConcurrentlyContext],
            Coroutine[Any, Any, ListenerResult],
        ]
        | Callable[
            [list[Message], ConsumeOrderlyContext],
            Coroutine[Any, Any, ListenerResult],
        ]
    )

logger = get_logger(__name__)


class AsyncConsumer(AsyncClient):
    """A member of the consumer group `group`, in one event loop.

    The arguments are those of `Consumer`, except that `on_message` and `on_batch` are
    coroutine functions (`async def`), and that `concurrency` replaces
    `consume_threads`: it is how many calls of the listener may be under way at once
    (default: 20). With `orderly` the messages of each queue are consumed one after the
    other. Every method must be called in the loop that started the consumer, and what
    it shares with `Consumer` is documented there; a commit that is cancelled continues.

    A listener that raises has failed, and its message is delivered again later, as with
    `Consumer`. Two things are different. A listener whose task is cancelled, by a close
    that has waited long enough, by the end of `asyncio.run` or by a program that
    cancels all tasks, has not consumed its messages: they stay with the group, and do
    not count as delivered once more. If it was not a close, the consumer closes.
    KeyboardInterrupt and SystemExit end the program, as those of any task do.

    Each call has a copy of the context (`contextvars`) in which `start` was called.
    While listeners never wait, the loop's other tasks run every few milliseconds, or
    after `concurrency` calls if these take longer.

    `on_undecodable` and the functions for reports are plain functions that must not
    block. They are called in the event loop, in the order of the events, but the
    consumer does not wait for them.

    Raises the errors of `Consumer`, and TypeError for a listener that is not a
    coroutine function.
    """

    def __init__(
        self,
        group: str,
        topics: Topics,
        on_message: OnMessageAsync | None = None,
        *,
        on_batch: OnBatchAsync | None = None,
        orderly: bool = False,
        consume_from: str | Position | None = None,
        concurrency: int | None = None,
        batch: int | None = None,
        namesrv: str | None = None,
        endpoints: str | None = None,
        config: ConsumerConfig | None = None,
        client: ClientConfig | None = None,
        on_undecodable: Callable[[UndecodableMessage], None] | None = None,
        on_failed: Callable[[FailedDelivery], None] | None = None,
        on_start: Callable[[QueueStart], None] | None = None,
        on_assigned: OnQueues | None = None,
        on_revoked: OnQueues | None = None,
        trace: bool | str = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__("consumer")
        check_coroutine_function(on_message, "on_message")
        check_coroutine_function(on_batch, "on_batch")
        function = on_message or on_batch
        if concurrency is not None:
            check_int(concurrency, "concurrency", *RANGES["consume_threads"])
            if function is None:
                raise ConfigError("concurrency needs a listener")
        self._closed = asyncio.Event()
        self._runner = runner = (
            Iteration(on_lost=self._lost)
            if function is None
            else ListenerTasks(function, on_lost=self._lost)
        )
        call = runner.call if isinstance(runner, ListenerTasks) else None
        self._client = self._member = _Member(
            runner,
            self._is_loop_closed,
            self._ended,
            group,
            topics,
            None if on_message is None else call,
            on_batch=None if on_batch is None else call,
            orderly=orderly,
            consume_from=consume_from,
            consume_threads=concurrency,
            batch=batch,
            namesrv=namesrv,
            endpoints=endpoints,
            config=config,
            client=client,
            on_undecodable=on_undecodable,
            on_failed=self._posted(on_failed, "on_failed"),
            on_start=self._posted(on_start, "on_start"),
            on_assigned=self._posted(on_assigned, "on_assigned"),
            on_revoked=self._posted(on_revoked, "on_revoked"),
            trace=trace,
            clock=clock,
        )
        self.group = group
        self.config = self._member.config

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()
        if exc_info[0] is None:
            self._member.raise_misuse()

    @property
    def client_id(self) -> str | None:
        """The id under which servers know this member; None before the start."""
        return self._member.client_id

    async def start(
        self, *, timeout_ms: int = 30_000, wait_for_cluster: bool = False
    ) -> None:
        """Join the group and begin to consume; see `Consumer.start`.

        A start that fails or is cancelled closes the consumer.
        """
        if self._loop is not None or self._closed.is_set():
            raise UsageError(
                "a consumer can be started only once", hint="create a new AsyncConsumer"
            )
        self._runner.attach(self._enter_loop())
        start = partial(
            self._member.start, timeout_ms=timeout_ms, wait_for_cluster=wait_for_cluster
        )
        try:
            await self._start(start, partial(self._member.close, timeout_ms=0))
        except BaseException:
            self._member.begin_close(timeout_ms=0)
            raise

    async def close(self, *, timeout_ms: int | None = None) -> None:
        """Leave the group: finish current work, commit, unregister. Idempotent.

        `timeout_ms` (None: the setting `await_termination_ms`) bounds the wait for
        listeners; then their tasks are cancelled, and their messages are not consumed.
        The message of a loop (`async for`) counts as consumed when its task asks for
        the next one in time, but not when that task closes the consumer.

        When a listener calls it, it returns at once, and the consumer is closed after
        the listener has ended; see `wait`. A close that is cancelled continues; another
        call waits for its end.
        """
        check_type(timeout_ms, (int, type(None)), "timeout_ms")
        member, runner = self._member, self._runner
        if self._loop is None:
            member.close()
            self._closed.set()
            return
        self._loop.check()
        wait_ms = member.config.await_termination_ms
        if timeout_ms is not None:
            wait_ms = timeout_ms
        runner.close_by(asyncio.current_task())
        limit = self._loop.loop.call_later(wait_ms / 1000, runner.cancel)
        member.begin_close(timeout_ms=wait_ms + CANCEL_MS)
        if self._closing is None:
            self._closing = self._calls.close(
                partial(member.close, timeout_ms=wait_ms + CANCEL_MS)
            )
        if runner.is_current():
            return
        await self._closing.wait()
        limit.cancel()
        await runner.ended()

    async def wait(self, timeout_ms: int | None = None) -> bool:
        """Wait until the consumer is closed or time is up; return whether it is closed.

        With `timeout_ms` None the wait has no limit. Raises TypeError when the consumer
        was closed because its listener returned a coroutine or a future, and UsageError
        before `start`.
        """
        check_type(timeout_ms, (int, type(None)), "timeout_ms")
        if not self._closed.is_set():
            self._started()
        try:
            async with asyncio.timeout(
                None if timeout_ms is None else timeout_ms / 1000
            ):
                await self._closed.wait()
        except TimeoutError:
            return False
        self._member.raise_misuse()
        return True

    def __aiter__(self) -> AsyncMessageIterator:
        """Iterate over the messages without an idle timeout; see `messages`."""
        return self.messages()

    def messages(self, *, idle_timeout_ms: int | None = None) -> AsyncMessageIterator:
        """Iterate over the messages as they arrive, for a consumer without a listener.

        See `Consumer.messages`: a message is consumed when the loop asks for the next
        one. While it waits for one it may be cancelled: no message is lost, and another
        loop begins with the message that comes next. Only one task at a time may
        iterate.
        """
        check_type(idle_timeout_ms, (int, type(None)), "idle_timeout_ms")
        self._opened()
        if not isinstance(self._runner, Iteration):
            raise UsageError("a consumer with a listener cannot be iterated")
        return AsyncMessageIterator(self._runner, idle_timeout_ms)

    commit = awaited(Consumer.commit)
    lag = awaited(Consumer.lag)
    queues = awaited(Consumer.queues)
    offsets = awaited(Consumer.offsets)
    running_info = awaited(Consumer.running_info)

    def pause(self) -> None:
        """Stop pulling. Messages that were already pulled are still consumed."""
        self._opened()
        self._member.pause()

    def resume(self) -> None:
        """Continue to pull after `pause`."""
        self._opened()
        self._member.resume()

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Consume one of this member's queues from another offset, for the whole group.

        See `Consumer.seek`.
        """
        self._opened()
        self._member.seek(queue, offset)

    def _posted(
        self, callback: Callable[[Any], None] | None, name: str
    ) -> Callable[[object], None] | None:
        """A function for any thread that lets the loop call `callback`."""
        check_callback(callback, name)
        if callback is None:
            return None

        def call(value: object) -> None:
            try:
                check_returned(callback(value), name)
            except Exception:
                logger.exception("%s failed value=%s", name, value)

        def post(value: object) -> None:
            assert self._loop is not None  # set by start()  # noqa: S101
            self._loop.post(partial(call, value))

        return post

    def _lost(self, reason: str) -> None:
        """Close, because the listener cannot run any more. In any thread."""
        logger.warning("consumer of group %s closes: %s", self.group, reason)
        self._member.begin_close()

    def _is_loop_closed(self) -> bool:
        return self._loop is not None and self._loop.loop.is_closed()

    def _ended(self) -> None:
        """The member is closed, except for its threads. In any thread."""
        if self._loop is not None:
            self._loop.post(self._closed.set)


class _Member(Consumer):
    """A Consumer whose listener runs in an event loop."""

    _is_async: ClassVar[bool] = True

    def __init__(
        self,
        runner: ListenerTasks | Iteration,
        is_loop_closed: Callable[[], bool],
        on_closed: Callable[[], None],
        *args: Any,  # noqa: ANN401  # those of Consumer
        **arguments: Any,  # noqa: ANN401
    ) -> None:
        self._runner = runner
        self._is_loop_closed = is_loop_closed
        self._on_closed = on_closed
        super().__init__(*args, **arguments)

    def _make_hand_over(self) -> Offered:
        assert isinstance(self._runner, Iteration)  # noqa: S101
        return self._runner

    def _make_runner(self) -> JobRunner:
        self._runner.count = self.config.consume_threads
        return self._runner

    def begin_close(self, *, timeout_ms: int | None = None) -> int:
        """See Consumer. Does not wait for listeners whose event loop is closed."""
        if self._is_loop_closed():
            timeout_ms = 0
        return super().begin_close(timeout_ms=timeout_ms)

    def _release(self) -> None:
        try:
            super()._release()
        finally:
            self._on_closed()
