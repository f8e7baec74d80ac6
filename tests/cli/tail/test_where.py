"""`--where` of the commands that read messages: a condition on what is in them."""

from __future__ import annotations

import json

import pytest

from rmqcli.cli.main import run
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
