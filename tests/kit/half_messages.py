"""Sends half messages one by one, and ends them, as a producer that sends again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.api.calls.producer import end_transaction
from rmqcli.api.calls.send import send_message
from rmqcli.wire.headers.send import (
    EndTransactionRequestHeader,
    SendMessageRequestHeaderV2,
)
from rmqcli.wire.ids import decode_offset_msg_id
from rmqcli.wire.message.properties import encode_properties

if TYPE_CHECKING:
    from rmqcli.api.calls.send import SendAnswer
    from rmqcli.api.client import Client


def send_half(
    client: Client,
    address: str,
    topic: str,
    *,
    key: str,
    born_ms: int,
    group: str = "shop",
) -> SendAnswer:
    """Send a half message of a producer group, with this id and born time."""
    header = SendMessageRequestHeaderV2(
        producer_group=group,
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=4,
        born_timestamp=born_ms,
        flag=0,
        properties=encode_properties(
            {"UNIQ_KEY": key, "KEYS": key, "TRAN_MSG": "true", "PGROUP": group}
        ),
    )
    return client.invoke(address, send_message(header, b"x"))


def roll_back(
    client: Client, address: str, sent: SendAnswer, *, group: str = "shop"
) -> None:
    """End a half message."""
    (msg_id,) = sent.offset_msg_ids
    header = EndTransactionRequestHeader(
        producer_group=group,
        tran_state_table_offset=sent.queue_offset,
        commit_log_offset=decode_offset_msg_id(msg_id).commit_log_offset,
        commit_or_rollback=12,
        msg_id=msg_id,
    )
    client.invoke(address, end_transaction(header))
