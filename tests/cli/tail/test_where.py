"""`--where` of the commands that read messages: a condition on what is in them."""

from __future__ import annotations

import json

import pytest

from rmqcli import Admin, parse_decode
from rmqcli.admin.tail.where import parse_where
from rmqcli.cli.main import run
from rmqcli.model import MessageQueue
from rmqcli.testing import Seed
from tests.kit.records import checked_records

WHOLE = ["--from", "earliest", "--to", "latest", "-o", "jsonl"]


@pytest.fixture
def rmq(rmq_cluster, capfd):
    def call(*arguments, code=0):
        returned = run([*arguments, "-n", rmq_cluster.namesrv])
        out, err = capfd.readouterr()
        assert returned == code, err
        return out, err

    return call


@pytest.fixture
def orders(rmq_cluster):
    rmq_cluster.create_topic("orders", queues=1)
    for number in range(6):
        seed = Seed(
            body=json.dumps({"id": number}).encode() if number else b"no JSON",
            tags=("New", "Paid")[number % 2],
            properties={"region": ("eu", "us")[number % 2]},
        )
        rmq_cluster.send("orders", [seed], queue_id=0)
    return "orders"


def offsets(out):
    return [each["queue_offset"] for each in checked_records(out.encode().splitlines())]


def test_only_messages_for_which_the_condition_is_true_are_shown(rmq, orders):
    condition = "value.id >= 2 AND properties.region = 'eu' OR tags = 'x'"
    flags = ["--decode", "json", "--where", condition]
    out, err = rmq("tail", orders, *WHOLE, *flags)
    assert offsets(out) == [2, 4]
    assert "2 shown, 6 read, 1 without a value, nothing missing" in err
    out, err = rmq("message", "find", orders, "-o", "jsonl", *flags)
    assert offsets(out) == [2, 4]


def test_the_library_reads_what_the_command_shows(rmq, rmq_cluster, orders):
    condition = "value.id >= 2 AND properties.region = 'eu' OR tags = 'x'"
    flags = ["--decode", "json", "--where", condition]
    out, _ = rmq("tail", orders, *WHOLE, *flags)
    shown = [json.loads(line) for line in out.splitlines()]
    format_ = parse_decode("json")
    with Admin(namesrv=rmq_cluster.namesrv) as admin:
        found = list(admin.read(orders, where=condition, decode="json"))
    assert [each.queue_offset for each in found] == [2, 4]
    assert [format_.value(each.body) for each in found] == [{"id": 2}, {"id": 4}]
    assert [each["value"] for each in shown] == [{"id": 2}, {"id": 4}]


def test_the_broker_and_the_error_of_a_decoder_are_fields(rmq, orders):
    flags = ["--decode", "json", "--where", "decode_error IS NOT NULL"]
    out, err = rmq("tail", orders, *WHOLE, *flags)
    assert offsets(out) == [0]
    assert "decode_error" in json.loads(out)
    assert "without a value" not in err
    broker = json.loads(out)["broker_name"]
    for name, shown in ((broker, 6), ("other", 0)):
        flags = ["--where", f"broker_name = '{name}'"]
        assert len(offsets(rmq("tail", orders, *WHOLE, *flags)[0])) == shown
        found = rmq("message", "find", orders, "-o", "jsonl", *flags)[0]
        assert len(offsets(found)) == shown


def test_a_condition_adds_to_other_filters_and_is_not_inverted(rmq, orders):
    out, err = rmq(
        "tail", orders, *WHOLE, "--where", "queue_offset > 1", "--tag", "New"
    )
    assert offsets(out) == [2, 4]
    assert "without a value" not in err
    flags = ["--property", "region=us", "--not", "--where", "queue_offset > 1"]
    assert offsets(rmq("tail", orders, *WHOLE, *flags)[0]) == [2, 4]
    last = ["--last", "2", "--no-follow", "-o", "jsonl"]
    out, _ = rmq("tail", orders, *last, "--where", "tags = 'Paid'")
    assert offsets(out) == [3, 5]


def test_the_broker_leaves_out_what_cannot_match(rmq, rmq_cluster, orders):
    out, err = rmq("tail", orders, *WHOLE, "--where", "tags = 'Paid'")
    assert offsets(out) == [1, 3, 5]
    assert "3 shown, 3 read, nothing missing" in err
    rmq_cluster.create_topic("several", queues=4)
    for queue_id in range(4):
        rmq_cluster.send("several", ["x"] * 2, queue_id=queue_id)
    condition = "queue_id IN (1, 2) AND queue_offset = 1"
    out, err = rmq("tail", "several", *WHOLE, "--where", condition)
    assert offsets(out) == [1, 1]
    assert "2 shown, 4 read, nothing missing" in err
    assert "several@broker-a:1-2: each 0 to 2" in err
    out, err = rmq("tail", "several", *WHOLE, "--where", "queue_id = 7")
    assert (out, "0 shown, 8 read, nothing missing" in err) == ("", True)


def test_a_queue_that_appears_is_followed_only_if_the_condition_can_be_true_there():
    where = parse_where("queue_id = 1 AND broker_name = 'broker-a'")
    assert [
        where.may_match_in(MessageQueue("orders", *place))
        for place in (("broker-a", 1), ("broker-a", 2), ("broker-b", 1))
    ] == [True, False, False]


@pytest.mark.parametrize(
    "flags", [["--tag", "Late"], ["--where", "tags = 'Late'"]], ids=["tag", "where"]
)
def test_tags_are_found_among_delayed_messages(rmq, rmq_cluster, flags):
    """A broker stores their time of delivery in place of the tag's hash: none came."""
    rmq_cluster.create_topic("orders")
    for tag in ("Late", "Later"):
        rmq("send", "orders", tag, "--tag", tag, "--delay", "9")
    out, err = rmq("tail", "SCHEDULE_TOPIC_XXXX", *WHOLE, *flags)
    assert [json.loads(line)["body"] for line in out.splitlines()] == ["Late"]
    assert "1 shown, 2 read, nothing missing" in err
    with Admin(namesrv=rmq_cluster.namesrv) as admin:
        found = admin.read("SCHEDULE_TOPIC_XXXX", sub_expression="Late")
        assert [each.body for each in found] == [b"Late"]


def test_an_error_in_a_condition_is_shown_in_its_place(rmq, orders):
    _, err = rmq("tail", orders, "--where", "region = 'eu'", code=2)
    assert err.splitlines()[:2] == [
        "error: --where: 'region = 'eu'': not a field of messages",
        "                 ^^^^^^",
    ]
    _, err = rmq("message", "find", orders, "--where", "value.id = 1", code=2)
    assert "the values of bodies are not read" in err
    assert "hint: name their format with --decode" in err
    _, err = rmq("tail", orders, "--where", " ", code=2)
    assert "--where is empty" in err


def test_a_member_of_a_group_must_not_consume_what_it_does_not_show(capfd):
    flags = ["-g", "g", "--endpoints", "127.0.0.1:1", "--where", "queue_offset = 1"]
    assert run(["tail", "orders", *flags]) == 2
    assert "--where and --group cannot be used together" in capfd.readouterr().err
