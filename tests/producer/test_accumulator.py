"""The accumulator in every order of submits, answers, failures and time.

A scripted network stores messages, refuses them, or loses the answer. Every message is
stored exactly once and its future has a result, or its future has an error; then it is
stored only if the error says that this is unknown.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqcli.api.calls.send import SendStatus
from rmqcli.errors import (
    BrokerError,
    ConnectError,
    DeadlineError,
    DisconnectedError,
    NotFoundError,
    SendUnknownError,
)
from rmqcli.producer.accumulator import Accumulator, Entry
from rmqcli.producer.backend import SendResult, SendsInFlight
from rmqcli.tasks import Pending
from rmqcli.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from rmqcli import tasks
    from rmqcli.errors import RmqError

TOPICS = ("orders", "bills")
PLACES = {"orders": (0, 1, 2), "bills": (0,)}
KEYS = (None, None, "a", "b")
#: of a batch, with the 256 bytes that each message costs besides its own size
BATCH_BYTES_MAX = 1_048_576
BATCH_MESSAGES_MAX = 512
SIZES = (1, 1, 1, 100, 200_000)


class Request:
    """A request in flight."""

    def __init__(self, entries: Sequence[Entry], place: Hashable) -> None:
        self.entries = list(entries)
        self.place = place
        self.answer: Pending[Callable[[int], SendResult]] = Pending()


class World:
    """An accumulator, its network, its runner, and what they must not do."""

    def __init__(self, linger_ms: int, *, has_loop: bool = False) -> None:
        self.clock = ManualClock()
        self.linger_ms = linger_ms
        self.in_flight = SendsInFlight()
        self.posted: list[Callable[[], None]] = []
        self.timers: list[tuple[int, Callable[[], None]]] = []
        self.opening: list[tuple[str, Pending[bool]]] = []
        self.open_topics: set[str] = set()
        self.requests: list[Request] = []
        #: (topic, key or place) -> numbers of messages in the order of storing
        self.stored: dict[tuple[str, Hashable], list[int]] = defaultdict(list)
        self.entries: list[Entry] = []
        #: messages of refused batches, which wait for their place
        self.halved: set[Entry] = set()
        #: (topic, key) -> the messages from the first on that has not ended
        self.not_ended: dict[tuple[str, Hashable], deque[Entry]] = defaultdict(deque)
        self.accumulator = Accumulator(
            self,
            self,
            post=self.posted.append,
            on_end=self.in_flight.end_async,
            linger_ms=linger_ms,
            clock=self.clock,
        )
        #: what the event loop of the program calls at the end of its turn
        self.soon: list[Callable[[], None]] = []
        if has_loop:
            self.accumulator.put_by(self.soon.append)

    # --- the runner ---

    def submit(self, request: tasks.Request[Any]) -> Pending[Any]:
        raise NotImplementedError

    def call_later(self, delay_ms: int, action: Callable[[], None]) -> None:
        self.timers.append((self.clock.now_ms + delay_ms, action))

    def run(self) -> None:
        """Do all that is due, as the back end's thread does."""
        self.end_turn()
        while True:
            due = [each for each in self.timers if each[0] <= self.clock.now_ms]
            if not due and not self.posted:
                break
            self.timers = [each for each in self.timers if each not in due]
            actions, self.posted[:] = list(self.posted), []
            for action in (*actions, *(action for _, action in due)):
                action()
        self.check_nothing_waits_in_vain()

    def end_turn(self) -> None:
        """Do what waits for the end of a turn of the program's event loop."""
        soon, self.soon[:] = list(self.soon), []
        for action in soon:
            action()

    # --- the network ---

    def open(self, topic: str) -> tasks.Task[bool]:
        if topic in self.open_topics:
            return True
        pending: Pending[bool] = Pending()
        self.opening.append((topic, pending))
        found: bool = yield pending
        self.open_topics.add(topic)
        return found

    def places(self, topic: str) -> Sequence[Hashable]:
        return PLACES[topic]

    def request(
        self, entries: Sequence[Entry], place: Hashable, timeout_ms: int
    ) -> tasks.Task[Callable[[int], SendResult]]:
        request = Request(entries, place)
        self.check_request(request, timeout_ms)
        self.requests.append(request)
        found: Callable[[int], SendResult] = yield request.answer
        return found

    def may_be_one_message(self, error: RmqError) -> bool:
        return isinstance(error, BrokerError)

    # --- what must hold ---

    def check_request(self, request: Request, timeout_ms: int) -> None:
        entries, first = request.entries, request.entries[0]
        assert len({(each.topic, each.key) for each in entries}) == 1
        assert len(entries) == 1 or not any(each.is_alone for each in entries)
        assert len(entries) <= BATCH_MESSAGES_MAX
        total = sum(each.cost_bytes for each in entries)
        assert len(entries) == 1 or total <= BATCH_BYTES_MAX
        if first.key is None:
            assert request.place in PLACES[first.topic]
        else:
            assert request.place == first.key
        left_ms = min(each.deadline_ms for each in entries) - self.clock.now_ms
        assert 0 < timeout_ms <= left_ms
        for other in self.requests:
            topic = other.entries[0].topic
            assert (topic, other.place) != (first.topic, request.place)
            assert not set(other.entries) & set(entries)
        assert not any(each.done() for each in entries)

    def check_nothing_waits_in_vain(self) -> None:
        """No message has lingered long enough while a place was free for it."""
        on_their_way = {each for request in self.requests for each in request.entries}
        busy = {(each.entries[0].topic, each.place) for each in self.requests}
        for (topic, key), entries in self.not_ended.items():
            while entries and entries[0].done():
                entries.popleft()
            if topic not in self.open_topics:
                continue
            places = PLACES[topic] if key is None else (key,)
            if all((topic, place) in busy for place in places):
                continue
            # Each of the others is younger than the first one that waits.
            for entry in entries:
                waits = entry not in on_their_way and entry not in self.halved
                if waits and not entry.done():
                    assert self.clock.now_ms - entry.put_ms < self.linger_ms
                    break

    # --- events ---

    def put(self, topic: str, key: Hashable, size: int, timeout_ms: int) -> None:
        self.in_flight.begin_async(1, lambda: False)
        entry = Entry(
            topic,
            key,
            len(self.entries),
            msg_id=str(len(self.entries)),
            size_bytes=size,
            is_alone=size == 100,
            timeout_ms=timeout_ms,
            now_ms=self.clock.now_ms,
        )
        self.entries.append(entry)
        self.not_ended[topic, key].append(entry)
        self.accumulator.put(entry)

    def opened(self, outcome: str) -> None:
        if not self.opening:
            return
        # Like a publisher, which shares the request for a route.
        topic = self.opening[0][0]
        asked = [pending for each, pending in self.opening if each == topic]
        self.opening = [each for each in self.opening if each[0] != topic]
        for pending in asked:
            if outcome == "missing":
                pending.fail(NotFoundError("no topic", code=17, name="TOPIC_NOT_EXIST"))
            else:
                pending.succeed(outcome == "batches")

    def answer(self, which: int, outcome: str) -> None:
        if not self.requests:
            return
        request = self.requests.pop(which % len(self.requests))
        numbers = [int(each.msg_id) for each in request.entries]
        if outcome in ("stored", "lost answer"):
            self.stored[request.entries[0].topic, request.place] += numbers
        if outcome == "stored":
            ids = [each.msg_id for each in request.entries]
            request.answer.succeed(lambda index: result_of(ids[index]))
        elif outcome == "refused":
            if len(numbers) > 1:
                self.halved.update(request.entries)
            request.answer.fail(BrokerError("no", code=13, name="MESSAGE_ILLEGAL"))
        elif outcome == "unreachable":
            request.answer.fail(ConnectError("no connection", address="b"))
        else:
            ids = [each.msg_id for each in request.entries]
            request.answer.fail(unknown(ids))

    def close(self) -> None:
        """As `Producer.close`: nothing lingers, and the network ends what is left."""
        self.accumulator.linger(0)
        self.run()
        while self.requests or self.opening:
            for _, pending in self.opening:
                pending.fail(DisconnectedError("closed", address="b"))
            self.opening = []
            for request in list(self.requests):
                self.requests.remove(request)
                ids = [each.msg_id for each in request.entries]
                request.answer.fail(unknown(ids))
            self.run()


