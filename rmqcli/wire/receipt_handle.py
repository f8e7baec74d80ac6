"""The texts with which POP identifies messages: POP_CK, receipt handles, offset maps.

A client acknowledges a message that it received by POP with the message's handle, which
says in which batch the broker delivered it. It has two forms, both space-separated:

    start_offset pop_time invisible_time revive_queue_id retry broker_name queue_id
    ... the same, then offset and optionally commit_log_offset

The broker writes the first form into POP_CK of retried messages, and clients append the
offset; gRPC's receipt handle adds the commit log offset. `retry` says which topic the
offset belongs to (see `topic_type_of`). Times are ms.

Source: ReceiptHandle, ExtraInfoUtil, KeyBuilder in apache/rocketmq.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeVar

from rmqcli.dataclass import dataclass
from rmqcli.errors import HeaderError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

T = TypeVar("T")

NORMAL_TOPIC: Final = "0"
RETRY_TOPIC_V1: Final = "1"
RETRY_TOPIC_V2: Final = "2"

#: The revive queue of orderly POP, whose messages are not revived.
ORDER_REVIVE_QUEUE_ID: Final = 999  # POP_ORDER_REVIVE_QUEUE

_RETRY_PREFIX: Final = "%RETRY%"
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_INT32_MAX: Final = (1 << 31) - 1
_INT64_MAX: Final = (1 << 63) - 1
_HANDLE_CHARACTERS_MAX: Final = 1024
_PARTS_MIN: Final = 7
#: Longest text of one map. An answer holds at most 32 messages, so its maps are short.
_INFO_CHARACTERS_MAX: Final = 1 << 16
_SHOWN_MAX: Final = 80
K = TypeVar("K")


def pop_retry_topic(topic: str, group: str, *, v2: bool) -> str:
    """Return the topic of a group's POP retries of `topic`.

    With `v2` it has the name of 5.3.2, otherwise the older one.
    """
    return f"{_RETRY_PREFIX}{group}{'+' if v2 else '_'}{topic}"


def normal_topic(topic: str, group: str) -> str:
    """Return the topic that a retry topic belongs to, and any other topic unchanged.

    As in Java, `group` must be the group of the retry topic.
    """
    if not topic.startswith(_RETRY_PREFIX):
        return topic
    return topic[len(_RETRY_PREFIX) + len(group) + 1 :]


def topic_type_of(topic: str) -> str:
    """Return a topic's type as handles state it: normal, retry v1 or retry v2."""
    if not topic.startswith(_RETRY_PREFIX):
        return NORMAL_TOPIC
    return RETRY_TOPIC_V2 if "+" in topic else RETRY_TOPIC_V1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptHandle:
    """The parts of a handle: one message as POP delivered it. Times are ms.

    `start_offset` is the lowest offset of the batch. `offset` and `commit_log_offset`
    are None where the text has none.
    """

    start_offset: int
    pop_time_ms: int
    invisible_ms: int
    revive_queue_id: int
    topic_type: str
    broker_name: str
    queue_id: int
    offset: int | None = None
    commit_log_offset: int | None = None

    @property
    def next_visible_ms(self) -> int:
        """When the message becomes visible again without an ack, in epoch ms."""
        return self.pop_time_ms + self.invisible_ms

    @property
    def is_order(self) -> bool:
        """Whether the message was received by orderly POP."""
        return self.revive_queue_id == ORDER_REVIVE_QUEUE_ID

    @property
    def is_retry(self) -> bool:
        """Whether the message is in a POP retry topic."""
        return self.topic_type in (RETRY_TOPIC_V1, RETRY_TOPIC_V2)

    def real_topic(self, topic: str, group: str) -> str:
        """Return the topic that holds the message, given the subscribed topic."""
        if not self.is_retry:
            return topic
        return pop_retry_topic(topic, group, v2=self.topic_type == RETRY_TOPIC_V2)


def encode_receipt_handle(handle: ReceiptHandle) -> str:
    """Return the text of a handle; offsets that are None are left out.

    Raises ValueError for a broker name that contains a space, and for a commit log
    offset without an offset: such texts cannot be read back.
    """
    if " " in handle.broker_name:
        raise ValueError(f"broker_name {handle.broker_name!r} contains a space")
    if handle.offset is None and handle.commit_log_offset is not None:
        raise ValueError("commit_log_offset needs an offset")
    parts = (
        handle.start_offset,
        handle.pop_time_ms,
        handle.invisible_ms,
        handle.revive_queue_id,
        handle.topic_type,
        handle.broker_name,
        handle.queue_id,
        handle.offset,
        handle.commit_log_offset,
    )
    return " ".join([str(part) for part in parts if part is not None])


