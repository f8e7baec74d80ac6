"""Recalling delayed messages (370)."""

from __future__ import annotations

import pytest

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.testing import ManualClock
from rmqcli.wire.recall_handle import RecallHandle, encode_recall_handle
from tests.broker.proxy.test_sending import counts
from tests.kit import raw

RECALL, SEND, CONFIGURE = 370, 310, 25
START_MS = 1_700_000_000_000


@pytest.fixture
def cluster():
    clock = ManualClock(now_ms=START_MS)
    settings = {"recall_message_enable": True}
    with EmbeddedCluster(clock=clock, settings=settings) as cluster:
        cluster.create_topic("D", queues=1)
        yield cluster


def send(cluster, key, due_ms, topic="D"):
    """Send a delayed message; return the answer's fields."""
    fields = {
        "a": "p",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": "0",
        "f": "0",
        "g": str(START_MS),
        "h": "0",
        "j": "0",
        "i": f"UNIQ_KEY\x01{key}\x02TIMER_DELIVER_MS\x01{due_ms}\x02",
    }
    answer = raw.ask(cluster.broker().address, SEND, fields, body=b"x")
    assert answer.code == 0, answer
    return answer.ext_fields


def recall(cluster, handle, topic="D"):
    fields = {"topic": topic, "recallHandle": handle}
    return raw.ask(cluster.broker().address, RECALL, fields)


def handle_of(**fields):
    parts = {
        "topic": "D",
        "broker_name": "broker-a",
        "timestamp_ms": str(START_MS + 10_000),
        "message_id": "01",
        **fields,
    }
    return encode_recall_handle(RecallHandle(**parts))


def test_a_recalled_message_is_not_delivered(cluster):
    kept = send(cluster, "01", START_MS + 10_000)
    gone = send(cluster, "02", START_MS + 10_000)
    assert kept["recallHandle"] != gone["recallHandle"]
    answer = recall(cluster, gone["recallHandle"])
    assert (answer.code, answer.ext_fields["msgId"]) == (0, "02")
    cluster.advance(15_000)
    assert counts(cluster, "D", 1) == [1]


def test_only_the_message_of_that_key_and_time_is_recalled(cluster):
    send(cluster, "01", START_MS + 10_000)
    send(cluster, "02", START_MS + 20_000)
    assert recall(cluster, handle_of(message_id="02")).code == 0
    cluster.advance(30_000)
    assert counts(cluster, "D", 1) == [2]


def test_copies_that_are_due_at_different_times_are_recalled_one_by_one(cluster):
    """A producer that sends a delayed message again makes two of one key."""
    first = send(cluster, "01", START_MS + 10_000)
    second = send(cluster, "01", START_MS + 20_000)
    assert recall(cluster, first["recallHandle"]).code == 0
    assert recall(cluster, second["recallHandle"]).code == 0
    cluster.advance(15_000)
    assert counts(cluster, "D", 1) == [0]
    cluster.advance(15_000)
    assert counts(cluster, "D", 1) == [0]


@pytest.mark.parametrize(("with_topic", "left"), [(False, 0), (True, 1)])
def test_a_recall_names_its_topic_only_if_that_is_set(cluster, with_topic, left):
    """By default another topic's message of that key and second goes too, as in 5.5.0.

    Source: SendAndRecallDelayMessageIT#testSendAndRecall_ukCollision.
    """
    properties = f"appendTopicForTimerDeleteKey={str(with_topic).lower()}".encode()
    assert raw.ask(cluster.broker().address, CONFIGURE, {}, body=properties).code == 0
    cluster.create_topic("E", queues=1)
    send(cluster, "01", START_MS + 10_000)
    send(cluster, "01", START_MS + 10_000, topic="E")
    assert recall(cluster, handle_of(message_id="01")).code == 0
    cluster.advance(15_000)
    assert counts(cluster, "D", 1) == [0]
    assert counts(cluster, "E", 1) == [left]


def test_a_message_for_now_has_no_handle(cluster):
    assert "recallHandle" not in send(cluster, "01", START_MS - 1)


@pytest.mark.parametrize(
    ("handle", "topic", "code", "remark"),
    [
        ("!!", "D", 604, "recall handle is invalid"),
        (handle_of(), "nope", 17, "recall failed, the topic[nope] not exist"),
        (handle_of(topic="E"), "D", 604, "recall failed, topic not match"),
        (
            handle_of(broker_name="broker-z"),
            "D",
            604,
            "recall failed, broker service not available",
        ),
        (handle_of(timestamp_ms="x"), "D", 604, "recall failed, timestamp invalid"),
        (
            handle_of(timestamp_ms=str(START_MS)),
            "D",
            604,
            "recall failed, timestamp invalid",
        ),
        (
            handle_of(timestamp_ms=str(START_MS + 4 * 24 * 3600 * 1000)),
            "D",
            604,
            "recall failed, timestamp invalid",
        ),
    ],
)
def test_what_cannot_be_recalled(cluster, handle, topic, code, remark):
    answer = recall(cluster, handle, topic)
    assert (answer.code, answer.remark) == (code, remark)


def test_recalls_are_off_by_default():
    with EmbeddedCluster() as cluster:
        answer = recall(cluster, handle_of())
        assert (answer.code, answer.remark) == (
            16,
            "recall failed, operation is forbidden",
        )
