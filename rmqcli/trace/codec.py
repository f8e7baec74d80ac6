"""The text form of traces: fields end with 0x01, records with 0x02. Pure.

    Pub             time, region, group, topic, msg id, tags, keys, store host,
                    body bytes, cost, message type, offset id, success, [client host]
                    (without the offset id in the oldest form)
    SubBefore       time, region, group, request id, msg id, retry times, keys
    SubAfter        request id, msg id, cost, success, keys, [return type],
                    [time, group]
    EndTransaction  time, region, group, topic, msg id, tags, keys, store host,
                    message type, transaction id, state, from check
    Recall          time, region, group, topic, msg id, success

Nothing is escaped, and Java writes a value that is absent as `null`, which is read as
None. Java's reader fails on a record whose last fields are empty, so an empty text is
written as `null`, too, and a separator within a text as U+FFFD.

Source: TraceDataEncoder in apache/rocketmq, 4.6.0 to 5.5.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.dataclass import dataclass
from rmqcli.trace.record import (
    ConsumeReturnType,
    EndTransaction,
    Pub,
    Recall,
    SubAfter,
    SubBefore,
    TraceMessageType,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rmqcli.trace.record import TraceRecord

FIELD_END: Final = "\x01"  # TraceConstants.CONTENT_SPLITOR
RECORD_END: Final = "\x02"  # TraceConstants.FIELD_SPLITOR
_NULL: Final = "null"

#: More fields than any record has; the rest of a longer one is not looked at.
_FIELDS_MAX: Final = 32
#: Records that are read of one message. A client writes 20 calls of a listener, each
#: with 1,024 messages at most.
RECORDS_MAX: Final = 65_536


@dataclass(frozen=True, slots=True)
class DecodedTrace:
    """The records of one message of a trace topic, and how many cannot be read."""

    records: tuple[TraceRecord, ...]
    unreadable: int = 0


def encode_records(records: Iterable[TraceRecord]) -> str:
    """Return the text form of records, as Java's clients of 5.x write it."""
    return "".join([_encode(each) for each in records])


def decode_records(body: bytes) -> DecodedTrace:
    """Read the records of a message; those that cannot be read are counted.

    Reads the forms of all versions. Bytes that are not UTF-8 become U+FFFD. Never
    raises.
    """
    records: list[TraceRecord] = []
    unreadable = 0
    for line in body.decode("utf-8", "replace").split(RECORD_END, RECORDS_MAX):
        if not line:
            continue
        kind, *fields = line.split(FIELD_END, _FIELDS_MAX)
        read = _READERS.get(kind)
        try:
            if read is None:
                raise ValueError(kind)  # noqa: TRY301  # as of a record that is cut
            records.append(read(fields))
        except (ValueError, IndexError):
            unreadable += 1
    return DecodedTrace(tuple(records), unreadable)


def trace_keys(record: TraceRecord) -> list[str]:
    """The keys under which a record can be found: its message's id and keys."""
    keys = None if isinstance(record, Recall) else record.keys
    return [record.msg_id, *(keys or "").split()]


def _encode(record: TraceRecord) -> str:
    fields: tuple[object, ...]
    match record:
        case Pub():
            fields = (
                *("Pub", record.timestamp_ms, record.region_id, record.group),
                *(record.topic, record.msg_id, record.tags, record.keys),
                *(record.store_host, record.body_bytes, record.cost_ms),
                int(record.message_type or 0),
                *(record.offset_msg_id, record.is_success),
            )
        case SubBefore():
            fields = (
                *("SubBefore", record.timestamp_ms, record.region_id, record.group),
                *(record.request_id, record.msg_id, record.retry_times, record.keys),
            )
        case SubAfter():
            fields = (
                *("SubAfter", record.request_id, record.msg_id, record.cost_ms),
                *(record.is_success, record.keys, int(record.return_type or 0)),
            )
            if record.timestamp_ms is not None:
                fields += (record.timestamp_ms, record.group)
        case EndTransaction():
            fields = (
                *("EndTransaction", record.timestamp_ms, record.region_id),
                *(record.group, record.topic, record.msg_id, record.tags, record.keys),
                *(record.store_host, int(record.message_type or 0)),
                *(record.transaction_id, record.state, record.is_from_check),
            )
        case Recall():
            fields = (
                *("Recall", record.timestamp_ms, record.region_id, record.group),
                *(record.topic, record.msg_id, record.is_success),
            )
    return FIELD_END.join([_text(each) for each in fields]) + RECORD_END


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or value == "":
        return _NULL
    text = str(value)
    return text.replace(FIELD_END, "\ufffd").replace(RECORD_END, "\ufffd")


