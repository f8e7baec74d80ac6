"""Where a queue that was just assigned is consumed from.

Decisions:
- Only "there is no offset" means that the group never consumed the queue; any other
  failure is an error, and the queue is left alone for this round (T6, rule of 5.0).
- A retry queue without an offset begins at 0, also for CONSUME_FROM_TIMESTAMP, where
  Java begins at its end and skips the retries that wait (A46).
- Where the end or a time decided, that is committed as if it had been consumed up to
  there: who is restarted before anything came would begin at a later end, and what was
  sent meanwhile would be lost (A06).

Source: RebalancePushImpl#computePullFromWhereWithException.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.engine.config import ConsumeFromWhere
from rmqcli.engine.told import Start, tell_start
from rmqcli.errors import DecodeError
from rmqcli.model import RETRY_GROUP_TOPIC_PREFIX

if TYPE_CHECKING:
    from rmqcli.engine.member import Member
    from rmqcli.engine.tasks import Task
    from rmqcli.model import MessageQueue


def compute_pull_from_where(
    member: Member, queue: MessageQueue, *, before: int | None = None
) -> Task[int]:
    """The offset to pull first; what was stored is in the offset table then.

    `before` is what this said the last time: it counts while nothing is stored. Raises
    RmqError when it cannot be known now.
    """
    stored: int | None = yield lambda done: member.offsets.read(queue, done)
    if stored is not None:
        if stored < 0:
            raise DecodeError(f"broker says that {queue} is committed at {stored}")
        member.offsets.table.put(queue, stored)
        if before is None:
            tell_start(member, queue, stored, Start.COMMITTED)
        return stored
    if before is not None:
        return before
    return (yield from _first_offset(member, queue))


def _first_offset(member: Member, queue: MessageQueue) -> Task[int]:
    """For a queue that the group never committed."""
    where = member.config.consume_from_where
    if queue.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        tell_start(member, queue, 0, Start.RETRIES)
        return 0
    if where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
        tell_start(member, queue, 0, Start.FIRST)
        return 0  # corrected by the broker when 0 is gone
    start = Start.LAST
    if where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
        start = Start.TIME
        time_ms = member.consume_timestamp_ms
        found: int = yield lambda done: member.network.search_offset(
            queue, time_ms, done
        )
    else:
        found = yield lambda done: member.network.max_offset(queue, done)
    offset = max(found, 0)
    member.offsets.table.put(queue, offset)
    tell_start(member, queue, offset, start)
    return offset
