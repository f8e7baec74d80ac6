"""Requests of a consumer to its brokers: heartbeat, queue locks, retries, leaving.

Source: MQClientAPIImpl; ClientManageProcessor, AdminBrokerProcessor (locks) and
SendMessageProcessor (send-back) of the broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.api.call import make_call, nothing
from rmqcli.units import counted
from rmqcli.wire.bodies.heartbeat import LockBatchRequestBody, LockBatchResponseBody
from rmqcli.wire.body import decode_body, encode_body
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.headers.client import (
    ConsumerSendMsgBackRequestHeader,
    UnregisterClientRequestHeader,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqcli.api.call import Call
    from rmqcli.model import MessageQueue
    from rmqcli.wire.bodies.heartbeat import HeartbeatData


def send_heartbeat(heartbeat: HeartbeatData) -> Call[None]:
    """Register a client at a broker, with its groups and subscriptions."""
    return make_call(
        RequestCode.HEART_BEAT,
        nothing,
        what=f"heartbeat of {heartbeat.client_id}",
        body=encode_body(heartbeat),
    )


def unregister_client(
    client_id: str,
    *,
    consumer_group: str | None = None,
    producer_group: str | None = None,
) -> Call[None]:
    """Leave a group."""
    return make_call(
        RequestCode.UNREGISTER_CLIENT,
        nothing,
        what=f"unregistration of client {client_id}",
        header=UnregisterClientRequestHeader(
            client_id=client_id,
            producer_group=producer_group,
            consumer_group=consumer_group,
        ),
    )


def lock_batch_mq(
    group: str, client_id: str, queues: Sequence[MessageQueue]
) -> Call[set[MessageQueue]]:
    """Lock queues for one member; return the queues that the member holds now."""
    return make_call(
        RequestCode.LOCK_BATCH_MQ,
        lambda answer: set(
            decode_body(LockBatchResponseBody, answer.body).lock_ok_mq_set
        ),
        what=f"locks of {counted(len(queues), 'queue')} for group {group}",
        body=_lock_request(group, client_id, queues),
    )


def unlock_batch_mq(
    group: str, client_id: str, queues: Sequence[MessageQueue]
) -> Call[None]:
    """Unlock the queues among these that this member has locked."""
    return make_call(
        RequestCode.UNLOCK_BATCH_MQ,
        nothing,
        what=f"unlocking of {counted(len(queues), 'queue')} of group {group}",
        body=_lock_request(group, client_id, queues),
    )


def consumer_send_msg_back(header: ConsumerSendMsgBackRequestHeader) -> Call[None]:
    """Store a failed message in its group's retry topic or dead-letter topic."""
    return make_call(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        nothing,
        what=f"send-back of {header.origin_msg_id} for group {header.group}",
        header=header,
    )


def _lock_request(group: str, client_id: str, queues: Sequence[MessageQueue]) -> bytes:
    return encode_body(
        LockBatchRequestBody(
            client_id=client_id, consumer_group=group, mq_set=list(queues)
        )
    )
