"""The thread of a client's I/O: tasks run in order, and actions after its end, too."""

from __future__ import annotations

import sys
import threading

import pytest

from rmqcli import ClientConfig, DeadlineError, DisconnectedError, RmqError, tasks
from rmqcli.api import task_thread
from rmqcli.api.calls.offset import get_max_offset
from rmqcli.api.client import Client
from rmqcli.api.task_thread import TaskThread
from tests.kit.waiting import PATIENCE_S, wait_until
from tests.transport.peer import Peer, silent

CALL = get_max_offset("t", 0)


@pytest.fixture
def thread(monkeypatch):
    # Nothing but a wake-up or a timer ends a wait.
    monkeypatch.setattr(task_thread, "_POLL_MS_MAX", 2_000 * PATIENCE_S)
    made = TaskThread(Client(ClientConfig(namesrv=("127.0.0.1:1",))), "rmq-test")
    made.start()
    yield made
    made.end()


def asked(address, timeout_ms=None):
    return (yield tasks.Request(address, CALL, timeout_ms))


def at_once(value):
    return value
    yield  # a task


def test_actions_run_in_the_thread_in_the_order_in_which_they_were_posted(thread):
    ran = []
    for number in range(100):
        thread.post(lambda number=number: ran.append((number, thread.is_current())))
    assert thread.run(at_once("x")).result(PATIENCE_S) == "x"
    assert ran == [(number, True) for number in range(100)]
    assert not thread.is_current()


@pytest.mark.injects_exceptions
def test_an_action_that_fails_ends_neither_the_thread_nor_those_after_it(
    thread, caplog
):
    ran = threading.Event()
    thread.post(lambda: 1 // 0)
    thread.post(sys.exit)
    thread.post(ran.set)
    assert ran.wait(PATIENCE_S)
    assert "thread rmq-test continues after an error" in caplog.text


def test_timers_run_in_the_order_of_their_times(thread):
    ran = []
    done = threading.Event()

    def begin():
        thread.call_later(40, done.set)
        thread.call_later(20, lambda: ran.append("second"))
        thread.call_later(0, lambda: ran.append("first"))

    thread.post(begin)
    assert done.wait(PATIENCE_S)
    assert ran == ["first", "second"]


def test_the_end_says_that_the_thread_has_ended(thread):
    assert thread.end()
    assert thread.end()
    assert not [each for each in threading.enumerate() if each.name == "rmq-test"]


def test_the_end_does_not_wait_for_an_action_for_ever(thread, monkeypatch):
    monkeypatch.setattr(task_thread, "_JOIN_MS", 20)
    began, may_end = threading.Event(), threading.Event()
    thread.post(began.set)
    thread.post(lambda: may_end.wait(PATIENCE_S))
    assert began.wait(PATIENCE_S)
    assert not thread.end()
    may_end.set()
    monkeypatch.setattr(task_thread, "_JOIN_MS", PATIENCE_S * 1_000)
    assert thread.end()


def test_an_action_may_end_its_own_thread(thread):
    (own,) = [each for each in threading.enumerate() if each.name == "rmq-test"]
    ended = []
    thread.post(lambda: ended.append(thread.end()))
    own.join(PATIENCE_S)
    assert not own.is_alive()
    assert own.daemon  # a program that forgets to close it ends all the same
    assert ended == [False]  # it did not wait for itself


def test_a_request_under_way_fails_at_the_end(thread):
    with Peer(silent) as peer:
        future = thread.run(asked(peer.address))
        wait_until(lambda: peer.accepted)
        assert thread.end()
        with pytest.raises(DisconnectedError):
            future.result(PATIENCE_S)


def test_a_request_has_the_time_limit_that_it_is_given(thread):
    with Peer(silent) as peer:
        limited = thread.run(asked(peer.address, 50))
        with pytest.raises(DeadlineError, match="in 50 ms"):
            limited.result(PATIENCE_S)


@pytest.mark.injects_exceptions
def test_what_is_posted_after_the_end_still_runs_and_tasks_fail(thread, caplog):
    thread.end()
    ran = []
    thread.post(lambda: 1 // 0)
    thread.post(lambda: ran.append(1))
    assert ran == [1]
    assert "action posted after the end failed thread=rmq-test" in caplog.text
    with pytest.raises(RmqError):
        thread.run(asked("127.0.0.1:1")).result(PATIENCE_S)
