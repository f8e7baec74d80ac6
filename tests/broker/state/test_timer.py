"""What timers have delivered stays delivered, however the broker ends."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqcli.clock import Now
from rmqcli.store.memory import MemoryStore
from rmqcli.store.message_store import TimerProgress
from tests.broker.driving import EPOCH_MS, Driver
from tests.broker.sending import send
from tests.kit.doses import doses


def restart(before: Driver, *, down_ms: int = 0, loses_ms: int | None = 0) -> Driver:
    """A new broker on the same store.

    `loses_ms` is the age of the progress that was stored; None if none was.
    """
    now = Now(0, before.now.epoch_ms + down_ms)
    after = Driver(store=before.store, now=now)
    timers = after.broker.timer_messages
    if loses_ms is not None:
        progress = before.broker.timer_messages.progress
        until_ms = max(0, progress.read_ms - loses_ms)
        timers.load(progress._replace(read_ms=until_ms))
    timers.recover(now)
    return after


def delivered(driver: Driver) -> list[bytes]:
    return [each.raw_body for each in driver.messages("T")]


@pytest.mark.parametrize("loses_ms", [0, 1_500, 60_000, None])
def test_a_delivered_message_does_not_come_again_after_a_restart(loses_ms):
    first = Driver(store=MemoryStore())
    for number in range(60):
        send(first, properties={"TIMER_DELAY_SEC": "2"}, body=b"%d" % number)
    first.wait(3_000)
    assert len(delivered(first)) == 60

    second = restart(first, loses_ms=loses_ms)
    second.wait(600_000)

    assert len(delivered(second)) == 60


def test_two_messages_with_the_same_key_and_time_are_both_delivered():
    """A client's second attempt has the key of the first."""
    full = MemoryStore()
    first = Driver(store=full)
    properties: dict[str, str | None] = {"TIMER_DELAY_SEC": "2", "UNIQ_KEY": "K"}
    send(first, properties=properties, body=b"a")
    send(first, properties=properties, body=b"a")
    full.capacity_bytes = full.log_bounds()[1] + 300  # room for one copy
    first.wait(3_000)
    assert delivered(first) == [b"a"]

    full.capacity_bytes = None
    second = restart(first, loses_ms=None)
    second.wait(600_000)

    assert delivered(second) == [b"a", b"a"]


def test_a_message_that_came_while_the_clock_was_set_back_is_delivered():
    first = Driver(store=MemoryStore())
    send(first, properties={"TIMER_DELAY_SEC": "100"}, body=b"a")
    first.wait(200_000)
    first.now = Now(first.now.monotonic_ms, EPOCH_MS)
    send(first, properties={"TIMER_DELAY_SEC": "100"}, body=b"b")

    second = restart(first)
    second.wait(600_000)

    assert delivered(second) == [b"a", b"b"]


def test_progress_waits_for_the_first_message_that_is_not_delivered():
    first = Driver(store=MemoryStore())
    send(first, properties={"TIMER_DELAY_SEC": "2"})
    send(first, properties={"TIMER_DELAY_SEC": "9"})
    send(first, properties={"TIMER_DELAY_SEC": "3"})
    first.wait(4_000)

    assert first.broker.timer_messages.progress == TimerProgress(
        read_ms=EPOCH_MS + 3_000, queue_offset=1
    )


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 12)),
        st.tuples(st.just("wait"), st.integers(0, 15_000)),
        st.tuples(st.just("stop"), st.integers(0, 20_000)),
        st.tuples(st.just("kill"), st.sampled_from([0, 400, 5_000, 90_000])),
        st.tuples(st.just("lose"), st.integers(0, 20_000)),
    ),
    max_size=25,
)


@settings(max_examples=doses(3))
@given(steps=STEPS)
def test_each_message_is_delivered_once_however_the_broker_ends(steps):
    """It stops, is killed with progress of some age, or loses its progress."""
    driver = Driver(store=MemoryStore())
    sent: Counter[bytes] = Counter()
    for what, number in steps:
        if what == "send":
            body = b"%d" % len(sent)
            delay: dict[str, str | None] = {"TIMER_DELAY_SEC": str(number)}
            send(driver, properties=delay, body=body)
            sent[body] += 1
        elif what == "wait":
            driver.wait(number)
        elif what == "stop":
            driver = restart(driver, down_ms=number)
        elif what == "kill":
            driver = restart(driver, loses_ms=number)
        else:
            driver = restart(driver, down_ms=number, loses_ms=None)
    driver.wait(30_000)

    assert Counter(delivered(driver)) == sent
