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

from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Final, TypeAlias

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
    from collections.abc import Iterable

    from rmqcli.trace.record import TraceRecord

FIELD_END: Final = "\x01"  # TraceConstants.CONTENT_SPLITOR
RECORD_END: Final = "\x02"  # TraceConstants.FIELD_SPLITOR
_NULL: Final = "null"

#: More fields than any record has; the rest of a longer one is not looked at.
_FIELDS_MAX: Final = 32
#: Records that are read of one message. A client writes 20 calls of a listener, each
#: with 1,024 messages at most.
RECORDS_MAX: Final = 65_536
_OLDEST_PUB: Final = 12  # fields

#: The name of each field, and what reads its text.
_Fields: TypeAlias = list[tuple[str, Callable[[str], object]]]


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
        kind, *texts = line.split(FIELD_END, _FIELDS_MAX)
        try:
            records.append(_read(kind, texts))
        except (KeyError, TypeError, ValueError):
            unreadable += 1
    return DecodedTrace(tuple(records), unreadable)


def trace_keys(record: TraceRecord) -> list[str]:
    """The keys under which a record can be found: its message's id and keys."""
    keys = None if isinstance(record, Recall) else record.keys
    return [record.msg_id, *(keys or "").split()]


def _encode(record: TraceRecord) -> str:
    _, layout = _LAYOUTS[type(record).__name__]
    values: list[object] = []
    for name, read in layout:
        value = getattr(record, name)
        values.append(int(value or 0) if read in _NUMBERED else value)
    if isinstance(record, Pub):
        values.pop()  # Java's clients do not write their host any more
    elif isinstance(record, SubAfter) and record.timestamp_ms is None:
        del values[-2:]
    texts = [type(record).__name__, *map(_text, values)]
    return FIELD_END.join(texts) + RECORD_END


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or value == "":
        return _NULL
    text = str(value)
    return text.replace(FIELD_END, "\ufffd").replace(RECORD_END, "\ufffd")


# --- reading ---


def _read(kind: str, texts: list[str]) -> TraceRecord:
    """Raises ValueError, or TypeError for missing fields."""
    if kind == "Pub" and len(texts) == _OLDEST_PUB:
        texts.insert(-1, _NULL)  # without the offset id
    if kind == "SubAfter" and (len(texts) < 8 or not texts[6]):
        del texts[6:]  # without time and group
    make, layout = _LAYOUTS[kind]
    read_texts = zip(layout, texts, strict=False)
    return make(**{name: read(text) for (name, read), text in read_texts})


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


def _message_type(text: str) -> TraceMessageType | None:
    value = _number(text)
    known = value in TraceMessageType.__members__.values()
    return TraceMessageType(value) if known else None


def _return_type(text: str) -> ConsumeReturnType | None:
    value = _number(text)
    known = value in ConsumeReturnType.__members__.values()
    return ConsumeReturnType(value) if known else None


#: The type of a field -> what reads it.
_READERS: Final[dict[str, Callable[[str], object]]] = {
    "int": _number,
    "int | None": _number,
    "bool": _flag,
    "str": _required,
    "str | None": lambda text: None if text in ("", _NULL) else text,
    "TraceMessageType | None": _message_type,
    "ConsumeReturnType | None": _return_type,
}
#: What reads enumerations, which are written as numbers.
_NUMBERED: Final = (_message_type, _return_type)
#: Kind of record -> its class, and its fields in the order in which they are written.
_LAYOUTS: Final[dict[str, tuple[Callable[..., TraceRecord], _Fields]]] = {
    kind.__name__: (
        kind,
        [(each.name, _READERS[str(each.type)]) for each in fields(kind)],
    )
    for kind in (Pub, SubBefore, SubAfter, EndTransaction, Recall)
}
