"""One message at a time: the fast path and the code for batches have the same effect.

A listener of one message without a context is called by separate, shorter code, because
its calls are most of a consumer's work. Here the same listener is called in both ways.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmqcli.engine.consume.request import (
    REPORT_MS,
    SHARE_MS,
    ConcurrentRequest,
    OrderlyRequest,
    call_directly,
    consume_concurrently,
    consume_orderly,
    run_at_once,
)
from rmqcli.engine.listener import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyContext,
    ConsumeOrderlyStatus,
    LeaveRest,
    Listener,
)
from rmqcli.engine.message import Origin, decode_pulled
from rmqcli.engine.process_queue import ProcessQueue
from rmqcli.errors import ConfigError
from rmqcli.testing import ManualClock
from rmqcli.wire.subscription import parse_subscription
from tests.engine.world import START_MS, TOPIC, queue_of, stored

QUEUE = queue_of()
ALL = parse_subscription(TOPIC, "*", sub_version=START_MS)


async def work():
    raise AssertionError("never run")


RESULTS = (
    None,
    None,
    None,
    True,
    False,
    "no status",
    partial(ValueError, "of the listener"),
    partial(SystemExit, 3),
    partial(LeaveRest, 0),
    partial(LeaveRest, 1),
    work,
    *ConsumeConcurrentlyStatus,
    *ConsumeOrderlyStatus,
)
#: Events that may happen during a call and end the request early.
EVENTS = ("", "", "", "", "", "cancel", "drop", "unlock")


@dataclass(frozen=True)
class Step:
    """The result and the duration of one call."""

    result: Any
    ms: int
    event: str
    is_readable: bool


steps = st.lists(
    st.builds(
        Step,
        result=st.sampled_from(RESULTS),
        ms=st.sampled_from([0, 0, 0, 1, SHARE_MS, REPORT_MS]),
        event=st.sampled_from(EVENTS),
        is_readable=st.sampled_from([True, True, True, False]),
    ),
    min_size=1,
    max_size=8,
)


@dataclass
class Script:
    """A listener that carries out `steps`, and a record of its calls."""

    steps: list[Step]
    clock: ManualClock = field(default_factory=lambda: ManualClock(START_MS))
    calls: list[tuple[int, int]] = field(default_factory=list)
    misuses: list[TypeError] = field(default_factory=list)
    shared: int = 0
    request: Any = None

    def act(self, message):
        self.calls.append((message.queue_offset, message.consume_start_ms))
        return self.step(message)

    def step(self, message):
        step = self.steps[message.queue_offset]
        self.clock.advance(step.ms)
        process_queue = self.request.process_queue
        if step.event == "cancel":
            self.request.is_cancelled = True
        elif step.event == "drop":
            process_queue.drop("by the test")
        elif step.event == "unlock":
            process_queue.lock_lost()
        if isinstance(step.result, partial):
            raise step.result()
        return work() if step.result is work else step.result

    def unreadable(self, message):
        self.calls.append((message.queue_offset, -1))
        return self.step(message)

    def listener(self, *, is_quick, **settings):
        return Listener(
            call=self.act if is_quick else lambda messages, _: self.act(messages[0]),
            one_message=is_quick,
            on_undecodable=self.unreadable,
            on_misuse=self.misuses.append,
            **settings,
        )

    def make(self, request_type):
        origin = Origin(QUEUE, 0, len(self.steps))
        messages = []
        for offset, step in enumerate(self.steps):
            raw = bytearray(stored(QUEUE, offset))
            if not step.is_readable:
                raw[4:8] = b"\x11\x22\x33\x44"  # an unknown magic
            messages += decode_pulled(
                bytes(raw), origin, start_offset=offset, subscription=ALL
            )
        assert offsets_of(messages) == list(range(len(self.steps)))
        process_queue: ProcessQueue[Any] = ProcessQueue(
            QUEUE, self.clock.monotonic_ms()
        )
        process_queue.put_message(messages)
        self.request = request_type(QUEUE, process_queue, messages, 1)
        return self.request


def offsets_of(messages):
    return [each.queue_offset for each in messages]


def concurrently(steps, *, is_quick, **settings):
    script = Script(steps)
    outcomes: list[Any] = []

    def share(request):
        request.is_shared = True
        script.shared += 1

    run_at_once(
        consume_concurrently(
            script.make(ConcurrentRequest),
            script.listener(is_quick=is_quick, **settings),
            script.clock,
            report=outcomes.append,
            share=share,
        )
    )
    told = [
        (
            offsets_of(each.done),
            [
                (failed.message.queue_offset, failed.delay_level)
                for failed in each.failed
            ],
            each.spent_ms,
            each.is_end,
        )
        for each in outcomes
    ]
    return told, script.calls, script.shared, script.request.is_cancelled


def in_order(steps, *, is_quick, needs_lock, **settings):
    script = Script(steps)
    outcome = run_at_once(
        consume_orderly(
            script.make(OrderlyRequest),
            script.listener(is_quick=is_quick, is_orderly=True, **settings),
            script.clock,
            needs_lock=needs_lock,
        )
    )
    told = (
        outcome.succeeded,
        offsets_of(outcome.batch),
        outcome.status,
        outcome.auto_commit,
        outcome.suspend_ms,
        outcome.spent_ms,
    )
    return told, script.calls, script.request.is_cancelled


@given(steps)
@example([Step(partial(LeaveRest, 1), 0, "", is_readable=True)])
def test_concurrent_messages_one_by_one(steps):
    quick, other = (
        concurrently(steps, is_quick=is_quick) for is_quick in (True, False)
    )
    assert quick == other


@given(steps, st.booleans())
def test_orderly_messages_one_by_one(steps, needs_lock):
    quick, other = (
        in_order(
            steps,
            is_quick=is_quick,
            needs_lock=needs_lock,
        )
        for is_quick in (True, False)
    )
    assert quick == other


def test_a_request_that_succeeds_as_a_whole_ends_without_a_special_batch():
    """The outcome has only the number of successes and the time."""
    steps = [Step(None, 3, "", is_readable=True)] * 2
    for is_quick in (True, False):
        told, calls, is_cancelled = in_order(steps, is_quick=is_quick, needs_lock=True)
        assert told == (2, [], None, True, None, 6)
        assert calls == [(0, START_MS), (1, START_MS + 3)]
        assert not is_cancelled


def test_a_failure_ends_a_request_with_the_message_that_failed():
    steps = [Step(None, 3, "", is_readable=True), Step(False, 4, "", is_readable=True)]
    for is_quick in (True, False):
        told, _, _ = in_order(steps, is_quick=is_quick, needs_lock=False)
        status = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
        assert told == (1, [1], status, True, None, 7)


def test_concurrent_outcomes_are_reported_after_50_ms_at_the_latest():
    """The report includes failed messages. After a slow call, the request is shared
    with other threads, once."""
    steps = [
        Step(None, 49, "", is_readable=True),
        Step(False, 1, "", is_readable=True),
        Step(None, 1, "", is_readable=True),
    ]
    for is_quick in (True, False):
        told, calls, shared, is_cancelled = concurrently(steps, is_quick=is_quick)
        assert told == [([0, 1], [(1, 0)], 50, False), ([2], [], 1, True)]
        assert calls == [(0, START_MS), (1, START_MS + 49), (2, START_MS + 50)]
        assert (shared, is_cancelled) == (1, False)


def test_each_outcome_is_reported_before_the_next_call_if_that_is_wanted():
    """The next call may take long, as that of a loop over messages does."""
    steps = [Step(None, 0, "", is_readable=True)] * 2
    for is_quick in (True, False):
        settings = {"is_quick": is_quick, "reports_each": True}
        told, _, _, _ = concurrently(steps, **settings)
        assert told == [([0], [], 0, False), ([1], [], 0, False), ([], [], 0, True)]
        told, calls, is_cancelled = in_order(steps, needs_lock=False, **settings)
        assert told == (1, [], None, True, None, 0)
        assert calls == [(0, START_MS)]
        assert not is_cancelled


@pytest.mark.parametrize(
    ("is_orderly", "kind"),
    [(False, ConsumeConcurrentlyContext), (True, ConsumeOrderlyContext)],
)
def test_a_message_that_is_passed_on_directly_has_the_context_of_its_listener(
    is_orderly, kind
):
    seen: list[Any] = []
    listener = Listener(call=lambda *given: seen.extend(given), is_orderly=is_orderly)
    message = Script([Step(None, 0, "", is_readable=True)]).make(ConcurrentRequest)
    run_at_once(call_directly(message.messages[0], listener, QUEUE))
    ([readable], context) = seen
    assert readable is message.messages[0]
    assert type(context) is kind
    assert context.message_queue == QUEUE


@pytest.mark.parametrize("is_readable", [True, False])
def test_a_coroutine_leaves_its_message_and_all_later_ones(is_readable):
    """They are neither consumed nor failed, whichever function returned it."""
    step = Step(None, 0, "", is_readable=True)
    steps = [step, Step(work, 0, "", is_readable=is_readable), step]
    for is_quick in (True, False):
        settings = {"is_quick": is_quick}
        told, calls, _, is_cancelled = concurrently(steps, **settings)
        assert told == [([0], [], 0, True)]
        assert is_cancelled
        assert [offset for offset, _ in calls] == [0, 1]
        told, calls, is_cancelled = in_order(steps, needs_lock=False, **settings)
        assert told == (1, [], None, True, None, 0)
        assert is_cancelled
        assert [offset for offset, _ in calls] == [0, 1]


def test_a_coroutine_for_a_message_that_is_passed_on_directly_is_an_error():
    script = Script([Step(work, 0, "", is_readable=True)])
    request = script.make(ConcurrentRequest)
    request.messages[0].consume_start_ms = START_MS
    listener = script.listener(is_quick=True)
    result, error = run_at_once(call_directly(request.messages[0], listener, QUEUE))
    assert result is None
    assert str(error).startswith("the listener returned a coroutine")
    assert script.misuses == [error]


@pytest.mark.parametrize(
    ("context", "name", "value", "error", "why"),
    [
        (ConsumeConcurrentlyContext, "ack_index", 1.0, TypeError, "1.0, a float; it"),
        (ConsumeConcurrentlyContext, "ack_index", "1", TypeError, "an int or None"),
        (ConsumeConcurrentlyContext, "ack_index", True, TypeError, "an int or None"),
        (
            ConsumeConcurrentlyContext,
            "delay_level_when_next_consume",
            "3",
            TypeError,
            "must be an int",
        ),
        (
            ConsumeConcurrentlyContext,
            "delay_level_when_next_consume",
            None,
            TypeError,
            "must be an int",
        ),
        (
            ConsumeConcurrentlyContext,
            "delay_level_when_next_consume",
            2**31,
            ConfigError,
            "is 2147483648; it must be -2147483648 to 2147483647",
        ),
        (
            ConsumeOrderlyContext,
            "suspend_current_queue_time_ms",
            timedelta(seconds=1),
            TypeError,
            "an int or None",
        ),
        (
            ConsumeOrderlyContext,
            "suspend_current_queue_time_ms",
            "3",
            TypeError,
            "an int or None",
        ),
        (ConsumeOrderlyContext, "auto_commit", 0, TypeError, "must be a bool"),
    ],
)
def test_a_value_of_a_wrong_type_is_refused_where_the_listener_sets_it(
    context, name, value, error, why
):
    given_to_listener = context(QUEUE)
    before = getattr(given_to_listener, name)
    with pytest.raises(error, match=f"{name} .*{why}"):
        setattr(given_to_listener, name, value)
    assert getattr(given_to_listener, name) == before
