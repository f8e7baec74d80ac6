"""Tasks: what each step is resumed with, whichever part ends first or fails."""

from __future__ import annotations

import functools
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.clock import Now
from rmqcli.errors import RmqError, TimeLimitError
from rmqcli.tasks import All, Pending, Race, Request, Sleep, Within, start
from rmqcli.timers import Timers


class ScriptedRunner:
    """Satisfies `Runner`. Time passes in `run`; the test answers requests.

    A request's address is its name; one named "broken" cannot be sent.
    """

    def __init__(self) -> None:
        self.now_ms = 0
        self.requests: dict[str, Pending[Any]] = {}
        self._timers = Timers()

    def submit(self, request: Request[Any]) -> Pending[Any]:
        if request.address == "broken":
            raise RmqError("cannot be sent")
        if request.address == "defect":
            raise ZeroDivisionError("defect")
        pending = self.requests[request.address] = Pending()
        return pending

    def call_later(self, delay_ms, action):
        self._timers.at(self.now_ms + delay_ms, lambda _: action())

    def run(self, ms):
        end_ms = self.now_ms + ms
        while (due_ms := self._timers.next_ms()) is not None and due_ms <= end_ms:
            self.now_ms = due_ms
            self._timers.run_due(Now(due_ms, due_ms))
        self.now_ms = end_ms


@pytest.fixture
def runner():
    return ScriptedRunner()


def request(name):
    return Request(name, None)  # type: ignore[arg-type]  # the runner reads no call


def asking(name):
    """A task that makes one request."""
    return (yield request(name))


def returning(value):
    """A task that ends at once."""
    yield from ()
    return value


def failing(error):
    """A task that fails at once."""
    yield from ()
    raise error


def after(delay_ms, outcome):
    """A task that ends or fails after some time."""
    yield Sleep(delay_ms)
    if isinstance(outcome, RmqError):
        raise outcome
    return outcome


def note(calls, number, pending):
    """A callback that records its number and the outcome."""
    calls.append((number, pending.outcome()))


# --- Pending ---


@given(st.lists(st.sampled_from(["succeed", "fail", "listen"]), max_size=12))
def test_a_pending_has_exactly_one_outcome_and_calls_each_callback_once(steps):
    pending: Pending[int] = Pending()
    calls: list[tuple[int, object]] = []
    outcomes: list[object] = []
    listeners = 0
    for number, step in enumerate(steps):
        if step == "succeed":
            outcomes.append(number)
            pending.succeed(number)
        elif step == "fail":
            error = RmqError(str(number))
            outcomes.append(error)
            pending.fail(error)
        else:
            listener = listeners
            listeners += 1
            pending.on_done(functools.partial(note, calls, listener))
    assert pending.is_done == bool(outcomes)
    if outcomes:
        assert pending.outcome() is outcomes[0]
        assert calls == [(n, outcomes[0]) for n in range(listeners)]
    else:
        assert calls == []


def test_a_pending_without_an_outcome_has_no_result():
    with pytest.raises(RuntimeError):
        Pending().result()
    with pytest.raises(RuntimeError):
        Pending().outcome()


def test_an_error_as_an_outcome_keeps_no_frames_alive(runner):
    """5,000 refusals of a broker took 40 MB until the next collection of garbage."""
    pending = start(All([request("a")]), runner)
    runner.requests["a"].fail(RmqError("no"))
    (error,) = pending.result()
    assert error.__traceback__ is None


# --- tasks ---


def test_a_task_is_resumed_with_each_answer(runner):
    def task():
        first = yield request("a")
        second = yield request("b")
        yield Sleep(10)
        return first, second

    pending = start(task(), runner)
    runner.requests["a"].succeed(1)
    runner.requests["b"].succeed(2)
    runner.run(9)
    assert not pending.is_done
    runner.run(1)
    assert pending.result() == (1, 2)


def test_an_error_is_raised_where_the_task_yielded(runner):
    def task():
        try:
            yield request("a")
        except RmqError as error:
            return f"handled {error.message}"

    pending = start(task(), runner)
    runner.requests["a"].fail(RmqError("no"))
    assert pending.result() == "handled no"


def test_an_error_that_is_not_handled_ends_the_task(runner):
    error = RmqError("no")
    pending = start(asking("a"), runner)
    runner.requests["a"].fail(error)
    assert pending.outcome() is error


@pytest.mark.injects_exceptions
@pytest.mark.parametrize("name", ["broken", "defect"])
def test_a_request_that_cannot_be_sent_fails_where_it_was_yielded(runner, name):
    pending = start(asking(name), runner)
    assert isinstance(pending.outcome(), RmqError)


@pytest.mark.injects_exceptions
def test_an_unexpected_exception_ends_the_task_with_an_rmq_error(runner, caplog):
    pending = start(failing(ZeroDivisionError("defect")), runner)
    outcome = pending.outcome()
    assert isinstance(outcome, RmqError)
    assert isinstance(outcome.__cause__, ZeroDivisionError)
    assert "defect" in caplog.text


