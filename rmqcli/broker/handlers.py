"""The requests that a broker answers: importing this module completes the table."""

from __future__ import annotations

from rmqcli.broker.dispatch import BROKER_REQUESTS
from rmqcli.broker.requests import (  # noqa: F401  # each registers its handlers
    accounts,
    broker_info,
    call_consumer,
    clean,
    connections,
    consume_stats,
    end_transaction,
    groups,
    heartbeat,
    lock,
    offsets,
    pull_message,
    queues,
    reply_message,
    reset_offset,
    send_back,
    send_message,
    topics,
    view_message,
)
from rmqcli.broker.requests.pop import (  # noqa: F401
    ack_message,
    change_invisible_time,
    lite,
    notification,
    pop_message,
    query_assignment,
)

__all__ = ["BROKER_REQUESTS"]
