"""Reads a broker's answer to a pull.

Source: PullStatus and MQClientAPIImpl#processPullResponse of the client.
"""

from __future__ import annotations

import enum
import operator
from typing import TYPE_CHECKING, Final

from rmqcli.dataclass import dataclass
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.header import from_ext_fields
from rmqcli.wire.headers.pull import PullMessageResponseHeader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.wire.command import RemotingCommand

_NUMBERS = operator.itemgetter(
    "nextBeginOffset", "minOffset", "maxOffset", "suggestWhichBrokerId"
)


class PullStatus(enum.Enum):
    """The outcome of a pull. Members keep Java's names."""

    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    NO_MATCHED_MSG = "NO_MATCHED_MSG"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


_STATUS = {
    int(ResponseCode.SUCCESS): PullStatus.FOUND,
    int(ResponseCode.PULL_NOT_FOUND): PullStatus.NO_NEW_MSG,
    int(ResponseCode.PULL_RETRY_IMMEDIATELY): PullStatus.NO_MATCHED_MSG,
    int(ResponseCode.PULL_OFFSET_MOVED): PullStatus.OFFSET_ILLEGAL,
}
#: The codes of the four outcomes; any other code is an error.
PULL_OK_CODES: Final = frozenset(_STATUS)


@dataclass(slots=True)
class PullAnswer:
    """A broker's answer to a pull; treat as immutable (one is made per 32 messages).

    The four numbers are those that the broker sent, not yet checked against anything.
    See `lower_end` for `min_offset`.
    `body` holds stored messages one after the other; it is empty unless FOUND.
    """

    status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    suggest_which_broker_id: int
    body: bytes


def parse_pull_answer(answer: RemotingCommand) -> PullAnswer:
    """Read an answer whose code is one of the four of PullStatus."""
    numbers = _plain_numbers(answer.ext_fields)
    if numbers is not None:
        return PullAnswer(_STATUS[answer.code], *numbers, answer.body)
    header = from_ext_fields(PullMessageResponseHeader, answer.ext_fields)
    return PullAnswer(
        _STATUS[answer.code],
        header.next_begin_offset,
        header.min_offset,
        header.max_offset,
        header.suggest_which_broker_id,
        answer.body,
    )


def lower_end(min_offset: int) -> int:
    """Return a queue's lower end; brokers say -1 if it had no messages yet.

    They do so for topics of batches only.
    Source: BatchConsumeQueue.getMinOffsetInQueue.
    """
    return 0 if min_offset == -1 else min_offset


def _plain_numbers(fields: Mapping[str, str]) -> tuple[int, int, int, int] | None:
    """Return the numbers of an ordinary answer, None for any other answer.

    This costs a fifth of `from_ext_fields`. Up to 18 digits always fit in 64 bits.
    """
    try:
        texts = _NUMBERS(fields)
    except KeyError:
        return None  # from_ext_fields reports what is missing
    joined = "".join(texts)
    if not (joined.isdecimal() and joined.isascii()) or max(map(len, texts)) > 18:
        return None
    try:
        next_begin, low, high, broker_id = map(int, texts)
    except ValueError:
        return None  # one of them is empty
    return next_begin, low, high, broker_id
