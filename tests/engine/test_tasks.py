"""Tasks: steps that wait for answers, one after the other or side by side."""

from __future__ import annotations

from typing import Any

import pytest

from rmqcli.engine.tasks import asking, first_good, spawn, together, within
from rmqcli.errors import RmqError


class Asked:
    """A question that is answered by the test."""

    def __init__(self):
        self.done: Any = None

    def __call__(self, done):
        self.done = done


class Later:
    """What was planned, to be run by the test: (delay, action)."""

    def __init__(self):
        self.plans: list[Any] = []

    def __call__(self, delay_ms, action):
        self.plans.append((delay_ms, action))

    @property
    def delays(self):
        return [delay_ms for delay_ms, _ in self.plans]

    def run_next(self):
        self.plans.pop(0)[1]()


def outcome_of(task):
    """Run a task; a list that gets what it ends with."""
    outcomes: list[Any] = []
    spawn(task, outcomes.append)
    return outcomes


# One task


def test_a_task_goes_on_with_each_answer_and_ends_with_what_it_returns():
    first, second = Asked(), Asked()

    def task():
        found = yield first
        return [found, (yield second)]

    outcomes = outcome_of(task())
    first.done(1)
    assert outcomes == []
    second.done(2)
    assert outcomes == [[1, 2]]


def test_an_error_is_raised_where_the_task_waits():
    asked, error = Asked(), RmqError("no")

    def task():
        try:
            yield asked
        except RmqError as caught:
            return "caught", caught

    outcomes = outcome_of(task())
    asked.done(error)
    assert outcomes == [("caught", error)]


def test_an_error_that_a_task_does_not_handle_is_its_outcome():
    asked, error = Asked(), RmqError("no")
    outcomes = outcome_of(asking(asked))
    asked.done(error)
    assert outcomes == [error]


@pytest.mark.parametrize("where", ["task", "question"])
def test_any_other_exception_is_logged_and_ends_the_task_as_an_error(where, caplog):
    injected = ZeroDivisionError("injected")

    def fail(done):
        raise injected

    def task():
        if where == "task":
            raise injected
        yield fail

    (outcome,) = outcome_of(task())
    assert type(outcome) is RmqError
    assert str(outcome) == "unexpected ZeroDivisionError: injected"
    assert outcome.__cause__ is injected
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert record.exc_info[1] is injected


def test_an_error_that_a_question_raises_is_its_answer():
    error = RmqError("no")

    def fail(done):
        raise error

    assert outcome_of(asking(fail)) == [error]


def test_what_is_raised_behind_an_answer_is_not_a_second_answer():
    """It is the fault of who answers, and the task has gone on."""

    def answer_and_fail(done):
        done(1)
        raise ZeroDivisionError("injected")

    outcomes: list[Any] = []
    with pytest.raises(ZeroDivisionError, match="injected"):
        spawn(asking(answer_and_fail), outcomes.append)
    assert outcomes == [1]


# Side by side


def test_tasks_side_by_side_end_together_with_their_outcomes_in_order():
    asked = [Asked(), Asked(), Asked()]
    error = RmqError("no")
    outcomes = outcome_of(together([asking(each) for each in asked]))
    asked[2].done("c")
    asked[0].done("a")
    assert outcomes == []
    asked[1].done(error)
    assert outcomes == [["a", error, "c"]]


def test_tasks_that_are_answered_at_once_end_once():
    outcomes = outcome_of(
        together([asking(lambda done: done(1)), asking(lambda done: done(2))])
    )
    assert outcomes == [[1, 2]]


def test_no_tasks_side_by_side_have_no_outcomes():
    assert outcome_of(together([])) == [[]]


# The first good answer


def test_the_next_one_is_asked_when_one_does_not_answer_in_time():
    asked, later = [Asked(), Asked(), Asked()], Later()
    outcomes = outcome_of(asking(first_good(asked, later, 100)))
    assert (asked[1].done, later.delays) == (None, [100])
    later.run_next()
    assert asked[1].done is not None
    assert (asked[2].done, later.delays) == (None, [100])
    later.run_next()
    assert asked[2].done is not None
    assert later.delays == []
    asked[1].done("good")
    assert outcomes == ["good"]
    asked[0].done("late")
    asked[2].done(RmqError("late"))
    assert outcomes == ["good"]


def test_the_next_one_is_asked_at_once_when_one_fails():
    asked, later = [Asked(), Asked()], Later()
    outcomes = outcome_of(asking(first_good(asked, later, 100)))
    asked[0].done(RmqError("no"))
    assert asked[1].done is not None
    later.run_next()  # what was planned for the one that did not answer
    assert later.delays == []
    asked[1].done("good")
    assert outcomes == ["good"]


def test_a_plan_for_one_that_failed_meanwhile_asks_no_other_one_too_soon():
    asked, later = [Asked(), Asked(), Asked()], Later()
    outcome_of(asking(first_good(asked, later, 100)))
    asked[0].done(RmqError("no"))
    later.run_next()
    assert asked[2].done is None
    later.run_next()
    assert asked[2].done is not None


def test_nothing_more_is_asked_after_the_first_good_answer():
    asked, later = [Asked(), Asked()], Later()
    outcomes = outcome_of(asking(first_good(asked, later, 100)))
    asked[0].done(0)
    assert outcomes == [0]
    later.run_next()
    assert asked[1].done is None


def test_when_all_fail_the_last_error_is_the_answer():
    asked, later = [Asked(), Asked()], Later()
    outcomes = outcome_of(asking(first_good(asked, later, 100)))
    first, last = RmqError("first"), RmqError("last")
    later.run_next()
    asked[1].done(first)
    assert outcomes == []
    asked[0].done(last)
    assert outcomes == [last]


# Within a time


def test_a_task_that_ends_in_time_is_waited_for():
    asked, later = Asked(), Later()
    outcomes = outcome_of(within(asking(asked), later, 3_000))
    assert (outcomes, later.delays) == ([], [3_000])
    asked.done(None)
    assert outcomes == [True]
    later.run_next()
    assert outcomes == [True]


def test_a_task_that_does_not_end_in_time_is_not_waited_for():
    asked, later = Asked(), Later()
    outcomes = outcome_of(within(asking(asked), later, 3_000))
    later.run_next()
    assert outcomes == [False]
    asked.done(None)
    assert outcomes == [False]


def test_a_task_that_ends_with_an_error_in_time_has_ended():
    asked, later = Asked(), Later()
    outcomes = outcome_of(within(asking(asked), later, 3_000))
    asked.done(RmqError("no"))
    assert outcomes == [True]
