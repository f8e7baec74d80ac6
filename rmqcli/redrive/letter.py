"""A letter on its way, and the properties of the message that is sent again. Pure.

Most letters have properties that need no more than to be cut and joined as bytes. The
others the caller reads by the general rules (`rmqcli.wire.message.properties`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rmqcli.admin.dlq.letter import REDRIVEN_FROM, REDRIVEN_TIMES
from rmqcli.producer.message import SYSTEM_PROPERTIES
from rmqcli.wire.message.properties import UNIQ_KEY

if TYPE_CHECKING:
    from rmqcli.redrive.log import LetterPlace

_LEFT_OUT: Final = frozenset(name.encode() for name in SYSTEM_PROPERTIES)
_FROM: Final = REDRIVEN_FROM.encode()
_TIMES: Final = REDRIVEN_TIMES.encode()
_ADDED: Final = f"{REDRIVEN_FROM}\x01%b\x02{REDRIVEN_TIMES}\x011".encode()


@dataclass(slots=True)
class Letter:
    """A letter to send: its name, and the message. Treat as immutable.

    `properties` are in their text form, without UNIQ_KEY.
    """

    place: LetterPlace
    topic: str
    body: bytes
    properties: bytes
    flag: int


def redriven_properties(raw: bytes, name: str) -> bytes | None:
    """Return the properties of the first copy of a letter, whose name is `name`.

    `raw` are those of the letter, as they are stored. None if they are not ASCII, tell
    of an earlier redrive, or have an entry that is repeated or lacks its name or value:
    then what they mean is not what they say.
    """
    if not raw.isascii():
        return None
    entries = (raw[:-1] if raw.endswith(b"\x02") else raw).split(b"\x02")
    try:
        values = dict([entry.split(b"\x01", 1) for entry in entries])
    except ValueError:  # an entry without 0x01
        return None
    if len(values) != len(entries) or b"" in values or b"" in values.values():
        return None
    if _FROM in values or _TIMES in values:
        return None
    kept = [e for e, n in zip(entries, values, strict=True) if n not in _LEFT_OUT]
    kept += (_ADDED % name.encode(), b"")
    return b"\x02".join(kept)


def unique_key(msg_id: str) -> bytes:
    """Return the property with a message's id, in its text form."""
    return f"{UNIQ_KEY}\x01{msg_id}\x02".encode()
