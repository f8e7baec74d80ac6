"""`rmq topic show|create|delete` on clusters of one and of several real brokers."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

import pytest

from rmqcli import Admin
from rmqcli.cli.main import run
from tests.kit import raw

GET_KV_CONFIG = 101


@dataclass
class Shell:
    """Runs commands against a cluster."""

    capsys: pytest.CaptureFixture[str]
    namesrv: str

    def __call__(self, *arguments):
        code = run([*arguments, "-n", self.namesrv])
        out, err = self.capsys.readouterr()
        return code, out, err

    def json(self, *arguments, expect=0):
        code, out, err = self(*arguments, "-o", "json")
        assert code == expect, err
        return json.loads(out)


@pytest.fixture
def rmq(real_cluster, capsys):
    return Shell(capsys, real_cluster.namesrv)


def new_name():
    return f"T-{random.getrandbits(40):x}"


def results(steps):
    return [(step["server"], step["result"]) for step in steps]


def test_create_change_and_delete(rmq, real_cluster):
    topic = new_name()
    (step,) = rmq.json("topic", "create", topic, "--queues", "3")
    assert step == {
        "server": "broker-a",
        "address": real_cluster.broker_address(),
        "result": "created",
        "write_queue_nums": 3,
        "perm": "rw",
        "error": None,
    }
    # The name server knows the topic when the command ends.
    assert [q["queue_id"] for q in rmq.json("topic", "show", topic)["queues"]] == [
        0,
        1,
        2,
    ]
    again = rmq.json("topic", "create", topic, "--queues", "3")
    assert results(again) == [("broker-a", "unchanged")]
    # Without --queues, the topic keeps its 3 queues.
    (step,) = rmq.json("topic", "update", topic, "--perm", "r", "--yes")
    assert (step["result"], step["perm"], step["write_queue_nums"]) == (
        "changed",
        "r",
        3,
    )
    code, _, err = rmq("topic", "delete", topic, "--no-input")
    assert code == 7
    assert "hint: run: rmq" in err
    assert len(rmq.json("topic", "show", topic)["queues"]) == 3
    steps = rmq.json("topic", "delete", topic, "--yes")
    assert results(steps) == [
        ("broker-a", "deleted"),
        (real_cluster.namesrv, "deleted"),
    ]
    assert rmq("topic", "show", topic)[0] == 3
    assert rmq("topic", "delete", topic, "--yes")[0] == 3


def test_defaults_of_a_new_topic(rmq):
    (step,) = rmq.json("topic", "create", new_name())
    assert (step["write_queue_nums"], step["perm"]) == (8, "rw")


def test_show_says_offsets_and_settings(rmq, new_topic):
    topic = new_topic(queues=2)
    assert rmq("send", topic, "x", "--queue", "1", "--count", "3")[0] == 0
    raw.wait_until(  # a broker counts a message a moment after it has stored it
        lambda: rmq.json("topic", "show", topic)["queues"][1]["max_offset"] == 3,
        timeout_ms=60_000,
        what=lambda: "3 messages in queue 1",
    )
    data = rmq.json("topic", "show", topic)
    assert (data["topic"], data["kind"], data["groups"]) == (topic, "normal", [])
    assert data["errors"] == []
    first, second = data["queues"]
    assert first == {
        "broker_name": "broker-a",
        "queue_id": 0,
        "min_offset": 0,
        "max_offset": 0,
        "messages": 0,
        "last_update": None,
    }
    assert (second["queue_id"], second["max_offset"], second["messages"]) == (1, 3, 3)
    assert second["last_update"].endswith("Z")
    (broker,) = data["brokers"]
    assert (broker["read_queue_nums"], broker["perm"]) == (2, "rw")
    _, out, _ = rmq("topic", "show", topic, "-o", "csv")
    assert out.splitlines()[0].startswith("broker_name,queue_id,min_offset,max_offset")
    _, out, _ = rmq("topic", "show", topic)
    assert out.startswith(
        f"topic {topic}: normal, 2 queues, 3 messages\ngroups: none\n"
    )


def test_attributes_need_5(rmq, rmq_version):
    topic = new_name()
    code, _, err = rmq("topic", "create", topic, "--attribute", "+message.type=FIFO")
    if rmq_version.startswith("4."):
        assert code == 1
        assert f"broker-a runs RocketMQ {rmq_version}, and attributes need 5.0.0" in err
        assert rmq("topic", "show", topic)[0] == 3
    else:
        assert code == 0
        assert rmq.json("topic", "show", topic)["message_type"] == "FIFO"


def test_an_ordered_topic_has_its_queues_written_down(rmq, real_cluster):
    topic = new_name()
    assert rmq("topic", "create", topic, "--queues", "2", "--order")[0] == 0
    key = {"namespace": "ORDER_TOPIC_CONFIG", "key": topic}
    answer = raw.ask(real_cluster.namesrv, GET_KV_CONFIG, key)
    assert answer.ext_fields["value"] == "broker-a:2"
    assert rmq("topic", "update", topic, "--queues", "4")[0] == 0
    answer = raw.ask(real_cluster.namesrv, GET_KV_CONFIG, key)
    assert answer.ext_fields["value"] == "broker-a:4"
    with Admin(namesrv=real_cluster.namesrv) as admin:
        admin.update_topic(topic, order=False)
    assert raw.ask(real_cluster.namesrv, GET_KV_CONFIG, key).code == 22
    # The broker registers when a topic changes, and learns then what is ordered.
    assert rmq("topic", "create", new_name())[0] == 0
    (broker,) = rmq.json("topic", "show", topic)["brokers"]
    assert broker["order"] is False
    assert rmq("topic", "update", topic, "--order")[0] == 0
    assert rmq("topic", "delete", topic, "--yes")[0] == 0
    assert raw.ask(real_cluster.namesrv, GET_KV_CONFIG, key).code == 22


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("create", "a b"), 2, "only letters"),
        (("create", "T", "--perm", "x"), 2, "not one of rw, r, w"),
        (("create", "T", "--attribute", "novalue"), 2, "not +NAME=VALUE"),
        (("create", "T", "--queues", "0"), 2, "--queues"),
        (
            ("create", "T", "--cluster", "C", "--broker", "b"),
            2,
            "--cluster and --broker cannot be used together",
        ),
    ],
)
def test_usage_errors(arguments, code, words, capsys):
    assert run(["topic", *arguments, "-n", "127.0.0.1:1"]) == code
    assert words in capsys.readouterr().err


def test_names_that_do_not_exist(rmq):
    assert rmq("topic", "show", "nope")[0] == 3
    code, _, err = rmq("topic", "create", "T", "--broker", "nope")
    assert (code, "use one of: broker-a" in err) == (3, True)
    assert rmq("topic", "create", "T", "--cluster", "nope")[0] == 3


def test_rocketmq_s_own_topics_are_not_deleted(rmq):
    code, _, err = rmq("topic", "delete", "TBW102", "--yes")
    assert code == 7
    assert "topic TBW102 is a system topic; nothing was deleted" in err


@pytest.mark.rmq_versions("5.5.0", "4.6.0")
def test_one_of_two_brokers_does_not_answer(fresh_cluster, capsys):
    """Every list shows what is known, names what is not, and exits with 6."""
    cluster = fresh_cluster(brokers=2)
    rmq = Shell(capsys, cluster.namesrv)
    topic = new_name()
    steps = rmq.json("topic", "create", topic, "--queues", "2")
    assert results(steps) == [("broker-a", "created"), ("broker-b", "created")]
    only = rmq.json("topic", "create", new_name(), "--broker", "broker-b")
    assert results(only) == [("broker-b", "created")]
    cluster.suspend_broker(1)
    slow = ("--timeout", "5s")
    rows = rmq.json("brokers", *slow, expect=6)
    assert [(r["broker_name"], r["error"] is None) for r in rows] == [
        ("broker-a", True),
        ("broker-b", False),
    ]
    assert rows[1]["version"] is None
    data = rmq.json("topic", "show", topic, *slow, expect=6)
    assert [q["max_offset"] for q in data["queues"]] == [0, 0, None, None]
    assert [e["broker_name"] for e in data["errors"]] == ["broker-b"]
    rows = rmq.json("topics", *slow, expect=6)
    assert [r["brokers"] for r in rows if r["error"]] == [["broker-b"]]
    # The list includes the topics that only the hung broker has.
    assert {r["topic"] for r in rows} >= {topic}
    assert len([r for r in rows if r["brokers"] == ["broker-b"]]) == 2
    rows = rmq.json("groups", *slow, expect=6)
    assert [r["brokers"] for r in rows if r["error"]] == [["broker-b"]]
    steps = rmq.json("topic", "update", topic, "--queues", "4", *slow, expect=6)
    assert results(steps) == [("broker-a", "changed"), ("broker-b", "failed")]
    steps = rmq.json("topic", "delete", topic, "--yes", *slow, expect=6)
    assert results(steps) == [("broker-a", "deleted"), ("broker-b", "unknown")]
    cluster.resume_broker(1)
