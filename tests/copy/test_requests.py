"""What a copy sends after a request that failed, and how it names messages."""

from __future__ import annotations

import json

import pytest

from rmqcli.admin.tail.where import parse_where
from rmqcli.cli.schema_registry import read_decode
from rmqcli.errors import ConfigError, RefusedError
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from tests.copy.copying import copied, stored

SENDS = (RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_MESSAGE_V2)
TOPICS = ("one", "other")
#: No two of these fit in one request.
LARGE = [bytes([65 + number]) * (3 << 20) for number in range(3)]


@pytest.fixture
def log(tmp_path):
    return tmp_path / "copy.jsonl"


@pytest.fixture
def cluster(rmq_cluster):
    for topic in TOPICS:
        rmq_cluster.create_topic(topic, queues=1)
    return rmq_cluster


@pytest.mark.parametrize(
    ("fault", "unknown", "sent_twice"),
    [
        (faults.answer(1, "disk is full"), [], []),
        (faults.disconnect(is_handled=True), ["broker-a:0:0-0"], LARGE[:1]),
    ],
    ids=["refused", "without an answer"],
)
def test_after_a_request_that_failed_nothing_is_sent_to_its_queue(
    cluster, log, fault, unknown, sent_twice
):
    for body in LARGE:
        cluster.send("one", [body])
    seen = [cluster.faults.observe(code=code, topic="other") for code in SENDS]
    rules = [cluster.faults.add(fault, code=code, topic="other") for code in SENDS]
    report = copied(cluster, cluster, log, topics=TOPICS)
    assert sum(each.seen for each in seen) == 1
    assert (report.copied, report.is_complete) == (0, False)
    assert [str(span) for span in report.unknown] == unknown
    for rule in rules:
        cluster.faults.remove(rule)
    report = copied(cluster, cluster, log, topics=TOPICS)
    assert (report.copied, report.is_complete) == (3, True)
    assert stored(cluster, "other") == {("broker-a", 0): sent_twice + LARGE}


def test_messages_that_are_left_out_are_named_up_to_a_hundred(cluster, log):
    cluster.send("one", [b'{"a": 1}', *[b"no JSON"] * 102, b'{"a": 2}'])
    where = parse_where("value.a > 1", decode=read_decode("json"))
    report = copied(cluster, cluster, log, topics=TOPICS, where=where)
    why = "its body could not be decoded for the condition"
    assert (report.copied, report.left_out) == (1, {why: 102})
    assert report.named == {why: [f"broker-a:0:{offset}" for offset in range(1, 101)]}


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (2**63 - 1, RefusedError),  # a number, but there are not so many messages
        (2**63, ConfigError),
        (-1, ConfigError),
        (True, ConfigError),
        (1.0, ConfigError),
        ("1", ConfigError),
        (None, ConfigError),
    ],
)
@pytest.mark.parametrize("field", ["positions", "read", "written"])
def test_a_log_with_an_offset_that_no_message_can_have_is_damaged(
    cluster, log, field, value, error
):
    cluster.send("one", ["a", "b"])
    copied(cluster, cluster, log, topics=TOPICS)
    *before, outcome = log.read_text().splitlines()
    changed = json.loads(outcome)
    changed[field][0][2] = value
    log.write_text("\n".join([*before, json.dumps(changed), ""]))
    with pytest.raises(error):
        copied(cluster, cluster, log, topics=TOPICS)
    assert stored(cluster, "other") == {("broker-a", 0): [b"a", b"b"]}
