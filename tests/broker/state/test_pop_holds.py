"""Requests of POP that wait: which are woken, by what, and when they end."""

from __future__ import annotations

from rmqcli.broker.effects import Peer
from rmqcli.broker.settings import BrokerSettings
from rmqcli.broker.state import pop_holds
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.headers.pop import NotificationRequestHeader
from tests.broker.driving import CLIENT, Driver, need
from tests.broker.popping import ack, bodies, handles, pop, pop_header
from tests.broker.pulling import driver_with_topic, put

WAITING = Peer(5, "127.0.0.1:40005")


def wait_for(driver: Driver, *, peer: Peer = WAITING, **changes: object) -> None:
    header = pop_header(driver, **{"poll_time": 60_000, **changes})
    assert driver.ask(RequestCode.POP_MESSAGE, header, peer=peer) is None


def got(driver: Driver, peer: Peer = WAITING) -> list[list[str]]:
    return [bodies(each) for each in driver.sent[peer.number]]


def test_an_acknowledgement_in_order_wakes_who_waits_for_the_queue():
    driver = driver_with_topic()
    put(driver, "A", "B")
    (handle,) = handles(pop(driver, order=True, max_msg_nums=1))
    wait_for(driver, order=True)

    ack(driver, handle)

    assert got(driver) == [["B"]]


def test_a_queue_that_is_free_again_wakes_who_waits_for_any():
    """Without acknowledgements the batch is delivered again when its time is over."""
    driver = driver_with_topic()
    put(driver, "A")
    pop(driver, order=True, invisible_time=10_000)
    wait_for(driver, order=True, queue_id=-1)

    driver.wait(9_999)
    assert got(driver) == []
    driver.wait(1)

    assert got(driver) == [["A"]]


def test_the_requests_that_may_wait_are_limited_for_each_connection(monkeypatch):
    monkeypatch.setattr(pop_holds, "HELD_OF_PEER_MAX", 2)
    driver = driver_with_topic()
    wait_for(driver)
    wait_for(driver, queue_id=1)

    assert pop(driver, peer=WAITING, poll_time=60_000).code == 209
    wait_for(driver, peer=Peer(6, "127.0.0.1:40006"))
    put(driver, "A")
    wait_for(driver)


def test_the_requests_that_may_wait_at_one_broker_are_limited(monkeypatch):
    monkeypatch.setattr(pop_holds, "HELD_MAX", 2)
    driver = driver_with_topic()
    wait_for(driver)
    wait_for(driver, consumer_group="h", queue_id=-1)

    assert pop(driver, poll_time=60_000).code == 209
    driver.disconnect(WAITING)
    wait_for(driver, peer=CLIENT)


def test_a_request_for_one_queue_does_not_get_the_messages_of_another():
    driver = driver_with_topic()
    wait_for(driver, queue_id=1)

    put(driver, "A")
    assert got(driver) == []
    put(driver, "B", queue_id=1)

    assert got(driver) == [["B"]]


def test_each_group_is_woken():
    driver = driver_with_topic()
    other = Peer(6, "127.0.0.1:40006")
    wait_for(driver)
    wait_for(driver, consumer_group="h", peer=other)

    put(driver, "A")

    assert got(driver) == [["A"]]
    assert got(driver, other) == [["A"]]


def test_behind_messages_of_other_tags_the_search_goes_on():
    """One search reads 800 entries, here ten; messages behind them come at once."""
    driver = driver_with_topic(BrokerSettings(max_filter_message_size=20 * 10))
    put(driver, *["A"] * 25, "B")
    wait_for(driver, exp="B", exp_type="TAG", max_msg_nums=1)

    driver.wait(0)

    assert got(driver) == [["B"]]


def notify(driver: Driver, **changes: object) -> dict[str, str] | None:
    """The header of an answer to NOTIFICATION; None while it is held."""
    fields = {
        "consumer_group": "g",
        "topic": "T",
        "queue_id": 0,
        "poll_time": 5_000,
        "born_time": driver.now.epoch_ms,
    }
    header = NotificationRequestHeader(**{**fields, **changes})  # type: ignore[arg-type]
    answer = driver.ask(RequestCode.NOTIFICATION, header)
    return None if answer is None else answer.ext_fields


def test_a_notification_waits_and_takes_nothing():
    driver = driver_with_topic()
    assert notify(driver) is None

    put(driver, "A")

    (answer,) = driver.sent[CLIENT.number]
    assert answer.ext_fields == {"hasMsg": "true", "pollingFull": "false"}
    assert bodies(pop(driver)) == ["A"]


def test_a_notification_ends_with_its_time():
    driver = driver_with_topic()
    assert notify(driver) is None

    driver.wait(4_950)
    assert driver.sent[CLIENT.number] == []
    driver.wait(1)

    (answer,) = driver.sent[CLIENT.number]
    assert answer.ext_fields == {"hasMsg": "false", "pollingFull": "false"}


def test_a_notification_tells_of_what_came_back():
    driver = driver_with_topic()
    put(driver, "A")
    pop(driver, invisible_time=1_000)
    assert notify(driver) is None

    driver.wait(1_000)

    answer = driver.sent[CLIENT.number][-1]
    assert answer.ext_fields == {"hasMsg": "true", "pollingFull": "false"}


def test_in_order_a_blocked_queue_has_no_message():
    driver = driver_with_topic()
    put(driver, "A", "B")
    (handle,) = handles(pop(driver, order=True, max_msg_nums=1))

    assert notify(driver, order=True, poll_time=0) == {
        "hasMsg": "false",
        "pollingFull": "false",
    }
    ack(driver, handle)
    found = need(notify(driver, order=True, poll_time=0))
    assert found["hasMsg"] == "true"
