"""`TransactionChecks` asks one check after the other, and bounds those that wait."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
from dataclasses import dataclass

import pytest

from rmqcli import SendStatus
from rmqcli.errors import DisconnectedError
from rmqcli.producer import transactions
from rmqcli.producer.backend import SendResult
from rmqcli.producer.transactions import (
    LocalTransactionState,
    TransactionChecks,
    TransactionSendResult,
    decided,
    transaction_result,
)
from tests.kit.waiting import wait_until

COMMIT = LocalTransactionState.COMMIT_MESSAGE
ROLLBACK = LocalTransactionState.ROLLBACK_MESSAGE
UNKNOW = LocalTransactionState.UNKNOW
MIB_64 = 67_108_864


@dataclass(frozen=True)
class Half:
    """What TransactionChecks uses of a half message of either protocol."""

    msg_id: str


class Held:
    """An `on_check` that waits, and the answers that were given."""

    def __init__(self):
        self.asked = []
        self.go = threading.Semaphore(0)
        self.answers = []
        self.checks = TransactionChecks(self.on_check)

    def on_check(self, message):
        self.asked.append(message.msg_id.removeprefix("id-"))
        self.go.acquire()
        return COMMIT

    def ask(self, name, body_bytes=1, sent=None):
        def answer(state):
            self.answers.append((name, state))
            return sent

        self.checks.ask(Half(f"id-{name}"), answer, body_bytes=body_bytes)


def test_checks_run_in_the_thread_that_the_documents_name():
    names = []
    checks = TransactionChecks(
        lambda _message: names.append(threading.current_thread().name)
    )
    checks.ask(Half("id-1"), lambda _state: None, body_bytes=1)
    wait_until(lambda: names)
    checks.close()
    assert names == ["rmq-check_0"]


@pytest.fixture
def held():
    made = Held()
    yield made
    made.go.release(1_000)
    made.checks.close()


def ignored(caplog):
    """How often it was logged that a check is ignored."""
    return [r.getMessage() for r in caplog.records if "check of a" in r.getMessage()]


@pytest.mark.parametrize(
    ("first", "second", "is_taken"),
    [
        (MIB_64 + 1, 0, False),
        (1, MIB_64 - 1, True),
        (1, MIB_64, False),
    ],
)
def test_a_check_waits_if_it_is_the_only_one_or_all_fit_into_64_mib(
    held, caplog, first, second, is_taken
):
    held.ask("a", first)
    held.ask("b", second)
    held.go.release(2)
    wait_until(lambda: len(held.answers) == (2 if is_taken else 1))
    assert bool(ignored(caplog)) is not is_taken
    if not is_taken:
        (line,) = ignored(caplog)
        assert line.startswith("check of a transaction ignored msg_id=id-b: 1 other ")
        assert f" {first:,} byte" in line


@pytest.mark.parametrize("has_future", [False, True])
def test_what_was_answered_makes_room_for_others(held, monkeypatch, has_future):
    """A check counts until its answer has been sent."""
    monkeypatch.setattr(transactions, "_CHECKS_MAX", 2)
    sent: list[Future[None]] = [Future(), Future()]
    held.ask("a", sent=sent[0] if has_future else None)
    held.ask("b", sent=sent[1] if has_future else None)
    held.ask("c")
    held.go.release(2)
    wait_until(lambda: [name for name, _ in held.answers] == ["a", "b"])
    if has_future:
        held.ask("d")
        sent[0].set_result(None)
    wait_until(lambda: held.checks._open == (1 if has_future else 0))
    held.ask("e")
    held.go.release()
    wait_until(lambda: [name for name, _ in held.answers] == ["a", "b", "e"])
    assert held.asked == ["a", "b", "e"]


def test_room_is_counted_in_bytes_too(held):
    for _ in range(3):
        held.ask("a", MIB_64)
        held.go.release()
        wait_until(lambda: not held.checks._open)
    assert len(held.answers) == 3
    held.ask("b", MIB_64 - 1)
    held.ask("c", 1)
    held.go.release(2)
    wait_until(lambda: len(held.answers) == 5)


def test_an_answer_that_is_not_delivered_is_logged_and_makes_room(held, caplog):
    sent: Future[None] = Future()
    held.ask("a", sent=sent)
    held.go.release()
    wait_until(lambda: held.answers == [("a", COMMIT)])
    sent.set_exception(DisconnectedError("gone", address="it:1"))
    assert held.checks._open == 0
    (record,) = caplog.records
    assert record.getMessage() == (
        "answer to a check not delivered msg_id=id-a; the broker will ask again: gone"
    )


def test_checks_that_wait_are_dropped_when_the_producer_closes(held):
    held.ask("a")
    wait_until(lambda: held.asked == ["a"])
    held.ask("b")
    held.checks.close()
    before = held.checks._open
    held.ask("c")  # its thread takes nothing more
    assert held.checks._open == before
    held.go.release(3)
    wait_until(lambda: held.answers == [("a", COMMIT)])
    assert held.asked == ["a"]


@pytest.mark.injects_exceptions
@pytest.mark.parametrize(
    ("error", "what"),
    [
        (ValueError, "failed"),
        (
            SystemExit,
            "raised SystemExit, which ends neither its thread nor the process",
        ),
    ],
)
def test_an_on_check_that_raises_has_not_decided(caplog, error, what):
    """The check is answered, so that it takes no room any more."""

    def on_check(message):
        raise error(message)

    answers: list[LocalTransactionState] = []
    checks = TransactionChecks(on_check)
    checks.ask(Half("id-a"), answers.append, body_bytes=1)
    assert wait_until(lambda: answers) == [UNKNOW]
    wait_until(lambda: checks._open == 0)
    checks.close()
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage().startswith(f"on_check {what} ")
    assert record.getMessage().endswith(" msg_id=id-a")


def test_a_flood_of_ignored_checks_is_logged_once(held, caplog):
    for _ in range(100):
        held.checks.ignore("for another group")
    assert ignored(caplog) == ["check of a transaction ignored for another group"]


@pytest.mark.parametrize(
    ("found", "state", "is_error"),
    [
        (COMMIT, COMMIT, False),
        (ROLLBACK, ROLLBACK, False),
        (UNKNOW, UNKNOW, False),
        (None, UNKNOW, False),
        (True, UNKNOW, True),
        ("COMMIT_MESSAGE", UNKNOW, True),
    ],
)
def test_only_a_state_is_a_decision(found, state, is_error, caplog):
    assert decided(found) is state
    assert bool(caplog.records) is is_error


def test_a_transaction_s_result_is_the_half_message_s_with_its_state():
    half = SendResult(
        msg_id="A1",
        status=SendStatus.SEND_OK,
        queue=None,
        queue_offset=7,
        offset_msg_id="B1",
        transaction_id="T1",
        recall_handle="R1",
    )
    assert transaction_result(half, COMMIT) == TransactionSendResult(
        msg_id="A1",
        status=SendStatus.SEND_OK,
        queue=None,
        queue_offset=7,
        offset_msg_id="B1",
        transaction_id="T1",
        recall_handle="R1",
        local_transaction_state=COMMIT,
    )
