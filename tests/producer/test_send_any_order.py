"""`Sender` in every order of messages, pauses, failures and interrupts.

A scripted network of two brokers stores messages, refuses them, loses requests or
answers, or cannot be reached. Every message has one outcome, in the order of the input,
and the outcome is true: what is stored is stored once, what is not sent is not stored,
and only what had no answer is UNKNOWN.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from rmqcli import tasks
from rmqcli.api.calls.send import SendStatus
from rmqcli.clock import Now
from rmqcli.errors import BrokerError, BusyError, ConnectError, SendUnknownError
from rmqcli.model import MessageQueue
from rmqcli.producer.accumulator import Entry
from rmqcli.producer.backend import SendResult
from rmqcli.producer.message import OutgoingMessage
from rmqcli.producer.patience import Outages
from rmqcli.producer.send import WAIT_MS_MAX, Sender
from rmqcli.testing import ManualClock
from rmqcli.timers import Timers

QUEUES = [MessageQueue("T", name, 0) for name in ("a", "a2", "b")]


class Network:
    """Satisfies SendNetwork and Runner; an attempt ends after 10 ms."""

    def __init__(self, answers):
        self.clock = ManualClock()
        self.runner = self
        self.outages = Outages(self.clock, places=2, retry_for_ms=3_000)
        #: queue -> numbers of messages in the order of storing
        self.stored: defaultdict[MessageQueue, list[int]] = defaultdict(list)
        self.sent_at_once: Counter[MessageQueue] = Counter()
        self._answers = iter(answers)
        self._timers = Timers()
        self._next = self._turns = 0

    def open(self, topic):
        return True
        yield

    def places(self, topic):
        return QUEUES

    def entry(self, message):
        number, self._next = self._next, self._next + 1
        return Entry(
            "T",
            QUEUES[number % len(QUEUES)],
            number,
            msg_id=str(number),
            size_bytes=len(message.body),
            is_alone=False,
            timeout_ms=WAIT_MS_MAX,
            now_ms=self.clock.now_ms,
        )

    def request(self, entries, place, timeout_ms):
        name = place.broker_name[0]
        return self.outages.wait_out(name, lambda: self._attempt(entries, place))

    def _attempt(self, entries, place):
        numbers = [each.content for each in entries]
        self.sent_at_once[place] += 1
        assert self.sent_at_once[place] == 1
        yield tasks.Sleep(10)
        self.sent_at_once[place] -= 1
        answer = next(self._answers, "stored")
        if answer == "unreachable":
            raise ConnectError("no connection", address="x")
        if answer == "busy":
            raise BusyError("busy", code=2, name="SYSTEM_BUSY")
        if answer == "refused":
            raise BrokerError("no", code=13, name="MESSAGE_ILLEGAL")
        if answer != "lost request":
            self.stored[place] += numbers
        if answer.startswith("lost"):
            ids = tuple(each.msg_id for each in entries)
            raise SendUnknownError("no answer", address="x", msg_ids=ids)
        return lambda index: SendResult(
            msg_id=str(numbers[index]),
            status=SendStatus.SEND_OK,
            queue=place,
            queue_offset=None,
            offset_msg_id=None,
        )

    def may_be_one_message(self, error):
        return type(error) is BrokerError

    def post(self, action):
        action()

    def note_end(self, count):
        pass

    def submit(self, request):
        raise NotImplementedError

    def call_later(self, delay_ms, action):
        self._timers.at(self.clock.now_ms + delay_ms, lambda _: action())

    def wait(self, timeout_ms):
        self._turns += 1
        assert self._turns < 10_000  # else it waits for ever
        due_ms = self._timers.next_ms()
        limit_ms = self.clock.now_ms + timeout_ms
        until_ms = limit_ms if due_ms is None else min(due_ms, limit_ms)
        self.clock.advance(max(0, until_ms - self.clock.now_ms))
        now = Now(self.clock.now_ms, 0)
        for action in self._timers.take_due(self.clock.now_ms):
            action(now)


ANSWERS = ("stored", "unreachable", "busy", "refused", "lost request", "lost answer")
ITEM = st.sampled_from((1, 1, 1, 40_000, 600_000, None))


@settings(max_examples=150)
@given(
    items=st.lists(ITEM, max_size=30),
    answers=st.lists(
        st.one_of(st.just("stored"), st.sampled_from(ANSWERS)), max_size=40
    ),
    ends_badly=st.booleans(),
    is_interrupted=st.booleans(),
)
def test_every_message_has_one_outcome_in_order_and_it_is_true(
    items, answers, ends_badly, is_interrupted
):
    network = Network([*answers, *["unreachable"] * 1_000 * ends_badly])
    notes: list[str] = []
    sender = Sender(network, say=notes.append)
    read: list[int] = []

    def messages():
        for size in items:
            if size is not None:
                read.append(size)
            yield None if size is None else OutgoingMessage(b"x" * size)
        if is_interrupted:
            raise KeyboardInterrupt

    outcomes = []
    was_interrupted = False
    try:
        for some in sender.send(messages()):
            outcomes += some
    except KeyboardInterrupt:
        was_interrupted = True
        outcomes += sender.abandon()

    assert [o.msg_id for o in outcomes] == [str(n) for n in range(len(read))]
    if sender.given_up is None and not was_interrupted:
        assert len(read) == sum(size is not None for size in items)
    placed = Counter(n for numbers in network.stored.values() for n in numbers)
    for number, outcome in enumerate(outcomes):
        count = placed[number]
        if outcome.status == "SEND_OK":
            assert count == 1
        elif outcome.status == "UNKNOWN":
            assert count <= 1
        else:
            assert count == 0
    for numbers in network.stored.values():
        assert numbers == sorted(numbers)
    # Each outage begins with a line, and no two lines of a broker are alike.
    for name in ("a", "b"):
        kinds = ["retrying" in each for each in notes if each.startswith(name)]
        assert kinds == [n % 2 == 0 for n in range(len(kinds))]
