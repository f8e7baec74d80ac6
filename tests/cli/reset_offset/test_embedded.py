"""`rmq reset-offset` on the embedded cluster: the brokers have the reported offsets.

`test_reset_offset.py` and `test_retry.py` test the same behaviours on real brokers.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.api.client import Client
from rmqcli.cli.main import run
from rmqcli.config import ClientConfig
from rmqcli.testing import Seed, faults
from rmqcli.wire.codes import RequestCode
from tests.admin.reset.member import FakeMember
from tests.cli.reset_offset.targets import TARGETS
from tests.consumer.collecting import Seen, committed, consumer
from tests.kit.waiting import wait_until

ROOT = Path(__file__).parents[3]
COUNT = 60
DO = ("--execute", "--yes")
LIKE = ("4.6.0", "4.9.7", "5.5.0")


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def start(rmq_cluster_factory):
    """Starts clusters with groups G and H, and COUNT messages in each queue of T."""

    def start(like="5.5.0", **options):
        cluster = rmq_cluster_factory(queues=2, like=like, **options)
        cluster.create_topic("T")
        for group in ("G", "H"):
            cluster.create_group(group)
        count = COUNT * 2 * len(cluster.brokers)
        cluster.sent = cluster.send("T", [f"m{n}" for n in range(count)])
        return cluster

    return start


def commit(cluster, offsets, *, group="G", topic="T", broker="broker-a"):
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        for queue_id, offset in enumerate(offsets):
            call = update_consumer_offset(group, topic, queue_id, commit_offset=offset)
            client.invoke(cluster.broker(broker).address, call)


def at(cluster, group="G"):
    found = committed(cluster, group, "T")
    return [found.get(each) for each in (0, 1)]


def reset(cluster, capsys, *words, group="G", topic="T"):
    """Run `rmq reset-offset`; return exit code, JSON of stdout or None, and stderr."""
    capsys.readouterr()
    code = run(
        ["reset-offset", group, topic, *words, "-n", cluster.namesrv, "-o", "json"]
    )
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else None, err


def results(document):
    return [row["result"] for row in document["queues"]]


@pytest.mark.parametrize("like", LIKE)
@pytest.mark.parametrize(
    ("words", "expected"),
    [*TARGETS, (["--to-group", "H"], [11, 22])],
    ids=lambda value: " ".join(map(str, value)),
)
def test_each_target_is_applied_once_and_undone(start, capsys, like, words, expected):
    cluster = start(like)
    commit(cluster, [30, 40])
    commit(cluster, [11, 22], group="H")
    code, plan, err = reset(cluster, capsys, *words)
    assert (code, plan["mode"], plan["backup"]) == (0, "plan", None), err
    assert at(cluster) == [30, 40]

    code, done, err = reset(cluster, capsys, *words, *DO)
    assert (code, set(results(done))) == (0, {"CONFIRMED"}), err
    assert (done["mode"], at(cluster)) == ("applied", expected)
    if words[0] != "--shift":
        code, again, _ = reset(cluster, capsys, *words, *DO)
        assert (code, set(results(again))) == (0, {"UNCHANGED"})
        assert again["backup"] is None

    code, undone, err = reset(cluster, capsys, "--undo", *DO)
    assert (code, set(results(undone))) == (0, {"CONFIRMED"}), err
    assert at(cluster) == [30, 40]
    code, again, _ = reset(cluster, capsys, "--undo", *DO)
    assert (code, set(results(again))) == (0, {"UNCHANGED"})


def test_a_plan_says_what_is_skipped_and_when(start, capsys):
    cluster = start()
    commit(cluster, [30, 99])
    code, plan, _ = reset(cluster, capsys, "--to", "40", "--show-edges")
    first, second = plan["queues"]
    assert code == 0
    assert (first["delta"], first["skipped"], first["replayed"]) == (10, 10, 0)
    assert first["first_timestamp"] <= first["last_timestamp"]
    assert (first["before"]["queue_offset"], first["after"]["queue_offset"]) == (39, 40)
    assert (second["delta"], second["skipped"], second["replayed"]) == (-59, 0, 20)
    assert second["warnings"] == ["beyond the end: 99 is committed but the end is 60"]


@pytest.mark.parametrize("like", LIKE)
def test_past_message_skips_one_message_only(start, capsys, like):
    cluster = start(like)
    commit(cluster, [20, 20])
    poison, later = cluster.send(
        "T", [Seed(body=b"poison", keys="p"), Seed(body=b"later", keys="l")], queue_id=1
    )
    assert (poison.queue_offset, later.queue_offset) == (60, 61)
    commit(cluster, [20, 60])
    ids = (poison.msg_id, poison.offset_msg_id)
    for message_id in (*ids, *map(str.lower, ids)):
        commit(cluster, [20, 60])
        code, _, err = reset(cluster, capsys, "--past-message", later.offset_msg_id)
        assert code == 7
        assert "1 other message would be skipped too" in err
        words = ("--past-message", message_id, *DO)
        code, done, err = reset(cluster, capsys, *words)
        assert (code, results(done)) == (0, ["CONFIRMED"]), err
        assert at(cluster) == [20, 61]
        code, again, _ = reset(cluster, capsys, *words)
        assert (code, results(again)) == (0, ["UNCHANGED"])
    absent = "7F000001126718B4AAC26E21B5D80001"
    code, _, err = reset(cluster, capsys, "--past-message", absent)
    assert code == 3, err
    assert f"no broker has a message {absent} of topic T" in err
    assert "name them: --queue BROKER:ID --to OFFSET+1" in " ".join(err.split())


def test_past_message_skips_one_message_of_a_grpc_client(start, capsys):
    cluster = start()
    grpc_id = "01FE80000000000000000000000000ABCD"
    (poison,) = cluster.send(
        "T", [Seed(body=b"x", properties={"UNIQ_KEY": grpc_id})], queue_id=1
    )
    commit(cluster, [20, 60])
    words = ("--past-message", grpc_id, *DO)
    code, done, err = reset(cluster, capsys, *words)
    assert (code, results(done)) == (0, ["CONFIRMED"]), err
    assert (poison.queue_offset, at(cluster)) == (60, [20, 61])


def test_past_message_is_not_judged_while_a_broker_is_busy(start, capsys):
    cluster = start()
    commit(cluster, [20, 60])
    (poison,) = cluster.send("T", ["x"], queue_id=1)
    busy = faults.answer(2, "busy")
    cluster.faults.add(busy, code=RequestCode.VIEW_MESSAGE_BY_ID)
    code, _, err = reset(cluster, capsys, "--past-message", poison.offset_msg_id, *DO)
    assert (code, at(cluster)) == (6, [20, 60])
    assert "broker-a did not answer" in err


def test_an_id_that_two_messages_have_names_their_places(start, capsys):
    """A producer that sends a message again uses its id again."""
    cluster = start()
    commit(cluster, [20, 20])
    (first,) = cluster.send("T", [Seed(body=b"x", keys="k")], queue_id=1)
    again = Seed(body=b"x", properties={"UNIQ_KEY": first.msg_id})
    cluster.send("T", [again], queue_id=0)
    code, _, err = reset(cluster, capsys, "--past-message", first.msg_id)
    assert code == 2
    assert (
        f"2 messages have the id {first.msg_id}: T@broker-a:1 at 60, T@broker-a:0 at 60"
        in " ".join(err.split())
    )


@pytest.mark.parametrize("ending", ["json", "csv"])
def test_a_plan_file_is_applied_unless_offsets_moved(start, capsys, tmp_path, ending):
    cluster = start()
    commit(cluster, [30, 40])
    file = str(tmp_path / f"plan.{ending}")
    assert reset(cluster, capsys, "--to", "5", "--out", file)[0] == 0
    commit(cluster, [31, 40])
    code, _, err = reset(cluster, capsys, "--apply", file, *DO)
    assert (code, at(cluster)) == (7, [31, 40])
    assert "committed offset was 30, is now 31" in err
    commit(cluster, [30, 40])
    assert reset(cluster, capsys, "--apply", file, *DO)[0] == 0
    assert at(cluster) == [5, 5]
    code, again, _ = reset(cluster, capsys, "--apply", file, *DO)
    assert (code, results(again)) == (0, ["UNCHANGED", "UNCHANGED"])


def test_a_csv_of_kafka_is_applied(start, capsys, tmp_path):
    cluster = start()
    commit(cluster, [30, 40])
    file = tmp_path / "offsets.csv"
    file.write_text('"T",0,12\n"T",1,13\n')
    assert reset(cluster, capsys, "--apply", str(file), *DO)[0] == 0
    assert at(cluster) == [12, 13]


def test_nothing_is_done_without_agreement(start, capsys):
    cluster = start()
    commit(cluster, [30, 40])
    code, out, err = reset(cluster, capsys, "--to", "0", "--execute", "--no-input")
    assert (code, out, at(cluster)) == (7, None, [30, 40])
    assert "--yes" in err


_USAGE = (
    "\nhint: write rmq reset-offset GROUP TOPIC --to POS; see: rmq reset-offset --help"
)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (
            ["G", "T"],
            "nothing to do: give one of --to, --shift, --to-group, --past-message,"
            " --apply, --undo, --list-backups" + _USAGE,
        ),
        (["--to", "5"], "GROUP and TOPIC are missing" + _USAGE),
        (
            ["G", "--to", "5"],
            "TOPIC is missing\nhint: write: rmq reset-offset G TOPIC --to",
        ),
        (
            ["G", "T", "--to", "5", "--shift", "1", "--undo"],
            "--to and --shift and --undo cannot be used together",
        ),
        (
            ["G", "T", "--apply", "f.csv", "--queue", "0"],
            "--apply and --queue cannot be used together",
        ),
        (
            ["G", "T", "--undo", "--include-retry"],
            "--undo and --include-retry cannot be used together",
        ),
        (
            ["G", "T", "--past-message", "7F", "--include-retry"],
            "--past-message and --include-retry cannot be used together",
        ),
        (
            ["G", "T", "b-1", "--to", "5"],
            "--to and the argument b-1 cannot be used together",
        ),
        (
            ["G", "T", "--apply", "/no/such.csv"],
            "/no/such.csv: no such file or directory",
        ),
        (
            ["G", "T", "--to", "5", "--out", "plan.txt"],
            "--out plan.txt must end in .json or .csv",
        ),
    ],
)
def test_options_that_cannot_be_used_together_are_refused(capsys, words, error):
    assert run(["reset-offset", *words, "-n", "127.0.0.1:1"]) == 2
    assert capsys.readouterr() == ("", f"error: {error}\n")


def test_what_is_planned_and_done_is_said_in_whole_lines(start, capsys):
    cluster = start()
    commit(cluster, [30, 40])
    reach = f"-n {cluster.namesrv}"
    assert reset(cluster, capsys, "--to", "5")[2] == (
        "nothing was changed; add --execute to apply the plan\n"
    )
    listing = ["reset-offset", "G", "T", "--list-backups", "-n", cluster.namesrv]
    assert (run(listing), capsys.readouterr()) == (0, ("", "no backups\n"))
    _, done, err = reset(cluster, capsys, "--to", "5", *DO)
    backup = done["backup"]
    assert err == (
        f"saved backup {backup}\n2 queues: 2 CONFIRMED\n"
        f"to undo: rmq reset-offset G T {reach} --undo {backup} --execute\n"
    )
    nothing = "nothing to do: every queue is already at its target"
    assert reset(cluster, capsys, "--to", "5")[2] == f"{nothing}\n"
    assert reset(cluster, capsys, "--to", "5", *DO)[2] == (
        f"{nothing}; 2 queues: 2 UNCHANGED\n"
    )


def test_what_does_not_exist_is_3(start, capsys):
    cluster = start()
    assert reset(cluster, capsys, "--to", "0", topic="no-topic")[0] == 3
    assert reset(cluster, capsys, "--to", "0", group="no-group")[0] == 3
    assert reset(cluster, capsys, "--undo")[0] == 3


@pytest.mark.parametrize("like", LIKE)
def test_a_live_consumer_receives_from_there(start, capsys, like):
    """On every version, the consumer receives all messages a second time."""
    cluster = start(like)
    is_reset = threading.Event()

    def wait_the_second_time(_message, times):
        """Block: otherwise the consumer may be back at the end before the read-back."""
        if times > 1:
            is_reset.wait(60)

    seen = Seen(wait_the_second_time)
    with consumer(
        cluster, "G", "T", seen, persist_consumer_offset_interval_ms=100
    ) as running:
        seen.wait_for(2 * COUNT)
        wait_until(lambda: at(cluster) == [60, 60])
        code, done, err = reset(cluster, capsys, "--to", "earliest", *DO)
        is_reset.set()
        assert (code, results(done)) == (0, ["CONFIRMED", "CONFIRMED"]), err
        assert done["client_ids"] == [running.client_id]
        # A new broker tells a member about the reset when the member's pull ends.
        for queue_id in (0, 1):
            cluster.send("T", [f"new{queue_id}"], queue_id=queue_id)
        wait_until(lambda: at(cluster) == [61, 61])
    bodies = Counter(seen.bodies)
    assert {bodies[f"m{n}"] for n in range(2 * COUNT)} == {2}


@pytest.mark.parametrize("like", ["4.6.0", "4.9.7"])
def test_what_live_consumers_of_an_old_broker_overwrite_is_refused(start, capsys, like):
    """An old broker pushes one time for all queues, so it cannot move queue 1 alone."""
    cluster = start(like)
    commit(cluster, [60, 60])
    with FakeMember(cluster):
        words = ("--shift", "-10", "--queue", "1", *DO)
        code, out, err = reset(cluster, capsys, *words)
        assert (code, out, at(cluster)) == (7, None, [60, 60])
        error = json.loads(err.splitlines()[-1])["error"]
        assert error["message"].startswith("this reset would have no lasting effect: ")
        assert "no timestamp gives these offsets" in error["message"]
        assert error["hint"] == (
            "stop the consumers first, or add --wait to try it and verify again"
        )
        assert reset(cluster, capsys, *words[:4])[2].endswith(
            "warning: this reset would be refused, see above\n"
        )
        code, plan, err = reset(cluster, capsys, *words[:4], "--wait")
        assert (code, plan["queues"][0]["mechanism"]) == (0, "commit"), err
        assert "a plain commit will probably be overwritten" in err


@pytest.mark.slow
def test_a_hung_broker_costs_its_own_rows(start, capsys, tmp_path):
    cluster = start(brokers=2)
    commit(cluster, [30, 40])
    commit(cluster, [30, 40], broker="broker-b")
    file = tmp_path / "plan.json"
    whole = ("--to", "earliest", "--timeout", "2s")
    half = ("--queue", "broker-a:0", "--queue", "broker-a:1")
    cluster.broker("broker-b").hang()
    code, plan, err = reset(cluster, capsys, *whole, "--out", str(file))
    names = ("broker_name", "queue_id", "committed", "result")
    assert (code, plan["mode"]) == (6, "plan"), err
    assert [tuple(row[name] for name in names) for row in plan["queues"]] == [
        ("broker-a", 0, 30, None),
        ("broker-a", 1, 40, None),
        ("broker-b", 0, None, "UNKNOWN"),
        ("broker-b", 1, None, "UNKNOWN"),
    ]
    assert f"warning: {file} was not written: the plan is incomplete\n" in err
    assert err.endswith("warning: this plan is incomplete and would be refused\n")
    assert not file.exists()

    code, out, err = reset(cluster, capsys, *whole, *DO)
    assert (code, out) == (7, None)
    error = json.loads(err.splitlines()[-1])["error"]
    assert error["message"] == "2 of 4 queues could not be read: nothing was changed"
    assert error["hint"] == (
        "try again when broker-b can be reached, or reset the others only: "
        + " ".join(half)
    )

    code, done, err = reset(cluster, capsys, *whole, *half, *DO)
    assert (code, results(done)) == (0, ["CONFIRMED", "CONFIRMED"]), err
    assert "broker-b did not report its online members" in err
    cluster.broker("broker-b").resume()


def test_a_backlog_in_the_retry_topic_is_told_and_moved_when_asked_for(start, capsys):
    cluster = start()
    cluster.create_topic("%RETRY%G", queues=1)
    for _ in range(4):
        cluster.send("%RETRY%G", ["x"])
    commit(cluster, [30, 40])
    code, done, err = reset(cluster, capsys, "--to", "latest", *DO)
    assert (code, len(done["queues"])) == (0, 2)
    words = "4 messages wait in %RETRY%G and will still be delivered; --include-retry"
    assert words in done["warnings"][0]
    assert f"warning: {words}" in err
    assert committed(cluster, "G", "%RETRY%G") == {}
    code, done, _ = reset(cluster, capsys, "--to", "latest", "--include-retry", *DO)
    assert (code, done["warnings"]) == (0, [])
    assert committed(cluster, "G", "%RETRY%G") == {0: 4}


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_reports_what_was_done(start, tmp_path, signum):
    cluster = start("4.9.7")
    commit(cluster, [30, 40])
    command = [
        *(sys.executable, "-m", "rmqcli", "reset-offset", "G", "T"),
        *("--to", "earliest", *DO, "--wait", "-o", "json", "-n", cluster.namesrv),
    ]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_until(lambda: at(cluster) == [0, 0])
        process.send_signal(signum)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    done = json.loads(out)
    assert results(done) == ["CONFIRMED", "CONFIRMED"]
    assert f"--undo {done['backup']} --execute" in err


@pytest.mark.parametrize(
    ("text", "zone", "echo"),
    [
        ("@2026-01-02T03:04:05", "Europe/Paris", "2026-01-02T03:04:05+01:00 (local)"),
        ("@2026-01-02T03:04:05Z", "Europe/Paris", "2026-01-02T03:04:05Z"),
    ],
)
def test_the_moment_that_a_time_was_taken_for_is_shown(
    start, capsys, monkeypatch, text, zone, echo
):
    cluster = start()
    commit(cluster, [30, 40])
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        code, _, err = reset(cluster, capsys, "--to", text)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert code == 0
    assert f"target: @{echo}" in err.splitlines()


def test_a_group_that_a_broker_refuses_is_an_error_of_that_kind(start, capsys):
    cluster = start()
    commit(cluster, [30, 40])
    cluster.faults.add(
        faults.answer(16, "no permission"), code=RequestCode.UPDATE_CONSUMER_OFFSET
    )
    code, done, err = reset(cluster, capsys, "--to", "0", *DO)
    assert (code, results(done)) == (4, ["NOT_ATTEMPTED", "NOT_ATTEMPTED"]), err


def test_an_offset_beyond_the_end_in_a_file_of_kafka_is_refused(
    start, capsys, tmp_path
):
    """Such a file does not say which offsets it was made from."""
    cluster = start()
    commit(cluster, [30, 40])
    file = tmp_path / "offsets.csv"
    file.write_text("T,0,61\nT,1,60\n")
    code, plan, err = reset(cluster, capsys, "--apply", str(file), *DO)
    assert (code, plan) == (7, None), err
    assert "offset 61 is beyond the end of T@broker-a:0 (60): nothing was" in err
    assert at(cluster) == [30, 40]
    file.write_text("T,0,60\nT,1,60\n")
    code, done, err = reset(cluster, capsys, "--apply", str(file), *DO)
    assert (code, results(done)) == (0, ["CONFIRMED", "CONFIRMED"]), err
    assert at(cluster) == [60, 60]


def test_an_offset_beyond_the_end_of_a_queue_is_refused(start, capsys):
    """It was moved to the end, which skips every message, with exit code 0."""
    cluster = start()
    commit(cluster, [30, 40])
    for words in (["--to", "61"], ["--to", "61", *DO]):
        code, plan, err = reset(cluster, capsys, *words)
        assert (code, plan) == (7, None)
        assert "offset 61 is beyond the end of T@broker-a:0 (60) and of 1 more" in err
    assert at(cluster) == [30, 40]
    code, done, err = reset(cluster, capsys, "--to", "60", *DO)
    assert (code, set(results(done))) == (0, {"CONFIRMED"}), err
    assert at(cluster) == [60, 60]


def test_the_times_of_moved_messages_are_below_the_table(start, capsys):
    """At 80 columns the columns FROM and UNTIL were hidden."""
    cluster = start()
    commit(cluster, [30, 40])
    words = ["reset-offset", "G", "T", "--to", "35", "-n", cluster.namesrv]
    assert run(words) == 0
    err = capsys.readouterr().err
    at = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    assert re.search(
        rf"^skips 5 messages, stored (at|from {at} to) {at}$", err, re.MULTILINE
    )
    assert re.search(
        rf"^replays 5 messages, stored (at|from {at} to) {at}$", err, re.MULTILINE
    )


def test_the_command_that_undoes_a_reset_repeats_how_the_cluster_is_reached(
    start, capsys, tmp_path
):
    cluster = start()
    commit(cluster, [10, 20])
    keys = tmp_path / "my keys"
    keys.write_text('accessKey: "ak"\nsecretKey: "secret12"\n')
    keys.chmod(0o600)
    how = ["--acl-file", str(keys), "--address-map", "10.0.0.9=127.0.0.1"]
    code, _, err = reset(cluster, capsys, "--to", "earliest", *DO, *how)
    assert (code, at(cluster)) == (0, [0, 0])
    (undo,) = re.findall("to undo: (.*)", err)
    words = shlex.split(undo)
    backup = words[-2]
    assert words == [
        "rmq", "reset-offset", "G", "T", "-n", cluster.namesrv,
        "--address-map", "10.0.0.9=127.0.0.1", "--acl-file", str(keys),
        "--undo", backup, "--execute",
    ]  # fmt: skip
    assert run([*words[1:], "--yes"]) == 0
    assert at(cluster) == [10, 20]


def test_the_undo_of_a_reset_in_two_runs_names_the_first_one(start, capsys):
    """It moved only what the second run had moved, and ended with exit code 0."""
    cluster = start(brokers=2)
    for name in ("broker-a", "broker-b"):
        commit(cluster, [3, 3], broker=name)
    code = RequestCode.UPDATE_CONSUMER_OFFSET
    refusal = faults.answer(16, "not allowed")
    rule = cluster.faults.add(refusal, code=code, broker="broker-b")
    words = ("--to", "earliest", *DO)
    exit_code, first, err = reset(cluster, capsys, *words)
    assert (exit_code, "other queues were moved" in err) == (6, False)
    cluster.faults.remove(rule)
    exit_code, second, err = reset(cluster, capsys, *words)
    said = (
        "other queues were moved by the run that this one has completed; to undo that:"
        f" rmq reset-offset G T -n {cluster.namesrv} --undo {first['backup']} --execute"
    )
    assert exit_code == 0
    assert said in err
    exit_code, found, err = reset(cluster, capsys, "--undo", *DO)
    assert (exit_code, len(found["queues"])) == (0, 2)
    assert said in err
    exit_code, found, err = reset(cluster, capsys, "--undo", first["backup"], *DO)
    assert exit_code == 0
    assert [each["read_back"] for each in found["queues"]] == [3, 3, 3, 3]
    assert "other queues were moved" not in err
    assert second["backup"] != first["backup"]
