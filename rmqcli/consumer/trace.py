"""What consumers report about deliveries: SubBefore and SubAfter.

A listener that is traced is wrapped, so that consumers without traces do nothing for
them. A message whose broker has traces switched off (TRACE_ON) is left out, as by Java.

Source: ConsumeMessageTraceHookImpl in apache/rocketmq.
"""

from __future__ import annotations

import itertools
import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rmqcli.dataclass import dataclass
from rmqcli.engine.listener import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyStatus,
    LeaveRest,
)
from rmqcli.producer.ids import UniqueIds
from rmqcli.trace.record import (
    DEFAULT_REGION_ID,
    ConsumeReturnType,
    SubAfter,
    SubBefore,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from rmqcli.clock import Clock
    from rmqcli.consumer.simple.received import ReceivedMessage
    from rmqcli.engine.message import Readable
    from rmqcli.producer.remoting.trace import TraceDispatcher

_SUCCESS: Final = (
    None,
    True,
    ConsumeConcurrentlyStatus.CONSUME_SUCCESS,
    ConsumeOrderlyStatus.SUCCESS,
    ConsumeOrderlyStatus.COMMIT,
)


@dataclass(eq=False)
class DeliveryTraces:
    """Makes the records of one consumer. Any thread may call its methods."""

    dispatcher: TraceDispatcher
    group: str
    clock: Clock
    consume_timeout_ms: int | None = None

    def __post_init__(self) -> None:
        rng = random.Random()  # noqa: S311  # makes ids differ, keeps no secret
        #: what request ids begin with, and a number for each, which needs no lock
        self._prefix = UniqueIds("127.0.0.1", clock=self.clock, rng=rng).next_id()
        self._numbers = itertools.count()

    def begin(self, messages: Sequence[Readable]) -> TracedCall:
        """Report that a listener is about to get messages."""
        request_id = f"{self._prefix}{next(self._numbers):08X}"
        call = TracedCall(request_id, self.clock.epoch_ms())
        self.dispatcher.append(
            [
                self._before(call, each)
                for each in messages
                if each.properties.get("TRACE_ON") != "false"
            ]
        )
        return call

    def end(
        self,
        call: TracedCall,
        messages: Sequence[Readable],
        *,
        return_type: ConsumeReturnType,
        succeeded: int,
    ) -> None:
        """Report that the listener has returned; the first `succeeded` are consumed."""
        now_ms = self.clock.epoch_ms()
        spent_ms = max(0, now_ms - call.started_ms)
        if self.consume_timeout_ms is not None and spent_ms >= self.consume_timeout_ms:
            return_type = ConsumeReturnType.TIME_OUT
        self.dispatcher.append(
            [
                SubAfter(
                    request_id=call.request_id,
                    msg_id=each.msg_id or each.offset_msg_id,
                    cost_ms=spent_ms // len(messages),
                    is_success=index < succeeded,
                    keys=each.keys,
                    return_type=return_type,
                    timestamp_ms=now_ms,
                    group=self.group,
                )
                for index, each in enumerate(messages)
                if each.properties.get("TRACE_ON") != "false"
            ]
        )

    # --- SimpleConsumer ---

    def received(self, messages: Sequence[ReceivedMessage]) -> None:
        """Report that messages are returned to the program."""
        for each in messages:
            if each.lease.traced is None:
                each.lease.traced = self.begin([each.content])  # type: ignore[list-item]  # remoting

    def acknowledged(
        self, messages: Sequence[ReceivedMessage], failed: Collection[int]
    ) -> None:
        """Report the messages that are acknowledged; `failed` has the `id` of others.

        One that is not acknowledged is reported as received only: the program may have
        given it back, or let its time run out.
        """
        for each in messages:
            traced = each.lease.traced
            if traced is None or id(each) in failed:
                continue
            each.lease.traced = None
            self.end(
                TracedCall(*traced),
                [each.content],  # type: ignore[list-item]  # over remoting
                return_type=ConsumeReturnType.SUCCESS,
                succeeded=1,
            )

    def _before(self, call: TracedCall, message: Readable) -> SubBefore:
        return SubBefore(
            timestamp_ms=call.started_ms,
            region_id=message.properties.get("MSG_REGION") or DEFAULT_REGION_ID,
            group=self.group,
            request_id=call.request_id,
            msg_id=message.msg_id or message.offset_msg_id,
            retry_times=message.reconsume_times,
            keys=message.keys,
        )


class TracedCall(NamedTuple):
    """One call of a listener, or one delivery to a SimpleConsumer."""

    request_id: str
    started_ms: int


def traced_listener(
    call: Callable[..., Any],
    traces: DeliveryTraces,
    *,
    one_message: bool,
    is_async: bool,
) -> Callable[..., Any]:
    """Return a listener that reports each call of `call` and behaves like it.

    It is called with a message, or with messages and a context; with `is_async` it
    returns an awaitable, as `call` does. A call that raises LeaveRest has consumed only
    its first messages, and the end of the others is not reported.
    """

    def returned(context: object, count: int, result: object) -> int:
        """How many of the messages are consumed by a call with this result."""
        is_success = any(result is each for each in _SUCCESS)
        if isinstance(context, ConsumeConcurrentlyContext) and is_success:
            index = context.ack_index
            if index is not None:
                return min(max(index + 1, 0), count)
        return count if is_success else 0

    @contextmanager
    def reported(arguments: tuple[Any, ...]) -> Iterator[list[object]]:
        """Report the call in the block, which puts its result into the list."""
        messages = (arguments[0],) if one_message else tuple(arguments[0])
        begun, results = traces.begin(messages), list[object]()
        return_type, succeeded = ConsumeReturnType.EXCEPTION, 0
        try:
            yield results
            context = None if one_message else arguments[1]
            succeeded = returned(context, len(messages), results[0])
            is_whole = succeeded == len(messages)
            return_type = (
                ConsumeReturnType.SUCCESS if is_whole else ConsumeReturnType.FAILED
            )
        except LeaveRest as rest:
            messages = messages[: rest.consumed]
            return_type, succeeded = ConsumeReturnType.SUCCESS, rest.consumed
            raise
        finally:
            if messages:
                traces.end(
                    begun, messages, return_type=return_type, succeeded=succeeded
                )

    def plain(*arguments: Any) -> Any:  # noqa: ANN401  # as the listener's
        with reported(arguments) as results:
            results.append(call(*arguments))
        return results[0]

    async def awaited(*arguments: Any) -> Any:  # noqa: ANN401
        with reported(arguments) as results:
            results.append(await call(*arguments))
        return results[0]

    return awaited if is_async else plain
