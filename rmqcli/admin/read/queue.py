"""Reading a range of one queue: which offsets to pull next, what an answer means. Pure.

Several pulls are in flight at once, each from the offset where the one before should
end. A broker may answer with fewer messages than it was asked for (8 from disk, 64 KiB,
large messages, the edge of a file) or with more. Offsets that an answer does not cover
become a hole that is pulled again, and surplus messages are cut off, so the resulting
chunks cover the range exactly, in order.

The numbers in an answer are believed only inside the range that was pulled. An answer
that does not advance (an offset that goes back, FOUND without a message, NO_NEW_MSG
below the end of the queue) is not progress; the caller counts those answers and slows
down.

Source: DefaultMessageStore#getMessage, for what brokers answer.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from rmqcli.admin.read.body import Chunk, cut_body, cut_unscanned_body, holes_between
from rmqcli.api.calls.pull import MSG_NUMS_MAX
from rmqcli.wire.message.scan import scan_records
from rmqcli.wire.pull_answer import PullStatus

if TYPE_CHECKING:
    from rmqcli.admin.read.body import Span
    from rmqcli.model import OffsetRange
    from rmqcli.wire.pull_answer import PullAnswer

#: How often in a row a broker must answer NO_NEW_MSG where a message should be, before
#: it is believed: it also does so while a slave is behind or the broker is starting.
_DENIALS_NEEDED = 3
#: After this many full answers in a row, a pull requests twice as many offsets.
_FULL_ANSWERS = 4


class RangeReading:
    """The state of reading one range.

    Each offset of the range is in exactly one place: before `take_at` (taken by the
    caller), in a chunk that waits to be taken, in a pull in flight, in a hole, or from
    `pull_at` on.
    """

    def __init__(
        self,
        wanted: OffsetRange,
        *,
        filtered: bool = False,
        one_at_a_time: bool = False,
    ) -> None:
        """Begin to read the range `wanted`.

        With `filtered` the broker leaves messages out, so an offset that an answer
        lacks is not missing. How far such an answer reaches cannot be foreseen, so each
        pull requests the whole rest of the range, and pulls are sent one at a time.
        `one_at_a_time` pulls in the same way without a filter.
        """
        self.queue = wanted.queue
        self.end = max(wanted.start, wanted.end)
        #: the first offset that `take` has not returned
        self.take_at = wanted.start
        #: the first offset that was never pulled
        self.pull_at = wanted.start
        self.filtered = filtered
        self._one_at_a_time = filtered or one_at_a_time
        #: how many offsets a pull requests
        self.stride = MSG_NUMS_MAX
        self._full_answers = 0
        #: pulls in flight: start -> end
        self._in_flight: dict[int, int] = {}
        #: spans to be pulled again; a heap
        self._holes: list[Span] = []
        #: start -> a chunk that waits until the chunks before it are taken
        self._chunks: dict[int, Chunk] = {}
        #: the broker has removed the messages below this that were not pulled yet
        self._removed_below = wanted.start
        self._denials: tuple[int, int] = (-1, 0)  # offset, how often

    @property
    def is_done(self) -> bool:
        """Whether the caller has taken everything."""
        return self.take_at >= self.end

    @property
    def window(self) -> int:
        """The number of pulls that are in flight, or answered and not taken."""
        return len(self._in_flight) + len(self._chunks)

    @property
    def is_held_up(self) -> bool:
        """Whether the chunks wait for a hole for which no pull is in flight.

        Then the next pull must be sent even if the window is full: nothing else can
        make room in it.
        """
        return bool(self._holes) and self._holes[0][0] == self.take_at

    def next_pull(self) -> Span | None:
        """Return the span to pull next; None if nothing is left or a pull must wait."""
        if self._one_at_a_time and self._in_flight:
            return None
        while True:
            span = self._next_span()
            if span is None:
                return None
            start, end = span
            if start < self._removed_below:
                removed_end = min(end, self._removed_below)
                self._add(self._empty_chunk(start, removed_end, missing=True))
                if removed_end < end:
                    heapq.heappush(self._holes, (removed_end, end))
                continue
            self._in_flight[start] = end
            return span

    def _next_span(self) -> Span | None:
        if self._holes:
            start, end = heapq.heappop(self._holes)
            if not self._one_at_a_time and end - start > self.stride:
                cut = max(start + self.stride, min(end, self._removed_below))
                if cut < end:
                    heapq.heappush(self._holes, (cut, end))
                    end = cut
            return start, end
        if self.pull_at >= self.end:
            return None
        start = self.pull_at
        end = self.end
        if not self._one_at_a_time:
            end = min(end, max(start + self.stride, self._removed_below))
        self.pull_at = end
        return start, end

    def failed(self, start: int) -> None:
        """Record that the pull at `start` failed; its offsets are pulled again."""
        heapq.heappush(self._holes, (start, self._in_flight.pop(start)))

    def answered(self, start: int, answer: PullAnswer) -> bool:
        """Process the answer to the pull at `start`; return whether it was progress."""
        end = self._in_flight.pop(start)
        chunk: Chunk | None
        match answer.status:
            case PullStatus.FOUND:
                chunk = self._found(start, end, answer)
            case PullStatus.NO_MATCHED_MSG:
                chunk = self._passed_over(start, end, answer)
            case PullStatus.OFFSET_ILLEGAL:
                chunk = self._illegal(start, end, answer)
            case PullStatus.NO_NEW_MSG:
                chunk = self._denied(start, end, answer)
        if chunk is None:
            heapq.heappush(self._holes, (start, end))
            return False
        if chunk.end < end:
            heapq.heappush(self._holes, (chunk.end, end))
        self._add(chunk)
        return True

    def take(self) -> list[Chunk]:
        """Return the chunks that follow what was taken so far, in order."""
        chunks: list[Chunk] = []
        while (chunk := self._chunks.pop(self.take_at, None)) is not None:
            chunks.append(chunk)
            self.take_at = chunk.end
        return chunks

    @property
    def has_chunk(self) -> bool:
        """Whether `take` would return something."""
        return self.take_at in self._chunks

    def _add(self, chunk: Chunk) -> None:
        self._chunks[chunk.start] = chunk

    def _empty_chunk(self, start: int, end: int, *, missing: bool) -> Chunk:
        spans = ((start, end),) if missing else ()
        return Chunk(self.queue, start, end, b"", spans)

    def _found(self, start: int, end: int, answer: PullAnswer) -> Chunk | None:
        scan = scan_records(answer.body)
        if scan is None:
            return self._found_unscanned(start, end, answer)
        offsets = scan.offsets
        reached = offsets[-1] + 1 if offsets else start
        if self.filtered:
            reached = self._believed(start, answer) or reached
        covered = min(end, reached)
        if covered <= start:
            return None
        missing: tuple[Span, ...] = ()
        if not self.filtered:
            self._adapt(covered - start, end - start)
            if offsets[0] != start or len(offsets) != reached - start:
                missing = holes_between(offsets, start, covered)
        body = cut_body(answer.body, scan, start, covered)
        return Chunk(self.queue, start, covered, body, missing)

    def _found_unscanned(
        self, start: int, end: int, answer: PullAnswer
    ) -> Chunk | None:
        """Handle FOUND with an unreadable record: the broker's next offset decides."""
        body, last = cut_unscanned_body(answer.body, start, end)
        reached = start if last is None else last + 1
        believed = self._believed(start, answer)
        if believed is not None and (self.filtered or believed <= start + MSG_NUMS_MAX):
            reached = max(reached, believed)
        covered = min(end, reached)
        if covered <= start:
            return None
        return Chunk(self.queue, start, covered, body, ())

    def _passed_over(self, start: int, end: int, answer: PullAnswer) -> Chunk | None:
        """Handle NO_MATCHED_MSG.

        Without a filter it means that the broker is removing these messages.
        """
        believed = self._believed(start, answer)
        if believed is None:
            return None
        covered = min(end, believed)
        return self._empty_chunk(start, covered, missing=not self.filtered)

    def _illegal(self, start: int, end: int, answer: PullAnswer) -> Chunk | None:
        """Handle OFFSET_ILLEGAL: messages below the min offset were removed.

        For a pull that did not begin below the min offset it is not progress.
        """
        if not start < answer.min_offset <= answer.max_offset:
            return None
        covered = min(end, answer.min_offset)
        self._removed_below = max(self._removed_below, answer.min_offset)
        return self._empty_chunk(start, covered, missing=True)

    def _denied(self, start: int, end: int, answer: PullAnswer) -> Chunk | None:
        """Handle NO_NEW_MSG, although the range was pinned below the max offset."""
        believed = self._believed(start, answer)
        if believed is None:
            return None
        offset, denials = self._denials
        denials = denials + 1 if offset == start else 1
        self._denials = (start, denials)
        if denials < _DENIALS_NEEDED:
            return None
        covered = min(end, believed)
        if start == self.take_at:  # no offset before is open, so all may be skipped
            self._removed_below = max(self._removed_below, believed)
        return self._empty_chunk(start, covered, missing=True)

    @staticmethod
    def _believed(start: int, answer: PullAnswer) -> int | None:
        """Return the next offset, if it goes forward and not beyond the max offset."""
        if start < answer.next_begin_offset <= answer.max_offset:
            return answer.next_begin_offset
        return None

    def _adapt(self, got: int, wanted: int) -> None:
        """Request as many offsets as the broker returns, and more if it returns all."""
        if got < wanted:
            self.stride = got
            self._full_answers = 0
            return
        self._full_answers += 1
        if self._full_answers >= _FULL_ANSWERS and self.stride < MSG_NUMS_MAX:
            self.stride = min(MSG_NUMS_MAX, self.stride * 2)
            self._full_answers = 0
