"""`rmq bench`: what is measured and said, and clusters on which nothing is measured."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rmqcli import Admin
from rmqcli.benchmark import runs
from rmqcli.cli.bench import BenchOptions, _lines, _nothing_measured, _warnings
from rmqcli.cli.main import run
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from tests.benchmark.test_result import result

PERCENTILES = ["p50", "p90", "p99", "p99_9"]


@pytest.fixture
def bench(rmq_cluster, capsys):
    """`bench(...)` runs a benchmark; returns exit code, the JSON, and stderr."""

    def call(*arguments, namesrv=rmq_cluster.namesrv):
        code = run(["bench", *arguments, "-n", namesrv, "-o", "json"])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else None, err

    return call


def stored(cluster, topic):
    with Admin(namesrv=cluster.namesrv) as admin:
        return [m.body for m in admin.read(topic, from_="earliest", to="latest")]


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ((), {"threads": None, "in_flight": 1024, "batch": 1, "acks": "all"}),
        (("--in-flight", "1"), {"threads": None, "in_flight": 1}),
        (("--threads", "3"), {"threads": 3, "batch": 1}),
        (("--threads", "3", "--batch", "7"), {"threads": 3, "batch": 7}),
        (("--rate", "2000/s"), {"rate_per_s": 2000}),
    ],
)
def test_as_many_messages_are_stored_as_it_says(
    bench, rmq_cluster, rmq_topic, options, settings
):
    code, found, _ = bench(
        "produce", rmq_topic, "--count", "100", "--size", "1KiB", *options
    )
    bodies = stored(rmq_cluster, rmq_topic)
    assert code == 0
    assert [len(body) for body in bodies] == [1024] * 100
    assert (found["messages"], found["body_bytes"]) == (100, 102_400)
    assert found["statuses"] == {"SEND_OK": 100}
    assert (found["failed"], found["unknown"], found["ended_by"]) == (0, 0, "count")
    assert found["settings"] | settings == found["settings"]
    assert found["settings"]["size_bytes"] == 1024
    latency = found["latency_us"]
    assert latency["count"] == 100
    values = [latency[name] for name in ["min", *PERCENTILES, "max"]]
    assert values == sorted(values)
    rate = found["messages"] * 1000 / found["elapsed_ms"]
    assert found["messages_per_s"] == pytest.approx(rate, rel=0.01)


def test_one_way_sends_have_no_latency_and_say_why(bench, rmq_topic):
    code, found, _ = bench("produce", rmq_topic, "--count", "5", "--acks", "none")
    assert (code, found["messages"], found["statuses"]) == (0, 5, {"ONEWAY": 5})
    assert found["more"] == {"not_stored": 0}
    assert found["latency_us"]["count"] == 0
    assert found["latency_us"]["p99"] is None
    assert found["latency_of"] == "nothing: brokers do not answer one-way sends"


def test_a_benchmark_ends_when_its_time_is_over(bench, rmq_topic):
    code, found, _ = bench(
        "produce", rmq_topic, "--for", "300ms", "--warm-up", "0ms", "--rate", "100/s"
    )
    assert (code, found["ended_by"]) == (0, "time")
    assert found["elapsed_ms"] >= 300
    assert found["messages"] > 0


def test_a_topic_is_created_only_if_that_is_wanted(bench, rmq_cluster):
    code, found, err = bench("produce", "new", "--count", "1")
    assert (code, found) == (3, None)
    assert "add --create" in err
    assert bench("latency", "new", "--count", "1")[0] == 3
    with Admin(namesrv=rmq_cluster.namesrv) as admin:
        assert "new" not in [each.topic for each in admin.topics().topics]
    code, found, _ = bench("produce", "new", "--count", "1", "--create")
    assert (code, found["messages"]) == (0, 1)


def test_failures_are_counted_by_their_reason(bench, rmq_cluster, rmq_topic):
    rmq_cluster.faults.add(
        faults.answer(2, "busy"), code=RequestCode.SEND_MESSAGE_V2, times=3
    )
    code, found, err = bench(
        "produce", rmq_topic, "--count", "10", "--threads", "1", "--batch", "1"
    )
    assert code == 6
    assert "3 messages failed" in err
    assert (found["messages"], found["failed"], found["unknown"]) == (7, 3, 0)
    assert found["failures"] == {"SYSTEM_BUSY": 3}
    assert found["latency_us"]["count"] == 7


def test_a_message_without_an_answer_is_unknown(bench, rmq_cluster, rmq_topic):
    rmq_cluster.faults.add(
        faults.disconnect(is_handled=True), code=RequestCode.SEND_MESSAGE_V2, times=1
    )
    code, found, err = bench("produce", rmq_topic, "--count", "4", "--threads", "1")
    assert code == 6
    assert "1 message failed" in err
    assert (found["messages"], found["failed"], found["unknown"]) == (3, 1, 1)
    assert len(stored(rmq_cluster, rmq_topic)) == 4


@pytest.mark.slow
def test_when_no_broker_can_be_reached_it_gives_up(bench, rmq_cluster, rmq_topic):
    rmq_cluster.faults.add(
        faults.disconnect(is_handled=False), code=RequestCode.SEND_MESSAGE_V2
    )
    code, found, _ = bench("produce", rmq_topic, "--for", "10m", "--threads", "1")
    assert code not in (0, 6)
    assert (found["messages"], found["failed"]) == (0, 100)
    assert found["ended_by"] == "error"
    assert found["messages_per_s"] in (0.0, None)


def test_what_takes_no_time_is_shown_too(bench, rmq_cluster, rmq_topic):
    rmq_cluster.send(rmq_topic, ["x"])
    code, found, err = bench("consume", rmq_topic, "--group", "g", "--count", "1")
    assert code == 0, err
    assert (found["messages"], found["ended_by"]) == (1, "count")


def test_a_group_consumes_what_is_there(bench, rmq_cluster, rmq_topic):
    rmq_cluster.send(rmq_topic, [b"12345"] * 200)
    code, found, _ = bench(
        "consume", rmq_topic, "--group", "g", "--count", "200", "--batch", "10"
    )
    assert code == 0
    assert (found["messages"], found["body_bytes"]) == (200, 1_000)
    assert found["settings"] | {"group": "g", "batch": 10} == found["settings"]
    assert found["latency_us"]["count"] == 200
    with Admin(namesrv=rmq_cluster.namesrv) as admin:
        assert admin.lag("g").total_lag == 0


def test_latency_measures_its_own_messages_only(bench, rmq_cluster, rmq_topic):
    rmq_cluster.send(rmq_topic, [b"other"] * 20)
    code, found, _ = bench(
        "latency", rmq_topic, "--count", "20", "--rate", "500/s", "--size", "10B"
    )
    assert code == 0
    assert found["more"] == {"sent": 20, "not_received": 0, "received_twice": 0}
    assert (found["messages"], found["latency_us"]["count"]) == (20, 20)
    assert found["latency_us"]["min"] > 0


def test_the_table_says_what_was_measured(rmq_cluster, rmq_topic, capsys):
    words = ["produce", rmq_topic, "--count", "3", "--threads", "2"]
    assert run(["bench", *words, "-n", rmq_cluster.namesrv]) == 0
    out, _ = capsys.readouterr()
    rows = {line[:12].strip(): line[12:].strip() for line in out.splitlines()}
    assert rows["produce"] == rmq_topic
    assert "size_bytes 1KiB, threads 2" in rows["settings"]
    assert rows["messages"] == "3"
    assert rows["statuses"] == "3 SEND_OK"
    assert rows["p99"].endswith(" ms")


@pytest.mark.parametrize(
    ("options", "amount"),
    [
        ({}, (None, 10_000, 1_000)),
        ({"count": 5}, (5, None, 0)),
        ({"for_": 7}, (None, 7, 1_000)),
        ({"count": 5, "for_": 7}, (5, 7, 0)),
        ({"count": 5, "warm_up": 3}, (5, None, 3)),
        ({"warm_up": 0}, (None, 10_000, 0)),
        ({"for_": 1, "warm_up": 0}, (None, 1, 0)),
    ],
)
def test_what_is_not_said_of_the_amount_has_a_default(options, amount):
    count, duration_ms, warm_up_ms = amount
    assert BenchOptions(topic="t", **options).amount() == {
        "topic": "t",
        "count": count,
        "duration_ms": duration_ms,
        "warm_up_ms": warm_up_ms,
    }


AMOUNT = {"count": 1, "duration_ms": None, "warm_up_ms": 0}


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        (
            "produce T --in-flight 7 --rate 100/s --size 9B",
            {
                "size_bytes": 9,
                "rate_per_s": 100,
                "threads": None,
                "in_flight": 7,
                "batch": 1,
                "acks": "all",
            },
        ),
        (
            "produce T --threads 2 --acks none",
            {
                "size_bytes": 1024,
                "rate_per_s": None,
                "threads": 2,
                "in_flight": 1024,
                "batch": 1,
                "acks": "none",
            },
        ),
        (
            "consume T -g g --from latest --threads 3 --batch 2 --pull-batch 4",
            {
                "group": "g",
                "from": "latest",
                "threads": 3,
                "batch": 2,
                "pull_batch": 4,
                "orderly": False,
            },
        ),
        (
            "consume T -g g --orderly",
            {
                "group": "g",
                "from": "earliest",
                "threads": 20,
                "batch": 32,
                "pull_batch": 32,
                "orderly": True,
            },
        ),
        (
            "latency T -g g --size 9B --rate 50/s",
            {"group": "g", "size_bytes": 9, "rate_per_s": 50},
        ),
        (
            "latency T",
            {"group": "rmq-bench-latency", "size_bytes": 1024, "rate_per_s": 100},
        ),
    ],
)
def test_every_option_is_in_the_settings(bench, rmq_cluster, words, settings):
    rmq_cluster.create_topic("T")
    rmq_cluster.send("T", ["a"])
    code, found, err = bench(*words.split(), "--count", "1")
    assert code == 0, err
    assert found["settings"] == {**settings, **AMOUNT}


@pytest.mark.slow
def test_messages_that_were_sent_and_not_received_are_an_error(
    bench, rmq_cluster, rmq_topic, monkeypatch
):
    monkeypatch.setattr(runs, "GRACE_MS", 3_000)
    fields = {"msgId": "0" * 32, "queueId": "0", "queueOffset": "0"}
    lie = faults.answer(0, ext_fields=fields)
    rmq_cluster.faults.add(lie, code=RequestCode.SEND_MESSAGE_V2, times=1)
    code, found, err = bench("latency", rmq_topic, "--count", "3")
    assert (code, found["more"]["not_received"], found["failed"]) == (6, 1, 0)
    assert '"1 message not received"' in err


def test_a_broker_that_has_left_the_route_is_an_error(
    bench, rmq_cluster_factory, monkeypatch, tmp_path, capsys
):
    """What it would have done is not measured."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_topic("orders", queues=1)
    cluster.create_group("billing")
    for each in cluster.brokers:
        offsets = each.state.offsets
        cluster.call(lambda at=offsets: at.commit("billing", "orders", 0, 0))
    assert run(["lag", "billing", "-n", cluster.namesrv]) == 0
    capsys.readouterr()
    cluster.broker("broker-b").kill()
    words = ("orders", "--count", "1")
    for command in (("produce",), ("consume", "-g", "g"), ("latency",)):
        code, _, err = bench(*command, *words, namesrv=cluster.namesrv)
        assert code == 6, command
        assert "broker-b" in err


