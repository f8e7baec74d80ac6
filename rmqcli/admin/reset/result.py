"""Judges a reset of one queue by the offsets that were read back. No I/O.

A committed offset that is not the target may still be a success, when an online
consumer has read on from the target. Whether that can be believed depends on the
mechanism.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from rmqcli.admin.reset.method import Mechanism
from rmqcli.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence


class QueueResult(enum.Enum):
    """The result in one queue. The names are part of the JSON contract."""

    CONFIRMED = "CONFIRMED"
    UNCHANGED = "UNCHANGED"
    OVERWRITTEN = "OVERWRITTEN"
    UNKNOWN = "UNKNOWN"
    NOT_ATTEMPTED = "NOT_ATTEMPTED"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOutcome:
    """A result; `read_back` is the last offset read, `note` a remark for the user.

    `is_good` is whether the reset did what was wanted.
    """

    result: QueueResult
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
) -> QueueOutcome:
    """Judge one queue that was set to `target`.

    `committed` is the offset before the reset. `seen` are the offsets read back, oldest
    first; None in it means that no offset was committed.
    """
    last = seen[-1] if seen else None
    if not seen:
        return QueueOutcome(
            result=QueueResult.UNKNOWN, is_good=False, note="could not be read back"
        )
    if last == target:
        return QueueOutcome(result=QueueResult.CONFIRMED, is_good=True, read_back=last)
    if last is not None and _went_on(
        committed=committed,
        target=target,
        last=last,
        was_there=target in seen and mechanism is not Mechanism.COMMIT,
        is_live=is_live,
    ):
        note = f"was {target}; a live consumer has since committed {last}"
        return QueueOutcome(
            result=QueueResult.CONFIRMED, is_good=True, read_back=last, note=note
        )
    if last == committed and target not in seen:
        note = (
            f"still {last}: the broker accepted the request, but the offset did not"
            " change"
        )
        return QueueOutcome(
            result=QueueResult.UNCHANGED, is_good=False, read_back=last, note=note
        )
    by = "a live consumer" if is_live else "another client"
    return QueueOutcome(
        result=QueueResult.OVERWRITTEN,
        is_good=False,
        read_back=last,
        note=f"set to {target}, but {by} has overwritten it with {last}",
    )


def judge_unchanged(*, target: int, seen: Sequence[int | None]) -> QueueOutcome:
    """Judge a queue that was already at its target and was left alone."""
    last = seen[-1] if seen else target
    note = "" if last == target else f"a live consumer has since committed {last}"
    return QueueOutcome(
        result=QueueResult.UNCHANGED, is_good=True, read_back=last, note=note
    )


def _went_on(
    *, committed: int | None, target: int, last: int, was_there: bool, is_live: bool
) -> bool:
    """Whether a consumer that started at `target` explains `last`."""
    if not is_live or last < target:
        return False
    if committed is None or target > committed:
        return True
    # In a replay, a consumer that is back at the old offset may have read everything
    # again or may never have moved. That is believed only when the target was read back
    # and the broker or the clients made the reset themselves.
    return last < committed or was_there