def result_of(msg_id: str) -> SendResult:
    return SendResult(
        msg_id=msg_id,
        status=SendStatus.SEND_OK,
        queue=None,
        queue_offset=None,
        offset_msg_id=None,
    )


def unknown(ids: list[str]) -> SendUnknownError:
    error = SendUnknownError("no answer", address="b", msg_ids=tuple(ids))
    error.__cause__ = DisconnectedError("no answer", address="b")
    return error


PUT = st.tuples(
    st.just("put"),
    st.sampled_from(TOPICS),
    st.sampled_from(KEYS),
    st.sampled_from(SIZES),
    st.sampled_from((5, 1_000, 1_000_000)),
)
MANY = st.tuples(st.just("many"), st.sampled_from(TOPICS), st.sampled_from(KEYS))
RUN = st.tuples(st.just("run"))
OPENED = st.tuples(
    st.just("opened"), st.sampled_from(("batches", "batches", "single", "missing"))
)
OUTCOMES = ("stored", "refused", "unreachable", "lost request", "lost answer")
#: The topic is known, and a full batch of it is in flight while others wait.
BEGUN = (
    *(("many", "orders", key) for key in (None, "a")),
    ("run",),
    ("opened", "batches"),
)
ANSWER = st.tuples(st.just("answer"), st.integers(0, 3), st.sampled_from(OUTCOMES))
ADVANCE = st.tuples(st.just("advance"), st.sampled_from((1, 7, 500)))
EVENT = st.one_of(PUT, MANY, RUN, OPENED, *[ANSWER] * 4, ADVANCE)


