"""Lines on stderr that say at which offset each queue begins, and why.

The engine reports the offset and the rule that decided. The group's committed offsets
are read before the consumer joins, because the 0 that a broker answers to a member may
also mean that nothing was committed and the queue still has its first message.
"""

from __future__ import annotations

import threading
from dataclasses import KW_ONLY, field
from typing import TYPE_CHECKING, Final, TypeVar

from rmqcli.api.calls.offset import (
    get_all_consumer_offset,
    get_min_offset,
    query_consumer_offset,
)
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.dataclass import dataclass
from rmqcli.engine.reports import QueueStart, Start
from rmqcli.errors import RmqError
from rmqcli.model import RETRY_GROUP_TOPIC_PREFIX
from rmqcli.position import Ago, AtTime, Earliest
from rmqcli.units import counted, format_duration
from rmqcli.wire.version import V5_0_0

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rmqcli.api.call import Call
    from rmqcli.api.client import Client
    from rmqcli.cli.consume.counts import Counts
    from rmqcli.cli.consume.status import Status
    from rmqcli.model import MessageQueue
    from rmqcli.position import Position

T = TypeVar("T")

#: For how long queues that begin are collected for one line.
_GATHER_MS: Final = 200
#: Time limit for reading offsets. Without them the lines are less precise.
_TIMEOUT_MS: Final = 2_000
#: At most this many offsets are on a line about one broker's queues of one topic.
_OFFSETS_MAX: Final = 64

#: Queue -> the group's committed offset, None without one. Missing if unknown.
Committed = dict["MessageQueue", "int | None"]


def read_committed(client: Client, group: str, topics: Iterable[str]) -> Committed:
    """Return the group's committed offset of each queue whose broker answers.

    Raises NoBrokerError when no broker answers.
    """
    found = _ask_masters(
        client,
        topics,
        lambda queue: query_consumer_offset(group, queue.topic, queue.queue_id),
    )
    client.raise_if_none_answers(outcome for _, _, outcome in found)
    committed: Committed = {}
    doubtful: dict[str, list[MessageQueue]] = {}
    for queue, address, outcome in found:
        if isinstance(outcome, RmqError):
            continue
        if outcome == 0 and client.broker_version(address) < V5_0_0:
            doubtful.setdefault(address, []).append(queue)
        else:
            committed[queue] = outcome
    for address, queues in doubtful.items():
        try:
            table = client.invoke(
                address, get_all_consumer_offset(), timeout_ms=_TIMEOUT_MS
            )
        except RmqError:
            continue
        for queue in queues:
            offsets = table.get((group, queue.topic), {})
            committed[queue] = offsets.get(queue.queue_id)
    return committed


def read_min_offsets(client: Client, topics: Iterable[str]) -> dict[MessageQueue, int]:
    """Return the min offset of each queue whose broker answers."""
    found = _ask_masters(
        client, topics, lambda queue: get_min_offset(queue.topic, queue.queue_id)
    )
    return {queue: each for queue, _, each in found if isinstance(each, int)}


def _ask_masters(
    client: Client, topics: Iterable[str], make: Callable[[MessageQueue], Call[T]]
) -> list[tuple[MessageQueue, str, T | RmqError]]:
    """Return each queue that has a master, its address, and the answer of that."""
    asked = []
    for topic in topics:
        route = client.route(topic)
        for queue in route.read_queues():
            try:
                address = client.master_of(route, queue.broker_name)
            except RmqError:
                continue
            pending = client.submit(address, make(queue), timeout_ms=_TIMEOUT_MS)
            asked.append((queue, address, pending))
    outcomes = client.gather([pending for _, _, pending in asked])
    return [
        (queue, address, outcome)
        for (queue, address, _), outcome in zip(asked, outcomes, strict=True)
    ]


