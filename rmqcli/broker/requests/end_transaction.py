"""Committing a half message or rolling it back: 37.

Imitated: the checks that the request refers to this message; the committed copy; the
late request that 5.x refuses. As in RocketMQ, a second commit stores a second copy.
Not imitated: the warnings in the log.

Source: `EndTransactionProcessor` in apache/rocketmq.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from rmqcli.broker.dispatch import handles
from rmqcli.broker.message import delayed
from rmqcli.broker.message.copy import copy_fields, look_message
from rmqcli.broker.request import BrokerRequest, Refusal, Reply, system_error
from rmqcli.broker.requests.send_message import not_stored, put_or_refuse
from rmqcli.broker.state.transactions import CHECK_IMMUNITY, immunity_of
from rmqcli.store.message_store import StoreError
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.headers.send import EndTransactionRequestHeader
from rmqcli.wire.message.properties import REAL_TOPIC
from rmqcli.wire.message.system_flag import (
    TRANSACTION_COMMIT,
    TRANSACTION_ROLLBACK,
    with_transaction_type,
)

if TYPE_CHECKING:
    from rmqcli.broker.state.broker import BrokerState
    from rmqcli.wire.message.record import StoredMessage


@handles(RequestCode.END_TRANSACTION)
def end_transaction(broker: BrokerState, request: BrokerRequest) -> Reply:
    """Commit or roll back a half message (37); an unknown state changes nothing."""
    header = request.header(EndTransactionRequestHeader)
    end = header.commit_or_rollback
    if end not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
        return Reply()
    half = look_message(broker.store, header.commit_log_offset)
    if half is None:
        raise system_error("Find prepared transaction message failed")
    _need_same(header, half)
    if broker.profile.adds_transaction_id and not header.from_transaction_check:
        _need_in_time(broker, request, half)
    if end == TRANSACTION_COMMIT:
        _commit(broker, request, header, half)
    try:
        broker.transactions.ended(half.queue_offset, request.now)
    except StoreError as error:
        raise not_stored(error) from error
    return Reply()


def _need_same(header: EndTransactionRequestHeader, half: StoredMessage) -> None:
    if half.properties.get("PGROUP") != header.producer_group:
        raise system_error("The producer group wrong")
    if half.queue_offset != header.tran_state_table_offset:
        raise system_error("The transaction state table offset wrong")
    if half.commit_log_offset != header.commit_log_offset:
        raise system_error("The commit log offset wrong")


def _need_in_time(
    broker: BrokerState, request: BrokerRequest, half: StoredMessage
) -> None:
    """Refuse a request after the check immunity time that the message has set (5.x).

    Requests that answer a check are never late.
    """
    if CHECK_IMMUNITY not in half.properties:
        return
    age_ms = request.now.epoch_ms - half.born_timestamp_ms
    default_ms = broker.settings.transaction_timeout_ms
    if age_ms > immunity_of(half.properties, default_ms):
        raise Refusal(
            ResponseCode.ILLEGAL_OPERATION,
            f"the request arrived {age_ms} ms after the message was born, later than"
            " its check immunity time; wait for a transaction check",
        )


def _commit(
    broker: BrokerState,
    request: BrokerRequest,
    header: EndTransactionRequestHeader,
    half: StoredMessage,
) -> None:
    properties = dict(half.properties)
    place = delayed.real_place(properties)
    if place is None:
        raise system_error("Find prepared transaction message failed")
    topic, queue_id = place
    if not broker.profile.keeps_real_topic_of_transactions:
        del properties[REAL_TOPIC], properties[delayed.REAL_QID]
    fields = dataclasses.replace(
        copy_fields(
            broker,
            half,
            request.now,
            topic=topic,
            queue_id=queue_id,
            properties=properties,
        ),
        sys_flag=with_transaction_type(half.sys_flag, header.commit_or_rollback),
        prepared_transaction_offset=header.commit_log_offset,
    )
    fields = broker.delays.redirected(fields, properties, request.now)
    put_or_refuse(broker, [fields], request.now)