def happen(world: World, event: Any) -> None:
    kind, *rest = event
    if kind == "many":
        for _ in range(520):
            world.put(rest[0], rest[1], 1, 1_000_000)
    elif kind == "run":
        world.run()
    elif kind == "advance":
        world.clock.advance(*rest)
        world.run()
    else:
        getattr(world, kind)(*rest)
        if kind != "put":
            world.run()


@pytest.mark.slow
@settings(max_examples=100)
@given(
    linger_ms=st.sampled_from((0, 0, 10)),
    has_loop=st.booleans(),
    begun=st.sampled_from(((), BEGUN)),
    events=st.lists(EVENT, min_size=8, max_size=40),
)
def test_every_message_is_stored_once_or_its_future_has_an_error(
    linger_ms, has_loop, begun, events
):
    world = World(linger_ms, has_loop=has_loop)
    for event in (*begun, *events):
        happen(world, event)
    world.close()

    placed = Counter(n for numbers in world.stored.values() for n in numbers)
    for number, entry in enumerate(world.entries):
        assert entry.done()
        assert entry.content is None
        error = entry.exception()
        if error is None:
            assert entry.result().msg_id == str(number)
            assert placed[number] == 1
        elif isinstance(error, SendUnknownError):
            assert (error.msg_ids, error.address) == ((str(number),), "b")
            assert placed[number] <= 1
        else:
            assert placed[number] == 0
            assert not isinstance(error, DeadlineError) or entry.timeout_ms < 1_000_000
    # Also what was in a batch that was refused: nothing overtakes its halves.
    for numbers in world.stored.values():
        assert numbers == sorted(numbers)
    world.in_flight.close(0)
    assert not world.in_flight._count


@pytest.mark.parametrize("key", [None, "a"])
def test_one_bad_message_of_a_batch_costs_a_few_requests_and_nothing_overtakes(key):
    """All of the batch went out again one by one, and behind later messages."""
    world = World(0)
    for _ in range(512):
        world.put("bills", key, 1, 1_000_000)
    world.run()
    world.opened("batches")
    requests = 0
    while world.requests:
        requests += 1
        if requests == 2:  # while the batch is halved
            world.put("bills", key, 1, 1_000_000)
        is_bad = any(each.msg_id == "100" for each in world.requests[0].entries)
        world.answer(0, "refused" if is_bad else "stored")
        world.run()
    assert requests == 1 + 2 * 9 + 1  # 512 messages, 9 halvings, the later message
    ((_, numbers),) = world.stored.items()
    assert numbers == [*range(100), *range(101, 513)]
    failed = [each.msg_id for each in world.entries if each.exception() is not None]
    assert failed == ["100"]


def test_a_later_message_does_not_overtake_while_the_topic_is_looked_for():
    """What waited was handed in again, behind what had been submitted meanwhile."""
    world = World(0)
    world.put("orders", "a", 1, 1_000_000)
    world.put("orders", "a", 1, 5)
    world.run()
    world.put("orders", "a", 1, 1_000_000)
    world.clock.advance(5)
    for _, action in world.timers:  # before the thread takes in the third message
        action()
    world.timers = []
    world.run()
    world.opened("batches")
    world.run()
    assert [each.msg_id for r in world.requests for each in r.entries] == ["0", "2"]
    assert isinstance(world.entries[1].exception(), DeadlineError)


@pytest.mark.parametrize("topic", TOPICS)
def test_closing_sends_what_lingers_once(topic):
    world = World(60_000)
    world.put(topic, None, 1, 1_000_000)
    world.put(topic, "a", 1, 1_000_000)
    world.run()
    world.opened("batches")
    world.run()
    assert world.requests == []
    world.accumulator.linger(0)
    world.run()
    assert [each.msg_id for r in world.requests for each in r.entries] == ["1", "0"]


def test_messages_of_one_turn_of_the_programs_loop_are_handed_over_together():
    world = World(0, has_loop=True)
    for number in range(3):
        world.put(TOPICS[0], None, number, 1_000_000)
    assert (len(world.soon), world.posted) == (1, [])
    world.end_turn()
    assert len(world.posted) == 1
    world.run()
    world.opened("batches")
    assert [[each.msg_id for each in r.entries] for r in world.requests] == [
        ["0", "1", "2"]
    ]


def test_closing_sends_messages_of_a_loop_that_has_stopped_within_its_turn():
    world = World(0, has_loop=True)
    world.put(TOPICS[0], None, 1, 1_000_000)
    world.soon.clear()
    world.accumulator.linger(0)
    world.run()
    world.opened("batches")
    assert [each.msg_id for r in world.requests for each in r.entries] == ["0"]
