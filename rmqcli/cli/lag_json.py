"""The parts of `rmq lag -o json`: queues, members, what they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqcli.units import format_rfc3339
from rmqcli.wire.codes import language_name
from rmqcli.wire.version import version_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqcli.admin.lag import GroupLag, QueueLag
    from rmqcli.admin.lag_trend import Trend
    from rmqcli.admin.process_queues import ClientQueues, HeldQueue

Row = dict[str, Any]

_NO_OWNERS = "members were not asked: name one group, or give --process-queues"


def queue_json(queue: QueueLag) -> Row:
    return {
        "topic": queue.topic,
        "broker_name": queue.broker_name,
        "queue_id": queue.queue_id,
        "committed": queue.committed,
        "min_offset": queue.min_offset,
        "max_offset": queue.max_offset,
        "lag": queue.lag,
        "inflight": queue.inflight,
        "expired": queue.expired,
        "age_ms": queue.age_ms,
        "state": queue.state,
        "reason": queue.reason,
        "client_id": queue.client_id,
    }


def trend_json(trend: Trend) -> Row:
    return {
        "rate_in": trend.rate_in,
        "rate_out": trend.rate_out,
        "drain_ms": trend.drain_ms,
        "verdict": trend.verdict,
    }


def member_rows(lag: GroupLag) -> list[Row] | None:
    """One row a member; None where they are unknown."""
    members = lag.reading.members
    if members is None:
        return [] if lag.reading.members_unknown is None else None
    clients = lag.reading.clients or {}
    return [
        {
            "client_id": client_id,
            "address": connection.client_addr,
            "version": version_name(connection.version),
            "language": language_name(connection.language),
            "queues": _queues_of(clients.get(client_id)),
        }
        for client_id, connection in sorted(members.connections.items())
    ]


def _queues_of(client: ClientQueues | None) -> list[str] | None:
    if client is None or client.failure is not None:
        return None
    return [str(queue) for queue in client.held_queues()]


def client_reason(lag: GroupLag) -> str | None:
    """Why `client_id` is null where it is."""
    if lag.reading.members is None:
        return lag.reading.members_unknown or "nobody is online"
    if lag.reading.clients is None:
        return _NO_OWNERS
    failed = [c for c in lag.reading.clients.values() if c.failure is not None]
    if failed:
        return f"{failed[0].client_id} did not answer: {failed[0].failure}"
    return None


def all_held(lag: GroupLag) -> Iterable[HeldQueue]:
    return sorted(
        (held for c in (lag.reading.clients or {}).values() for held in c.queues),
        key=lambda held: held.queue,
    )


def held_json(held: HeldQueue) -> Row:
    return {
        "topic": held.queue.topic,
        "broker_name": held.queue.broker_name,
        "queue_id": held.queue.queue_id,
        "client_id": held.client_id,
        "commit_offset": held.commit_offset,
        "cached_count": held.cached_count,
        "cached_size_mib": held.cached_size_mib,
        "cached_min_offset": held.cached_min_offset,
        "cached_max_offset": held.cached_max_offset,
        "span": held.span,
        "span_limit": held.span_limit,
        "taken_count": held.taken_count,
        "taken_min_offset": held.taken_min_offset,
        "taken_max_offset": held.taken_max_offset,
        "locked": held.locked,
        "last_lock": _time(held.last_lock_ms),
        "dropped": held.dropped,
        "last_pull": _time(held.last_pull_ms),
        "last_consume": _time(held.last_consume_ms),
        "flags": list(held.flags),
    }


def _time(at_ms: int | None) -> str | None:
    return None if at_ms is None else format_rfc3339(at_ms)
