"""Which function answers which request code.

A processor takes the broker and the request and returns a `Reply`; None when it will be
answered later. It raises `Refusal` for every other code than success. Each area keeps
its own table.

Source: `BrokerController.registerProcessor`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from rmqcli.broker.processors_admin import ADMIN_PROCESSORS
from rmqcli.broker.processors_client import CLIENT_PROCESSORS
from rmqcli.broker.processors_read import READ_PROCESSORS
from rmqcli.broker.processors_send import SEND_PROCESSORS

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.broker.core import Broker
    from rmqcli.broker.request import Reply, Request

    Processor: TypeAlias = Callable[[Broker, Request], Reply | None]

PROCESSORS: dict[int, Processor] = {
    **READ_PROCESSORS,
    **SEND_PROCESSORS,
    **CLIENT_PROCESSORS,
    **ADMIN_PROCESSORS,
}