def test_thousands_of_answers_that_are_there_at_once_cost_no_stack(runner):
    """Nested calls for each answer would be deeper than Python's stack allows."""

    def task():
        total = 0
        for number in range(20_000):
            there: Pending[int] = Pending()
            there.succeed(number)
            total += yield there
            total += yield from returning(0)
        return total

    assert start(task(), runner).result() == 199_990_000


def test_thousands_of_parts_that_end_at_once_cost_no_stack(runner):
    def task():
        return (yield All([returning(number) for number in range(20_000)]))

    assert start(task(), runner).result() == list(range(20_000))


# --- All, Race, Within ---


@given(
    st.lists(st.tuples(st.integers(0, 50), st.booleans(), st.booleans()), max_size=10)
)
def test_all_keeps_the_order_and_ends_with_the_last_part(parts):
    """Each part is (when it ends, whether it fails, whether it is there at once)."""
    runner = ScriptedRunner()
    outcomes = [
        RmqError(str(number)) if fails else number
        for number, (_, fails, _) in enumerate(parts)
    ]
    delays = [0 if at_once else delay_ms for delay_ms, _, at_once in parts]
    started = [
        (failing(outcome) if isinstance(outcome, RmqError) else returning(outcome))
        if at_once
        else after(delay_ms, outcome)
        for (delay_ms, _, at_once), outcome in zip(parts, outcomes, strict=True)
    ]
    pending = start(All(started), runner)
    last_ms = max(delays, default=0)
    if any(not at_once for _, _, at_once in parts) and last_ms:
        runner.run(last_ms - 1)
        assert not pending.is_done
        runner.run(1)
    else:
        runner.run(last_ms)
    assert pending.result() == outcomes


def test_a_race_starts_the_next_part_after_the_delay_or_on_failure(runner):
    pending = start(Race([asking("a"), asking("b"), asking("c")], 100), runner)
    assert list(runner.requests) == ["a"]
    runner.run(99)
    assert list(runner.requests) == ["a"]
    runner.run(1)
    assert list(runner.requests) == ["a", "b"]
    runner.requests["b"].fail(RmqError("no"))
    assert list(runner.requests) == ["a", "b", "c"]
    runner.requests["a"].succeed("late")
    runner.requests["c"].succeed("later")
    assert pending.result() == "late"


def test_a_race_in_which_all_parts_fail_fails_with_the_last_error(runner):
    pending = start(Race([asking("a"), asking("b")], 100), runner)
    runner.requests["a"].fail(RmqError("first"))
    last = RmqError("last")
    runner.requests["b"].fail(last)
    assert pending.outcome() is last


def test_a_race_that_is_over_starts_nothing_more(runner):
    pending = start(Race([asking("a"), asking("b")], 100), runner)
    runner.requests["a"].succeed(1)
    runner.run(1_000)
    assert pending.result() == 1
    assert list(runner.requests) == ["a"]


def test_a_race_of_nothing_is_a_mistake(runner):
    with pytest.raises(ValueError, match="at least one"):
        start(Race([], 100), runner)


@given(
    st.lists(st.tuples(st.integers(0, 300), st.booleans()), min_size=1, max_size=6),
    st.integers(0, 100),
)
def test_a_race_has_the_outcome_of_the_first_success(parts, delay_ms):
    runner = ScriptedRunner()
    ended: list[tuple[int, bool]] = []

    def racer(number, duration_ms, fails):
        yield Sleep(duration_ms)
        ended.append((number, fails))
        if fails:
            raise RmqError(str(number))
        return number

    racers = [racer(n, ms, fails) for n, (ms, fails) in enumerate(parts)]
    pending = start(Race(racers, delay_ms), runner)
    runner.run(10_000)
    successes = [number for number, fails in ended if not fails]
    if successes:
        assert pending.result() == successes[0]
    else:
        assert isinstance(pending.outcome(), RmqError)
        assert len(ended) == len(parts)


@pytest.mark.parametrize("outcome", [1, RmqError("no")])
def test_what_ends_within_the_limit_has_its_own_outcome(runner, outcome):
    pending = start(Within(after(99, outcome), 100), runner)
    runner.run(1_000)
    assert pending.outcome() is outcome


def test_what_does_not_end_within_the_limit_is_a_time_limit_error_and_goes_on(runner):
    ended: list[int] = []

    def slow():
        yield Sleep(200)
        ended.append(runner.now_ms)

    pending = start(Within(slow(), 100), runner)
    runner.run(100)
    assert isinstance(pending.outcome(), TimeLimitError)
    runner.run(100)
    assert ended == [200]


@pytest.mark.injects_exceptions
@pytest.mark.parametrize("error", [None, RmqError("x"), KeyError("x")])
def test_the_end_of_a_task_is_told_outside_of_a_handler(runner, error):
    """A traceback of `on_failed` began with a StopIteration of ours."""

    def waiting():
        yield first
        if error is not None:
            raise error

    first: Pending[None] = Pending()
    seen = []
    start(waiting(), runner).on_done(lambda _: seen.append(sys.exc_info()))
    first.succeed(None)
    assert seen == [(None, None, None)]
