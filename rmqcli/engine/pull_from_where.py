"""The first offset of a queue that has just been assigned.

Differences from Java:
- Only the answer "there is no offset" means that the group never consumed a queue. Any
  other failure leaves the queue unassigned for this round, as in clients since 5.0.
- A retry queue without an offset begins at 0, also with CONSUME_FROM_TIMESTAMP, where
  Java begins at its end and skips the retries in it.
- A start at the end or at a time is committed at once. Otherwise a member that restarts
  before its first message would begin at a later end, and lose the messages between.

Source: RebalancePushImpl#computePullFromWhereWithException.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.engine.config import ConsumeFromWhere
from rmqcli.engine.reports import Start, report_start
from rmqcli.errors import DecodeError
from rmqcli.log import get_logger
from rmqcli.model import RETRY_GROUP_TOPIC_PREFIX
from rmqcli.position import Ago, AtTime

if TYPE_CHECKING:
    from rmqcli.engine.member import Member
    from rmqcli.model import MessageQueue
    from rmqcli.position import Position
    from rmqcli.tasks import Task


logger = get_logger(__name__)


def compute_pull_from_where(
    member: Member, queue: MessageQueue, *, before: int | None = None
) -> Task[int]:
    """Return the first offset to pull; a committed offset is put into the offset table.

    `before` is the result of the previous call, which is used while no offset is
    committed. Raises RmqError when the offset cannot be determined now.
    """
    stored = yield from member.offsets.read(queue)
    if stored is not None:
        if stored < 0:
            raise DecodeError(f"negative committed offset {stored} of {queue}")
        member.offsets.table.put(queue, stored)
        if before is None:
            report_start(member.listener, queue, stored, Start.COMMITTED)
        return stored
    if before is not None:
        return before
    return (yield from _first_offset(member, queue))


def _first_offset(member: Member, queue: MessageQueue) -> Task[int]:
    """The first offset of a queue for which the group never committed an offset."""
    where = member.config.consume_from_where
    if queue.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        report_start(member.listener, queue, 0, Start.RETRIES)
        return 0
    if where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
        report_start(member.listener, queue, 0, Start.FIRST)
        return 0  # the broker corrects it when offset 0 is no longer stored
    start = Start.LAST
    if where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
        start = Start.TIME
        found = yield from member.network.resolve(queue, _begin(member))
    else:
        found = yield from member.network.max_offset(queue)
    offset = max(found, 0)
    member.offsets.table.put(queue, offset)
    if offset and not member.has_said_begin:
        member.has_said_begin = True
        logger.warning(
            "the group has committed no offset and begins at the end; to begin"
            " elsewhere, set consume_from group=%s queue=%s offset=%d",
            member.group,
            queue,
            offset,
        )
    report_start(member.listener, queue, offset, start)
    return offset


def _begin(member: Member) -> Position:
    """The time of CONSUME_FROM_TIMESTAMP; queues may be assigned after the start."""
    time_ms = member.config.consume_timestamp_ms
    if time_ms is not None:
        return AtTime(time_ms, str(time_ms))
    return Ago(member.config.consume_ago_ms + member.now_ms() - member.created_ms)