# --- reading ---


def _read_pub(fields: Sequence[str]) -> Pub:
    is_old = len(fields) == 12  # without the offset id
    at = 11 if is_old else 12
    return Pub(
        timestamp_ms=_number(fields[0]),
        region_id=_optional(fields[1]),
        group=_optional(fields[2]),
        topic=_optional(fields[3]),
        msg_id=_required(fields[4]),
        tags=_optional(fields[5]),
        keys=_optional(fields[6]),
        store_host=_optional(fields[7]),
        body_bytes=_number(fields[8]),
        cost_ms=_number(fields[9]),
        message_type=_message_type(fields[10]),
        offset_msg_id=None if is_old else _optional(fields[11]),
        is_success=_flag(fields[at]),
        client_host=_optional(fields[13]) if len(fields) > 13 else None,
    )


def _read_sub_before(fields: Sequence[str]) -> SubBefore:
    return SubBefore(
        timestamp_ms=_number(fields[0]),
        region_id=_optional(fields[1]),
        group=_optional(fields[2]),
        request_id=_required(fields[3]),
        msg_id=_required(fields[4]),
        retry_times=_number(fields[5]),
        keys=_optional(fields[6]),
    )


def _read_sub_after(fields: Sequence[str]) -> SubAfter:
    has_type, has_time = len(fields) > 5, len(fields) > 7 and fields[6] != ""
    return SubAfter(
        request_id=_required(fields[0]),
        msg_id=_required(fields[1]),
        cost_ms=_number(fields[2]),
        is_success=_flag(fields[3]),
        keys=_optional(fields[4]),
        return_type=_return_type(fields[5]) if has_type else None,
        timestamp_ms=_number(fields[6]) if has_time else None,
        group=_optional(fields[7]) if has_time else None,
    )


def _read_end_transaction(fields: Sequence[str]) -> EndTransaction:
    return EndTransaction(
        timestamp_ms=_number(fields[0]),
        region_id=_optional(fields[1]),
        group=_optional(fields[2]),
        topic=_optional(fields[3]),
        msg_id=_required(fields[4]),
        tags=_optional(fields[5]),
        keys=_optional(fields[6]),
        store_host=_optional(fields[7]),
        message_type=_message_type(fields[8]),
        transaction_id=_optional(fields[9]),
        state=_required(fields[10]),
        is_from_check=_flag(fields[11]),
    )


def _read_recall(fields: Sequence[str]) -> Recall:
    return Recall(
        timestamp_ms=_number(fields[0]),
        region_id=_optional(fields[1]),
        group=_optional(fields[2]),
        topic=_optional(fields[3]),
        msg_id=_required(fields[4]),
        is_success=_flag(fields[5]),
    )


_READERS: Final[dict[str, Callable[[Sequence[str]], TraceRecord]]] = {
    "Pub": _read_pub,
    "SubBefore": _read_sub_before,
    "SubAfter": _read_sub_after,
    "EndTransaction": _read_end_transaction,
    "Recall": _read_recall,
}


def _number(text: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
        raise ValueError(text)
    value = int(text)
    if not -(2**63) <= value < 2**63:
        raise ValueError(text)
    return value


def _flag(text: str) -> bool:
    """Read a boolean. Java takes other texts for false; here they are an error."""
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _required(text: str) -> str:
    if text in ("", _NULL):
        raise ValueError(text)
    return text


def _optional(text: str) -> str | None:
    return None if text in ("", _NULL) else text


def _message_type(text: str) -> TraceMessageType | None:
    value = _number(text)
    known = value in TraceMessageType.__members__.values()
    return TraceMessageType(value) if known else None


def _return_type(text: str) -> ConsumeReturnType | None:
    value = _number(text)
    known = value in ConsumeReturnType.__members__.values()
    return ConsumeReturnType(value) if known else None
