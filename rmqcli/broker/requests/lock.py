"""Queue locks of orderly consumers: 41 and 42.

Not imitated: `onlyThisBroker` and the quorum of replicas (5.x's strict mode).

Source: `AdminBrokerProcessor.lockBatchMQ`, `unlockBatchMQ` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.broker.dispatch import handles
from rmqcli.broker.request import Reply, read_body
from rmqcli.wire.bodies.heartbeat import encode_lock_answer, parse_lock_request
from rmqcli.wire.codes import RequestCode

if TYPE_CHECKING:
    from rmqcli.broker.request import Request
    from rmqcli.broker.state.broker import BrokerState


@handles(RequestCode.LOCK_BATCH_MQ)
def lock_batch(broker: BrokerState, request: Request) -> Reply:
    """Take or renew locks; answers those that the client has now (41)."""
    group, client_id, queues = read_body(parse_lock_request, request)
    locked = broker.locks.lock(group, client_id, queues, request.now)
    return Reply(body=encode_lock_answer(locked))


@handles(RequestCode.UNLOCK_BATCH_MQ)
def unlock_batch(broker: BrokerState, request: Request) -> Reply:
    """Give locks back (42)."""
    group, client_id, queues = read_body(parse_lock_request, request)
    broker.locks.unlock(group, client_id, queues)
    return Reply()
