"""Which function answers which request to a name server, as in `broker.dispatch`.

Source: `DefaultRequestProcessor` and `ClientRequestProcessor` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.broker.dispatch import HandlerTable

if TYPE_CHECKING:
    from rmqcli.broker.namesrv.core import NameServer

NAMESRV_REQUESTS: Final[HandlerTable[NameServer]] = HandlerTable()
handles = NAMESRV_REQUESTS.handles