def decode_receipt_handle(text: str) -> ReceiptHandle:
    """Read a POP_CK or a receipt handle; parts after the ninth are ignored, as in Java.

    Raises HeaderError when the text is too long, has too few parts, or does not have a
    64-bit number (32-bit for queue ids) where one is required.
    """
    if len(text) > _HANDLE_CHARACTERS_MAX:
        raise HeaderError(
            f"the receipt handle is too long: {len(text)} characters, at most"
            f" {_HANDLE_CHARACTERS_MAX} are allowed"
        )
    parts = _split(text, " ")
    if len(parts) < _PARTS_MIN:
        raise HeaderError(f"the receipt handle {_shown(text)} has too few parts")

    def number(at: int, limit: int = _INT64_MAX) -> int:
        return _number(parts[at], text, limit)

    return ReceiptHandle(
        start_offset=number(0),
        pop_time_ms=number(1),
        invisible_ms=number(2),
        revive_queue_id=number(3, _INT32_MAX),
        topic_type=parts[4],
        broker_name=parts[5],
        queue_id=number(6, _INT32_MAX),
        offset=number(7) if len(parts) > 7 else None,
        commit_log_offset=number(8) if len(parts) > 8 else None,
    )


def encode_start_offset_info(offsets: Mapping[tuple[str, int], int]) -> str:
    """Return `startOffsetInfo` of (topic type, queue id) -> first offset of a batch."""
    return ";".join(f"{t} {queue} {start}" for (t, queue), start in offsets.items())


def decode_start_offset_info(text: str | None) -> dict[tuple[str, int], int]:
    """Read `startOffsetInfo`; None gives an empty dict. Raises HeaderError."""
    return _decode(text, _queue_id_of, _number)


def encode_msg_offset_info(offsets: Mapping[tuple[str, int], Sequence[int]]) -> str:
    """Return `msgOffsetInfo` of (topic type, queue id) -> offsets of the messages."""
    return ";".join(
        f"{t} {queue} {','.join(map(str, values))}"
        for (t, queue), values in offsets.items()
    )


#: A queue, or one message of it when the offset is not None.
OrderKey = tuple[int, "int | None"]


def encode_order_count_info(
    counts: Iterable[tuple[str, int, int | None, int]],
) -> str:
    """Return `orderCountInfo` of items of topic type, queue id, offset and count.

    The count is the number of earlier deliveries of the message. An item without an
    offset gives it for all messages of the queue that have no item themselves.
    """
    return ";".join(
        f"{t} {queue if offset is None else f'qo{queue}%{offset}'} {count}"
        for t, queue, offset, count in counts
    )


def decode_order_count_info(text: str | None) -> dict[tuple[str, OrderKey], int]:
    """Read `orderCountInfo`: (topic type, (queue id, offset or None)) -> count.

    None gives an empty dict. Raises HeaderError.
    """

    def key(value: str, whole: str) -> OrderKey:
        if not value.startswith("qo"):
            return _queue_id_of(value, whole), None
        queue, _, offset = value[2:].partition("%")
        return _queue_id_of(queue, whole), _number(offset, whole)

    return _decode(text, key, lambda value, whole: _number(value, whole, _INT32_MAX))


def _decode(
    text: str | None,
    read_key: Callable[[str, str], K],
    read_value: Callable[[str, str], T],
) -> dict[tuple[str, K], T]:
    if not text:
        return {}
    if len(text) > _INFO_CHARACTERS_MAX:
        raise HeaderError(
            f"the offsets in a POP answer are too long: {len(text)} characters, at most"
            f" {_INFO_CHARACTERS_MAX} are allowed"
        )
    table: dict[tuple[str, K], T] = {}
    for item in _split(text, ";"):
        parts = _split(item, " ")
        if len(parts) != 3:
            raise HeaderError(f"invalid offsets in a POP answer: {_shown(text)}")
        key = parts[0], read_key(parts[1], text)
        if key in table:
            raise HeaderError(
                f"the offsets in a POP answer repeat a queue: {_shown(text)}"
            )
        table[key] = read_value(parts[2], text)
    return table


def changed_handle(text: str) -> str:
    """Return the handle of a proxy's answer to a change as its broker knows it.

    A changed message is a batch of its own, which begins with its offset. Proxies in
    local mode answer with the first offset of the batch in which it was delivered, and
    a broker ignores an ack with that. Every other text is returned as it is.

    Source: LocalMessageService and ChangeInvisibleTimeProcessor in apache/rocketmq,
    issue 9583.
    """
    try:
        handle = decode_receipt_handle(text)
    except HeaderError:
        return text
    if handle.is_order or handle.offset is None:
        return text
    return f"{handle.offset} {text.partition(' ')[2]}"


def _split(text: str, separator: str) -> list[str]:
    # String.split: empty parts at the end are left out.
    parts = text.split(separator)
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts


def _queue_id_of(text: str, whole: str) -> int:
    return _number(text, whole, _INT32_MAX)


def _number(text: str, whole: str, limit: int = _INT64_MAX) -> int:
    if _INTEGER.fullmatch(text) and -limit - 1 <= int(text) <= limit:
        return int(text)
    raise HeaderError(
        f"{_shown(text)} in {_shown(whole)} is not a number from {-limit - 1}"
        f" to {limit}"
    )


def _shown(text: str) -> str:
    return repr(text[:_SHOWN_MAX])
