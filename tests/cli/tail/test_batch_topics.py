"""`rmq tail` of topics that keep a batch as one record (queue.type=BatchCQ).

A broker compares the tags of such a record, which has none, and not those of the
messages in it.
"""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from rmqcli import Admin, NotFoundError
from rmqcli.broker import faults
from rmqcli.cli.main import run
from rmqcli.wire.codes import RequestCode
from tests.broker.behaviour.batches import Batches


@pytest.fixture
def topic(rmq_cluster):
    """A topic with two batches: messages a, b and c, and b again, tagged tag-a ..."""
    with closing(Batches(rmq_cluster.broker().address)) as scene:
        scene.send_batch("abc")
        scene.send_batch("b")
        yield scene.topic


@pytest.fixture
def tail(rmq_cluster, topic, capfd):
    """Runs tail on the topic; returns code, bodies and stderr."""

    def call(*arguments):
        words = ["tail", topic, "-n", rmq_cluster.namesrv, "--from", "earliest"]
        code = run([*words, "--no-follow", "-o", "jsonl", *arguments])
        out, err = capfd.readouterr()
        return code, [json.loads(line)["body"] for line in out.splitlines()], err

    return call


def test_a_tag_finds_the_messages_of_a_batch(tail):
    code, bodies, err = tail("--tag", "tag-b")
    assert (code, bodies) == (0, ["b", "b"])
    assert "2 shown, 4 read, nothing missing" in err


def test_a_condition_on_tags_finds_the_messages_of_a_batch(tail):
    code, bodies, err = tail("--where", "tags = 'tag-b'")
    assert (code, bodies) == (0, ["b", "b"])
    assert "2 shown, 4 read, nothing missing" in err


def test_the_last_messages_with_a_tag_are_those_of_batches_too(
    rmq_cluster, topic, capfd
):
    words = ["tail", topic, "-n", rmq_cluster.namesrv, "--last", "2", "--no-follow"]
    assert run([*words, "--tag", "tag-a || tag-c", "-o", "jsonl"]) == 0
    out = capfd.readouterr().out
    assert [json.loads(line)["body"] for line in out.splitlines()] == ["a", "c"]


def test_an_admin_finds_each_message_of_a_batch_by_its_offset(rmq_cluster, topic):
    """It found none of them."""
    with Admin(namesrv=rmq_cluster.namesrv) as admin:
        (queue,) = {each.message_queue for each in admin.read(topic)}
        found = [admin.message_at(queue, offset) for offset in range(4)]
        assert [each.body for each in found] == [b"a", b"b", b"c", b"b"]
        assert [each.queue_offset for each in found] == [0, 1, 2, 3]
        with pytest.raises(NotFoundError, match="no message at offset 4"):
            admin.message_at(queue, 4)


def test_sql_is_refused_instead_of_finding_nothing(tail):
    code, bodies, err = tail("--sql", "TAGS = 'tag-b'")
    assert (code, bodies) == (1, [])
    assert "whose messages a broker cannot filter by SQL" in err
    assert "use --tag EXPR" in err


def test_settings_that_a_broker_does_not_tell_are_not_taken_for_ordinary(
    rmq_cluster, tail
):
    refusal = faults.answer(16, "no permission")
    rmq_cluster.faults.add(refusal, code=int(RequestCode.GET_TOPIC_CONFIG))
    assert tail("--tag", "tag-b")[1] == ["b", "b"]


def test_the_library_finds_the_messages_of_a_batch_by_tag(rmq_cluster, topic):
    with Admin(namesrv=rmq_cluster.namesrv) as admin:
        found = admin.read(topic, to="latest", sub_expression="tag-b")
        assert [message.body for message in found] == [b"b", b"b"]
