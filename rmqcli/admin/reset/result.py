"""What a read-back says about one queue: decided here, no I/O.

A committed offset that is not the target may still be a success: a consumer that was
online has read on from there. Whether that can be believed depends on the mechanism.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmqcli.admin.reset.method import Mechanism

if TYPE_CHECKING:
    from collections.abc import Sequence


class Result(enum.Enum):
    """What became of one queue. Part of the JSON contract."""

    CONFIRMED = "CONFIRMED"
    UNCHANGED = "UNCHANGED"
    OVERWRITTEN = "OVERWRITTEN"
    UNKNOWN = "UNKNOWN"
    NOT_ATTEMPTED = "NOT_ATTEMPTED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A result; `read_back` is the offset seen last, `note` what a person should know.

    `is_good` is whether what was wanted is so.
    """

    result: Result
    is_good: bool
    read_back: int | None = None
    note: str = ""


def judge(
    *,
    committed: int | None,
    target: int,
    seen: Sequence[int | None],
    mechanism: Mechanism,
    is_live: bool,
) -> Outcome:
    """Judge one queue that was set to `target`.

    `committed` is what was there before, `seen` what was read back, oldest first; None
    in it is a queue without a committed offset.
    """
    last = seen[-1] if seen else None
    if not seen:
        return Outcome(
            result=Result.UNKNOWN, is_good=False, note="could not be read back"
        )
    if last == target:
        return Outcome(result=Result.CONFIRMED, is_good=True, read_back=last)
    if last is not None and _went_on(
        committed=committed,
        target=target,
        last=last,
        was_there=target in seen and mechanism is not Mechanism.COMMIT,
        is_live=is_live,
    ):
        note = f"was {target}; a live consumer has read on to {last}"
        return Outcome(result=Result.CONFIRMED, is_good=True, read_back=last, note=note)
    if last == committed and target not in seen:
        note = f"still {last}: the broker took the request and nothing changed"
        return Outcome(
            result=Result.UNCHANGED, is_good=False, read_back=last, note=note
        )
    by = "a live consumer" if is_live else "another client"
    return Outcome(
        result=Result.OVERWRITTEN,
        is_good=False,
        read_back=last,
        note=f"set to {target}, but {by} has committed {last} over it",
    )


def judge_unchanged(*, target: int, seen: Sequence[int | None]) -> Outcome:
    """Judge a queue that was already at its target and was left alone."""
    last = seen[-1] if seen else target
    note = "" if last == target else f"a live consumer has read on to {last}"
    return Outcome(result=Result.UNCHANGED, is_good=True, read_back=last, note=note)


def _went_on(
    *, committed: int | None, target: int, last: int, was_there: bool, is_live: bool
) -> bool:
    """Whether a consumer that started at `target` explains `last`."""
    if not is_live or last < target:
        return False
    if committed is None or target > committed:
        return True
    # Replaying: back at the old place it may have read all of it again, or never have
    # left. Only what the broker or the clients did themselves is believed.
    return last < committed or was_there
