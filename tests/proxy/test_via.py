"""A task in its caller's thread: its calls block, and it sleeps by the clock."""

from __future__ import annotations

import pytest

from rmqcli import tasks
from rmqcli.errors import BusyError
from rmqcli.proxy import rpc
from rmqcli.proxy.endpoints import parse_endpoints
from rmqcli.proxy.via import CallerVia
from rmqcli.testing import ManualClock

PLACE = parse_endpoints(("127.0.0.1:8081",))
CALL = rpc.heartbeat(1, None)


def never(_endpoints, _rpc, _timeout_ms):
    raise AssertionError


def test_a_task_sleeps_by_the_clock_and_in_order():
    clock = ManualClock(1_000)
    steps: list[tuple[str, int]] = []

    def sleep(name, delay_ms):
        yield tasks.Sleep(delay_ms)
        steps.append((name, clock.now_ms))

    def task(_via):
        yield tasks.All([sleep("long", 700), sleep("short", 300), sleep("none", 0)])
        yield tasks.Sleep(50)
        return clock.now_ms

    assert CallerVia(never, clock).run(task) == 1_750
    assert steps == [("none", 1_000), ("short", 1_300), ("long", 1_700)]


def test_a_call_is_made_at_once_with_what_it_was_given():
    asked = []

    def invoke(*arguments):
        asked.append(arguments)
        return "answer"

    def task(via):
        first = yield via.call(PLACE, CALL, 700)
        second = yield via.call(PLACE, CALL)
        return first, second

    assert CallerVia(invoke, ManualClock()).run(task) == ("answer", "answer")
    assert asked == [(PLACE, CALL, 700), (PLACE, CALL, None)]


def test_a_call_s_error_is_raised_in_the_task_and_by_the_run():
    def invoke(_endpoints, _rpc, _timeout_ms):
        raise BusyError("full", code=1, name="", remark="", address="it")

    caught = []

    def task(via):
        try:
            yield via.call(PLACE, CALL)
        except BusyError as error:
            caught.append(str(error))
        yield via.call(PLACE, CALL)

    with pytest.raises(BusyError, match="full"):
        CallerVia(invoke, ManualClock()).run(task)
    assert caught == ["full"]


def test_a_task_that_nobody_ends_is_a_mistake():
    def task(_via):
        yield tasks.Pending()

    with pytest.raises(RuntimeError, match="waits for something that no runner"):
        CallerVia(never, ManualClock()).run(task)
