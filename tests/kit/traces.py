"""Reads the traces that clients have written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli import Admin, NotFoundError
from rmqcli.trace.codec import decode_records
from rmqcli.trace.setting import TRACE_TOPIC

if TYPE_CHECKING:
    from rmqcli.trace.record import TraceRecord


def written(namesrv: str, topic: str = TRACE_TOPIC) -> list[TraceRecord]:
    """All records of a trace topic; none while the topic does not exist."""
    return [record for _, record in with_keys(namesrv, topic)]


def with_keys(
    namesrv: str, topic: str = TRACE_TOPIC
) -> list[tuple[list[str], TraceRecord]]:
    """All records of a trace topic, each with the keys of its message."""
    try:
        with Admin(namesrv=namesrv) as admin:
            messages = list(admin.read(topic, to="latest"))
    except NotFoundError:
        return []
    return [
        ((message.keys or "").split(), record)
        for message in messages
        for record in decode_records(message.body).records
    ]
