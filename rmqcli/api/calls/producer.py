"""Requests of a producer other than sends: the end of a transaction, unregistration.

Source: MQClientAPIImpl of the client; EndTransactionProcessor and ClientManageProcessor
of the broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.api.call import make_call, nothing
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.headers.client import UnregisterClientRequestHeader

if TYPE_CHECKING:
    from rmqcli.api.call import Call
    from rmqcli.wire.headers.send import EndTransactionRequestHeader


def end_transaction(header: EndTransactionRequestHeader) -> Call[None]:
    """Commit a half message, roll it back, or report that this is still undecided."""
    return make_call(
        RequestCode.END_TRANSACTION,
        nothing,
        what=f"end of transaction {header.transaction_id} of {header.producer_group}",
        header=header,
    )


def unregister_producer(client_id: str, group: str) -> Call[None]:
    """Leave a producer group."""
    return make_call(
        RequestCode.UNREGISTER_CLIENT,
        nothing,
        what=f"unregistration of producer {client_id}",
        header=UnregisterClientRequestHeader(client_id=client_id, producer_group=group),
    )
