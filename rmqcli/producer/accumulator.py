"""Gathers messages into requests: the way of `submit` and `rmq send` to the network.

Messages wait in lanes: those with the same key, such as a chosen queue, in one of their
own, and the others of a topic together. A request takes what has gathered in a lane as
soon as a place of it is free, so a message that finds a free place is sent at once, and
under load requests become full batches. A place (a queue of a broker, or a call to a
proxy) has one request in flight, so its messages keep their order, unless the network
retries a request at another place. A key is itself the only place of its messages.

A batch that a broker refuses because of one of its messages is halved, until only that
one fails. The halves are sent one after the other at the place of the batch, which
takes no other messages until they have ended.

| thread | calls |
|---|---|
| any | put |
| the back end's, in which tasks run | everything else |

Source: ProduceAccumulator of the client in apache/rocketmq.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from rmqcli import tasks
from rmqcli.dataclass import dataclass
from rmqcli.errors import RmqError, SendUnknownError, TimeLimitError, TransportError
from rmqcli.producer.backend import out_of_time, unknown_send
from rmqcli.producer.future import SendFuture
from rmqcli.producer.lane import MESSAGE_OVERHEAD_BYTES, Lane

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from rmqcli.clock import Clock
    from rmqcli.producer.backend import SendResult


class Entry(SendFuture):
    """A submitted message, in the form that the network sends, and its future.

    One object is both, because programs submit very many. `content` is given up at the
    end, because a program may keep its futures.
    """

    __slots__ = (
        "content",
        "cost_bytes",
        "deadline_ms",
        "is_alone",
        "is_awaited",
        "key",
        "msg_id",
        "put_ms",
        "timeout_ms",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        key: Hashable,
        content: Any,  # noqa: ANN401  # the network's
        *,
        msg_id: str,
        size_bytes: int,
        is_alone: bool,
        timeout_ms: int,
        now_ms: int,
    ) -> None:
        self.topic = topic
        self.key = key
        self.content = content
        self.msg_id = msg_id
        self.cost_bytes = size_bytes + MESSAGE_OVERHEAD_BYTES
        self.is_alone = is_alone
        self.timeout_ms = timeout_ms
        #: this and the next one on the clock's monotonic time
        self.put_ms = now_ms
        self.deadline_ms = now_ms + timeout_ms
        #: whether a timer is set for the end of its lingering
        self.is_awaited = False


class AccumulatorNetwork(Protocol):
    """Sends the requests of an Accumulator, in the back end's thread."""

    def open(self, topic: str) -> tasks.Task[bool]:
        """Learn the places of a topic. Raises the errors of a send.

        Returns whether messages of the topic may share a request.
        """

    def places(self, topic: str) -> Sequence[Hashable]:
        """The places of an open topic, for messages without a key."""

    def request(
        self, entries: Sequence[Entry], place: Hashable, timeout_ms: int
    ) -> tasks.Task[Callable[[int], SendResult]]:
        """Store the messages with one request.

        Returns a function that makes the result of the message at an index, and that
        any thread may call.
        """

    def may_be_one_message(self, error: RmqError) -> bool:
        """Whether a batch may have been refused because of one message in it."""


@dataclass(slots=True, eq=False)
class _Topic:
    """The messages of one topic that wait, and the places that are taken."""

    name: str
    is_open: bool = False
    is_opening: bool = False
    is_sending: bool = False
    takes_batches: bool = True
    #: the messages without a key
    rest: Lane[Entry] = field(default_factory=Lane)
    #: the other messages; a key without waiting messages is not in it
    keyed: dict[Hashable, Lane[Entry]] = field(default_factory=dict)
    #: places with a request in flight
    busy: set[Hashable] = field(default_factory=set)
    #: how many requests without a key were sent
    turn: int = 0

    def lanes(self) -> list[Lane[Entry]]:
        return [*self.keyed.values(), self.rest]


