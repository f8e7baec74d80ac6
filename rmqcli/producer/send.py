"""Send messages, batched and pipelined over queues, with an outcome for each in order.

A message that fails does not stop the others. An Accumulator gathers the messages, as
for `Producer.submit`; a `SendNetwork` (`remoting.send`, `proxy.send`) sends them, waits
out the restarts of brokers, and says when to give up.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from rmqcli.clock import Deadline
from rmqcli.dataclass import dataclass
from rmqcli.errors import BrokerError, RmqError, SendUnknownError
from rmqcli.model import MessageQueue
from rmqcli.producer.accumulator import Accumulator, AccumulatorNetwork, Entry
from rmqcli.producer.patience import RETRY_EVERY_MS, cause_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rmqcli import tasks
    from rmqcli.clock import Clock
    from rmqcli.producer.message import OutgoingMessage
    from rmqcli.producer.patience import Outages

#: Messages whose outcomes were not yielded. One queue that is slow holds the others up
#: only when they are that far ahead.
WINDOW_MESSAGES_MAX: Final = 32_768
WINDOW_BYTES_MAX: Final = 32 << 20

#: How long a message may wait for its request: for ever, as the requests have limits.
WAIT_MS_MAX: Final = 1_000 * 86_400_000

#: Messages are handed over together once they are that large.
_TOGETHER_BYTES: Final = 64 << 10
#: How long messages wait for their batch to fill while the input has more of them.
_LINGER_MS: Final = 1_000
_TURN_MS: Final = 1_000
#: Within that time, requests that wait for a broker have noticed the end.
_STOP_MS: Final = 10 * RETRY_EVERY_MS


@dataclass(slots=True)
class SendOutcome:
    """The outcome of sending one message.

    `status` is one of Java's four statuses of a stored message, or else `NOT_SENT`,
    `UNKNOWN` when no answer came, so that the message may be stored, or the name of the
    response code with which the broker refused it. Offsets are None when the message is
    not stored or not yet in its queue. With a proxy the queue is None; only a proxy
    gives delayed messages a `recall_handle`.
    """

    msg_id: str
    source: str | None
    queue: MessageQueue | None
    status: str
    offset_msg_id: str | None = None
    queue_offset: int | None = None
    error: RmqError | None = None
    recall_handle: str | None = None


class SendNetwork(AccumulatorNetwork, Protocol):
    """Sends the requests of a Sender."""

    outages: Outages

    @property
    def runner(self) -> tasks.Runner:
        """Runs the tasks."""

    @property
    def clock(self) -> Clock:
        """The clock of the tasks."""

    def entry(self, message: OutgoingMessage) -> Entry:
        """Return the message as the accumulator takes it.

        Raises UsageError for a message that cannot be sent.
        """

    def post(self, action: Callable[[], None]) -> None:
        """Call `action` in the thread that runs the tasks."""

    def wait(self, timeout_ms: int) -> None:
        """Return when messages may have ended, and after `timeout_ms` at the latest.

        With 0 it processes answers that have arrived, without waiting.
        """

    def note_end(self, count: int) -> None:
        """Note that messages are about to end, in the thread that runs the tasks."""


class Sender:
    """Sends to one topic. Not thread-safe; `send` may be called once.

    `say` is called with a line for the user when a broker cannot be reached, and when
    it can again.
    """

    def __init__(
        self, network: SendNetwork, *, say: Callable[[str], object] | None = None
    ) -> None:
        self._network = network
        self._say = say
        self._accumulator = Accumulator(
            network,
            network.runner,
            post=network.post,
            on_end=network.note_end,
            linger_ms=_LINGER_MS,
            clock=network.clock,
        )
        #: hands over what was put into the accumulator
        self._soon: list[Callable[[], None]] = []
        self._accumulator.put_by(self._soon.append)
        #: source and message, from the first whose outcome was not yielded
        self._entries: deque[tuple[str | None, Entry]] = deque()
        self._bytes = self._bytes_to_hand_over = 0
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
                yield from self._drain()
            elif self._bytes_to_hand_over >= _TOGETHER_BYTES:
                self._turn(0)
                yield self._take_ready()
                while self._is_window_full():
                    self._turn(_TURN_MS)
                    yield self._take_ready()
        yield from self._drain()
        if failure is not None:
            raise failure

    def abandon(self) -> list[SendOutcome]:
        """Return the outcomes that `send` had not yielded when it was interrupted.

        The status is UNKNOWN for messages of requests that were not answered yet.
        """
        outages = self._network.outages
        self._stop(RmqError(""))
        deadline = Deadline(self._network.clock, _STOP_MS)
        while outages.waiting and not deadline.is_over():
            self._network.wait(RETRY_EVERY_MS)
        outcomes = [self._outcome(*each) for each in self._entries]
        self._entries.clear()
        return outcomes

    def _accept(self, message: OutgoingMessage) -> None:
        entry = self._network.entry(message)
        self._entries.append((message.source, entry))
        self._bytes += entry.cost_bytes
        self._bytes_to_hand_over += entry.cost_bytes
        self._accumulator.put(entry)

    def _is_window_full(self) -> bool:
        return (
            len(self._entries) >= WINDOW_MESSAGES_MAX or self._bytes >= WINDOW_BYTES_MAX
        )

    def _drain(self) -> Iterator[list[SendOutcome]]:
        """Send all that waits; yield the outcomes."""
        self._turn(0)
        self._accumulator.linger(0)
        while self._entries:
            self._turn(_TURN_MS)
            yield self._take_ready()
        self._accumulator.linger(_LINGER_MS)

    def _turn(self, timeout_ms: int) -> None:
        """Hand over what was accepted, and wait for requests to end."""
        # Nothing is written to a connection that has been closed in the meantime: its
        # messages would be doubtful.
        self._network.wait(0)
        soon, self._soon[:] = list(self._soon), []
        for action in soon:
            action()
        self._bytes_to_hand_over = 0
        self._network.wait(0 if self._is_ready() else timeout_ms)
        outages = self._network.outages
        while outages.notes:
            note = outages.notes.popleft()
            if self._say is not None:
                self._say(note)
        if outages.given_up is not None and self.given_up is None:
            self.given_up = outages.given_up
            self._stop(self.given_up)

    def _stop(self, error: RmqError) -> None:
        """Fail what is not sent yet, and return when that is done."""
        done = threading.Event()
        self._network.outages.given_up = error

        def stop() -> None:
            self._accumulator.give_up(error)
            done.set()

        self._network.post(stop)
        done.wait(_TURN_MS / 1_000)

    def _is_ready(self) -> bool:
        return bool(self._entries) and self._entries[0][1].done()

    def _take_ready(self) -> list[SendOutcome]:
        ready = []
        entries = self._entries
        while entries and entries[0][1].done():
            source, entry = entries.popleft()
            self._bytes -= entry.cost_bytes
            ready.append(self._outcome(source, entry))
        return ready

    def _outcome(self, source: str | None, entry: Entry) -> SendOutcome:
        error: BaseException | None = None
        status = "UNKNOWN"
        if entry.done():
            error, status = entry.exception(), "NOT_SENT"
            if error is None:
                result = entry.result()
                return SendOutcome(
                    result.msg_id,
                    source,
                    result.queue,
                    result.status.value,
                    result.offset_msg_id,
                    result.queue_offset,
                    recall_handle=result.recall_handle,
                )
        if isinstance(error, SendUnknownError):
            error, status = cause_of(error), "UNKNOWN"  # which says the rest
        elif isinstance(error, BrokerError):
            status = error.name
        return SendOutcome(
            entry.msg_id,
            source,
            entry.key if isinstance(entry.key, MessageQueue) else None,
            status,
            error=error if isinstance(error, RmqError) and error.message else None,
        )
