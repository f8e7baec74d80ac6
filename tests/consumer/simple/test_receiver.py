"""The requests of a SimpleConsumer, and what it returns and refuses.

A scripted network holds every receive until the test answers it, and time passes only
when the test says so.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import pytest

from rmqcli import tasks
from rmqcli.clock import Now
from rmqcli.consumer.simple.received import MessageLease, ReceivedMessage
from rmqcli.consumer.simple.receiver import Receiver
from rmqcli.errors import (
    BrokerError,
    BusyError,
    ConnectError,
    DisconnectedError,
    NotFoundError,
    ReceiptHandleError,
    RmqError,
    TimeLimitError,
)
from rmqcli.model import MessageQueue
from rmqcli.testing import ManualClock
from rmqcli.timers import Timers
from rmqcli.wire.message.record import StoredMessage
from rmqcli.wire.subscription import parse_subscription

A = MessageQueue("orders", "broker-a", -1)
B = MessageQueue("orders", "broker-b", -1)
PAYMENTS = MessageQueue("payments", "broker-a", -1)
HIDDEN_MS = 30_000


class Stored(StoredMessage):
    """A message whose id is made from its number."""

    __slots__ = ("number",)

    number: int

    @property
    def msg_id(self):
        return f"m{self.number}"


@dataclass
class Ask:
    """One receive request that is under way."""

    source: MessageQueue
    max_messages: int
    invisible_ms: int
    poll_ms: int
    expression: str
    pending: tasks.Pending[Any]


class World:
    """Satisfies PopNetwork and tasks.Runner."""

    poll_ms_max = 20_000
    poll_ms_min = 0
    answer_ms = 5_000

    def __init__(self, *sources, poll_ms_min=0):
        self.clock = ManualClock()
        self.timers = Timers()
        self.sources_of: dict[str, list[MessageQueue]] = {}
        for source in sources:
            self.sources_of.setdefault(source.topic, []).append(source)
        self.poll_ms_min = poll_ms_min
        self.asks = []
        self.acked = []
        #: message id -> the outcomes of its next acks; later acks succeed
        self.ack_errors = {}
        #: the Pendings for which the next ack requests wait
        self.acks = []
        self.changed = []
        #: the Pendings for which the next changes of the invisible time wait
        self.changes = []
        subscriptions = {t: parse_subscription(t, "*") for t in self.sources_of}
        self.receiver = Receiver(self, self, self.clock, subscriptions)
        self.numbers = iter(range(1_000))

    # --- tasks.Runner ---

    def submit(self, request):
        raise AssertionError(f"{request} is not for this network")

    def call_later(self, delay_ms, action):
        self.timers.at(self.clock.now_ms + delay_ms, lambda _: action())

    def pass_ms(self, ms):
        end_ms = self.clock.now_ms + ms
        while (due_ms := self.timers.next_ms()) is not None and due_ms <= end_ms:
            self.clock.now_ms = due_ms
            self.timers.run_due(Now(due_ms, due_ms))
        self.clock.now_ms = end_ms

    # --- PopNetwork ---

    def sources(self, topic):
        found = self.sources_of.get(topic)
        if found is None:
            raise NotFoundError("no such topic", code=17, name="TOPIC_NOT_EXIST")
        return found
        yield

    def receive(self, source, subscription, *, max_messages, invisible_ms, poll_ms):
        pending: tasks.Pending[Any] = tasks.Pending()
        expression = subscription.sub_string
        self.asks.append(
            Ask(source, max_messages, invisible_ms, poll_ms, expression, pending)
        )
        return (yield pending)

    def log_level(self, source, error):
        return logging.ERROR if isinstance(error, DisconnectedError) else 30

    def ack(self, messages):
        assert len({message.broker_name for message in messages}) == 1
        if self.acks:
            yield self.acks.pop(0)
        outcomes = []
        for message in messages:
            scripted = self.ack_errors.get(message.msg_id, [])
            outcomes.append(scripted.pop(0) if scripted else None)
            if outcomes[-1] is None:
                self.acked.append(message.receipt_handle)
        return outcomes

    def change_invisible(self, message, invisible_ms):
        self.changed.append((message.msg_id, invisible_ms))
        if self.changes:
            yield self.changes.pop(0)
        message.lease.renew(message.receipt_handle + "'", invisible_ms, self.clock)

    # --- the test's side ---

    def start(self, max_messages=32, *, await_ms=10_000, invisible_ms=HIDDEN_MS):
        task = self.receiver.receive(
            max_messages, invisible_ms=invisible_ms, await_ms=await_ms
        )
        return tasks.start(task, self)

    def run(self, task):
        return tasks.start(task, self).result()

    def wait_here(self, *sources):
        """Make a message of each source wait for the next receive."""
        messages = [self.message(source) for source in sources]
        self.receiver.put_back(messages)
        return messages

    def message(self, source=A):
        stored = Stored()
        stored.number = next(self.numbers)
        stored.queue_offset = stored.number
        lease = MessageLease(
            topic=source.topic,
            group="billing",
            queue=MessageQueue(source.topic, source.broker_name, 0),
            receipt_handle=f"h{stored.number}",
            delivery_attempt=1,
            since_ms=self.clock.now_ms,
            invisible_ms=HIDDEN_MS,
            invisible_until_epoch_ms=self.clock.now_ms + HIDDEN_MS,
        )
        return ReceivedMessage(stored, lease)

    def answer(self, ask, count=1):
        messages = [self.message(ask.source) for _ in range(count)]
        ask.pending.succeed(messages)
        return messages

    def open(self):
        return [ask for ask in self.asks if not ask.pending.is_done]


def failed(*_):
    return ConnectError("refused", address="a:1")


def lost():
    return DisconnectedError("gone", address="a:1")


def failing(error):
    pending: tasks.Pending[Any] = tasks.Pending()
    pending.fail(error)
    return pending


# --- receiving ---


def test_one_source_is_asked_for_all_and_for_the_whole_time():
    world = World(A)
    received = world.start(16, await_ms=7_000)
    (ask,) = world.asks
    assert (ask.source, ask.max_messages, ask.poll_ms) == (A, 16, 7_000)
    assert ask.invisible_ms == HIDDEN_MS
    messages = world.answer(ask, 3)
    assert received.result() == messages


def test_a_long_wait_is_several_requests():
    world = World(A)
    received = world.start(await_ms=50_000)
    for _ in range(2):
        world.pass_ms(20_000)
        world.answer(world.open()[0], 0)
    assert [ask.poll_ms for ask in world.asks] == [20_000, 20_000, 10_000]
    world.pass_ms(10_000)
    assert not received.is_done  # an answer of the broker may still be under way
    world.answer(world.open()[0], 0)
    assert received.result() == []


def test_with_no_time_to_wait_every_source_is_asked_once():
    world = World(A, PAYMENTS)
    received = world.start(await_ms=0)
    assert [(ask.source, ask.poll_ms) for ask in world.asks] == [(A, 0), (PAYMENTS, 0)]
    world.answer(world.asks[0], 0)
    assert not received.is_done
    world.answer(world.asks[1], 0)
    assert received.result() == []
    assert len(world.asks) == 2


@pytest.mark.parametrize(("wanted", "share"), [(1, 1), (16, 5), (32, 10)])
def test_the_sources_share_the_number_of_messages(wanted, share):
    world = World(A, B, PAYMENTS)
    world.start(wanted)
    assert [repr(ask.max_messages) for ask in world.asks] == [str(share)] * 3


def test_the_first_messages_end_a_receive_and_held_requests_serve_the_next():
    world = World(A, B)
    first = world.start(8)
    assert [(ask.source, ask.max_messages) for ask in world.asks] == [(A, 4), (B, 4)]
    messages = world.answer(world.asks[0], 2)
    assert first.result() == messages
    second = world.start(8)
    assert [ask.source for ask in world.open()] == [B, A]  # B's request is the old one
    messages = world.answer(world.asks[1], 1)
    assert second.result() == messages


def test_messages_beyond_the_number_asked_for_wait_for_the_next_receive():
    world = World(A, B)
    first = world.start(1)
    early = world.answer(world.asks[0])
    late = world.answer(world.asks[1])
    assert first.result() == early
    assert world.start(1).result() == late
    assert world.changed == []


def test_a_receive_returns_no_more_messages_than_it_wants():
    world = World(A)
    messages = world.wait_here(A, A, A)
    assert world.start(2).result() == messages[:2]
    assert world.start(2).result() == messages[2:]


@pytest.mark.parametrize(("waited_ms", "is_stale"), [(3_000, False), (3_001, True)])
def test_a_message_is_hidden_anew_after_a_tenth_of_its_time(waited_ms, is_stale):
    world = World(A)
    messages = world.wait_here(A)
    world.pass_ms(waited_ms)
    assert world.start(1).result() == messages
    assert world.changed == ([("m0", HIDDEN_MS)] if is_stale else [])


def test_messages_of_which_some_are_hidden_anew_are_returned_in_their_order():
    world = World(A, B)
    (old_b,) = world.wait_here(B)
    old = world.wait_here(A, A)
    world.pass_ms(4_000)
    new = world.wait_here(A, B)
    assert world.start().result() == [*old, new[0], old_b, new[1]]


def test_a_message_that_waited_long_is_hidden_anew_for_the_whole_time():
    world = World(A, B)
    world.start(1)
    world.answer(world.asks[0])
    (waiting,) = world.answer(world.asks[1])
    world.pass_ms(4_000)
    assert world.start(1).result() == [waiting]
    assert world.changed == [("m1", HIDDEN_MS)]
    assert waiting.receipt_handle == "h1'"
    assert waiting.invisible_until_ms == world.clock.now_ms + HIDDEN_MS


def test_a_message_that_was_hidden_for_another_time_is_hidden_for_the_one_asked_for():
    world = World(A, B)
    world.start(1)
    world.answer(world.asks[0])
    world.answer(world.asks[1])
    world.start(1, invisible_ms=60_000).result()
    assert world.changed == [("m1", 60_000)]


def test_a_message_that_waited_too_long_is_not_handed_out(caplog):
    world = World(A, B)
    world.start(1)
    world.answer(world.asks[0])
    world.answer(world.asks[1])
    world.pass_ms(HIDDEN_MS)
    received = world.start(1)
    assert not received.is_done
    assert "could not hide a received message again" in caplog.text
    messages = world.answer(world.open()[0])
    assert received.result() == messages


def test_messages_whose_caller_was_interrupted_are_those_of_the_next_receive():
    world = World(A)
    first = world.start()
    messages = world.answer(world.asks[0], 2)
    world.receiver.put_back(first.result())
    assert world.start().result() == messages


def test_messages_that_are_put_back_end_a_receive_that_waits():
    """It would else wait for its whole time beside messages that are there."""
    world = World(A)
    interrupted, waiting = world.start(), world.start()
    messages = world.answer(world.asks[0], 2)
    assert not waiting.is_done
    world.receiver.put_back(interrupted.result())
    assert waiting.result() == messages
    assert [ask.source for ask in world.open()] == [A]


def test_several_receives_at_once_each_have_a_request():
    world = World(A)
    first, second = world.start(), world.start()
    assert len(world.open()) == 2
    messages = world.answer(world.asks[0], 2)
    assert first.result() == messages
    assert not second.is_done
    messages = world.answer(world.asks[1], 1)
    assert second.result() == messages


def test_a_source_that_fails_is_asked_again_and_more_and_more_slowly():
    world = World(A)
    received = world.start(await_ms=10_000)
    world.asks[0].pending.fail(failed())
    world.pass_ms(199)
    assert len(world.asks) == 1
    world.pass_ms(1)
    world.asks[1].pending.fail(failed())
    world.pass_ms(399)
    assert len(world.asks) == 2
    world.pass_ms(1)
    messages = world.answer(world.asks[2])
    assert received.result() == messages


def test_a_source_that_keeps_failing_is_logged_once_at_the_level_of_its_error(caplog):
    caplog.set_level(logging.INFO)
    world = World(A)
    world.start(await_ms=30_000)
    for error in (lost(), failed(), None, failed()):
        ask = world.open()[0]
        if error is None:
            world.pass_ms(10_000)
            world.answer(ask, 0)
        else:
            ask.pending.fail(error)
            world.pass_ms(1_000)
    levels = [each.levelno for each in caplog.records if "receive failed" in each.msg]
    assert levels == [logging.ERROR, logging.INFO, logging.WARNING]


@pytest.mark.parametrize("is_closing", [False, True])
def test_an_error_that_the_receive_raises_or_a_close_ends_is_not_logged(
    caplog, is_closing
):
    caplog.set_level(logging.INFO)
    world = World(A)
    world.start()
    if is_closing:
        world.receiver.begin_close()
        world.asks[0].pending.fail(failed())
    else:
        world.asks[0].pending.fail(BrokerError("bad expression", code=23, name="X"))
    assert caplog.text == ""


def test_when_no_source_can_be_asked_the_receive_fails_at_its_end():
    world = World(A)
    received = world.start(await_ms=100)
    world.asks[0].pending.fail(failed())
    assert not received.is_done
    world.pass_ms(100)
    with pytest.raises(ConnectError, match="refused"):
        received.result()


def test_a_source_that_fails_leaves_the_others_theirs():
    world = World(A, B)
    received = world.start(await_ms=1_000)
    world.asks[0].pending.fail(failed())
    world.pass_ms(1_000)
    for ask in world.open():
        if ask.source == A:
            ask.pending.fail(failed())
        else:
            world.answer(ask, 0)
    assert received.result() == []


@pytest.mark.parametrize("which", [0, 1])
def test_what_no_retry_helps_is_raised_beside_a_source_that_works(which):
    world = World(A, B)
    received = world.start()
    world.asks[which].pending.fail(BrokerError("bad expression", code=23, name="X"))
    with pytest.raises(BrokerError, match="bad expression"):
        received.result()


def test_a_source_that_left_the_route_is_not_asked_and_does_not_matter():
    world = World(A, B)
    received = world.start(await_ms=30_000)
    world.asks[1].pending.fail(failed())
    world.sources_of["orders"] = [A]
    world.pass_ms(1_000)
    assert [ask.source for ask in world.asks] == [A, B]
    messages = world.answer(world.asks[0])
    assert received.result() == messages


def test_what_no_retry_helps_is_raised_at_once_and_once():
    world = World(A)
    received = world.start()
    world.asks[0].pending.fail(BrokerError("bad expression", code=23, name="X"))
    with pytest.raises(BrokerError, match="bad expression"):
        received.result()
    again = world.start()
    assert len(world.open()) == 1
    assert not again.is_done


def test_a_topic_that_does_not_exist_is_an_error_at_once():
    world = World(A)
    world.receiver.subscriptions["missing"] = parse_subscription("missing", "*")
    with pytest.raises(NotFoundError, match="no such topic"):
        world.start().result()


def test_a_broker_that_answers_nothing_at_once_is_not_asked_in_a_loop():
    world = World(A)
    world.start(await_ms=10_000)
    for count in (1, 2, 3):
        world.answer(world.open()[0], 0)
        assert not world.open()
        world.pass_ms(100 * 2**count)
        assert len(world.asks) == count + 1


@pytest.mark.parametrize(("held_ms", "is_early"), [(4_999, True), (5_000, False)])
def test_an_empty_answer_before_half_of_its_time_is_early(held_ms, is_early):
    world = World(A)
    world.start(await_ms=10_000)
    world.pass_ms(held_ms)
    world.answer(world.asks[0], 0)
    assert len(world.open()) == (0 if is_early else 1)


def test_an_answer_that_is_too_late_for_its_receive_is_for_the_next_one():
    world = World(A)
    received = world.start(await_ms=1_000)
    world.pass_ms(5_999)
    assert not received.is_done
    world.pass_ms(1)  # the time in which an answer must come
    assert received.result() == []
    messages = world.answer(world.asks[0])
    assert world.start().result() == messages


def test_a_message_of_a_topic_that_was_unsubscribed_is_given_back():
    world = World(A, PAYMENTS)
    world.start(1)
    world.answer(world.asks[0])
    world.answer(world.asks[1])
    del world.receiver.subscriptions["payments"]
    received = world.start(1)
    assert not received.is_done
    assert world.changed == [("m1", 1_000)]


def test_another_choice_of_a_topic_waits_for_requests_of_the_former_one():
    world = World(A, PAYMENTS)
    world.start(1)
    world.answer(world.asks[0])
    assert [each.source for each in world.open()] == [PAYMENTS]
    subscriptions = world.receiver.subscriptions
    same = tasks.start(world.receiver.settled("payments"), world)
    assert same.is_done
    subscriptions["payments"] = parse_subscription("payments", "A || B")
    other = tasks.start(world.receiver.settled("payments"), world)
    unrelated = tasks.start(world.receiver.settled("orders"), world)
    assert unrelated.is_done
    assert not other.is_done
    world.answer(world.open()[0], 0)
    assert other.is_done
    world.start(1)
    asked = {each.source: each.expression for each in world.open()}
    world.pass_ms(1_000)
    asked |= {each.source: each.expression for each in world.open()}
    assert asked == {A: "*", PAYMENTS: "A || B"}


def test_a_receive_ends_at_the_close_and_what_nobody_took_is_given_back():
    world = World(A, B)
    first = world.start(1)
    world.answer(world.asks[0])
    world.answer(world.asks[1])
    assert first.is_done
    waiting = world.start(1, invisible_ms=HIDDEN_MS)
    assert waiting.is_done
    third = world.start(1)
    assert not third.is_done
    world.receiver.begin_close()
    assert third.result() == []
    world.answer(world.open()[0])
    world.run(world.receiver.give_back())
    assert world.changed == [("m2", 1_000)]


def test_a_receive_that_only_looks_for_sources_ends_at_the_close():
    world = World(A)
    route: tasks.Pending[Any] = tasks.Pending()
    world.sources = lambda _: route  # type: ignore[method-assign]  # held back
    pending = world.start()
    world.receiver.begin_close()
    route.succeed([A])
    assert pending.result() == []
    assert world.asks == []


def test_where_requests_are_held_for_a_minimum_a_shorter_receive_leaves_them_open():
    world = World(A, poll_ms_min=5_000)
    received = world.start(await_ms=100)
    assert world.asks[0].poll_ms == 5_000
    world.pass_ms(1_000)  # the time that an answer with messages may take
    assert received.result() == []
    messages = world.answer(world.asks[0])
    assert world.start(await_ms=100).result() == messages


def test_where_requests_are_held_for_a_minimum_a_longer_receive_awaits_its_answer():
    world = World(A, poll_ms_min=5_000)
    received = world.start(await_ms=10_000)
    assert world.asks[0].poll_ms == 10_000
    world.pass_ms(10_000)
    assert not received.is_done
    messages = world.answer(world.asks[0])
    assert received.result() == messages


# --- acknowledging ---


def received(world, count):
    pending = world.start(count)
    world.answer(world.open()[0], count)
    return pending.result()


def acked(world, messages, timeout_ms=10_000):
    return tasks.start(world.receiver.ack(messages, timeout_ms=timeout_ms), world)


def test_messages_are_acknowledged_once():
    world = World(A)
    messages = received(world, 3)
    assert acked(world, [*messages, messages[0]]).result() == []
    assert acked(world, messages).result() == []
    assert world.acked == ["h0", "h1", "h2"]


def test_an_ack_that_fails_is_repeated_until_it_succeeds():
    world = World(A)
    messages = received(world, 2)
    world.ack_errors["m1"] = [lost(), failed()]
    pending = acked(world, messages)
    assert world.acked == ["h0"]
    world.pass_ms(300)
    assert pending.result() == []
    assert world.acked == ["h0", "h1"]


def test_what_is_not_acknowledged_in_time_is_reported_with_its_error():
    world = World(A)
    messages = received(world, 3)
    refused = BrokerError("no", code=1, name="X")
    world.ack_errors["m1"] = [refused]
    world.ack_errors["m2"] = [lost() for _ in range(20)]
    pending = acked(world, messages, timeout_ms=1_000)
    world.pass_ms(1_000)
    failures = pending.result()
    assert [(m.msg_id, type(e)) for m, e in failures] == [
        ("m1", BrokerError),
        ("m2", DisconnectedError),
    ]


@pytest.mark.parametrize(("timeout_ms", "tries"), [(100, 1), (101, 2)])
def test_an_ack_is_not_repeated_when_its_time_is_over_before(timeout_ms, tries):
    world = World(A)
    (message,) = received(world, 1)
    world.ack_errors["m0"] = [lost(), lost(), lost()]
    pending = acked(world, [message], timeout_ms)
    world.pass_ms(1_000)
    assert len(world.ack_errors["m0"]) == 3 - tries
    ((_, error),) = pending.result()
    assert isinstance(error, DisconnectedError)


def test_an_ack_without_an_answer_ends_with_its_time():
    world = World(A)
    (message,) = received(world, 1)
    world.acks.append(tasks.Pending())
    pending = acked(world, [message], timeout_ms=1_000)
    world.pass_ms(999)
    assert not pending.is_done
    world.pass_ms(1)
    ((_, error),) = pending.result()
    assert isinstance(error, TimeLimitError)


def test_messages_of_several_brokers_are_acknowledged_at_each_of_them():
    world = World(A, B)
    messages = world.wait_here(A, B, A)
    world.start().result()
    refused = BrokerError("no", code=1, name="X")
    world.ack_errors |= {"m0": [refused], "m1": [refused]}
    failures = acked(world, messages).result()
    assert failures == [(messages[0], refused), (messages[1], refused)]
    assert world.acked == ["h2"]


def test_a_close_ends_the_repetition_of_an_ack():
    world = World(A)
    (message,) = received(world, 1)
    world.ack_errors["m0"] = [lost()]
    world.receiver.begin_close()
    ((_, error),) = acked(world, [message]).result()
    assert isinstance(error, DisconnectedError)


def test_an_ack_after_the_invisible_time_is_refused():
    world = World(A)
    (message,) = received(world, 1)
    world.pass_ms(HIDDEN_MS)
    ((failed_message, error),) = acked(world, [message]).result()
    assert failed_message is message
    assert isinstance(error, ReceiptHandleError)
    assert "its invisible time of 30000 ms is over" in error.message
    assert world.acked == []


def test_an_ack_that_is_repeated_ends_with_the_invisible_time():
    world = World(A)
    (message,) = received(world, 1)
    world.pass_ms(HIDDEN_MS - 250)
    world.ack_errors["m0"] = [lost() for _ in range(20)]
    pending = acked(world, [message])
    world.pass_ms(300)
    ((_, error),) = pending.result()
    assert isinstance(error, ReceiptHandleError)


def test_a_changed_message_is_acknowledged_by_its_new_handle():
    world = World(A)
    (message,) = received(world, 1)
    world.pass_ms(HIDDEN_MS - 1)
    world.run(world.receiver.change_invisible(message, 60_000))
    world.pass_ms(59_999)
    assert acked(world, [message]).result() == []
    assert world.acked == ["h0'"]


def test_an_ack_waits_for_the_change_under_way():
    world = World(A)
    (message,) = received(world, 1)
    answer: tasks.Pending[Any] = tasks.Pending()
    world.changes.append(answer)
    change = tasks.start(world.receiver.change_invisible(message, 60_000), world)
    pending = acked(world, [message])
    assert world.acked == []
    answer.succeed(None)
    assert (change.result(), pending.result()) == (None, [])
    assert world.acked == ["h0'"]


def unanswered_by_broker():
    """The error of a proxy that has lost its broker."""
    error = BrokerError("gone", code=50_001, name="INTERNAL_SERVER_ERROR")
    error.may_be_done = True
    return error


@pytest.mark.parametrize("error", [lost(), unanswered_by_broker()], ids=repr)
def test_after_a_change_without_an_answer_the_message_is_not_ours(error: RmqError):
    world = World(A)
    (message,) = received(world, 1)
    world.changes.append(failing(error))
    with pytest.raises(type(error)):
        world.run(world.receiver.change_invisible(message, 60_000))
    ((_, refused),) = acked(world, [message]).result()
    assert isinstance(refused, ReceiptHandleError)
    assert "may have been changed (gone)" in refused.message
    with pytest.raises(ReceiptHandleError):
        world.run(world.receiver.change_invisible(message, 60_000))
    assert world.acked == []


@pytest.mark.parametrize(
    "error",
    [
        failed(),
        BrokerError("no", code=1, name="X"),
        BusyError("no", code=2, name="SYSTEM_BUSY"),
    ],
    ids=["not sent", "refused", "too busy"],
)
def test_after_a_change_that_had_no_effect_the_message_is_still_ours(error: RmqError):
    world = World(A)
    (message,) = received(world, 1)
    world.changes.append(failing(error))
    with pytest.raises(type(error)):
        world.run(world.receiver.change_invisible(message, 60_000))
    assert acked(world, [message]).result() == []
    assert world.acked == ["h0"]


def test_an_acknowledged_message_cannot_be_hidden():
    world = World(A)
    (message,) = received(world, 1)
    acked(world, [message])
    with pytest.raises(ReceiptHandleError, match="acknowledged already"):
        world.run(world.receiver.change_invisible(message, 60_000))