def test_without_a_message_nothing_was_measured(bench, rmq_topic):
    words = ("consume", rmq_topic, "-g", "g", "--for", "200ms", "--warm-up", "0s")
    code, found, err = bench(*words)
    assert (code, found) == (1, None)
    assert "nothing was measured: no message ended in the time" in err


def test_a_topic_that_cannot_be_created_is_an_error(bench, rmq_cluster):
    rmq_cluster.faults.add(
        faults.answer(16, "not for you"), code=RequestCode.UPDATE_AND_CREATE_TOPIC
    )
    code, found, err = bench("produce", "new", "--count", "1", "--create")
    assert (code, found) == (4, None), err
    assert "not for you" in err


def test_the_lines_of_the_table_are_in_units_for_people():
    found = result(
        kind="produce",
        settings={"size_bytes": 2048, "warm_up_ms": 1_500, "rate_per_s": None},
        body_bytes=8_192_000,
        statuses={"SEND_OK": 9_000},
        failures={"SYSTEM_BUSY": 2, "ConnectError": 1_000},
        unknown=1_000,
        latency_us={"count": 1, "min": 1_500, "p99_9": 2_000_000, "max": None},
        latency_of="a to b",
        more={"sent": 5},
    )
    assert _lines(found) == [
        ("produce", "T"),
        ("settings", "size_bytes 2KiB, warm_up_ms 1.5s"),
        ("measured", "8s, ended by time"),
        ("messages", "9,000"),
        ("rate", "1,125/s, 1000KiB/s"),
        ("statuses", "9,000 SEND_OK"),
        ("failed", "2 SYSTEM_BUSY, 1,000 ConnectError"),
        ("unknown", "1,000 of these may be stored"),
        ("sent", "5"),
        ("min", "1.500 ms"),
        ("p99.9", "2,000.000 ms"),
        ("latency of", "a to b"),
        ("cpu of rmq", "10% of a core"),
    ]
    assert dict(_lines(result(elapsed_ms=0, cpu=None)))["rate"] == "-"


