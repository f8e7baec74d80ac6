"""Reading a range of one queue: which offsets to ask next, what an answer means. Pure.

Several asks are out at once, each for the offsets where the one before should end. A
broker may answer fewer than asked (8 from disk, 64 KiB, large messages, the edge of a
file) or more; what an answer leaves open becomes a hole that is asked again, what it
has too much is cut off. So the parts that come out cover the range exactly, in order.

A broker's numbers are only believed inside the range that was asked for. An answer that
gets nowhere (an offset that goes back, FOUND without a message, "nothing new" where
something must be) is no progress; the caller counts those and slows down.

Source: DefaultMessageStore#getMessage, for what brokers answer.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, NamedTuple

from rmqcli.admin.read.body import (
    Span,
    cut_body,
    cut_unclear_body,
    holes_between,
    scan_body,
)
from rmqcli.api.calls.pull import MSG_NUMS_MAX
from rmqcli.wire.pull_answer import PullStatus

if TYPE_CHECKING:
    from rmqcli.model import OffsetRange
    from rmqcli.wire.pull_answer import PullAnswer

#: So often in a row must a broker say "nothing here, go on there" to be believed: it
#: says that too while a slave is behind or the broker is starting.
_DENIALS_NEEDED = 3
#: Full answers in a row before asking for twice as many.
_FULL_ANSWERS = 4


class Part(NamedTuple):
    """Offsets `start <= o < end`, done: their records, and the spans without any."""

    start: int
    end: int
    body: bytes
    missing: tuple[Span, ...]


class QueueReading:
    """The state of reading one range. Every offset of it is in exactly one place:

    before `emit_at` (given out), in a part, asked for, in a hole, or from `ask_at` on.
    """

    def __init__(
        self,
        wanted: OffsetRange,
        *,
        filtered: bool = False,
        one_at_a_time: bool = False,
    ) -> None:
        """With `filtered` the broker leaves messages out: then no offset is missing
        for not being in an answer. How far such an answer reaches cannot be foreseen,
        so each ask is for all the rest; so it is with `one_at_a_time`.
        """
        self.queue = wanted.queue
        self.end = max(wanted.start, wanted.end)
        self.emit_at = wanted.start
        self.ask_at = wanted.start
        self.filtered = filtered
        self._one_at_a_time = filtered or one_at_a_time
        #: how many offsets an ask is for
        self.stride = MSG_NUMS_MAX
        self._full_answers = 0
        #: asked for and not answered: start to end
        self._asked: dict[int, int] = {}
        #: to be asked again; a heap
        self._holes: list[Span] = []
        #: answered and not given out, by start
        self._parts: dict[int, Part] = {}
        #: what is not asked yet below this is gone
        self._gone_below = wanted.start
        self._denials: tuple[int, int] = (-1, 0)  # offset, how often

    @property
    def is_done(self) -> bool:
        """Whether everything was given out."""
        return self.emit_at >= self.end

    @property
    def asks_out(self) -> int:
        """How many asks are unanswered."""
        return len(self._asked)

    @property
    def window(self) -> int:
        """How many asks are out, or answered and not given out."""
        return len(self._asked) + len(self._parts)

    @property
    def is_held_up(self) -> bool:
        """Whether what is given out next was not even asked for, and parts wait for it.

        Then the next ask must go out however full the window is: nothing else can
        make room in it.
        """
        return bool(self._holes) and self._holes[0][0] == self.emit_at

    def next_ask(self) -> Span | None:
        """What to ask for next, None when nothing is left or it must wait."""
        if self._one_at_a_time and self._asked:
            return None
        while True:
            span = self._next_span()
            if span is None:
                return None
            start, end = span
            if start < self._gone_below:
                gone_end = min(end, self._gone_below)
                self._add(Part(start, gone_end, b"", ((start, gone_end),)))
                if gone_end < end:
                    heapq.heappush(self._holes, (gone_end, end))
                continue
            self._asked[start] = end
            return span

    def _next_span(self) -> Span | None:
        if self._holes:
            start, end = heapq.heappop(self._holes)
            if not self._one_at_a_time and end - start > self.stride:
                cut = max(start + self.stride, min(end, self._gone_below))
                if cut < end:
                    heapq.heappush(self._holes, (cut, end))
                    end = cut
            return start, end
        if self.ask_at >= self.end:
            return None
        start = self.ask_at
        end = self.end
        if not self._one_at_a_time:
            end = min(end, max(start + self.stride, self._gone_below))
        self.ask_at = end
        return start, end

    def failed(self, start: int) -> None:
        """The ask at `start` got no answer: it is open again."""
        heapq.heappush(self._holes, (start, self._asked.pop(start)))

    def answered(self, start: int, answer: PullAnswer) -> bool:
        """Take the answer to the ask at `start`; return whether it was progress."""
        end = self._asked.pop(start)
        part: Part | None
        match answer.status:
            case PullStatus.FOUND:
                part = self._found(start, end, answer)
            case PullStatus.NO_MATCHED_MSG:
                part = self._passed_over(start, end, answer)
            case PullStatus.OFFSET_ILLEGAL:
                part = self._illegal(start, end, answer)
            case PullStatus.NO_NEW_MSG:
                part = self._denied(start, end, answer)
        if part is None:
            heapq.heappush(self._holes, (start, end))
            return False
        if part.end < end:
            heapq.heappush(self._holes, (part.end, end))
        self._add(part)
        return True

    def take(self) -> list[Part]:
        """The parts whose turn it is, in order; they are given out with this."""
        parts: list[Part] = []
        while (part := self._parts.pop(self.emit_at, None)) is not None:
            parts.append(part)
            self.emit_at = part.end
        return parts

    @property
    def has_part(self) -> bool:
        """Whether `take` would return something."""
        return self.emit_at in self._parts

    def _add(self, part: Part) -> None:
        self._parts[part.start] = part

    def _found(self, start: int, end: int, answer: PullAnswer) -> Part | None:
        scan = scan_body(answer.body)
        if scan is None:
            return self._found_unclear(start, end, answer)
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
        return Part(
            start, covered, cut_body(answer.body, scan, start, covered), missing
        )

    def _found_unclear(self, start: int, end: int, answer: PullAnswer) -> Part | None:
        """Some record cannot be read, so the broker's word says how far it reaches."""
        body, last = cut_unclear_body(answer.body, start, end)
        reached = start if last is None else last + 1
        believed = self._believed(start, answer)
        if believed is not None and (self.filtered or believed <= start + MSG_NUMS_MAX):
            reached = max(reached, believed)
        covered = min(end, reached)
        if covered <= start:
            return None
        return Part(start, covered, body, ())

    def _passed_over(self, start: int, end: int, answer: PullAnswer) -> Part | None:
        """Nothing matched; without a filter these messages are being removed."""
        believed = self._believed(start, answer)
        if believed is None:
            return None
        covered = min(end, believed)
        return Part(start, covered, b"", () if self.filtered else ((start, covered),))

    def _illegal(self, start: int, end: int, answer: PullAnswer) -> Part | None:
        """Messages up to the min offset were deleted; above it, it is no answer."""
        if not start < answer.min_offset <= answer.max_offset:
            return None
        covered = min(end, answer.min_offset)
        self._gone_below = max(self._gone_below, answer.min_offset)
        return Part(start, covered, b"", ((start, covered),))

    def _denied(self, start: int, end: int, answer: PullAnswer) -> Part | None:
        """Nothing there, though the range was pinned below the max offset."""
        believed = self._believed(start, answer)
        if believed is None:
            return None
        offset, denials = self._denials
        denials = denials + 1 if offset == start else 1
        self._denials = (start, denials)
        if denials < _DENIALS_NEEDED:
            return None
        covered = min(end, believed)
        if start == self.emit_at:  # nothing is open below, so all may be passed over
            self._gone_below = max(self._gone_below, believed)
        return Part(start, covered, b"", ((start, covered),))

    @staticmethod
    def _believed(start: int, answer: PullAnswer) -> int | None:
        """The broker's next offset, when it goes forward and not beyond its max."""
        if start < answer.next_begin_offset <= answer.max_offset:
            return answer.next_begin_offset
        return None

    def _adapt(self, got: int, wanted: int) -> None:
        """Ask for what the broker gives at once; for more when it always gives all."""
        if got < wanted:
            self.stride = got
            self._full_answers = 0
            return
        self._full_answers += 1
        if self._full_answers >= _FULL_ANSWERS and self.stride < MSG_NUMS_MAX:
            self.stride = min(MSG_NUMS_MAX, self.stride * 2)
            self._full_answers = 0
