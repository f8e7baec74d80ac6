"""The first offset stored at or after a time, whatever a broker's own search says.

`Queue` answers like old and new brokers: its searches imitate ConsumeQueue in 4.9 and
in 5.1.1, with their known faults.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.api.positions import (
    BrokerClock,
    RemoteQueue,
    ResolvedPosition,
    StoreTimes,
    resolve_in_queue,
)
from rmqcli.model import MessageQueue
from rmqcli.position import (
    Ago,
    AtGroup,
    AtNow,
    AtOffset,
    AtTime,
    Earliest,
    LastN,
    Latest,
    PlusN,
)
from rmqcli.tasks import Pending, start
from rmqcli.testing import ManualClock
from rmqcli.wire.pull_answer import PullAnswer, PullStatus
from tests.kit.rows import each_row


def answer(value):
    """Return a Pending that has already succeeded with `value`."""
    pending: Pending[object] = Pending()
    pending.succeed(value)
    return pending


class NoRunner:
    def submit(self, request):
        raise AssertionError(request)

    def call_later(self, delay_ms, action):
        raise AssertionError(delay_ms, action)


class Queue:
    """Satisfies QueueRequests: one queue of a broker.

    `times` are the store times from `min_offset` on, with None for an offset without a
    message. `kind` names the broker's search by time.
    """

    def __init__(self, times, *, min_offset=0, kind="new", now=10_000, committed=None):
        self.times = dict(enumerate(times, min_offset))
        self.low = min_offset
        self.high = min_offset + len(times)
        self.kind = kind
        self.now = now
        self.group_offset = committed
        self.rounds = 0

    def min_offset(self):
        return answer(self.low)

    def max_offset(self):
        return answer(self.high)

    def broker_clock(self):
        return answer(BrokerClock(self.now))

    def committed(self, _group):
        return answer(self.group_offset)

    def offset_by_time(self, epoch_ms):
        return answer(self.search(epoch_ms))

    def store_times(self, queue_offset):
        return answer(self.pull(queue_offset))

    def search(self, epoch_ms):
        there = [(o, t) for o, t in self.times.items() if t is not None]
        if self.kind == "useless" or not there:
            return 0
        if self.kind == "middle":
            return self.high // 2
        if self.kind == "last":
            return self.high
        if self.kind == "nearest":  # up to 5.1.0
            return min(there, key=lambda entry: (abs(entry[1] - epoch_ms), entry[0]))[0]
        young = [o for o, t in there if t >= epoch_ms]
        if young and young[0] == self.low:
            return 0  # the base of the consume queue file, below the min offset
        return young[0] if young else self.high

    def pull(self, queue_offset):
        """Return at most three messages, up to a multiple of seven (a file's end)."""
        if queue_offset >= self.high:
            return StoreTimes((), queue_offset)
        edge = (queue_offset // 7 + 1) * 7
        offsets = range(queue_offset, min(edge, queue_offset + 3, self.high))
        entries = [(o, self.times[o]) for o in offsets if self.times[o] is not None]
        return StoreTimes(tuple(entries), offsets[-1] + 1)

    def resolve(self, position, **settings):
        """Run the search; `rounds` counts how often it waited."""
        self.rounds = 0

        def counted():
            search = resolve_in_queue(self, position, **settings)
            outcome = None
            try:
                while True:
                    step = search.send(outcome)
                    self.rounds += 1
                    assert self.rounds < 200
                    outcome = yield step
            except StopIteration as stop:
                return stop.value

        return start(counted(), NoRunner()).result()


def at(epoch_ms):
    return AtTime(epoch_ms, "")


def truth(queue, epoch_ms):
    young = [o for o, t in queue.times.items() if t is not None and t >= epoch_ms]
    return min(young, default=queue.high)


KINDS = ["new", "nearest", "useless", "last"]


@each_row("kind", KINDS)
@each_row(
    ("epoch_ms", "offset"),
    [
        (0, 100),  # before the first
        (10, 100),  # the first
        (11, 101),  # between two: the later
        (20, 101),  # of three with the same time, the first
        (21, 104),
        (40, 105),  # the last
        (41, 106),  # after the last: the max offset, not the last message
        (10**12, 106),
    ],
)
def test_boundaries(kind, epoch_ms, offset):
    queue = Queue([10, 20, 20, 20, 30, 40], min_offset=100, kind=kind)
    assert queue.resolve(at(epoch_ms)) == ResolvedPosition(
        offset=offset, min_offset=100, max_offset=106, wanted=offset
    )


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_queue(kind):
    for min_offset in (0, 7):
        queue = Queue([], min_offset=min_offset, kind=kind)
        for position in (at(5), AtNow(), Ago(5), Earliest(), Latest(), LastN(3)):
            resolved = queue.resolve(position)
            assert resolved.offset == min_offset
            assert resolved.note == ""


@given(
    gaps=st.lists(st.sampled_from([0, 0, 1, 5]) | st.none(), max_size=60),
    min_offset=st.integers(0, 20),
    epoch_ms=st.integers(0, 300),
    kind=st.sampled_from(KINDS),
)
def test_the_first_not_older_in_any_queue(gaps, min_offset, epoch_ms, kind):
    """Equal times, holes, a trimmed start, any search: the answer is the same."""
    times, now = [], 0
    for gap in gaps:
        now += gap or 0
        times.append(None if gap is None else now)
    queue = Queue(times, min_offset=min_offset, kind=kind)
    assert queue.resolve(at(epoch_ms)).offset == truth(queue, epoch_ms)


@pytest.mark.parametrize(
    ("kind", "rounds"),
    [
        ("new", [2, 2, 2, 2, 2]),  # one for the ends and the hint, and one pull
        ("nearest", [2, 2, 2, 2, 2]),
        ("useless", [2, 18, 18, 17, 17]),
        ("last", [20, 18, 18, 3, 2]),
        ("middle", [18, 2, 2, 15, 15]),
    ],
)
def test_a_good_hint_needs_one_pull_and_a_bad_one_few(kind, rounds):
    """The queue has 10,000 messages, 10 ms apart."""
    queue = Queue(range(0, 100_000, 10), kind=kind)
    counted = []
    for epoch_ms, offset in (
        (0, 0),
        (50_005, 5_001),
        (50_010, 5_001),
        (99_990, 9_999),
        (99_991, 10_000),
    ):
        assert queue.resolve(at(epoch_ms)).offset == offset
        counted.append(queue.rounds)
    assert counted == rounds


@pytest.mark.parametrize(("kind", "rounds"), [("useless", 28), ("last", 27)])
def test_a_bad_hint_needs_few_pulls_among_a_million_messages(kind, rounds):
    queue = Queue(range(1_000_000), kind=kind)
    assert queue.resolve(at(777_777)).offset == 777_777
    assert queue.rounds == rounds


def test_many_messages_of_one_millisecond():
    """A batch of thousands shares one time; an old search lands anywhere in it."""
    queue = Queue([5] * 500 + [7] * 5000 + [9] * 500, kind="middle")
    assert queue.resolve(at(6)).offset == 500
    assert queue.rounds == 15


def test_a_gap_without_messages_is_crossed_by_what_the_broker_suggests():
    queue = Queue([1, *[None] * 40, 5])
    assert queue.resolve(at(3)).offset == 41
    assert queue.resolve(at(6)).offset == 42


def test_now_is_not_latest():
    """Messages may have been stored after the time that `now` stands for."""
    queue = Queue([1, 2, 9, 11, 12], now=10)
    assert queue.resolve(AtNow()).offset == 3
    assert queue.resolve(Latest()).offset == 5
    assert queue.resolve(Ago(8)).offset == 1
    assert queue.resolve(Ago(10**15)).offset == 0


@pytest.mark.parametrize("kind", ["new", "nearest"])
@pytest.mark.parametrize(
    "times",
    [
        [*range(100), *range(50, 300)],  # the end is found before or after the step
        [*range(100), *range(40, 79)],  # it ends before it has caught up
        [200, *range(100)],
    ],
    ids=["a step in the middle", "a step at the end", "a step after the first"],
)
def test_times_that_are_not_in_order_beside_the_one_searched_for_are_noticed(
    times, kind
):
    found = Queue(times, kind=kind).resolve(at(80), checks_order=True)
    assert found.is_unsorted
    assert found.note.startswith("store times are not in order here")


@pytest.mark.parametrize("kind", KINDS)
def test_times_in_order_and_messages_that_come_meanwhile_are_no_reason_to_warn(kind):
    queue = Queue([10, 10, 10, 20, 20, 30], min_offset=5, kind=kind)
    queue.high -= 1  # the last message came after the ends were read
    for epoch_ms in (0, 10, 15, 20, 25, 35):
        assert not queue.resolve(at(epoch_ms), checks_order=True).is_unsorted
    assert not Queue([]).resolve(AtNow(), checks_order=True).is_unsorted


@pytest.mark.parametrize(
    ("position", "offset", "wanted", "note"),
    [
        (Earliest(), 10, 10, ""),
        (Latest(), 20, 20, ""),
        (AtOffset(15), 15, 15, ""),
        (AtOffset(20), 20, 20, ""),
        (AtOffset(9), 10, 9, "9 is expired, the oldest is 10"),
        (AtOffset(21), 20, 21, "21 is beyond the end (20)"),
        (LastN(3), 17, 17, ""),
        (LastN(100), 10, 10, ""),
        (PlusN(4), 14, 14, ""),
        (PlusN(40), 20, 50, "50 is beyond the end (20)"),
    ],
)
def test_positions_by_number(position, offset, wanted, note):
    queue = Queue([1] * 10, min_offset=10)
    assert queue.resolve(position) == ResolvedPosition(
        offset=offset, min_offset=10, max_offset=20, wanted=wanted, note=note
    )
    assert queue.rounds == 1


def test_plus_counts_from_the_start_of_the_range():
    queue = Queue([1] * 10, min_offset=10)
    assert queue.resolve(PlusN(4), start_offset=12).offset == 16


def test_where_a_group_stands():
    assert Queue([1] * 5, committed=3).resolve(AtGroup("g")).offset == 3
    never = Queue([1] * 5).resolve(AtGroup("g"))
    assert (never.offset, never.note) == (None, "group g has committed nothing here")
    expired = Queue([1] * 5, min_offset=4, committed=3).resolve(AtGroup("g"))
    assert (expired.offset, expired.wanted) == (4, 3)


def test_ends_that_make_no_sense_are_an_empty_queue():
    """While it trims a queue, a broker may report min above max, and -1 for none."""
    queue = Queue([])
    queue.low, queue.high = 9, -1
    resolved = queue.resolve(Earliest())
    assert (resolved.min_offset, resolved.max_offset, resolved.offset) == (0, 0, 0)


# --- a queue of a broker ---

QUEUE = MessageQueue("t", "b", 3)


def ask(task):
    """Begin a task of a RemoteQueue; return it and the call that it makes."""
    request = next(task)
    assert request.address == "a:1"
    return task, request.call


def result(task, value):
    """Give a task its last answer, and return what it makes of that."""
    with pytest.raises(StopIteration) as ended:
        task.send(value)
    return ended.value.value


@pytest.mark.parametrize("offset", [None, 1, 7])
def test_a_committed_offset_above_0_is_believed(offset):
    queue = RemoteQueue(QUEUE, "a:1", ManualClock())
    task, call = ask(queue.committed("g"))
    assert str(call.what) == "committed offset of group g in t:3"
    assert result(task, offset) == offset


@pytest.mark.parametrize(
    ("table", "offset"),
    [
        ({}, None),
        ({("g", "t"): {2: 0}}, None),
        ({("g", "t"): {3: 0}}, 0),
        ({("g", "t"): {3: 5}}, 5),  # committed since
        ({("g", "u"): {3: 5}, ("h", "t"): {3: 5}}, None),
    ],
)
def test_a_committed_offset_of_0_is_looked_up_among_all(table, offset):
    task, _ = ask(RemoteQueue(QUEUE, "a:1", ManualClock()).committed("g"))
    (request,) = task.send(0).parts
    assert str(request.call.what) == "committed offsets of all groups"
    assert result(task, [table]) == offset


def test_store_times_are_read_from_the_first_messages():
    task, call = ask(RemoteQueue(QUEUE, "a:1", ManualClock()).store_times(9))
    fields = call.ext_fields
    assert (fields["queueOffset"], fields["maxMsgNums"]) == ("9", "4")
    assert (fields["sysFlag"], fields["suspendTimeoutMillis"]) == ("4", "0")
    answer = PullAnswer(
        status=PullStatus.NO_MATCHED_MSG,
        next_begin_offset=12,
        min_offset=0,
        max_offset=20,
        suggest_which_broker_id=0,
        body=b"",
    )
    assert result(task, answer) == StoreTimes((), 12)


def test_the_time_of_a_broker_is_compared_with_those_before_and_after_its_answer():
    clock = ManualClock(5_000)
    task, call = ask(RemoteQueue(QUEUE, "a:1", clock).broker_clock())
    assert call.what == "runtime info"
    clock.advance(3_000)
    table = {
        "bootTimestamp": "6500",
        "runtime": "0 days, 0 hours, 0 minutes, 0 seconds",
    }
    assert result(task, table) == BrokerClock(8_000)
