"""`AsyncSimpleConsumer`: receives and acknowledges messages in coroutines.

```python
from rmqcli.aio import AsyncSimpleConsumer

async with AsyncSimpleConsumer(
    "billing", "orders", namesrv="127.0.0.1:9876"
) as consumer:
    for message in await consumer.receive(max_messages=16):
        print(message.body)
        await consumer.ack(message)
```

| thread | runs | ended by |
|---|---|---|
| the event loop's | the methods | the program |
| that of `SimpleConsumer` | sockets, timers, all requests | close() |
| rmq-aio_N, 4 at most | start and subscribe | close() |
| rmq-aio-close | the close | the end of the close |
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from rmqcli.aio.handover import AsyncClient, EventLoop, awaited
from rmqcli.checked import check_type
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.consumer.simple.consumer import (
    ACK_TIMEOUT_MS,
    CLOSE_MS,
    MESSAGES_MAX,
    SimpleConsumer,
)
from rmqcli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Future

    from rmqcli import tasks
    from rmqcli.clock import Clock
    from rmqcli.config import ClientConfig
    from rmqcli.consumer.simple.received import ReceivedMessage
    from rmqcli.consumer.subscriptions import Topics
    from rmqcli.position import Position
    from rmqcli.wire.subscription import SubscriptionData


class AsyncSimpleConsumer(AsyncClient):
    """A member of `group` that requests its messages, in one event loop.

    The arguments are those of `SimpleConsumer`. Every method must be called in the loop
    that started it; several tasks may receive at the same time.

    Raises ConfigError for invalid settings, and TypeError for values of a wrong type.
    """

    def __init__(
        self,
        group: str,
        topics: Topics,
        *,
        invisible_duration_ms: int = 30_000,
        orderly: bool = False,
        consume_from: str | Position = "latest",
        namesrv: str | None = None,
        endpoints: str | None = None,
        client: ClientConfig | None = None,
        trace: bool | str = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__("consumer")
        self._client = self._member = _Member(
            group,
            topics,
            invisible_duration_ms=invisible_duration_ms,
            orderly=orderly,
            consume_from=consume_from,
            namesrv=namesrv,
            endpoints=endpoints,
            client=client,
            trace=trace,
            clock=clock,
        )
        self.group = group

    @property
    def client_id(self) -> str | None:
        """The id under which servers know the consumer; None before start."""
        return self._member.client_id

    @property
    def subscriptions(self) -> dict[str, SubscriptionData]:
        """The current subscriptions by topic; a copy."""
        return self._member.subscriptions

    async def start(self) -> None:
        """Start the consumer; see `SimpleConsumer.start`.

        A start that fails or is cancelled closes the consumer.
        """
        if self._loop is not None or self._member.is_closed:
            raise UsageError(
                "a consumer can be started only once",
                hint="create a new AsyncSimpleConsumer",
            )
        self._enter_loop()
        await self._start(self._member.start, self._member.close)

    async def close(self, *, timeout_ms: int = CLOSE_MS) -> None:
        """End receives, wait for acks in progress, leave the group. Idempotent.

        See `SimpleConsumer.close`. Messages of receives that were cancelled are given
        back. A close that is cancelled continues; another call waits for its end.
        """
        check_type(timeout_ms, int, "timeout_ms")
        await self._close(partial(self._member.close, timeout_ms=timeout_ms))

    async def receive(
        self,
        max_messages: int = MESSAGES_MAX,
        *,
        invisible_duration_ms: int | None = None,
        await_ms: int = 20_000,
    ) -> list[ReceivedMessage]:
        """Receive up to `max_messages` (at most 32) messages of the subscribed topics.

        Arguments, result and errors are those of `SimpleConsumer.receive`.

        A receive that is cancelled returns no message, but continues until there is
        one, or until `await_ms` is over. Its messages are kept for the next receive,
        which hides them anew if they have waited, and `close` gives them back. If
        neither comes in time, they are delivered again once their invisible time is
        over. To wait for a short time, pass a small `await_ms` and do not cancel.
        """
        messages: list[ReceivedMessage] = await self._member.receive_in(
            self._opened(),
            max_messages,
            invisible_duration_ms=invisible_duration_ms,
            await_ms=await_ms,
        )
        return messages

    async def ack(
        self,
        messages: ReceivedMessage | Iterable[ReceivedMessage],
        *,
        timeout_ms: int = ACK_TIMEOUT_MS,
    ) -> None:
        """Acknowledge one message or several, so that they are not delivered again.

        See `SimpleConsumer.ack`. An ack that is cancelled continues; acknowledging its
        messages again has no effect, or repeats what failed.
        """
        await self._member.ack_in(self._opened(), messages, timeout_ms=timeout_ms)

    async def change_invisible(
        self, message: ReceivedMessage, invisible_duration_ms: int
    ) -> None:
        """Hide a message for `invisible_duration_ms` from now on.

        See `SimpleConsumer.change_invisible`. A change that is cancelled continues.
        """
        await self._member.change_in(self._opened(), message, invisible_duration_ms)

    subscribe = awaited(SimpleConsumer.subscribe)

    def unsubscribe(self, topic: str) -> None:
        """Cancel the subscription of a topic. Raises ConfigError for the last one."""
        self._member.unsubscribe(topic)


class _Member(SimpleConsumer):
    """A SimpleConsumer whose requests an event loop can wait for."""

    async def receive_in(
        self, loop: EventLoop, max_messages: int, **arguments: int | None
    ) -> Any:  # noqa: ANN401  # a list of messages
        """As `receive`; messages of a receive that is cancelled are put back."""
        make = self._receiving(max_messages, **arguments)
        return await self._run_in(loop, make, self._put_back)

    async def ack_in(
        self,
        loop: EventLoop,
        messages: ReceivedMessage | Iterable[ReceivedMessage],
        *,
        timeout_ms: int,
    ) -> None:
        """As `ack`."""
        make = self._acking(messages, timeout_ms)
        self._raise_failures(await self._run_in(loop, make))

    async def change_in(
        self, loop: EventLoop, message: ReceivedMessage, invisible_duration_ms: int
    ) -> None:
        """As `change_invisible`."""
        await self._run_in(loop, self._changing(message, invisible_duration_ms))

    async def _run_in(
        self,
        loop: EventLoop,
        make: Callable[[], tasks.Task[Any]],
        on_left: Callable[[Future[Any]], None] | None = None,
    ) -> Any:  # noqa: ANN401  # what the task returns
        """As `_run`, while the loop does something else.

        A task whose caller was cancelled counts until it has ended and `on_left` was
        called, so that a close waits for it.
        """

        def left(ended: Future[Any]) -> None:
            if on_left is not None:
                on_left(ended)
            self._end()

        future = self._begin(make)
        try:
            result = await loop.outcome(future)
        except asyncio.CancelledError:
            future.add_done_callback(left)
            raise
        except BaseException:
            self._end()
            raise
        self._end()
        return result