def test_a_busy_client_is_warned_of():
    assert _warnings(result(cpu=0.89)) == []
    assert _warnings(result(cpu=0.9)) == [
        "rmq used 90% of a core: it may have been the limit, and not the cluster"
    ]


def test_a_group_that_waited_at_the_end_is_warned_of():
    """9,000 messages that were consumed at once, in 8 seconds: it said 1,128/s."""
    (warning,) = _warnings(result(quiet_ms=7_100, elapsed_ms=8_000, messages=9_000))
    assert warning == (
        "no message came in the last 7.1s: the group had consumed all there were, and"
        " can be faster than this rate; end with --count, or store more messages before"
    )
    assert _warnings(result(quiet_ms=200)) == []


def test_a_group_that_consumed_all_in_the_warm_up_is_told_so():
    error = _nothing_measured(result(messages=0, warm_up_messages=9_000))
    assert error.message == "nothing was measured: no message ended in the time"
    assert error.hint == (
        "the warm-up took all 9,000 messages; shorten it with --warm-up 0s"
    )
    assert not _nothing_measured(result(messages=0, warm_up_messages=0)).hint


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["produce", "t", "--size", "0B"], "not between 1 and 16MiB"),
        (["produce", "t", "--size", "16777217B"], "not between 1 and 16MiB"),
        (["produce", "t", "--for", "0s"], "--for must be greater than zero"),
        (
            ["produce", "t", "--threads", "1", "--in-flight", "2"],
            "--threads and --in-flight cannot be used together",
        ),
        (["produce", "t", "--batch", "2"], "--batch needs --threads"),
        (
            ["produce", "t", "--acks", "none", "--batch", "2"],
            "sends each message alone",
        ),
        (
            ["produce", "t", "--acks", "none", "--in-flight", "1"],
            "sends each message alone",
        ),
        (["consume", "t"], "--group"),
    ],
)
def test_options_that_mean_nothing_together_are_refused(arguments, error, capsys):
    assert run(["bench", *arguments, "-n", "127.0.0.1:1"]) == 2
    assert error in capsys.readouterr().err


