"""Reads single messages by queue and offset, for store times and edges of a plan.

Pulls as TOOLS_CONSUMER without a commit: nothing is left on the broker. A message that
cannot be read is left out: a plan is of use without it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rmqcli.admin.reset.plan import EdgeMessage
from rmqcli.api.calls.pull import pull_message
from rmqcli.errors import DecodeError, RmqError
from rmqcli.wire.message.decode import StoredMessage, decode_messages

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqcli.admin.reset.plan import QueuePlan, ResetPlan
    from rmqcli.api.client import Client
    from rmqcli.model import MessageQueue

#: What is shown of a body beside a target.
_PREVIEW_CHARS = 60

Place = tuple["MessageQueue", int]


def read_messages(
    client: Client, places: Iterable[Place]
) -> dict[Place, StoredMessage]:
    """The messages at `places`, asked for together; missing ones are left out."""
    asked = {}
    for place in dict.fromkeys(places):
        queue, queue_offset = place
        try:
            address = client.reader_of(queue)
        except RmqError:
            continue
        asked[place] = client.submit(
            address, pull_message(queue, queue_offset, max_msg_nums=1)
        )
    found = {}
    answers = client.gather(asked.values())
    for place, answer in zip(asked, answers, strict=True):
        if isinstance(answer, RmqError):
            continue
        for message in decode_messages(answer.body):
            if isinstance(message, StoredMessage) and message.queue_offset == place[1]:
                found[place] = message
    return found


def with_times(client: Client, plan: ResetPlan, *, with_edges: bool) -> ResetPlan:
    """`plan` with the store times of what it moves over, and with its edges."""
    places: list[Place] = []
    for each in plan.queues:
        places += _span(each) or ()
        if with_edges and each.target is not None:
            places += [(each.queue, each.target - 1), (each.queue, each.target)]
    found = read_messages(client, (p for p in places if p[1] >= 0))
    queues = []
    for each in plan.queues:
        changes: dict[str, object] = {}
        span = _span(each)
        if span is not None:
            first, last = found.get(span[0]), found.get(span[1])
            changes["first_store_ms"] = first and first.store_timestamp_ms
            changes["last_store_ms"] = last and last.store_timestamp_ms
        if with_edges and each.target is not None:
            changes["before"] = _edge(found.get((each.queue, each.target - 1)))
            changes["after"] = _edge(found.get((each.queue, each.target)))
        queues.append(replace(each, **changes))  # type: ignore[arg-type]  # by name
    return replace(plan, queues=tuple(queues))


def _span(plan: QueuePlan) -> tuple[Place, Place] | None:
    moved = plan.moved_range
    if moved is None or moved[0] >= moved[1]:
        return None
    return (plan.queue, moved[0]), (plan.queue, moved[1] - 1)


def _edge(message: StoredMessage | None) -> EdgeMessage | None:
    if message is None:
        return None
    try:
        body = message.body
    except DecodeError:
        body = message.raw_body
    return EdgeMessage(
        queue_offset=message.queue_offset,
        store_timestamp_ms=message.store_timestamp_ms,
        msg_id=message.msg_id,
        keys=message.keys,
        tags=message.tags,
        body_preview=body[: 4 * _PREVIEW_CHARS].decode("utf-8", "backslashreplace")[
            :_PREVIEW_CHARS
        ],
    )
