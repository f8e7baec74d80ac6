"""A letter on its way, and the properties of the message that is sent again. Pure.

Most letters have properties that need no more than to be cut and joined as bytes. The
others the caller reads by the general rules (`rmqcli.wire.message.properties`).
"""

from __future__ import annotations

from functools import lru_cache
from itertools import compress
from typing import TYPE_CHECKING, Final, NamedTuple

from rmqcli.admin.dlq.letter import FLUSHED_FROM, REDRIVEN_FROM, REDRIVEN_TIMES
from rmqcli.dataclass import dataclass
from rmqcli.producer.message import SYSTEM_PROPERTIES
from rmqcli.wire.message.properties import IGNORED_IN_BATCHES, UNIQ_KEY

if TYPE_CHECKING:
    from rmqcli.admin.dlq.log import LetterPlace

_LEFT_OUT: Final = frozenset(
    name.encode() for name in (*SYSTEM_PROPERTIES, FLUSHED_FROM)
)
_FROM: Final = REDRIVEN_FROM.encode()
_TIMES: Final = REDRIVEN_TIMES.encode()
_SHARDING_KEY: Final = b"\x02__SHARDINGKEY\x01"  # MessageConst.PROPERTY_SHARDING_KEY
_IGNORED_IN_BATCHES: Final = tuple(
    f"\x02{name}\x01".encode() for name in IGNORED_IN_BATCHES
)
#: All bytes but 0x01 and 0x02, which separate properties.
_NO_MARKS: Final = bytes({*range(256)} - {1, 2})
_ADDED: Final = f"{REDRIVEN_FROM}\x01%b\x02{REDRIVEN_TIMES}\x011".encode()


class Retry(NamedTuple):
    """What a copy keeps of a message that waits for its next try.

    `msg_id` is its UNIQ_KEY; None if it has none.
    """

    queue_id: int
    reconsume_times: int
    sys_flag: int
    born_timestamp_ms: int
    msg_id: str | None


@dataclass(slots=True)
class Letter:
    """A letter to send: its name, and the message. Treat as immutable.

    `properties` are in their text form, without UNIQ_KEY. `retry` is None for a dead
    letter: its copy is a new message.
    """

    place: LetterPlace
    topic: str
    body: bytes
    properties: bytes
    flag: int
    retry: Retry | None = None


def redriven_properties(raw: bytes, name: str) -> bytes | None:
    """Return the properties of the first copy of a letter, whose name is `name`.

    `raw` are those of the letter, as they are stored. None if they are not ASCII, tell
    of an earlier redrive, or have an entry that is repeated or lacks its name or value:
    then what they mean is not what they say.
    """
    if not raw.isascii():
        return None
    if not raw.endswith(b"\x02"):
        raw += b"\x02"
    entries = raw.split(b"\x02")
    marks = raw.translate(None, _NO_MARKS)
    if marks == b"\x01\x02" * len(entries[1:]):
        parts = raw.replace(b"\x02", b"\x01").split(b"\x01")
        names, values = parts[:-1:2], parts[1::2]
    else:
        pairs = [entry.partition(b"\x01") for entry in entries[:-1]]
        names, values = [each[0] for each in pairs], [each[2] for each in pairs]
    kept = None if b"" in values else _kept(tuple(names))
    if kept is None:
        return None
    added = _ADDED % name.encode()
    return b"\x02".join([*compress(entries, kept), added, b""])


@lru_cache(maxsize=256)
def _kept(names: tuple[bytes, ...]) -> tuple[bool, ...] | None:
    """Return which properties a copy keeps. Most letters have the same names.

    None if a name is empty, repeated, or one of a redrive.
    """
    if len({*names, b"", _FROM, _TIMES}) != len(names) + 3:
        return None
    return tuple([name not in _LEFT_OUT for name in names])


def unique_key(msg_id: str) -> bytes:
    """Return the property with a message's id, in its text form."""
    return f"{UNIQ_KEY}\x01{msg_id}\x02".encode()


def sharding_key(properties: bytes) -> str | None:
    """Return the sharding key in the properties of a `Letter`, or None.

    In a FIFO topic that is the message group.
    """
    _, found, rest = (b"\x02" + properties).partition(_SHARDING_KEY)
    return rest.partition(b"\x02")[0].decode(errors="replace") if found else None


def goes_alone(properties: bytes) -> bool:
    """Whether brokers would not heed the properties of a `Letter` in a batch."""
    text = b"\x02" + properties
    return any(name in text for name in _IGNORED_IN_BATCHES)
