"""`rmq check` with globs, and `rmq cluster`, on two real brokers, in each format."""

from __future__ import annotations

import json

import pytest

from rmqcli import Admin, Producer, ProducerMessage
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.cli.main import run
from rmqcli.model import MessageQueue
from tests.admin.dlq.letters import client_of, make_letters
from tests.exporter.pages import Scrapes
from tests.kit.waiting import wait_until

pytestmark = [
    pytest.mark.java,
    pytest.mark.real_only,
    pytest.mark.rmq_versions("4.6.0", "5.5.0"),
]


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(scope="module")
def cluster(rmq_version, start_shared):
    """Two brokers with pay-a, which is 6 behind, and pay-b, which has read all.

    pay-b has given up two messages; pay-new never consumed. pay-empty has no message.
    """
    cluster = start_shared(rmq_version, brokers=2)
    for topic in ("pay-in", "pay-out", "pay-empty"):
        cluster.create_topic(topic, queues=1)
    offsets = {"pay-a": 1, "pay-b": 4}
    with Admin(namesrv=cluster.namesrv) as admin:
        for group in (*offsets, "pay-new"):
            admin.create_group(group)
    with Producer(namesrv=cluster.namesrv) as producer:
        for topic in ("pay-in", "pay-out"):
            for index in range(2):
                queue = MessageQueue(topic, cluster.broker_name(index), 0)
                for number in range(4):
                    message = ProducerMessage(topic, f"{number}".encode())
                    producer.send(message, queue=queue)
    with client_of(cluster, timeout_ms=30_000) as client:
        for group, offset in offsets.items():
            for index in range(2):
                call = update_consumer_offset(group, "pay-in", 0, commit_offset=offset)
                client.invoke(cluster.broker_address(index), call)
    make_letters(cluster, "pay-b", "pay-out", ["x", "y"])
    with Admin(namesrv=cluster.namesrv) as admin:
        wait_until(lambda: admin.lag("pay-a").total_lag == 6)
    return cluster


@pytest.fixture
def check(cluster, capsys):
    """Run `rmq check`; return its exit code and what it prints."""

    def run_it(line, output="nagios"):
        code = run(["check", *line.split(), "-o", output, "-n", cluster.namesrv])
        out, err = capsys.readouterr()
        assert err == ""
        return code, out

    return run_it


def statuses(out):
    found = json.loads(out)
    return {each["subject"]: each["status"] for each in found["measurements"]}


def test_the_lag_of_a_glob_in_each_format(check):
    code, out = check("lag pay-* --warn 5")
    assert code == 1
    assert out == (
        "LAG WARNING: pay-a: 6 messages (warning from 5); 1 other ok; 1 group left out"
        " | 'pay-a'=6;5; 'pay-b'=0;5;\n"
    )
    assert check("lag pay-* --warn 5", "prometheus") == (
        1,
        """\
# HELP rmq_check_status 0 ok, 1 warning, 2 critical, 3 unknown
# TYPE rmq_check_status gauge
rmq_check_status{check="lag"} 1
rmq_check_status{check="lag",group="pay-a"} 1
rmq_check_status{check="lag",group="pay-b"} 0
# TYPE rmq_check_lag_messages gauge
rmq_check_lag_messages{group="pay-a"} 6
rmq_check_lag_messages{group="pay-b"} 0
""",
    )
    code, out = check("lag pay-* --crit 6", "json")
    assert (code, statuses(out)) == (2, {"pay-a": "critical", "pay-b": "ok"})
    assert json.loads(out)["left_out"] == [
        {
            "subject": "pay-new",
            "reason": "no committed offset, and no member subscribes to a topic",
        }
    ]


def test_rocketmq_s_own_groups_and_topics_match_no_glob(check):
    code, out = check("lag * --warn 7", "json")
    assert (code, statuses(out)) == (0, {"pay-a": "ok", "pay-b": "ok"})
    code, out = check("topic * --warn 1h", "json")
    assert (code, statuses(out)) == (
        2,
        {"pay-empty": "critical", "pay-in": "ok", "pay-out": "ok"},
    )


