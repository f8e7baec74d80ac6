"""A broker puts a message with a lite topic into that lite topic's queue, too."""

from __future__ import annotations

import pytest

from rmqcli.wire.codes import RequestCode
from rmqcli.wire.headers.config import DeleteTopicRequestHeader
from tests.broker.driving import Driver
from tests.broker.sending import like, send

LITE: dict[str, str | None] = {"__LITE_TOPIC": "alice"}
LMQ = "%LMQ%$T$alice"


@pytest.fixture
def driver():
    return Driver(like("5.5.0"))


def lmqs(driver):
    store = driver.broker.store
    names = [name for name, _ in store.queues() if name.startswith("%LMQ%")]
    return {name: store.queue_bounds(name, 0)[1] for name in names}


def test_messages_of_all_queues_are_numbered_in_the_lite_topic(driver):
    for queue_id in (0, 1, 0):
        assert send(driver, properties=LITE, queue_id=queue_id).code == 0
    assert lmqs(driver) == {LMQ: 3}
    message = driver.messages(LMQ)[1]
    assert (message.queue_id, message.queue_offset) == (1, 0)
    assert message.properties["INNER_MULTI_QUEUE_OFFSET"] == "1"


def test_a_broker_of_4_9_has_no_lite_topics():
    driver = Driver(like("4.9.7"))
    assert send(driver, properties=LITE).code == 0
    assert lmqs(driver) == {}


def test_a_half_message_is_in_the_lite_topic_only_after_its_commit(driver):
    answer = send(driver, properties={**LITE, "TRAN_MSG": "true", "PGROUP": "pg"})
    assert answer.code == 0
    assert lmqs(driver) == {}


def test_a_delayed_message_is_in_the_lite_topic_when_it_is_due(driver):
    send(driver, properties={**LITE, "TIMER_DELAY_SEC": "1"})
    assert lmqs(driver) == {}
    driver.wait(3_000)
    assert lmqs(driver) == {LMQ: 1}


def test_a_comma_separates_queues_and_is_no_part_of_a_lite_topic(driver):
    assert send(driver, properties={"__LITE_TOPIC": "a,b"}).code == 0
    assert lmqs(driver) == {}


def test_the_lite_topics_are_deleted_with_their_topic(driver):
    send(driver, properties=LITE)
    send(driver, "T2", LITE)
    driver.broker.offsets.commit("G", LMQ, 0, 1)
    driver.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="T"))
    assert lmqs(driver) == {"%LMQ%$T2$alice": 1}
    assert driver.broker.offsets.query("G", LMQ, 0) is None
