"""A stored record's properties, for filters that look into messages.

Source: `MessageDecoder.decodeProperties` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.wire.message import decode_messages
from rmqcli.wire.message_record import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Mapping


def properties_of_record(record: bytes) -> Mapping[str, str]:
    """Empty when the record cannot be read: it then matches as one without any."""
    for message in decode_messages(record):
        if isinstance(message, StoredMessage):
            return message.properties
    return {}