@dataclass(slots=True, eq=False)
class Accumulator:
    """Sends what any thread puts into it. See the module.

    A message waits at most `linger_ms` for others to share its request, even if a place
    is free. `on_end` is called with the number of messages that are about to end.
    """

    network: AccumulatorNetwork
    runner: tasks.Runner
    post: Callable[[Callable[[], None]], None]
    on_end: Callable[[int], object]
    linger_ms: int
    clock: Clock
    #: appended to by any thread
    _inbox: deque[Entry] = field(default_factory=deque, init=False)
    _is_posted: bool = field(default=False, init=False)
    _topics: dict[str, _Topic] = field(default_factory=dict, init=False)
    _announce: Callable[[Callable[[], None]], object] = field(init=False)

    def __post_init__(self) -> None:
        self._announce = self.post

    def put(self, entry: Entry) -> None:
        """Take over a message; its future will end. Safe from any thread."""
        self._inbox.append(entry)
        if not self._is_posted:
            self._is_posted = True
            self._announce(self._take_in)

    def put_by(self, soon: Callable[[Callable[[], None]], object]) -> None:
        """Pass on what is put when `soon` calls its argument, all of it together.

        It is called in the thread that puts messages, which must always be the same.
        """
        self._announce = lambda action: soon(partial(self.post, action))

    def linger(self, linger_ms: int) -> None:
        """From now on messages wait at most `linger_ms`. Safe from any thread."""
        self.linger_ms = linger_ms
        self.post(self._send_every)

    def give_up(self, error: RmqError) -> None:
        """Fail every message that is not in a request yet. Not safe from any thread."""
        while self._inbox:
            self._fail(self._inbox.popleft(), error)
        for topic in self._topics.values():
            lanes, topic.keyed = topic.lanes(), {}
            for lane in lanes:
                for entry in lane.take_all():
                    self._fail(entry, error)

    def _send_every(self) -> None:
        self._take_in()
        for topic in list(self._topics.values()):
            self._send_all(topic)

    def _take_in(self) -> None:
        self._is_posted = False  # before the inbox is emptied: no message is left there
        touched: dict[_Topic, None] = {}
        topics, inbox = self._topics, self._inbox
        topic: _Topic | None = None
        while inbox:
            entry = inbox.popleft()
            if topic is None or topic.name != entry.topic:
                topic = topics.get(entry.topic)
                if topic is None:
                    topic = topics[entry.topic] = _Topic(entry.topic)
                touched[topic] = None
            key = entry.key
            lane = topic.rest if key is None else topic.keyed.get(key)
            if lane is None:
                lane = topic.keyed[key] = Lane()
            lane.put(entry)
        for topic in touched:
            self._send_all(topic)

    # --- learning where a topic is ---

    def _open(self, topic: _Topic) -> None:
        if topic.is_opening:
            return
        waiting = [lane.first for lane in topic.lanes() if not lane.is_empty]
        if not waiting:
            return
        topic.is_opening = True
        left_ms = min(each.deadline_ms for each in waiting)
        left_ms -= self.clock.monotonic_ms()
        step = tasks.Within(self.network.open(topic.name), max(1, left_ms))

        def opened(pending: tasks.Pending[bool]) -> None:
            topic.is_opening = False
            outcome = pending.outcome()
            if isinstance(outcome, RmqError):
                self._not_opened(topic, outcome)
            else:
                topic.is_open, topic.takes_batches = True, outcome
                self._send_all(topic)

        tasks.start(step, self.runner).on_done(opened)

    def _not_opened(self, topic: _Topic, error: RmqError) -> None:
        """Fail what waits; after a time limit, only what has no time left."""
        now_ms = self.clock.monotonic_ms()
        for lane in topic.lanes():
            kept = []
            for entry in lane.take_all():
                if isinstance(error, TimeLimitError) and entry.deadline_ms > now_ms:
                    kept.append(entry)
                else:
                    self._fail(entry, _worded(entry, error))
            lane.put_back(kept)
        topic.keyed = {k: lane for k, lane in topic.keyed.items() if not lane.is_empty}
        if any(not lane.is_empty for lane in topic.lanes()):
            self.post(lambda: self._send_all(topic))

    # --- sending ---

    def _send_all(self, topic: _Topic) -> None:
        """Send requests while there are messages and free places for them."""
        if not topic.is_open:
            self._open(topic)
            return
        if topic.is_sending:
            return  # a request has failed at once; the loop that sent it goes on
        topic.is_sending = True
        try:
            for key in list(topic.keyed):
                self._send_key(topic, key)
            self._send_rest(topic)
        finally:
            topic.is_sending = False

    def _send_key(self, topic: _Topic, key: Hashable) -> None:
        lane = topic.keyed.get(key)
        while lane is not None and key not in topic.busy and self._is_due(topic, lane):
            self._send_next(topic, lane, key)
            if lane.is_empty:
                topic.keyed.pop(key, None)
                return

    def _send_rest(self, topic: _Topic) -> None:
        lane = topic.rest
        places = self.network.places(topic.name)
        while self._is_due(topic, lane):
            for _ in places:
                place = places[topic.turn % len(places)]
                topic.turn += 1
                if place not in topic.busy:
                    break
            else:
                return
            self._send_next(topic, lane, place)

    def _is_due(self, topic: _Topic, lane: Lane[Entry]) -> bool:
        """Whether to send from a lane now; otherwise the time for it is noted."""
        if lane.is_empty:
            return False
        if not self.linger_ms or lane.is_full or not topic.takes_batches:
            return True
        first = lane.first
        left_ms = first.put_ms + self.linger_ms - self.clock.monotonic_ms()
        if left_ms <= 0:
            return True
        if not first.is_awaited:
            first.is_awaited = True
            self.runner.call_later(left_ms, lambda: self._send_all(topic))
        return False

    def _send_next(self, topic: _Topic, lane: Lane[Entry], place: Hashable) -> None:
        """Send the next request of a lane; none if it has only messages out of time."""
        taken = lane.take() if topic.takes_batches else [lane.take_one()]
        entries = self._in_time(taken)
        if not entries:
            return
        topic.busy.add(place)

        def freed(_pending: tasks.Pending[Any]) -> None:
            topic.busy.discard(place)
            self._send_all(topic)

        def ended(pending: tasks.Pending[Callable[[int], SendResult]]) -> None:
            halves = self._ended(entries, pending)
            if halves:
                halved = self._send_halves(halves, place)
                tasks.start(halved, self.runner).on_done(freed)
            else:
                freed(pending)

        tasks.start(self._request(entries, place), self.runner).on_done(ended)

    def _request(
        self, entries: list[Entry], place: Hashable
    ) -> tasks.Task[Callable[[int], SendResult]]:
        left_ms = min([each.deadline_ms for each in entries])
        left_ms -= self.clock.monotonic_ms()
        return self.network.request(entries, place, left_ms)

    def _in_time(self, taken: list[Entry]) -> list[Entry]:
        """Return the messages that have time left; the others fail."""
        now_ms = self.clock.monotonic_ms()
        entries = [each for each in taken if each.deadline_ms > now_ms]
        if len(entries) < len(taken):
            for entry in taken:
                if entry.deadline_ms <= now_ms:
                    late = out_of_time(entry.topic, (entry.msg_id,), entry.timeout_ms)
                    self._fail(entry, late)
        return entries

    def _ended(
        self,
        entries: list[Entry],
        pending: tasks.Pending[Callable[[int], SendResult]],
    ) -> list[list[Entry]]:
        """End the messages of a request; return the halves of a batch to send again.

        The first half is the last one, as on a stack.
        """
        outcome = pending.outcome()
        if not isinstance(outcome, RmqError):
            self.on_end(len(entries))
            for index, entry in enumerate(entries):
                entry.content = None
                entry.set_stored(outcome, index)
        elif len(entries) > 1 and self.network.may_be_one_message(outcome):
            half = len(entries) // 2
            return [entries[half:], entries[:half]]
        else:
            for entry in entries:
                self._fail(entry, _worded(entry, outcome))
        return []

    def _send_halves(
        self, halves: list[list[Entry]], place: Hashable
    ) -> tasks.Task[None]:
        """Send the halves of a batch, and halves of these, until each message ended."""
        while halves:
            entries = self._in_time(halves.pop())
            if entries:
                pending = tasks.start(self._request(entries, place), self.runner)
                with suppress(RmqError):
                    yield pending
                halves += self._ended(entries, pending)

    def _fail(self, entry: Entry, error: RmqError) -> None:
        self.on_end(1)
        entry.content = None
        entry.set_exception(error)


def _worded(entry: Entry, error: RmqError) -> RmqError:
    """The error of a request as that of one of its messages."""
    msg_ids, cause = (entry.msg_id,), error.__cause__
    if isinstance(error, TimeLimitError):
        return out_of_time(entry.topic, msg_ids, entry.timeout_ms)
    if isinstance(error, SendUnknownError) and isinstance(cause, TransportError):
        one = unknown_send(entry.topic, msg_ids, cause)
        one.__cause__ = cause
        return one
    return error
