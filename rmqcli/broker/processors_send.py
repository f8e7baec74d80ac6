"""Who answers the requests of producers, and of consumers that send back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.broker.send_message import send_message
from rmqcli.wire.codes import RequestCode

if TYPE_CHECKING:
    from rmqcli.broker.processors import Processor

SEND_PROCESSORS: dict[int, Processor] = {
    RequestCode.SEND_MESSAGE: send_message,
    RequestCode.SEND_MESSAGE_V2: send_message,
}