@pytest.mark.parametrize(
    ("line", "code", "found"),
    [
        ("age pay-* --warn 1h", 0, {"pay-a": "ok", "pay-b": "ok"}),
        ("age pay-* --crit 1ms", 2, {"pay-a": "critical", "pay-b": "ok"}),
        ("retention pay-* --warn 1h", 0, {"pay-a": "ok", "pay-b": "ok"}),
        ("retention pay-* --warn 73h", 1, {"pay-a": "warning", "pay-b": "ok"}),
        (
            "dlq pay-* --warn 2",
            1,
            {"pay-a": "ok", "pay-b": "warning", "pay-new": "ok"},
        ),
        ("topic pay-[io]* --warn 1h", 0, {"pay-in": "ok", "pay-out": "ok"}),
        ("topic pay-i* --crit 1ms", 2, {"pay-in": "critical"}),
        ("broker broker-* --crit 100", 0, {"broker-a": "ok", "broker-b": "ok"}),
        ("broker *-b --warn 1", 1, {"broker-b": "warning"}),
    ],
)
def test_each_check_with_globs_says_the_same_in_each_format(check, line, code, found):
    json_code, out = check(line, "json")
    assert (json_code, statuses(out)) == (code, found)
    nagios_code, text = check(line)
    check_name = line.split()[0].upper()
    word = ("OK", "WARNING", "CRITICAL")[code]
    assert (nagios_code, text.split(":")[0]) == (code, f"{check_name} {word}")
    numbers = {"ok": 0, "warning": 1, "critical": 2}
    prometheus_code, text = check(line, "prometheus")
    assert prometheus_code == code
    lines = [each for each in text.splitlines() if each.startswith("rmq_check_status{")]
    assert [each.rpartition(" ")[2] for each in lines] == [
        str(code),
        *(str(numbers[status]) for status in found.values()),
    ]


def test_a_glob_that_matches_nothing_is_unknown(check):
    assert check("lag buy-* --warn 1") == (
        3,
        "LAG UNKNOWN: no group matches buy-*\n",
    )


def test_the_cluster_and_the_exporter_say_what_lag_says(cluster, capsys):
    def shown(command):
        assert run([command, "-o", "json", "-n", cluster.namesrv]) == 0
        return json.loads(capsys.readouterr().out)

    lags = {lag["group"]: lag for lag in shown("lag")}
    assert {name: (lag["state"], lag["total_lag"]) for name, lag in lags.items()} == {
        "pay-a": ("STOPPED", 6),
        "pay-b": ("OK", 0),
        "pay-new": ("NO_COMMIT", None),
    }
    found = shown("cluster")
    assert found["groups"] == {"STOPPED": 1, "OK": 1, "NO_COMMIT": 1}
    assert (found["lag"], found["known_lag"], found["dead_letters"]) == (None, 6, 2)
    assert found["topics"]["normal"] == 3
    assert [row["broker_name"] for row in found["brokers"]] == ["broker-a", "broker-b"]
    with Scrapes(cluster.namesrv, timeout_ms=30_000) as scrapes:
        values = scrapes.collect()
    assert scrapes.errors == {}
    assert {
        key[1:]: value
        for key, value in values.items()
        if key[0] == "rocketmq_group_lag_messages"
    } == {("pay-a",): 6, ("pay-b",): 0}
    assert {
        (key[1], key[4], key[5]): value
        for key, value in values.items()
        if key[0] == "rocketmq_group_queue_lag_messages" and "pay-a" in key
    } == {("broker-a", "0", "pay-in"): 3, ("broker-b", "0", "pay-in"): 3}
    assert values["rocketmq_group_dlqdiff", "pay-b", "%DLQ%pay-b"] == 2
