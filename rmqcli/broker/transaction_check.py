"""Asking a producer how a transaction ended: the push 39.

Source: `AbstractTransactionalMessageCheckListener.sendCheckMessage`, `Broker2Client`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.broker.delayed_message import real_place
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.headers_client import CheckTransactionStateRequestHeader
from rmqcli.wire.message_encode import MessageFields, encode_message
from rmqcli.wire.properties import UNIQ_KEY

if TYPE_CHECKING:
    from rmqcli.broker.core import Broker
    from rmqcli.wire.message_record import StoredMessage


def push_check(broker: Broker, half: StoredMessage) -> None:
    """Ask one producer of the message's group; without any, nobody is asked."""
    properties = half.properties
    group, place = properties.get("PGROUP"), real_place(properties)
    if not group or place is None:
        return
    topic, queue_id = place
    peer = broker.clients.any_producer_peer(group)
    if peer is None:
        return
    body = encode_message(
        MessageFields(
            topic=topic,
            body=half.raw_body,
            queue_id=queue_id,
            queue_offset=half.queue_offset,
            commit_log_offset=half.commit_log_offset,
            flag=half.flag,
            sys_flag=half.sys_flag,
            born_timestamp_ms=half.born_timestamp_ms,
            born_host=half.born_host,
            store_timestamp_ms=half.store_timestamp_ms,
            store_host=half.store_host,
            reconsume_times=half.reconsume_times,
            prepared_transaction_offset=half.prepared_transaction_offset,
            properties=half.raw_properties,
        )
    )
    unique_key = properties.get(UNIQ_KEY)
    header = CheckTransactionStateRequestHeader(
        tran_state_table_offset=half.queue_offset,
        commit_log_offset=half.commit_log_offset,
        msg_id=unique_key,
        transaction_id=unique_key,
        offset_msg_id=half.offset_msg_id,
    )
    broker.push(peer, RequestCode.CHECK_TRANSACTION_STATE, header, body=body)
