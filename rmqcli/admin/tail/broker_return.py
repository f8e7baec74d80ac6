"""Retries queues that could not be read when tail started, while tail follows others.

One small request is sent per broker, with back-off and without waiting for the answer.
Where a queue is read from is resolved once its broker answers. A queue that is back is
handed to the caller and not tried any more.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from rmqcli.admin.positions import resolve_each
from rmqcli.admin.read.address import AddressBook
from rmqcli.admin.tail.follow import is_refusal
from rmqcli.admin.tail.sql import sql_errors
from rmqcli.api.calls.offset import get_max_offset
from rmqcli.dataclass import dataclass
from rmqcli.errors import RmqError
from rmqcli.position import Ago, AtNow, Latest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rmqcli.api.client import Client, PendingCall
    from rmqcli.api.positions import ResolvedPosition
    from rmqcli.model import MessageQueue
    from rmqcli.position import Position

_BACKOFF_FIRST_MS = 500
_BACKOFF_LAST_MS = 5_000
#: Messages stored just when tail started must not be missed because clocks differ.
_MARGIN_MS = 1_000


@dataclass(slots=True, eq=False)
class _Broker:
    """One broker that is waited for, and its queues."""

    queues: set[MessageQueue] = field(default_factory=set)
    #: the queue that the request under way is about
    asked: MessageQueue | None = None
    not_before_ms: int = 0
    failures: int = 0
    is_back: bool = False


@dataclass(slots=True, eq=False)
class BrokerReturn:
    """Waits for brokers to return, and finds where to read their queues from.

    Add queues, and call `poll` repeatedly while the client does I/O. `position` is
    where the caller wants to read every queue from; None, the end, and times before now
    mean what they meant at `started_ms` of the client's monotonic clock, so that no
    message stored since is left out. `own` gives some queues another position, with the
    same meaning. Brokers are first asked whether they can filter by `sql`. `say` is
    called once for each broker that is waited for, and once when it is back. Queues
    that a broker refuses are given up. Not thread-safe.
    """

    client: Client
    position: Position | None
    started_ms: int = field(kw_only=True)
    say: Callable[[str], None] = field(kw_only=True)
    own: Mapping[MessageQueue, Position] = field(default_factory=dict, kw_only=True)
    sql: str | None = field(default=None, kw_only=True)
    _addresses: AddressBook = field(init=False)
    _brokers: dict[str, _Broker] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._addresses = AddressBook(self.client)

    @property
    def is_over(self) -> bool:
        """Whether no broker is waited for."""
        return not self._brokers

    def add(self, errors: Mapping[MessageQueue, RmqError]) -> None:
        """Wait for the queues in `errors`, which says why each could not be read.

        Queues that were refused are not waited for.
        """
        for queue, error in sorted(errors.items()):
            if is_refusal(error):
                continue
            if queue.broker_name not in self._brokers:
                self.say(f"{queue.broker_name}: {error.message}; retrying")
            self.expect(queue)

    def expect(self, queue: MessageQueue) -> None:
        """Wait for a new queue, of which no error is known."""
        self._brokers.setdefault(queue.broker_name, _Broker()).queues.add(queue)

    def poll(self) -> dict[MessageQueue, int | RmqError]:
        """Return the queues that are back, and those that are given up.

        The value is the offset to read from, or the error. Sends the requests that are
        due; waits only for a broker that answered a moment ago.
        """
        found: dict[MessageQueue, int | RmqError] = {}
        now_ms = self.client.clock.monotonic_ms()
        for name, broker in list(self._brokers.items()):
            if broker.is_back:
                found |= self._take_back(name, broker)
            elif broker.asked is None and now_ms >= broker.not_before_ms:
                self._ask(broker)
            if not broker.queues:
                del self._brokers[name]
        return found

    def _ask(self, broker: _Broker) -> None:
        queue = min(broker.queues)
        address = self._addresses.address(queue)
        if isinstance(address, RmqError):
            self._failed(broker)
            return

        def on_done(pending: PendingCall[int]) -> None:
            broker.asked = None
            if isinstance(pending.outcome(), RmqError):
                self._addresses.failed(queue, pending.address)
                self._failed(broker)
            else:
                broker.is_back = True

        broker.asked = queue
        try:
            self.client.submit(
                address, get_max_offset(queue.topic, queue.queue_id), on_done=on_done
            )
        except RmqError:
            broker.asked = None
            self._failed(broker)

    def _failed(self, broker: _Broker) -> None:
        broker.is_back = False
        backoff_ms = min(
            _BACKOFF_FIRST_MS << min(broker.failures, 10), _BACKOFF_LAST_MS
        )
        broker.failures += 1
        broker.not_before_ms = self.client.clock.monotonic_ms() + backoff_ms

    def _take_back(
        self, name: str, broker: _Broker
    ) -> dict[MessageQueue, int | RmqError]:
        found: dict[MessageQueue, int | RmqError] = {}
        places = []
        refused = []
        own = {q: self._wanted(p) for q, p in self.own.items() if q in broker.queues}
        wanted = self._wanted(self.position)
        queues = sorted(broker.queues)
        resolved: dict[MessageQueue, ResolvedPosition | RmqError] = {}
        if self.sql is not None:
            resolved |= sql_errors(self.client, self.sql, queues)
            queues = [queue for queue in queues if queue not in resolved]
        resolved |= resolve_each(self.client, queues, wanted, own=own)
        for queue, each in resolved.items():
            if not isinstance(each, RmqError):
                offset = each.min_offset if each.offset is None else each.offset
                found[queue] = offset
                places.append(f"{queue} from offset {offset}")
            elif is_refusal(each):
                found[queue] = each
                refused.append(f"not reading {queue}: {each.message}")
        broker.queues -= found.keys()
        if broker.queues:
            self._failed(broker)
        if found:
            reading = [f"reading {', '.join(places)}"] if places else []
            self.say("; ".join([f"{name} answers", *reading, *refused]))
        return found

    def _wanted(self, position: Position | None) -> Position:
        """Return `position` with the meaning that it had when tail started."""
        elapsed_ms = self.client.clock.monotonic_ms() - self.started_ms
        match position:
            case None | Latest() | AtNow():
                return Ago(elapsed_ms + _MARGIN_MS)
            case Ago(ago_ms):
                return Ago(ago_ms + elapsed_ms)
            case _:
                return position
