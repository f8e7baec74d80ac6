"""Count the offsets of one range: each is a row, filtered, undecodable or missing.

Offsets are taken from the records themselves, not from the ranges that the reader
claims to have delivered, so a lost or repeated record is always noticed. Pure.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from rmqcli.errors import BodyError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np
    import numpy.typing as npt

    from rmqcli.model import OffsetRange

Span = tuple[int, int]


class OffsetCounts:
    """The offsets of a range that have been seen. Not thread-safe."""

    def __init__(self, wanted: OffsetRange) -> None:
        self._wanted = wanted
        self._next = wanted.start
        self._holes: list[Span] = []
        self._reported: list[Span] = []
        self._undecodable: set[int] = set()
        self._illegible = 0
        self.decoded = 0

    def add(self, offsets: npt.NDArray[np.int64]) -> None:
        """Add the offsets of decoded records, in the order in which they arrived.

        Raises BodyError unless they are in the range, strictly ascending, and greater
        than all offsets that were added before.
        """
        import numpy as np

        if not len(offsets):
            return
        steps = np.diff(offsets)
        first, last = int(offsets[0]), int(offsets[-1])
        if first < self._next or last >= self._wanted.end or bool((steps < 1).any()):
            queue = self._wanted.queue
            raise BodyError(
                f"records of {queue.broker_name} queue {queue.queue_id} "
                f"have offsets {first} to {last}, out of order or out of range: "
                f"expected offsets after {self._next - 1} in the range "
                f"{self._wanted.start} to {self._wanted.end}"
            )
        if first > self._next:
            self._holes.append((self._next, first))
        for at in np.flatnonzero(steps > 1):
            self._holes.append((int(offsets[at]) + 1, int(offsets[at + 1])))
        self._next = last + 1
        self.decoded += len(offsets)

    def add_undecodable(self, queue_offset: int | None) -> None:
        """Add a record that could not be decoded. Its offset is None if unreadable."""
        if queue_offset is None:
            self._illegible += 1
        else:
            self._undecodable.add(queue_offset)

    def add_missing(self, spans: Iterable[Span]) -> None:
        """Add the ranges that the reader reports as missing on the broker."""
        self._reported.extend(spans)

    def close(self) -> tuple[int, tuple[Span, ...]]:
        """Return `(undecodable, missing)`; missing is sorted, disjoint, half-open.

        A hole that the reader did not report counts as undecodable when the offset of
        an undecodable record lies in it: a damaged record may cover several messages. A
        record without a readable offset is assigned to the first hole that is left; if
        none is left, the record did not belong to this range.
        """
        holes = self._holes
        if self._next < self._wanted.end:
            holes = [*holes, (self._next, self._wanted.end)]
        illegible, undecodable = self._illegible, 0
        offsets = sorted(self._undecodable)
        missing: list[Span] = []
        for start, end, reported in _split(holes, joined(sorted(self._reported))):
            at = bisect_left(offsets, start)
            bad = at < len(offsets) and offsets[at] < end
            if not reported and not bad and illegible:
                illegible -= 1
                bad = True
            if bad:
                undecodable += end - start
            else:
                missing.append((start, end))
        return undecodable, joined(missing)


def _split(
    holes: Iterable[Span], reported: Sequence[Span]
) -> Iterator[tuple[int, int, bool]]:
    """Cut the holes at the edges of the reported ranges.

    Yields start, end, and whether the piece was reported. `reported` is sorted and
    disjoint.
    """
    ends = [end for _, end in reported]
    for hole_start, hole_end in holes:
        at = hole_start
        index = bisect_right(ends, at)
        while index < len(reported) and reported[index][0] < hole_end:
            start, end = max(reported[index][0], at), min(reported[index][1], hole_end)
            if at < start:
                yield at, start, False
            yield start, end, True
            at = end
            index += 1
        if at < hole_end:
            yield at, hole_end, False


def joined(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Join sorted spans that touch or overlap; leave out empty ones."""
    found: list[Span] = []
    for start, end in spans:
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        elif start < end:
            found.append((start, end))
    return tuple(found)
