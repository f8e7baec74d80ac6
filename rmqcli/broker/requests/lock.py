"""Queue locks of orderly consumers: 41 and 42.

Imitated: a request locks or unlocks several queues; the answer lists the queues that
the client holds.
Not imitated: `onlyThisBroker` and the quorum of replicas (5.x's strict mode).

Source: `AdminBrokerProcessor.lockBatchMQ`, `unlockBatchMQ` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.broker.dispatch import handles
from rmqcli.broker.request import BrokerRequest, Reply
from rmqcli.wire.bodies.heartbeat import LockBatchRequestBody, LockBatchResponseBody
from rmqcli.wire.body import encode_body
from rmqcli.wire.codes import RequestCode

if TYPE_CHECKING:
    from rmqcli.broker.state.broker import BrokerState


@handles(RequestCode.LOCK_BATCH_MQ)
def lock_batch(broker: BrokerState, request: BrokerRequest) -> Reply:
    """Lock queues, or renew the locks; answer which the client holds now (41)."""
    body = request.body(LockBatchRequestBody)
    locked = broker.locks.lock(
        body.consumer_group, body.client_id, body.mq_set, request.now
    )
    return Reply(body=encode_body(LockBatchResponseBody(lock_ok_mq_set=locked)))


@handles(RequestCode.UNLOCK_BATCH_MQ)
def unlock_batch(broker: BrokerState, request: BrokerRequest) -> Reply:
    """Unlock queues (42)."""
    body = request.body(LockBatchRequestBody)
    broker.locks.unlock(body.consumer_group, body.client_id, body.mq_set)
    return Reply()