@dataclass(slots=True, eq=False)
class Starts:
    """Collects the offsets at which queues begin, and writes lines about them.

    `position` is that of `--from`, and `is_typed` whether it was typed. `reset_hint` is
    the command that moves the group there.
    """

    counts: Counts
    _: KW_ONLY
    position: Position
    is_typed: bool
    reset_hint: str
    is_local: bool
    committed: Committed = field(default_factory=dict)
    #: for `--from first`: a member begins at 0, and the broker corrects that
    min_offsets: dict[MessageQueue, int] = field(default_factory=dict)
    _has_hinted: bool = field(default=False, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _waiting: list[QueueStart] = field(default_factory=list, init=False)
    _last_start_ms: int = field(default=0, init=False)

    def on_start(self, start: QueueStart) -> None:
        """Collect a queue that begins; called in the engine's thread."""
        with self._lock:
            self._waiting.append(start)
            self._last_start_ms = SYSTEM_CLOCK.monotonic_ms()
        self.counts.has_news.set()

    def say(self, status: Status, *, is_last: bool = False) -> None:
        """Write a line for each broker, topic and reason; call it in the main thread.

        Queues begin one by one. Their lines are written once no further queue has begun
        for `_GATHER_MS`, or at once with `is_last`.
        """
        with self._lock:
            age_ms = SYSTEM_CLOCK.monotonic_ms() - self._last_start_ms
            if age_ms < _GATHER_MS and not is_last:
                return
            starts, self._waiting = self._waiting, []
        lines: dict[tuple[str, str, str], list[QueueStart]] = {}
        for each in sorted(map(self._corrected, starts), key=lambda s: s.queue):
            queue = each.queue
            key = (queue.topic, queue.broker_name, self._why(each))
            lines.setdefault(key, []).append(each)
        for (topic, broker_name, why), some in lines.items():
            status.say(f"{topic}@{broker_name} begins at {_offsets(some)}: {why}")
        is_moot = any(self._is_moot(each) for each in starts)
        # From now on a committed 0 is the group's own, such as that of a reset.
        self.committed |= {each.queue: each.queue_offset for each in starts}
        if is_moot and self.is_typed and not self._has_hinted:
            self._has_hinted = True
            status.say(
                "--from applies only to queues without a committed offset; to move the"
                f" group: {self.reset_hint}"
            )

    def _corrected(self, each: QueueStart) -> QueueStart:
        if each.start is not Start.FIRST:
            return each
        first = self.min_offsets.get(each.queue, each.queue_offset)
        return QueueStart(each.queue, first, each.start)

    def _is_moot(self, each: QueueStart) -> bool:
        """Whether a committed offset overrides `--from`, which no retry topic obeys."""
        return (
            each.start is Start.COMMITTED
            and not _is_retry(each)
            and not self._is_zero_of_a_new_group(each)
        )

    def _is_zero_of_a_new_group(self, each: QueueStart) -> bool:
        """Whether the broker answered 0 for a queue without a committed offset."""
        is_known = each.queue in self.committed
        return is_known and not each.queue_offset and self.committed[each.queue] is None

    def _why(self, each: QueueStart) -> str:
        match each.start:
            case Start.COMMITTED if self.is_local:
                return "from this host's offsets file"
            case Start.COMMITTED if self._is_zero_of_a_new_group(each):
                return self._why_zero()
            case Start.COMMITTED if (
                each.queue not in self.committed
                and not each.queue_offset
                and not _is_retry(each)
            ):
                return (
                    "committed by the group, or new to it: for a new group, brokers"
                    " return 0 while a queue still has its first message"
                )
            case Start.COMMITTED if each.queue_offset or not _is_retry(each):
                return "committed by the group"
            case Start.FIRST:
                return "new to the group; first message (--from earliest)"
            case Start.LAST:
                return "new to the group; end of the queue (--from latest)"
            case Start.TIME:
                return f"new to the group; first message since {self._since()}"
        return "the group's retries, from the first one"

    def _since(self) -> str:
        """The time of `--from`; a duration counts from the start of the command."""
        match self.position:
            case AtTime(_, echo):
                return echo
            case Ago(ago_ms):
                return f"{format_duration(ago_ms)} before the start"
        return "the start"

    def _why_zero(self) -> str:
        if self.position == Earliest():
            return "new to the group; first message (--from earliest)"
        return (
            f"new to the group; brokers ignore --from {self.position} while a queue"
            " still has its first message, so the whole queue is read"
        )


def _is_retry(each: QueueStart) -> bool:
    return each.queue.topic.startswith(RETRY_GROUP_TOPIC_PREFIX)


def _offsets(starts: Sequence[QueueStart]) -> str:
    """Format the offsets: as `0:17 1:18`, or as one number if all are the same."""
    shown = [f"{each.queue.queue_id}:{each.queue_offset}" for each in starts]
    if len(starts) == 1:
        return f"{starts[0].queue_offset} in queue {starts[0].queue.queue_id}"
    if len({each.queue_offset for each in starts}) == 1:
        return f"{starts[0].queue_offset} in each of {counted(len(starts), 'queue')}"
    more = ""
    if len(shown) > _OFFSETS_MAX:
        more = f" and {len(shown) - _OFFSETS_MAX} more"
    return f"QUEUE:OFFSET {' '.join(shown[:_OFFSETS_MAX])}{more}"
