"""Reading ranges of many queues at once, with several pulls of each queue in flight.

`RangeReading` decides what to pull and what an answer means; this module sends the
pulls, chooses addresses, and keeps the limits: pulls and bytes in flight, time without
progress. Nothing is pulled while the caller does not iterate, so a slow caller costs no
memory.

Pulls as TOOLS_CONSUMER and commits nothing. Not thread-safe.

Source: DefaultMQPullConsumerImpl, PullAPIWrapper#recalculatePullFromWhichNode.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from rmqcli.admin.read.address import AddressBook
from rmqcli.admin.read.queue import RangeReading
from rmqcli.api.calls.pull import pull_message
from rmqcli.api.calls.store import view_message_by_id
from rmqcli.dataclass import dataclass
from rmqcli.errors import PartialError, RmqError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rmqcli.admin.read.body import Chunk
    from rmqcli.api.client import Client, PendingCall
    from rmqcli.model import MessageQueue, OffsetRange
    from rmqcli.wire.bodies.broker import ConsumeQueueData
    from rmqcli.wire.pull_answer import PullAnswer

#: Answers in a row without progress before a queue is abandoned.
_NO_PROGRESS_MAX = 12
_BACKOFF_FIRST_MS = 20
_BACKOFF_LAST_MS = 2_000
#: Longest wait for sockets in one turn.
_TURN_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Options of a RangeReader.

    With an `expression` other than `*`, the broker leaves messages out. A queue without
    any progress for `retry_for_ms` is abandoned. With `raise_abandoned` that ends the
    reading with the queue's error; otherwise `RangeReader.abandoned` holds the error.
    `on_trouble` is called when a queue begins to fail, and `on_recovery` when it can be
    read again. Reading ends early, with no queue abandoned, once `left_ms` returns 0.
    """

    expression: str = "*"
    expression_type: str = "TAG"
    pulls_max: int = 64
    in_flight_bytes_max: int = 16 << 20
    retry_for_ms: int = 30_000
    raise_abandoned: bool = True
    on_trouble: Callable[[MessageQueue, RmqError], None] | None = None
    on_recovery: Callable[[MessageQueue], None] | None = None
    left_ms: Callable[[], int] | None = None

    @property
    def is_filtered(self) -> bool:
        """Whether the broker may leave messages out."""
        return self.expression != "*" or self.expression_type != "TAG"


@dataclass(slots=True, eq=False)
class _QueueState:
    reading: RangeReading
    #: pulls that may be in flight or wait to be taken; grows with good answers
    depth: int = 2
    is_paused: bool = False
    not_before_ms: int = 0
    failing_since_ms: int | None = None
    failures: int = 0
    #: answers without progress in a row, up to now
    no_progress: int = 0
    error: RmqError | None = field(default=None)


