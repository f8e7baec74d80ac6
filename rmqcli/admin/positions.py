"""Resolves positions to queue offsets on a live cluster, in many queues at once.

`resolve_ranges` and similar functions run one task for each queue
(`api.positions.resolve_in_queue`), all side by side and under one deadline, so that a
broker that does not answer affects only its own queues. One call sends the same request
only once: both ends of a range see the same min and max offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from rmqcli.admin.brokers import reader_addresses, split_answers
from rmqcli.api.broker_errors import not_found
from rmqcli.api.calls.config import get_subscription_group_names
from rmqcli.api.calls.consumer import get_consumer_connection_list
from rmqcli.api.calls.offset import get_all_consumer_offset
from rmqcli.api.positions import (
    UNSORTED,
    QueueRequests,
    RemoteQueue,
    ResolvedPosition,
    resolve_in_queue,
)
from rmqcli.api.runner import ClientRunner, run_task
from rmqcli.clock import Deadline
from rmqcli.dataclass import dataclass
from rmqcli.errors import DeniedError, RmqError
from rmqcli.log import get_logger
from rmqcli.model import OffsetRange
from rmqcli.position import AtGroup, AtTime, PlusN, Position
from rmqcli.tasks import All, Request, every, start
from rmqcli.units import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rmqcli.api.client import Client
    from rmqcli.clock import Clock
    from rmqcli.model import MessageQueue
    from rmqcli.tasks import Part, Pending, Task

T = TypeVar("T")

logger = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ResolvedRange:
    """Both ends of a range in one queue, resolved against the same min and max."""

    queue: MessageQueue
    start: ResolvedPosition
    end: ResolvedPosition

    @property
    def is_reversed(self) -> bool:
        """Whether the end is before the start."""
        return _offset_or_min(self.end) < _offset_or_min(self.start)

    @property
    def is_unsorted(self) -> bool:
        """Whether store times beside an end were seen not to be in order."""
        return self.start.is_unsorted or self.end.is_unsorted

    @property
    def offsets(self) -> OffsetRange:
        """The offsets to read; empty when the end is before the start.

        Where a group has committed nothing, the min offset is used: as a start it
        misses no message, and as an end it makes the range empty.
        """
        start, end = _offset_or_min(self.start), _offset_or_min(self.end)
        return OffsetRange(self.queue, start, max(start, end))


def resolve(
    client: Client, queues: Iterable[MessageQueue], position: Position
) -> dict[MessageQueue, ResolvedPosition]:
    """Resolve `position` in each queue. Raises the error of the first that failed.

    Raises NoBrokerError when no broker answers.
    """
    return all_or_raise(client, resolve_each(client, queues, position))


def resolve_each(
    client: Client,
    queues: Iterable[MessageQueue],
    position: Position,
    *,
    own: Mapping[MessageQueue, Position] | None = None,
) -> dict[MessageQueue, ResolvedPosition | RmqError]:
    """Resolve `position` in each queue; the value of a queue that failed is its error.

    `own` gives some queues another position.
    """
    own = own or {}
    return _run_for_each(
        client,
        queues,
        lambda queue, live: resolve_in_queue(
            live, own.get(queue, position), checks_order=True
        ),
    )


def resolve_ranges(
    client: Client, queues: Iterable[MessageQueue], start: Position, end: Position
) -> dict[MessageQueue, ResolvedRange]:
    """Resolve a range in each queue. Raises as `resolve` does."""
    return all_or_raise(client, resolve_ranges_each(client, queues, start, end))


def resolve_ranges_each(
    client: Client,
    queues: Iterable[MessageQueue],
    start: Position,
    end: Position,
    *,
    own_starts: Mapping[MessageQueue, Position] | None = None,
    own_ends: Mapping[MessageQueue, Position] | None = None,
) -> dict[MessageQueue, ResolvedRange | RmqError]:
    """Resolve a range in each queue; the value of a queue that failed is its error.

    `own_starts` and `own_ends` give some queues another start or end.
    """
    own_starts, own_ends = own_starts or {}, own_ends or {}
    return _run_for_each(
        client,
        queues,
        lambda queue, live: _resolve_range(
            queue, live, own_starts.get(queue, start), own_ends.get(queue, end)
        ),
    )


def warn_of_unsorted(
    ranges: Mapping[MessageQueue, ResolvedRange | RmqError],
) -> None:
    """Log a warning for each queue of which a range by time may be wrong."""
    for queue, found in sorted(ranges.items()):
        if isinstance(found, ResolvedRange) and found.is_unsorted:
            logger.warning("range not exact queue=%s reason=%s", queue, UNSORTED)


def resolve_times_each(
    client: Client, queues: Iterable[MessageQueue], times_ms: Sequence[int]
) -> dict[MessageQueue, list[ResolvedPosition] | RmqError]:
    """Find the first offset stored at or after each time (epoch ms), in each queue.

    The value of a queue that failed is its error.
    """
    return _run_for_each(
        client,
        queues,
        lambda _, live: every(
            *(resolve_in_queue(live, AtTime(each, "")) for each in times_ms)
        ),
    )


def _resolve_range(
    queue: MessageQueue, live: QueueRequests, start: Position, end: Position
) -> Task[ResolvedRange]:
    if isinstance(end, PlusN):
        # Counted from the resolved start, so the two cannot be resolved together.
        first = yield from resolve_in_queue(live, start, checks_order=True)
        last = yield from resolve_in_queue(
            live, end, start_offset=_offset_or_min(first)
        )
    else:
        first, last = yield from every(
            resolve_in_queue(live, start, checks_order=True),
            resolve_in_queue(live, end, checks_order=True),
        )
    return ResolvedRange(queue, first, last)


def _run_for_each(
    client: Client,
    queues: Iterable[MessageQueue],
    make_task: Callable[[MessageQueue, QueueRequests], Task[T]],
) -> dict[MessageQueue, T | RmqError]:
    """Run one task for each queue, all at once."""
    runner = ClientRunner(client, Deadline(client.clock, client.config.timeout_ms))
    brokers: dict[str, _BrokerAnswers] = {}
    queues = list(queues)
    results: dict[MessageQueue, T | RmqError] = {}
    tasks: dict[MessageQueue, Task[T]] = {}
    for queue in queues:
        try:
            address = client.reader_of(queue)
        except RmqError as error:
            results[queue] = error
            continue
        broker = brokers.get(address)
        if broker is None:
            broker = brokers[address] = _BrokerAnswers(runner)
        tasks[queue] = make_task(
            queue, _SharedQueue(queue, address, client.clock, broker)
        )
    results.update(zip(tasks, runner.run(tasks.values()), strict=True))
    return {queue: results[queue] for queue in queues}


def format_range(found: ResolvedRange | RmqError) -> str:
    """Describe the range of a queue for the user, with any remarks."""
    if isinstance(found, RmqError):
        return f"unknown: {found.message}"
    offsets = found.offsets
    text = f"{offsets.start} to {offsets.end}, {counted(len(offsets), 'message')}"
    notes = dict.fromkeys(n for n in (found.start.note, found.end.note) if n)
    if found.is_reversed:
        end = _offset_or_min(found.end)
        notes[f"the end of the range, {end}, is before its start"] = None
    return "; ".join((text, *notes))


def _offset_or_min(found: ResolvedPosition) -> int:
    return found.min_offset if found.offset is None else found.offset


def all_or_raise(
    client: Client, results: Mapping[MessageQueue, T | RmqError]
) -> dict[MessageQueue, T]:
    """Return the results if no queue failed.

    Raises the error of the first queue that failed, or NoBrokerError when no broker
    answers.
    """
    good, errors = split_answers(results)
    client.raise_if_none_answers(errors.values())
    for error in errors.values():
        raise error
    return good


class _BrokerAnswers:
    """The answers of one broker, shared by the tasks of one call.

    Each request is sent once, and all tasks that need it get the same answer.
    """

    def __init__(self, runner: ClientRunner) -> None:
        self._runner = runner
        self._asked: dict[object, Pending[Any]] = {}

    def once(self, key: object, make_part: Callable[[], Part]) -> Pending[Any]:
        """Start `make_part()` on the first call for `key`; always return its answer."""
        pending = self._asked.get(key)
        if pending is None:
            pending = self._asked[key] = start(make_part(), self._runner)
        return pending


class _SharedQueue(RemoteQueue):
    """A queue that sends each request once, also for other queues of its broker."""

    def __init__(
        self, queue: MessageQueue, address: str, clock: Clock, broker: _BrokerAnswers
    ) -> None:
        super().__init__(queue, address, clock)
        self._once = broker.once

    def min_offset(self) -> Part:
        """See QueueRequests."""
        return self._once((self.queue, "min"), super().min_offset)

    def max_offset(self) -> Part:
        """See QueueRequests."""
        return self._once((self.queue, "max"), super().max_offset)

    def offset_by_time(self, epoch_ms: int) -> Part:
        """See QueueRequests."""
        ask = super().offset_by_time
        return self._once((self.queue, "time", epoch_ms), lambda: ask(epoch_ms))

    def store_times(self, queue_offset: int) -> Part:
        """See QueueRequests."""
        ask = super().store_times
        return self._once(
            (self.queue, "stored", queue_offset), lambda: ask(queue_offset)
        )

    def broker_clock(self) -> Part:
        """See QueueRequests."""
        return self._once("clock", super().broker_clock)

    def committed(self, group: str) -> Part:
        """See QueueRequests."""
        ask = super().committed
        return self._once((self.queue, "committed", group), lambda: ask(group))

    def all_offsets(self) -> Part:
        """See RemoteQueue."""
        return self._once("all offsets", super().all_offsets)


def check_groups(
    client: Client,
    queues: Iterable[MessageQueue],
    positions: Iterable[Position | None],
) -> None:
    """Raise NotFoundError when a position names a group that no broker has.

    This catches mistyped names. A group exists when a broker of the queues has its
    settings, an offset of it for any topic, or a member of it online; it may still have
    committed nothing in a queue. Requests are sent only when a position names a group.
    A broker that does not answer may have the group, so then nothing is raised: the
    broker's queues cannot be read either.
    """
    groups = {p.group: None for p in positions if isinstance(p, AtGroup)}
    if not groups:
        return
    addresses: dict[str, str] = {}
    is_complete = True
    for queue in sorted(queues):
        if queue.broker_name in addresses:
            continue
        try:
            addresses[queue.broker_name] = client.reader_of(queue)
        except RmqError:
            is_complete = False
    for group in groups:
        if run_task(client, is_missing(group, addresses, is_complete=is_complete)):
            raise not_found("group", group)


def check_group_names(client: Client, groups: Iterable[str]) -> None:
    """Raise NotFoundError for the first of the groups that certainly does not exist.

    All brokers are asked; see `check_groups`.
    """
    brokers = client.cluster_info().brokers
    addresses = reader_addresses(brokers.values())
    is_complete = len(addresses) == len(brokers)
    for group in dict.fromkeys(groups):
        if run_task(client, is_missing(group, addresses, is_complete=is_complete)):
            raise not_found("group", group)


def is_missing(
    group: str, addresses: Mapping[str, str], *, is_complete: bool
) -> Task[bool]:
    """Return whether `group` certainly does not exist; see `check_groups`."""
    targets = list(dict.fromkeys(addresses.values()))
    names = yield All([Request(at, get_subscription_group_names()) for at in targets])
    for each in names:
        if isinstance(each, RmqError) or group in each:
            return False
    if not is_complete:
        return False
    answers = yield All(
        [Request(at, get_consumer_connection_list(group)) for at in targets]
        + [Request(at, get_all_consumer_offset()) for at in targets]
    )
    for connection in answers[: len(targets)]:
        if isinstance(connection, DeniedError):
            # A store folder that is read without its broker has no members. A running
            # broker, which has refused, has settings of each group with members.
            continue
        if connection is not None:  # the group is online, or the broker did not answer
            return False
    return not any(
        isinstance(table, RmqError) or any(name == group for name, _ in table)
        for table in answers[len(targets) :]
    )
