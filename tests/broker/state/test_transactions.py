"""Transactions: half messages, their ends, and checks of undecided ones."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from rmqcli.broker.effects import Peer
from rmqcli.broker.settings import BrokerSettings
from rmqcli.clock import Now
from rmqcli.store.memory import MemoryStore
from rmqcli.wire.bodies.heartbeat import HeartbeatData, ProducerData
from rmqcli.wire.body import encode_body
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.headers.send import EndTransactionRequestHeader
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.record import StoredMessage
from tests.broker.driving import CLIENT, EPOCH_MS, Driver
from tests.broker.sending import BORN_MS, UNIQ_KEY, like, send, send_header

if TYPE_CHECKING:
    from rmqcli.wire.command import RemotingCommand

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
OPERATIONS = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
DISCARDED = "TRANS_CHECK_MAX_TIME_TOPIC"
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
ASKED = {"TAGS": "a", "UNIQ_KEY": UNIQ_KEY, "PGROUP": "pg", "TRAN_MSG": "true"}
PRODUCER = Peer(5, "127.0.0.1:40005")


def half(driver: Driver, **more: str) -> StoredMessage:
    """Send a half message to queue 2 of T; return it as it is stored."""
    answer = send(driver, properties={**ASKED, **more}, queue_id=2, sys_flag=4)
    assert answer.code == 0
    return driver.messages(HALF)[-1]


def end(
    driver: Driver,
    message: StoredMessage,
    how: int,
    *,
    group: str = "pg",
    table_offset: int | None = None,
    of_check: bool = False,
) -> RemotingCommand:
    """Send END_TRANSACTION (37), and return the answer."""
    if table_offset is None:
        table_offset = message.queue_offset
    answer = driver.ask(
        RequestCode.END_TRANSACTION,
        EndTransactionRequestHeader(
            producer_group=group,
            tran_state_table_offset=table_offset,
            commit_log_offset=message.commit_log_offset,
            commit_or_rollback=how,
            from_transaction_check=of_check,
            msg_id=UNIQ_KEY,
        ),
    )
    assert answer is not None
    return answer


def checks(driver: Driver) -> list[RemotingCommand]:
    """The pushes 39 that the producer got."""
    return [each for each in driver.sent[PRODUCER.number] if each.code == 39]


def join(driver: Driver) -> None:
    """Let a producer of group pg connect and send a heartbeat."""
    beat = encode_body(
        HeartbeatData(client_id="p@1", producers=(ProducerData(group_name="pg"),))
    )
    driver.ask(RequestCode.HEART_BEAT, body=beat, peer=PRODUCER)


@pytest.mark.parametrize("version", ["4.6.0", "4.9.7", "5.5.0"])
def test_a_half_message_is_kept_apart(version: str) -> None:
    driver = Driver(like(version))

    stored = half(driver)

    assert driver.messages("T", 2) == []
    assert (stored.topic, stored.queue_id, stored.sys_flag) == (HALF, 0, 0)
    assert stored.properties["REAL_TOPIC"] == "T"
    assert stored.properties["REAL_QID"] == "2"
    marked = stored.properties.get("__transactionId__")
    assert marked == (UNIQ_KEY if version == "5.5.0" else None)


@pytest.mark.parametrize(
    ("version", "body"), [("4.6.0", b"0"), ("4.9.7", b"0"), ("5.5.0", b"0,")]
)
def test_a_commit_delivers_the_message_and_is_stored(version: str, body: bytes) -> None:
    driver = Driver(like(version))
    stored = half(driver)
    driver.wait(100)

    answer = end(driver, stored, COMMIT)

    assert (answer.code, answer.remark) == (0, None)
    (message,) = driver.messages("T", 2)
    assert message.sys_flag == 8
    assert message.prepared_transaction_offset == stored.commit_log_offset
    assert message.born_timestamp_ms == BORN_MS
    assert message.store_timestamp_ms == EPOCH_MS + 100
    assert message.properties["TRAN_MSG"] == "true"
    assert ("REAL_TOPIC" in message.properties) == (version != "5.5.0")
    (operation,) = driver.messages(OPERATIONS)
    assert operation.body == body
    assert operation.properties == {"TAGS": "d", "WAIT": "true"}


def test_rollback_delivers_nothing() -> None:
    driver = Driver()
    stored = half(driver)

    answer = end(driver, stored, ROLLBACK)

    assert answer.code == 0
    assert driver.messages("T", 2) == []
    assert len(driver.messages(OPERATIONS)) == 1


def test_unknown_end_changes_nothing() -> None:
    driver = Driver()
    stored = half(driver)

    assert end(driver, stored, UNKNOWN).code == 0
    assert driver.messages(OPERATIONS) == []


def test_end_of_another_message_is_code_1() -> None:
    driver = Driver()
    stored = half(driver)
    send(driver)
    (other,) = driver.messages("T")

    remarks = [
        end(driver, stored, COMMIT, group="other").remark,
        end(driver, stored, COMMIT, table_offset=7).remark,
        end(driver, other, COMMIT).remark,
    ]

    assert remarks == [
        "The producer group wrong",
        "The transaction state table offset wrong",
        "The producer group wrong",
    ]
    gone = driver.ask(
        RequestCode.END_TRANSACTION,
        EndTransactionRequestHeader(
            producer_group="pg",
            tran_state_table_offset=0,
            commit_log_offset=999_999,
            commit_or_rollback=COMMIT,
            msg_id="",
        ),
    )
    assert gone is not None
    assert (gone.code, gone.remark) == (1, "Find prepared transaction message failed")
    assert driver.messages("T", 2) == []


@pytest.mark.parametrize(
    ("version", "first_ms"), [("4.6.0", 60_000), ("4.9.7", 60_000), ("5.5.0", 30_000)]
)
def test_an_undecided_message_is_checked(version: str, first_ms: int) -> None:
    driver = Driver(like(version))
    stored = half(driver)
    driver.wait(first_ms - 1)
    join(driver)
    assert checks(driver) == []

    driver.wait(1)

    (asked,) = checks(driver)
    (body,) = decode_messages(asked.body)
    assert isinstance(body, StoredMessage)
    again = driver.messages(HALF)[1]
    assert asked.is_oneway
    assert asked.ext_fields == {
        "tranStateTableOffset": "1",
        "commitLogOffset": str(again.commit_log_offset),
        "msgId": UNIQ_KEY,
        "transactionId": UNIQ_KEY,
        "offsetMsgId": again.offset_msg_id,
    }
    assert (body.topic, body.queue_id, body.body) == ("T", 2, b"hello")
    assert body.properties["TRANSACTION_CHECK_TIMES"] == "1"
    assert body.born_timestamp_ms == stored.born_timestamp_ms

    assert end(driver, again, COMMIT, of_check=True).code == 0
    assert len(driver.messages("T", 2)) == 1
    driver.wait(2 * first_ms)
    assert len(driver.messages(HALF)) == 2  # not checked again


def test_young_message_waits_for_the_next_turn() -> None:
    driver = Driver()
    driver.wait(25_000)
    header_born_ms = driver.now.epoch_ms  # 5 s before the next check
    send(driver, properties={**ASKED, "n": "1"}, sys_flag=4)
    assert header_born_ms - BORN_MS > 6_000  # by its own clock it is old enough
    driver.wait(5_000)

    assert len(driver.messages(HALF)) == 2


HOURS_72_MS = 72 * 3600 * 1000


@pytest.mark.parametrize(
    ("age_ms", "halves", "discarded"),
    [
        (6_000, 2, 0),
        (5_999, 1, 0),
        (0, 1, 0),
        # The producer's clock is wrong.
        (-1, 2, 0),
        (HOURS_72_MS, 2, 0),
        (HOURS_72_MS + 1, 1, 1),
    ],
)
def test_a_half_message_is_checked_from_6_s_to_72_hours_after_its_birth(
    age_ms: int, halves: int, discarded: int
) -> None:
    """Until then it waits, and afterwards the broker gives it up."""
    driver = Driver()
    header = send_header("T", {**ASKED}, sys_flag=4)
    born_ms = EPOCH_MS + 30_000 - age_ms
    header = dataclasses.replace(header, born_timestamp=born_ms)
    driver.ask(RequestCode.SEND_MESSAGE_V2, header, body=b"hello")

    driver.wait(30_000)

    assert len(driver.messages(HALF)) == halves
    assert len(driver.messages(DISCARDED)) == discarded


@pytest.mark.parametrize(("stored_ms", "halves"), [(30_000, 1), (29_999, 2)])
def test_a_message_of_the_same_millisecond_as_a_check_waits_for_the_next(
    stored_ms: int, halves: int
) -> None:
    driver = Driver()
    driver.wait(29_999)
    driver.now = Now(29_999, EPOCH_MS + stored_ms)
    half(driver)
    driver.now = Now(29_999, EPOCH_MS + 29_999)

    driver.wait(1)

    assert len(driver.messages(HALF)) == halves


def test_a_message_undecided_after_15_checks_is_given_up() -> None:
    driver = Driver()
    half(driver)

    driver.wait(16 * 30_000)

    assert len(driver.messages(HALF)) == 16
    (discarded,) = driver.messages(DISCARDED)
    assert discarded.properties["TRANSACTION_CHECK_TIMES"] == "15"
    assert discarded.properties["REAL_TOPIC"] == "T"
    driver.wait(60_000)
    assert len(driver.messages(HALF)) == 16


def test_messages_that_are_given_up_hold_up_no_other() -> None:
    driver = Driver()
    for number in "123":
        half(driver, n=number)

    driver.wait(16 * 30_000)

    found = [each.properties["n"] for each in driver.messages(DISCARDED)]
    assert found == ["1", "2", "3"]
    assert driver.broker.offsets.query("CID_RMQ_SYS_TRANS", HALF, 0) == 3 * 16


def test_a_message_can_request_more_time_before_its_first_check() -> None:
    driver = Driver()
    first = half(driver, CHECK_IMMUNITY_TIME_IN_SECONDS="100")
    driver.wait(90_000)
    assert checks(driver) == []
    later = driver.messages(HALF)
    assert [each.properties.get("TRAN_PREPARED_QUEUE_OFFSET") for each in later] == [
        None,
        "0",
        "0",
        "0",
    ]

    end(driver, first, COMMIT)
    driver.wait(120_000)

    assert len(driver.messages("T", 2)) == 1
    assert len(driver.messages(HALF)) == 4


def test_late_end_of_such_a_message_waits_for_a_check() -> None:
    driver = Driver()
    stored = half(driver, CHECK_IMMUNITY_TIME_IN_SECONDS="10")
    driver.wait(10_000)

    assert end(driver, stored, COMMIT).code == 604
    assert end(driver, stored, COMMIT, of_check=True).code == 0


def test_a_restart_loses_no_transaction() -> None:
    store = MemoryStore()
    first = Driver(store=store)
    done, undecided = half(first, n="1"), half(first, n="2")
    end(first, done, COMMIT)

    second = Driver(store=store, now=Now(0, EPOCH_MS + 60_000))
    second.wait(30_000)

    assert [each.properties["n"] for each in second.messages(HALF)] == ["1", "2", "2"]
    assert end(second, undecided, COMMIT).code == 0


def test_progress_moves_behind_what_is_ended() -> None:
    driver = Driver()
    for _ in range(5):
        end(driver, half(driver), ROLLBACK)

    driver.wait(30_000)

    offsets = driver.broker.offsets
    assert offsets.query("CID_RMQ_SYS_TRANS", HALF, 0) == 5
    assert offsets.query("CID_RMQ_SYS_TRANS", OPERATIONS, 0) == 5


def test_full_store_keeps_the_half_message() -> None:
    store = MemoryStore()
    driver = Driver(BrokerSettings(), store=store)
    stored = half(driver)
    store.capacity_bytes = store.log_bounds()[1]

    assert end(driver, stored, COMMIT).code == 14
    driver.wait(60_000)
    store.capacity_bytes = None

    assert end(driver, stored, COMMIT).code == 0
    assert len(driver.messages("T", 2)) == 1
    assert CLIENT.number in driver.sent