class RangeReader:
    """Iterates over the chunks of ranges; can be iterated once.

    The chunks of each queue are in order, without gap or overlap. Raises the error of a
    queue that is abandoned, unless the options say otherwise.
    """

    def __init__(
        self,
        client: Client,
        ranges: Sequence[OffsetRange],
        options: ReadOptions | None = None,
    ) -> None:
        self._client = client
        self._options = options or ReadOptions()
        filtered = self._options.is_filtered
        self._states = {
            wanted.queue: _QueueState(RangeReading(wanted, filtered=filtered))
            for wanted in ranges
        }
        if len(self._states) != len(ranges):
            raise ValueError("duplicate queue in ranges")
        self._open = {q: s for q, s in self._states.items() if not s.reading.is_done}
        self._addresses = AddressBook(client)
        self._in_flight = 0
        #: size of a recent large answer
        self._answer_bytes = 8 << 10
        #: queues that were abandoned, and why
        self.abandoned: dict[MessageQueue, RmqError] = {}

    def position(self, queue: MessageQueue) -> int:
        """Return the first offset of `queue` that has not been yielded."""
        return self._states[queue].reading.take_at

    def pause(self, queue: MessageQueue) -> None:
        """Send no more pulls for `queue`; those in flight are still answered.

        When every open queue is paused and nothing is in flight, all are resumed,
        because the caller, which waits for a chunk, could not resume any.
        """
        self._states[queue].is_paused = True

    def resume(self, queue: MessageQueue) -> None:
        """Pull `queue` again."""
        self._states[queue].is_paused = False

    def __iter__(self) -> Iterator[Chunk]:
        try:
            yield from self._chunks()
        finally:
            self._open.clear()  # answers that still arrive are ignored

    def _chunks(self) -> Iterator[Chunk]:
        while self._open and self._left_ms() > 0:
            for queue, state in list(self._open.items()):
                yield from state.reading.take()
                if state.reading.is_done:
                    del self._open[queue]
                elif state.error is not None:
                    self._abandon(queue, state.error)
            if not self._open or self._pull_more():
                continue
            if not self._resume_if_all_are_paused():
                self._client.poll(self._wait_ms())

    def _resume_if_all_are_paused(self) -> bool:
        if self._in_flight or not all(s.is_paused for s in self._open.values()):
            return False
        for queue in self._open:
            self.resume(queue)
        return True

    def _left_ms(self) -> int:
        left_ms = self._options.left_ms
        return _TURN_MS if left_ms is None else left_ms()

    def _abandon(self, queue: MessageQueue, error: RmqError) -> None:
        del self._open[queue]
        self.abandoned[queue] = error
        if self._options.raise_abandoned:
            raise error

    def _pull_more(self) -> bool:
        """Fill the windows; return whether something can be yielded without I/O."""
        now_ms = self._client.clock.monotonic_ms()
        pulls_max, depth_max = self._pulls_max(), self._depth_max()
        has_chunk = False
        for queue, state in self._open.items():
            reading = state.reading
            if not state.is_paused and now_ms >= state.not_before_ms:
                depth = min(state.depth, depth_max)
                while (
                    reading.window < depth or reading.is_held_up
                ) and self._in_flight < pulls_max:
                    if not self._pull(queue, state):
                        break
            has_chunk = has_chunk or reading.has_chunk or state.error is not None
        return has_chunk

    def _pulls_max(self) -> int:
        options = self._options
        by_bytes = options.in_flight_bytes_max // self._answer_bytes
        return max(1, min(options.pulls_max, by_bytes))

    def _depth_max(self) -> int:
        running = sum(not state.is_paused for state in self._open.values())
        return max(1, self._pulls_max() // max(1, running))

    def _pull(self, queue: MessageQueue, state: _QueueState) -> bool:
        """Send one pull; return False when there is none to send now."""
        address = self._addresses.address(queue)
        if isinstance(address, RmqError):
            self._failed(queue, state, address)
            return False
        span = state.reading.next_pull()
        if span is None:
            return False
        start, end = span
        options = self._options
        call = pull_message(
            queue,
            start,
            max_msg_nums=min(32, end - start),
            expression=options.expression,
            expression_type=options.expression_type,
        )

        def on_done(pending: PendingCall[PullAnswer]) -> None:
            self._in_flight -= 1
            if queue in self._open:
                self._on_done(queue, state, start, pending)

        try:
            self._client.submit(address, call, on_done=on_done)
        except RmqError as error:
            state.reading.failed(start)
            self._failed(queue, state, error)
            return False
        self._in_flight += 1
        return True

    def _on_done(
        self,
        queue: MessageQueue,
        state: _QueueState,
        start: int,
        pending: PendingCall[PullAnswer],
    ) -> None:
        try:
            answer = pending.result()
        except RmqError as error:
            state.reading.failed(start)
            self._addresses.failed(queue, pending.address)
            self._failed(queue, state, error)
            return
        size = len(answer.body)
        self._answer_bytes = max(size, self._answer_bytes - (self._answer_bytes >> 6))
        if state.reading.answered(start, answer):
            state.failures = state.no_progress = 0
            if state.failing_since_ms is not None and self._options.on_recovery:
                self._options.on_recovery(queue)
            state.failing_since_ms = None
            state.depth += 1
            self._addresses.suggested(queue, answer.suggest_which_broker_id)
            return
        self._failed(queue, state, _no_progress(queue, start, answer, pending.address))

    def _failed(self, queue: MessageQueue, state: _QueueState, error: RmqError) -> None:
        """Wait before the next pull, or abandon the queue."""
        now_ms = self._client.clock.monotonic_ms()
        if now_ms < state.not_before_ms:
            return  # it was in flight together with a pull that has failed already
        if state.failing_since_ms is None:
            state.failing_since_ms = now_ms
            if self._options.on_trouble is not None:
                self._options.on_trouble(queue, error)
        state.failures += 1
        state.depth = 2
        is_over = now_ms - state.failing_since_ms >= self._options.retry_for_ms
        is_no_progress = isinstance(error, PartialError)
        state.no_progress = state.no_progress + 1 if is_no_progress else 0
        is_over = is_over or state.no_progress > _NO_PROGRESS_MAX
        if is_over or not (error.retriable or is_no_progress):
            state.error = error
        backoff_ms = _BACKOFF_FIRST_MS << min(state.failures - 1, 10)
        state.not_before_ms = now_ms + min(backoff_ms, _BACKOFF_LAST_MS)

    def _wait_ms(self) -> int:
        if not self._open:
            return 0
        now_ms = self._client.clock.monotonic_ms()
        due = [
            state.not_before_ms - now_ms
            for state in self._open.values()
            if not state.is_paused and state.not_before_ms > now_ms
        ]
        return max(0, min([*due, self._left_ms(), _TURN_MS]))


def _no_progress(
    queue: MessageQueue, start: int, answer: PullAnswer, address: str
) -> PartialError:
    return PartialError(
        f"{queue}: {address} answers {answer.status.value} for offset {start}, with"
        f" next offset {answer.next_begin_offset}, min offset {answer.min_offset} and"
        f" max offset {answer.max_offset}; the broker may have lost messages, or it is"
        " a slave that is behind"
    )


def view_entries(
    client: Client,
    address: str,
    queue: MessageQueue,
    entries: Iterable[ConsumeQueueData],
    start: int,
) -> Iterator[tuple[int, bytes]]:
    """Read the messages of a queue that clients may not pull, one by one.

    `entries` are those of its consume queue from offset `start` on. Yields each offset
    and its message as it is stored: the broker does not check that it is of this place.
    Raises the error of the first that cannot be read.
    """
    calls = {
        offset: (address, view_message_by_id(entry.physic_offset, topic=queue.topic))
        for offset, entry in enumerate(entries, start)
    }
    for offset, body in client.ask_many(calls).items():
        if isinstance(body, RmqError):
            raise body
        yield offset, body
