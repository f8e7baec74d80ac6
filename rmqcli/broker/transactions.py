"""Half messages. (Being written.)"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqcli.broker.core import Broker
    from rmqcli.wire.message_encode import MessageFields


class Transactions:
    """Half messages and their ends."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._numbers = itertools.count(1)

    def half(self, fields: MessageFields, properties: dict[str, str]) -> MessageFields:
        """The message as a half message."""
        return fields

    def unique_key(self) -> str:
        """A UNIQ_KEY for a message without one."""
        return f"{next(self._numbers):032X}"
