"""`AsyncProducer`: sends messages from coroutines.

```python
from rmqcli import ProducerMessage
from rmqcli.aio import AsyncProducer

async with AsyncProducer(namesrv="127.0.0.1:9876") as producer:
    result = await producer.send(ProducerMessage("orders", b'{"id": 7}', tags="Paid"))
    print(result.msg_id, result.queue, result.queue_offset)
```

Messages that several tasks send at the same time share requests, as those of
`Producer.submit` do: that is how to send many of them.

| thread | runs | ended by |
|---|---|---|
| the event loop's | the methods, and selectors | the program |
| those of `Producer` | see `producer.producer` | close() |
| rmq-aio_N, 4 at most | start, and the calls other than `send` | close() |
| rmq-aio-close | the close | the end of the close |
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from rmqcli.aio.handover import AsyncClient, EventLoop, awaited
from rmqcli.checked import check_callback, check_int, check_returned, check_type
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.errors import UsageError
from rmqcli.model import MessageQueue
from rmqcli.producer.config import ProducerConfig
from rmqcli.producer.producer import Producer, check_arg

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from rmqcli.clock import Clock
    from rmqcli.config import ClientConfig
    from rmqcli.model import Message
    from rmqcli.producer.backend import (
        MessageQueueSelector,
        ProducerBackend,
        SendResult,
    )
    from rmqcli.producer.future import SendFuture
    from rmqcli.producer.message import ProducerMessage
    from rmqcli.producer.transactions import LocalTransactionState

    Result = TypeVar("Result")

IN_FLIGHT_MAX: Final = 256


class AsyncProducer(AsyncClient):
    """Sends messages. Every method must be called in the loop that started it.

    The arguments are those of `Producer`, and the settings of `config`, except that
    `in_flight_max` replaces `async_messages_max`: it is the number of messages that may
    wait for an answer before `send` waits for room. `on_check` is a plain function,
    called in the thread rmq-check_0.

    At most 4 calls other than `send` run at a time. In `send_in_transaction`, `execute`
    is a plain function, called in the thread rmq-aio_N, and may block; a cancelled call
    that has begun continues to the transaction's end.

    Raises ConfigError for invalid settings, and TypeError for values of a wrong type.
    """

    def __init__(
        self,
        group: str | None = None,
        *,
        namesrv: str | None = None,
        endpoints: str | None = None,
        config: ProducerConfig | None = None,
        client: ClientConfig | None = None,
        on_check: Callable[[Message], LocalTransactionState | None] | None = None,
        in_flight_max: int = IN_FLIGHT_MAX,
        trace: bool | str = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__("producer")
        check_type(config, (ProducerConfig, type(None)), "config")
        in_flight_max = check_int(in_flight_max, "in_flight_max", 1, 1_000_000)
        # With as much room there as here, `submit` never blocks.
        config = replace(config or ProducerConfig(), async_messages_max=in_flight_max)
        self._client = self._producer = _Producer(
            group,
            namesrv=namesrv,
            endpoints=endpoints,
            config=config,
            client=client,
            on_check=on_check,
            trace=trace,
            clock=clock,
        )
        self._room = _Room(in_flight_max)
        self._producer.on_ended = self._answered

    @property
    def client_id(self) -> str | None:
        """The id with which brokers or proxies know the producer; None before start."""
        return self._producer.client_id

    async def start(self) -> None:
        """Start the producer's threads. Contacts no broker before the first message.

        Raises UsageError when the producer has been started before. A start that is
        cancelled closes the producer.
        """
        if self._loop is not None:
            raise UsageError(
                "a producer can be started only once", hint="create a new AsyncProducer"
            )
        self._producer.loop = self._enter_loop()
        await self._start(self._producer.start, self._producer.close)

    async def close(self, *, timeout_ms: int | None = None) -> None:
        """Wait for the sends in flight, leave the group, and close. Idempotent.

        `timeout_ms` (None: the setting `await_termination_ms`) bounds the wait; a send
        that has not ended by then fails with DisconnectedError or SendUnknownError. A
        `send` that waits for room raises UsageError. A close that is cancelled
        continues; another call waits for its end.
        """
        check_type(timeout_ms, (int, type(None)), "timeout_ms")
        await self._close(partial(self._producer.close, timeout_ms=timeout_ms))

    # --- sending ---

    async def send(
        self,
        message: ProducerMessage,
        *,
        timeout_ms: int | None = None,
        queue: MessageQueue | None = None,
        selector: MessageQueueSelector | None = None,
        arg: object = None,
    ) -> SendResult:
        """Store a message and wait for the broker's answer.

        Arguments, result and errors are those of `Producer.send`; requests are shared,
        and messages ordered, as by `Producer.submit`. The messages of one turn of the
        loop are handed over at its end, all together. Waits first while `in_flight_max`
        messages wait for answers. `selector` is a plain function that must not block,
        and runs in the event loop.

        A send that is cancelled while it waits for room or queues sends nothing. One
        that is cancelled later leaves its message on the way, and the message may be
        stored; it takes up room until its answer has come.
        """
        loop = self._opened()
        check_arg(selector, arg)
        room = self._room
        if room.free:
            room.free -= 1
        else:
            await room.wait(loop.loop)
        try:
            if selector is not None:
                queue = await self._selected(message, queue, selector, arg)
            # Both back ends return this kind of future.
            future: SendFuture = self._producer.submit(  # type: ignore[assignment]
                message, timeout_ms=timeout_ms, queue=queue
            )
        except BaseException:
            room.give()
            raise
        waiter = loop.loop.create_future()
        future.on_end(self._producer.ended, waiter)
        # The waiter never carries an error, which asyncio would report as not retrieved
        # when the caller was cancelled in the meantime.
        await waiter
        return future.result()

    def _answered(self, waiters: deque[asyncio.Future[None]]) -> None:
        for _ in range(len(waiters)):
            waiter = waiters.popleft()
            self._room.give()
            if not waiter.done():
                waiter.set_result(None)

    async def _selected(
        self,
        message: ProducerMessage,
        queue: MessageQueue | None,
        selector: MessageQueueSelector,
        arg: object,
    ) -> MessageQueue:
        if queue is not None:
            raise UsageError("queue and selector cannot be used together")
        check_callback(selector, "selector")
        chosen = selector(await self.queues(message.topic), message, arg)
        check_returned(chosen, "the selector")
        check_type(chosen, MessageQueue, "the selector's result")
        return chosen

    async def send_batch(
        self,
        messages: Iterable[ProducerMessage],
        *,
        timeout_ms: int | None = None,
        queue: MessageQueue | None = None,
    ) -> list[SendResult]:
        """Store messages of one topic with one request; return their results in order.

        See `Producer.send_batch`. At most 4 of these calls run at a time. A cancelled
        call that has begun may store its messages.
        """
        check_type(messages, Iterable, "messages")
        taken = list(messages)
        return await self._call(
            partial(
                self._producer.send_batch, taken, timeout_ms=timeout_ms, queue=queue
            )
        )

    async def send_oneway(
        self, message: ProducerMessage, *, queue: MessageQueue | None = None
    ) -> None:
        """Send a message without waiting for an answer; it may or may not be stored.

        See `Producer.send_oneway`. At most 4 of these calls run at a time.
        """
        await self._call(partial(self._producer.send_oneway, message, queue=queue))

    send_in_transaction = awaited(Producer.send_in_transaction)
    recall = awaited(Producer.recall)
    queues = awaited(Producer.queues)


class _Room:
    """The number of messages that may still be submitted, and sends that wait for it.

    A Semaphore for one loop, which costs little while there is room.
    """

    def __init__(self, free: int) -> None:
        #: is 0 while a send waits
        self.free = free
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take the place of one message, once there is room, in the order of calls."""
        turn = loop.create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it has the place already
                self.give()
            raise

    def give(self) -> None:
        """Give the place of one message back, or to the send that waits longest."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.free += 1


class _Producer(Producer):
    """A Producer whose thread and event loop wake each other up once a turn.

    What the loop submits in a turn is handed over at its end, and so are the ends of
    sends that the thread finds in the answers that it reads at once. A thread that is
    woken up earlier takes the interpreter's lock, and both wait for each other.
    """

    #: these two are set before the start; `on_ended` is called in the loop
    loop: EventLoop
    on_ended: Callable[[deque[asyncio.Future[None]]], None]

    def _made_backend(self) -> ProducerBackend:
        backend = super()._made_backend()
        backend.submit_by(self.loop.loop.call_soon)
        self._post = backend.post
        self._ended: deque[asyncio.Future[None]] = deque()
        #: whether `_take` is on its way; see `EventLoop`
        self._is_posted = False
        return backend

    def ended(self, waiter: asyncio.Future[None]) -> None:
        """Note the end of a send, for `on_ended`. Called in any thread."""
        self._ended.append(waiter)
        if not self._is_posted:
            self._is_posted = True
            self._post(self._hand_over)

    def _hand_over(self) -> None:
        self.loop.post(self._take)

    def _take(self) -> None:
        self._is_posted = False
        self.on_ended(self._ended)
