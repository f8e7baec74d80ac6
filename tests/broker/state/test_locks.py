"""Queue locks of orderly consumers."""

from __future__ import annotations

import pytest

from rmqcli.broker.effects import Peer
from rmqcli.broker.state import locks as queue_locks
from rmqcli.model import MessageQueue
from rmqcli.wire.bodies.heartbeat import LockBatchRequestBody, LockBatchResponseBody
from rmqcli.wire.body import decode_body, encode_body
from rmqcli.wire.codes import RequestCode
from tests.broker.driving import Driver, need

Q0 = MessageQueue("t", "broker-a", 0)
Q1 = MessageQueue("t", "broker-a", 1)


def lock_request(group, client_id, queues):
    return encode_body(
        LockBatchRequestBody(
            client_id=client_id, consumer_group=group, mq_set=list(queues)
        )
    )


def lock(driver, client_id, *queues, group="g"):
    body = lock_request(group, client_id, queues)
    return decode_body(
        LockBatchResponseBody, driver.ask(RequestCode.LOCK_BATCH_MQ, body=body).body
    ).lock_ok_mq_set


def unlock(driver, client_id, *queues, group="g"):
    body = lock_request(group, client_id, queues)
    return driver.ask(RequestCode.UNLOCK_BATCH_MQ, body=body)


def test_a_queue_has_one_owner():
    driver = Driver()

    assert lock(driver, "c1", Q0) == [Q0]
    assert lock(driver, "c2", Q0, Q1) == [Q1]


def test_a_lock_belongs_to_a_client_by_group_and_queue():
    driver = Driver()
    lock(driver, "c1", Q0)

    assert lock(driver, "c2", Q0, group="other") == [Q0]
    assert lock(driver, "c2", Q0) == []
    assert lock(driver, "c1", Q0, group="other") == []


def test_a_lock_lives_60_s_and_not_a_ms_less():
    driver = Driver()
    lock(driver, "c1", Q0)

    driver.wait(60_000)
    assert lock(driver, "c2", Q0) == []
    driver.wait(1)

    assert lock(driver, "c2", Q0) == [Q0]
    assert lock(driver, "c1", Q0) == []


def test_renewing_a_lock_keeps_it():
    driver = Driver()
    for _ in range(5):
        assert lock(driver, "c1", Q0) == [Q0]
        driver.wait(20_000)

    assert lock(driver, "c2", Q0) == []


def test_only_the_owner_unlocks():
    driver = Driver()
    lock(driver, "c1", Q0)

    assert unlock(driver, "c2", Q0).code == 0
    assert lock(driver, "c2", Q0) == []
    assert unlock(driver, "c1", Q0).code == 0

    assert lock(driver, "c2", Q0) == [Q0]


def test_a_lock_survives_its_owners_connection():
    driver = Driver()
    peer = Peer(5, "127.0.0.1:40005")
    body = lock_request("g", "c1", [Q0])
    driver.ask(RequestCode.LOCK_BATCH_MQ, body=body, peer=peer)

    driver.disconnect(peer)

    assert lock(driver, "c2", Q0) == []


def test_a_group_holds_locks_until_the_last_expires():
    driver = Driver()
    locks = driver.broker.locks
    assert not locks.is_held("g", driver.now)
    lock(driver, "c1", Q0)
    assert locks.is_held("g", driver.now)

    driver.wait(60_001)

    assert not locks.is_held("g", driver.now)


def test_the_number_of_locks_is_bounded(monkeypatch):
    """Beyond the bound no lock is granted until some have expired."""
    monkeypatch.setattr(queue_locks, "LOCKS_MAX", 1)
    driver = Driver()

    assert lock(driver, "c1", Q0, Q1) == [Q0]
    driver.wait(60_001)

    assert lock(driver, "c2", Q1) == [Q1]
    assert lock(driver, "c1", Q0) == []


@pytest.mark.parametrize(
    "code", [RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ]
)
def test_an_unreadable_lock_request_is_answered_with_1(code):
    assert need(Driver().ask(code, body=b"{}")).code == 1


def test_released_locks_make_room_for_others(monkeypatch):
    """However many were granted and released before, some of them twice."""
    monkeypatch.setattr(queue_locks, "LOCKS_MAX", 3)
    driver = Driver()
    queues = [MessageQueue("t", "broker-a", number) for number in range(4)]
    for turn in range(5):
        assert lock(driver, f"c{turn}", *queues) == queues[:3]
        assert lock(driver, f"c{turn}", *queues[:3], queues[0]) == queues[:3]
        unlock(driver, f"c{turn}", *queues, queues[0])
        unlock(driver, f"c{turn}", *queues)
        unlock(driver, "another", *queues)


def test_releasing_a_queue_that_was_never_locked_makes_no_room(monkeypatch):
    monkeypatch.setattr(queue_locks, "LOCKS_MAX", 1)
    driver = Driver()
    unlock(driver, "c1", Q0, Q1)
    assert lock(driver, "c1", Q0) == [Q0]
    unlock(driver, "c2", Q0, Q1)
    assert lock(driver, "c1", Q0, Q1) == [Q0]


def test_expired_locks_make_room_once_each(monkeypatch):
    monkeypatch.setattr(queue_locks, "LOCKS_MAX", 2)
    driver = Driver()
    for turn in range(4):
        assert lock(driver, "c1", Q0, group=f"g{turn}") == [Q0]
        assert lock(driver, "c1", Q0, Q1, group=f"h{turn}") == [Q0]
        driver.wait(60_001)
