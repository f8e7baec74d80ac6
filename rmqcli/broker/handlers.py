"""The requests that a broker answers: importing this module completes the table."""

from __future__ import annotations

from rmqcli.broker.dispatch import BROKER_REQUESTS
from rmqcli.broker.requests import (  # noqa: F401  # each registers its handlers
    ack_message,
    broker_info,
    call_consumer,
    change_invisible_time,
    connections,
    consume_stats,
    end_transaction,
    groups,
    heartbeat,
    lock,
    notification,
    offsets,
    pop_message,
    pull_message,
    query_assignment,
    queues,
    reply_message,
    reset_offset,
    send_back,
    send_message,
    topics,
    view_message,
)

__all__ = ["BROKER_REQUESTS"]
