"""Send messages, batched and pipelined over queues, with an outcome for each in order.

A message that fails does not stop the others. A `SendNetwork` (`remoting`,
`proxy.send`) sends the requests and decides which ones are retried.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias

from rmqcli.errors import BrokerError, RmqError, SendUnknownError, TransportError
from rmqcli.producer.lane import SendOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rmqcli.producer.backend import SendResult
    from rmqcli.producer.lane import Lane, Slot
    from rmqcli.producer.message import OutgoingMessage

#: Messages that may wait for an answer, or for the outcome of an earlier message.
WINDOW_MESSAGES_MAX = 8192
WINDOW_BYTES_MAX = 32 << 20

#: Outcomes that are kept while an earlier outcome is not known yet.
OUTCOMES_MAX = 65_536

_TURN_MS = 1000

#: A result for each message of a request, in order, or the error of the whole request.
Answer: TypeAlias = "list[SendResult] | RmqError"


class SendNetwork(Protocol):
    """Sends the requests of a Sender. Used only in the thread of the Sender."""

    @property
    def lanes(self) -> Sequence[Lane[Slot]]:
        """The lanes; each may have one request in flight."""

    def place(self, number: int, message: OutgoingMessage) -> tuple[Lane[Slot], Slot]:
        """Return the lane of a message, and the slot to put there.

        Raises UsageError for a message that cannot be sent.
        """

    def submit(
        self, lane: Lane[Slot], slots: list[Slot], on_done: Callable[[Answer], None]
    ) -> None:
        """Send a request; `on_done` may be called in any thread, and at once."""

    def wait(self, timeout_ms: int) -> None:
        """Return when a request may have ended, and after `timeout_ms` at the latest.

        With 0 it processes answers that have arrived, without waiting.
        """

    def may_be_one_message(self, error: RmqError) -> bool:
        """Whether a batch may have been refused because of one message in it."""

    def is_out_of_reach(self, error: TransportError, failed_in_a_row: int) -> bool:
        """Whether no broker can be reached, so that the Sender should give up."""


class Sender:
    """Sends to one topic. Not thread-safe; `send` may be called once."""

    def __init__(self, network: SendNetwork) -> None:
        self._network = network
        #: in the order of the input, from the first whose outcome was not yielded
        self._slots: deque[Slot] = deque()
        #: requests that have ended, with their answers; any thread adds to it
        self._ended: deque[tuple[Lane[Slot], list[Slot], Answer]] = deque()
        self._next_number = 0
        self._unanswered = 0
        self._unanswered_bytes = 0
        self._failed_in_a_row = 0
        #: the error because of which sending stopped; None while brokers are reachable
        self.given_up: RmqError | None = None

    def send(
        self, messages: Iterable[OutgoingMessage | None]
    ) -> Iterator[list[SendOutcome]]:
        """Send all messages; yield lists of outcomes in the order of the input.

        A None among `messages` says that the next message may take a while: all earlier
        messages are sent and answered before it is read. Raises the errors of
        `messages`, and UsageError for a message that cannot be sent, after the outcomes
        of all earlier messages. When no broker can be reached, it stops reading, and
        `given_up` says why.
        """
        failure: RmqError | None = None
        source = iter(messages)
        while self.given_up is None:
            try:
                message = next(source)
                if message is not None:
                    self._accept(message)
            except StopIteration:
                break
            except RmqError as error:
                failure = error
                break
            if message is None:
                self._drain()
            while self._is_window_full():
                self._submit_idle()
                self._wait(_TURN_MS)
                yield self._take_ready()
            if self._slots and self._slots[0].outcome is not None:
                yield self._take_ready()
        self._drain()
        yield self._take_ready()
        if failure is not None:
            raise failure

    def abandon(self) -> list[SendOutcome]:
        """Return the outcomes that `send` had not yielded when it was interrupted.

        The status is UNKNOWN for messages of requests that were not answered yet.
        """
        while self._ended:
            _, slots, answer = self._ended.popleft()
            if not isinstance(answer, RmqError):
                self._stored(slots, answer)
        for slot in self._slots:
            if slot.outcome is None:
                status = "UNKNOWN" if slot.is_sent else "NOT_SENT"
                self._finish(slot, _failed(slot, None, status))
        return self._take_ready()

    def _accept(self, message: OutgoingMessage) -> None:
        lane, slot = self._network.place(self._next_number, message)
        self._next_number += 1
        self._slots.append(slot)
        self._unanswered += 1
        self._unanswered_bytes += slot.cost_bytes
        lane.put(slot)
        if lane.is_full and not lane.in_flight:
            self._submit(lane)
            self._wait(0)

    def _is_window_full(self) -> bool:
        return self._unanswered > 0 and (
            self._unanswered >= WINDOW_MESSAGES_MAX
            or self._unanswered_bytes >= WINDOW_BYTES_MAX
            or len(self._slots) >= OUTCOMES_MAX
        )

    def _drain(self) -> None:
        while self._unanswered:
            self._submit_idle()
            if self._unanswered:
                self._wait(_TURN_MS)

    def _wait(self, timeout_ms: int) -> None:
        """Wait for requests to end, process their answers, and send the next ones."""
        if not self._ended:
            self._network.wait(timeout_ms)
        while self._ended:
            lane, slots, answer = self._ended.popleft()
            lane.in_flight = []
            if isinstance(answer, RmqError):
                self._refused(lane, slots, answer)
            else:
                self._failed_in_a_row = 0
                self._stored(slots, answer)
            if not lane.is_empty:
                self._submit(lane)

    def _submit_idle(self) -> None:
        for lane in self._network.lanes:
            if not lane.in_flight and not lane.is_empty:
                self._submit(lane)

    def _take_ready(self) -> list[SendOutcome]:
        ready = []
        while self._slots and self._slots[0].outcome is not None:
            ready.append(self._slots[0].outcome)
            self._slots.popleft()
        return ready

    def _submit(self, lane: Lane[Slot]) -> None:
        """Send the next request of `lane`, which has no request in flight."""
        if self.given_up is not None:
            for slot in lane.take_all():
                self._finish(slot, _failed(slot, self.given_up, "NOT_SENT"))
            return
        slots = lane.in_flight = lane.take()
        for slot in slots:
            slot.is_sent = True
        self._network.submit(lane, slots, partial(self._note_end, lane, slots))

    def _note_end(self, lane: Lane[Slot], slots: list[Slot], answer: Answer) -> None:
        self._ended.append((lane, slots, answer))

    def _stored(self, slots: list[Slot], results: list[SendResult]) -> None:
        for slot, result in zip(slots, results, strict=True):
            self._finish(
                slot,
                SendOutcome(
                    number=slot.number,
                    msg_id=result.msg_id,
                    source=slot.message.source,
                    queue=result.queue,
                    status=result.status.value,
                    offset_msg_id=result.offset_msg_id,
                    queue_offset=result.queue_offset,
                ),
            )

    def _refused(self, lane: Lane[Slot], slots: list[Slot], error: RmqError) -> None:
        """Send each message of a refused batch alone if that may help, or record it."""
        if isinstance(error, TransportError):
            self._failed_in_a_row += 1
            if self._network.is_out_of_reach(error, self._failed_in_a_row):
                self.given_up = error
        if len(slots) > 1 and self._network.may_be_one_message(error):
            for slot in slots:
                slot.is_alone = True
            lane.put_back(slots)
            return
        status = _status_of(error)
        if isinstance(error, SendUnknownError) and isinstance(
            error.__cause__, TransportError
        ):
            error = error.__cause__  # the status UNKNOWN says the rest
        for slot in slots:
            self._finish(slot, _failed(slot, error, status))

    def _finish(self, slot: Slot, outcome: SendOutcome) -> None:
        slot.outcome = outcome
        self._unanswered -= 1
        self._unanswered_bytes -= slot.cost_bytes


def _failed(slot: Slot, error: RmqError | None, status: str) -> SendOutcome:
    return SendOutcome(
        number=slot.number,
        msg_id=slot.msg_id,
        source=slot.message.source,
        queue=slot.queue,
        status=status,
        error=error,
    )


def _status_of(error: RmqError) -> str:
    if isinstance(error, SendUnknownError):
        return "UNKNOWN"
    if isinstance(error, BrokerError):
        return error.name
    return "NOT_SENT"
