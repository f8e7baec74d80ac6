"""`rmq exporter`: the command, its exit codes, and what it says."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request

import pytest

from rmqcli.cli.main import run
from rmqcli.cli.monitoring.exporter import ExporterCommandOptions
from rmqcli.exporter.collect import CollectorOptions
from rmqcli.exporter.server import open_site
from tests.exporter.pages import values_of
from tests.kit.waiting import PATIENCE_S, wait_until


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def cluster(rmq_cluster_factory):
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_topic("orders", queues=2)
    cluster.create_group("billing")
    for name in ("broker-a", "broker-b"):
        cluster.send("orders", ["x"] * 3, broker=name)
    committed = cluster.broker().state.offsets
    cluster.call(lambda: committed.commit("billing", "orders", 0, 1))
    return cluster


def command(cluster, *words):
    return ["exporter", *words, "-n", cluster.namesrv]


def test_the_values_are_those_of_rmq_lag(cluster, capfd):
    assert run(["lag", "-o", "json", "-n", cluster.namesrv]) == 0
    (lag,) = json.loads(capfd.readouterr().out)
    assert run(command(cluster, "--once")) == 0
    out, err = capfd.readouterr()
    assert err == ""
    values = values_of(out)
    assert lag["total_lag"] is None  # it never committed in two of the queues
    assert ("rocketmq_group_lag_messages", "billing") not in values
    known = values["rocketmq_group_lag_at_least_messages", "billing"]
    assert known == lag["known_lag"]
    assert values["rocketmq_group_state", "billing", lag["state"]] == 1
    queues = {
        (queue["broker_name"], str(queue["queue_id"])): queue["lag"]
        for queue in lag["queues"]
        if queue["lag"] is not None
    }
    assert queues
    assert queues == {
        (key[1], key[4]): value
        for key, value in values.items()
        if key[0] == "rocketmq_group_queue_lag_messages"
    }


@pytest.mark.slow
def test_once_says_which_broker_did_not_answer(cluster, capfd):
    cluster.broker("broker-b").hang()
    assert run(command(cluster, "--once", "--timeout", "1s")) == 6
    out, err = capfd.readouterr()
    assert values_of(out)["rocketmq_exporter_last_collection_success",] == 0
    assert err.startswith("warning: broker-b: ")
    for name in ("broker-a", "broker-b"):
        cluster.broker(name).close()
    cluster.close()
    assert run(command(cluster, "--once", "--timeout", "1s")) == 5
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("error: cannot connect to ")


def test_once_says_that_a_group_that_was_named_does_not_exist(cluster, capfd):
    words = [*("--once", "--group", "biling", "--group", "bill*"), "--group", "pay*"]
    assert run(command(cluster, *words)) == 6
    out, err = capfd.readouterr()
    assert values_of(out)["rocketmq_exporter_groups",] == 1
    assert err == "warning: group biling does not exist\n"


def test_a_port_that_is_taken_is_an_error(cluster, capfd):
    with open_site("127.0.0.1", 0) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        assert run(command(cluster, "--listen", listen)) == 5
    assert capfd.readouterr() == (
        "",
        (
            f"error: cannot listen on {listen}: the port is taken\n"
            "hint: stop the process that listens there, or choose another port\n"
        ),
    )


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--listen", "5557"], "--listen '5557' is not HOST:PORT"),
        (["--interval", "10ms"], "--interval must be at least 1s"),
        (
            ["--interval", "1m", "--stale-after", "30s"],
            (
                "--stale-after is shorter than --interval: values would vanish between"
                " two collections"
            ),
        ),
        (
            ["--print-rules", "--print-dashboard"],
            "--print-dashboard and --print-rules cannot be used together",
        ),
    ],
)
def test_options_that_cannot_be_used_are_refused(words, what, capfd):
    assert run(["exporter", *words]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines()[0] == f"error: {what}"


def test_the_options_reach_the_collections():
    options = ExporterCommandOptions(
        interval=7_000, group=["pay*"], process_queues=True, max_series=9
    )
    assert options.collector_options() == CollectorOptions(
        groups=("pay*",),
        interval_ms=7_000,
        stale_after_ms=21_000,
        series_max=9,
        process_queues=True,
    )
    options = ExporterCommandOptions(interval=7_000, stale_after=8_000)
    assert options.collector_options().stale_after_ms == 8_000


def test_the_dashboard_and_the_rules_are_printed(capfd):
    assert run(["exporter", "--print-dashboard"]) == 0
    assert json.loads(capfd.readouterr().out)["title"] == "RocketMQ (rmq exporter)"
    assert run(["exporter", "--print-rules"]) == 0
    assert "alert: RocketMQBrokerDown\n" in capfd.readouterr().out


def fetched(url):
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        return answer.read().decode()


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_a_signal_and_the_cluster_may_go_and_come(
    cluster, tmp_path, signum
):
    stderr = tmp_path / "stderr"
    groups = ("--group", "billing", "--group", "nobody")
    words = command(cluster, "--listen", "0.0.0.0:0", "--interval", "1s", *groups)
    with (
        stderr.open("w") as err,
        subprocess.Popen(
            [sys.executable, "-m", "rmqcli", *words, "--timeout", "1s"],
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
            env={**os.environ, "NO_COLOR": "1"},
        ) as process,
    ):
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip().replace("0.0.0.0", "127.0.0.1")
            base = url.removesuffix("/metrics")

            def has(metric, value):
                return lambda: (
                    f"\n{metric} {value}\n" in fetched(url) if is_up() else False
                )

            def is_up():
                try:
                    return fetched(f"{base}/readyz") == "ready\n"
                except urllib.error.HTTPError:  # 503
                    return False

            wait_until(is_up)
            assert 'rocketmq_group_state{group="billing",' in fetched(url)
            success = "rocketmq_exporter_last_collection_success"
            wait_until(has(success, "1.0"))
            cluster.broker("broker-b").kill()
            wait_until(has(success, "0.0"))
            cluster.broker("broker-b").restart()
            wait_until(has(success, "1.0"))
        finally:
            process.send_signal(signum)
            process.wait(PATIENCE_S)
    assert process.returncode == 0
    written = stderr.read_text()
    assert written.startswith(
        "warning: 0.0.0.0:0 can be reached from other machines, and there is no"
        " authentication: everybody there can read the names and numbers of this"
        " cluster\n"
        "collecting every 1s; press Ctrl-C to stop\n"
    )
    assert "\nwarning: broker-b: " in written
    assert "\nbroker-b: answers again\n" in written
    assert written.count("\nwarning: group nobody does not exist\n") == 1
    assert written.endswith("\nstopped\n")
    assert "Traceback" not in written


@pytest.mark.slow
def test_collections_that_outlast_their_values_are_warned_of(cluster, tmp_path):
    stderr = tmp_path / "stderr"
    times = ("--interval", "1s", "--stale-after", "1s", "--timeout", "2s")
    words = command(cluster, "--listen", "127.0.0.1:0", *times)
    cluster.broker("broker-b").hang()
    with (
        stderr.open("w") as err,
        subprocess.Popen(
            [sys.executable, "-m", "rmqcli", *words],
            stdout=subprocess.DEVNULL,
            stderr=err,
            env={**os.environ, "NO_COLOR": "1"},
        ) as process,
    ):
        try:
            wait_until(lambda: "values vanish" in stderr.read_text())
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_S)
    assert re.search(
        r"^warning: a collection took [0-9.]+s, longer than --stale-after 1s: while one"
        r" takes that long, values vanish before it ends$",
        stderr.read_text(),
        re.MULTILINE,
    )
