"""Requests about producers, other than sends: transactions and connections.

Source: MQClientAPIImpl of the client; EndTransactionProcessor, ClientManageProcessor
and AdminBrokerProcessor of the broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.api.call import header_of, make_call, nothing
from rmqcli.errors import BrokerError
from rmqcli.wire.body import decode_body
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.headers.admin import GetProducerConnectionListRequestHeader
from rmqcli.wire.headers.send import (
    RecallMessageRequestHeader,
    RecallMessageResponseHeader,
)
from rmqcli.wire.version import V4_9_4, V5_3_1

if TYPE_CHECKING:
    from rmqcli.api.call import Call
    from rmqcli.wire.bodies.consumer import Connection, ProducerInfo
    from rmqcli.wire.command import RemotingCommand
    from rmqcli.wire.headers.send import EndTransactionRequestHeader


def end_transaction(header: EndTransactionRequestHeader) -> Call[None]:
    """Commit a half message, roll it back, or report that this is still undecided."""
    return make_call(
        RequestCode.END_TRANSACTION,
        nothing,
        what=f"end of transaction {header.transaction_id} of {header.producer_group}",
        header=header,
    )


def recall_message(topic: str, recall_handle: str) -> Call[str]:
    """Withdraw a message that waits for its delivery time; return its UNIQ_KEY.

    The broker stores a record that deletes the message when it is due (5.3.2 and later,
    with recallMessageEnable). It does not look whether the message exists.
    """
    return make_call(
        RequestCode.RECALL_MESSAGE,
        lambda answer: header_of(RecallMessageResponseHeader, answer).msg_id,
        what=f"recall of a message of topic {topic}",
        header=RecallMessageRequestHeader(topic=topic, recall_handle=recall_handle),
        needs_version=V5_3_1,
    )


def get_all_producer_info() -> Call[dict[str, list[ProducerInfo]]]:
    """All producers that are connected to the broker, by group (4.9.4 and later)."""
    return make_call(
        RequestCode.GET_ALL_PRODUCER_INFO,
        _producer_table,
        what="producers",
        needs_version=V4_9_4,
    )


def get_producer_connection_list(group: str) -> Call[tuple[Connection, ...]]:
    """The producers of a group that are connected to the broker.

    A broker answers SYSTEM_ERROR for a group that it does not know, which is none.
    """
    return make_call(
        RequestCode.GET_PRODUCER_CONNECTION_LIST,
        _producer_connections,
        what=f"producers of group {group}",
        header=GetProducerConnectionListRequestHeader(producer_group=group),
        also_ok=(ResponseCode.SYSTEM_ERROR,),
    )


def _producer_table(answer: RemotingCommand) -> dict[str, list[ProducerInfo]]:
    from rmqcli.wire.bodies.consumer import ProducerTableInfo

    return decode_body(ProducerTableInfo, answer.body).data


def _producer_connections(answer: RemotingCommand) -> tuple[Connection, ...]:
    from rmqcli.wire.bodies.consumer import ProducerConnection

    if answer.code == ResponseCode.SYSTEM_ERROR:
        if "not exist" in (answer.remark or ""):
            return ()
        raise BrokerError(
            f"producers: the broker answered SYSTEM_ERROR: {answer.remark}",
            code=answer.code,
            name=ResponseCode.SYSTEM_ERROR.name,
            remark=answer.remark or "",
        )
    return decode_body(ProducerConnection, answer.body).connections
