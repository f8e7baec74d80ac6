"""Recall handles, with which a producer withdraws a delayed message (5.3.2).

A handle is the base64 of `v1 topic broker_name timestamp message_id`, separated by
single spaces.

Source: RecallMessageHandle in apache/rocketmq.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from rmqcli.dataclass import dataclass
from rmqcli.errors import DecodeError

_VERSION: Final = "v1"
_CHARACTERS_MAX: Final = 4_096
_FAULT: Final = "recall handle is invalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallHandle:
    """The parts of a handle; `timestamp_ms` is text, because it may be anything."""

    topic: str
    broker_name: str
    timestamp_ms: str
    message_id: str


def encode_recall_handle(handle: RecallHandle) -> str:
    """Return the text of a handle."""
    parts = (
        *(_VERSION, handle.topic, handle.broker_name),
        *(handle.timestamp_ms, handle.message_id),
    )
    return base64.urlsafe_b64encode(" ".join(parts).encode()).decode("ascii")


def decode_recall_handle(text: str) -> RecallHandle:
    """Read a handle. Raises DecodeError, with Java's message."""
    if not text or len(text) > _CHARACTERS_MAX:
        raise DecodeError(_FAULT)
    try:
        padded = text + "=" * (-len(text) % 4)
        data = base64.b64decode(padded.encode(), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise DecodeError(_FAULT) from None
    parts = data.decode("utf-8", "replace").split(" ")
    if parts[0] != _VERSION or len(parts) < 5:
        raise DecodeError(_FAULT)
    return RecallHandle(
        topic=parts[1],
        broker_name=parts[2],
        timestamp_ms=parts[3],
        message_id=parts[4],
    )
