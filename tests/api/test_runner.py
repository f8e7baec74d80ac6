"""Tasks over a client continue independently, share a deadline, and always end."""

from __future__ import annotations

import re

import pytest

from rmqcli.api.calls.offset import get_max_offset
from rmqcli.api.client import Client
from rmqcli.api.runner import ClientRunner, run_task, run_tasks
from rmqcli.clock import SYSTEM_CLOCK, Deadline
from rmqcli.config import ClientConfig
from rmqcli.errors import ConnectError, DeadlineError, RmqError, TimeLimitError
from rmqcli.tasks import All, Request, Sleep
from rmqcli.testing import ManualClock
from tests.transport.peer import Peer, silent


def counting(connection):
    """A script for Peer that answers 1, 2, 3, ..."""
    for number, request in enumerate(connection.requests(), 1):
        connection.answer(request, ext_fields={"offset": str(number)}, body=b"")


@pytest.fixture
def client():
    with Client(ClientConfig(namesrv=("127.0.0.1:1",), timeout_ms=20_000)) as made:
        yield made


def ask(address):
    return Request(address, get_max_offset("T", 0))


def three_questions(address):
    first = yield ask(address)
    second = yield ask(address)
    third = yield ask(address)
    return [first, second, third]


def within_ms(timeout_ms):
    return Deadline(SYSTEM_CLOCK, timeout_ms)


def test_a_task_goes_on_with_each_answer(client):
    with Peer(counting) as peer:
        assert run_task(client, three_questions(peer.address)) == [1, 2, 3]


def test_a_silent_broker_holds_up_only_the_tasks_that_ask_it(client):
    with Peer(counting) as peer, Peer(silent) as hung:
        tasks = [three_questions(at) for at in (hung.address, peer.address)]
        outcomes = run_tasks(client, tasks, within_ms(400))

    assert isinstance(outcomes[0], DeadlineError)
    assert outcomes[1] == [1, 2, 3]


def test_errors_come_back_as_values_and_requests_count_as_tasks(client):
    with Peer(counting) as peer:
        bad = Request("no address", get_max_offset("T", 0))
        outcomes = run_tasks(client, [ask("127.0.0.1:1"), ask(peer.address), bad])

    assert isinstance(outcomes[0], ConnectError)
    assert outcomes[1] == 1
    assert isinstance(outcomes[2], RmqError)


def test_one_task_raises_what_it_ended_with(client):
    with pytest.raises(ConnectError):
        run_task(client, three_questions("127.0.0.1:1"))


def test_a_sleep_ends_at_the_deadline_and_later_requests_are_not_sent(client):
    def sleepy(address):
        yield Sleep(60_000)
        return (yield All([ask(address)]))

    with Peer(counting) as peer:
        (outcomes,) = run_tasks(client, [sleepy(peer.address)], within_ms(30))

        assert isinstance(outcomes[0], DeadlineError)
        assert "the deadline passed before" in outcomes[0].message
        assert peer.accepted == 0


def test_a_task_that_sleeps_for_ever_has_a_time_limit_error(client):
    def endless():
        while True:
            yield Sleep(5)

    assert isinstance(run_tasks(client, [endless()], within_ms(30))[0], TimeLimitError)


def test_without_a_deadline_a_request_has_its_own_timeout(client):
    with Peer(silent) as hung:
        request = Request(hung.address, get_max_offset("T", 0), timeout_ms=30)
        assert isinstance(run_tasks(client, [request])[0], DeadlineError)


@pytest.mark.parametrize(("deadline_ms", "own_ms"), [(60_000, 30), (30, 60_000)])
def test_the_shorter_of_deadline_and_timeout_ends_a_request(
    client, deadline_ms, own_ms
):
    with Peer(silent) as hung:
        request = Request(hung.address, get_max_offset("T", 0), timeout_ms=own_ms)
        (error,) = run_tasks(client, [request], within_ms(deadline_ms))
    assert isinstance(error, DeadlineError)
    (words,) = re.findall(r"in (\d+) ms", error.message)
    assert int(words) <= 30


def test_sleeps_pass_in_their_order(client):
    woken = []

    def sleeper(delay_ms):
        yield Sleep(delay_ms)
        woken.append(delay_ms)

    # Between the starts of two tasks a busy machine may stand still for a moment.
    run_tasks(client, [sleeper(1_000), sleeper(1), sleeper(500)])

    assert woken == [1, 500, 1_000]


def test_a_task_that_sleeps_lets_the_client_do_its_turns(client):
    """Watching commands draw in them, at least once a second."""
    turns: list[int] = []
    client.on_turn = lambda: turns.append(1)

    def sleeper():
        yield Sleep(20)
        return len(turns)

    assert run_tasks(client, [sleeper()])[0] <= len(turns)
    assert turns


def test_a_task_that_ends_leaves_the_others_running(client):
    def sleeper(delay_ms):
        yield Sleep(delay_ms)
        return delay_ms

    assert run_tasks(client, [sleeper(20), sleeper(1), sleeper(10)]) == [20, 1, 10]
    assert run_tasks(client, []) == []


def test_a_runner_can_be_driven_in_turns():
    clock = ManualClock()
    config = ClientConfig(namesrv=("127.0.0.1:1",))
    woken: list[int] = []
    with Client(config, clock=clock) as client:
        runner = ClientRunner(client)
        runner.call_later(100, lambda: woken.append(clock.now_ms))
        runner.turn(0)
        assert woken == []
        clock.advance(99)
        runner.turn(0)
        assert woken == []
        clock.advance(1)
        runner.turn(60_000)  # does not wait: the timer is due
        assert woken == [1_000_100]


def test_after_the_deadline_nothing_is_called_any_more():
    clock = ManualClock()
    woken: list[int] = []
    with Client(ClientConfig(namesrv=("127.0.0.1:1",)), clock=clock) as client:
        runner = ClientRunner(client, Deadline(clock, 50))
        runner.call_later(60, lambda: woken.append(1))
        clock.advance(50)
        runner.call_later(0, lambda: woken.append(2))
        runner.turn(0)
    assert woken == [1]


def test_requests_that_have_ended_are_dropped_while_others_are_sent(client):
    """A reading of 10,000 groups kept all answers of a broker until its end."""
    with Peer(counting) as peer:
        runner = ClientRunner(client)

        def task():
            for _ in range(4):
                yield All([ask(peer.address)] * 500)
            return len(runner._sent)

        assert runner.run([task()])[0] < 2_000