@pytest.mark.parametrize(
    ("setting", "words"), [("read_only", []), ("protected", ["--confirm", "prod"])]
)
@pytest.mark.parametrize(
    "command", [["produce", "t"], ["consume", "t", "-g", "g"], ["latency", "t"]]
)
def test_a_guarded_profile_refuses_every_benchmark(
    rmq_cluster, capsys, setting, words, command
):
    config = Path(os.environ["XDG_CONFIG_HOME"], "rmq")
    config.mkdir(parents=True)
    path = config / "config.toml"
    path.write_text(
        f'[profiles.prod]\nnamesrv = "{rmq_cluster.namesrv}"\n{setting} = true\n'
    )
    path.chmod(0o600)
    code = run(["bench", *command, "--count", "1", "--profile", "prod", *words])
    _, err = capsys.readouterr()
    assert code == 7
    assert "profile prod" in err
    # Its servers are guarded under another name, too.
    if setting == "protected":
        code = run(["bench", *command, "--count", "1", "-n", rmq_cluster.namesrv])
        assert code == 7


def test_an_interrupt_shows_what_was_measured_so_far(rmq_cluster, rmq_topic):
    words = [
        sys.executable,
        "-m",
        "rmqcli",
        "bench",
        "produce",
        rmq_topic,
        "-o",
        "json",
    ]
    words += ["--for", "10m", "--warm-up", "0ms", "--rate", "50/s"]
    words += ["-n", rmq_cluster.namesrv]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        while not stored(rmq_cluster, rmq_topic):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert process.returncode == 130, err
    found = json.loads(out)
    assert found["ended_by"] == "interrupt"
    assert found["messages"] == len(stored(rmq_cluster, rmq_topic)) > 0
