"""`rmq tail` on a scripted cluster: its stdout, its stderr and its exit codes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqcli.broker import faults
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.cli.main import run
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.message.encode import MessageFields, encode_message
from tests.admin.lag.scripted_broker import ScriptedBroker
from tests.kit.waiting import PATIENCE_S
from tests.transport.peer import Peer

ROOT = Path(__file__).parents[3]


@contextmanager
def cluster(broker):
    with Peer(broker) as peer:
        broker.addresses = {0: peer.address}
        yield peer.address


def making(**settings):
    """Return a `make_record` for ScriptedBroker, which makes records with these fields.

    A value may be a function of queue id and offset.
    """

    def make_record(queue_id, offset):
        values = {
            name: value(queue_id, offset) if callable(value) else value
            for name, value in settings.items()
        }
        fields = {
            "topic": "T",
            "body": b"%d:%d" % (queue_id, offset),
            "queue_id": queue_id,
            "queue_offset": offset,
            "commit_log_offset": offset * 1_000 + queue_id,
            "store_timestamp_ms": 1_700_000_000_000 + offset,
        }
        return encode_message(MessageFields(**(fields | values)))

    return make_record


@pytest.fixture
def tail(capfdbinary):
    """Runs tail on a broker; returns code, stdout and stderr."""

    def run_it(broker, *arguments):
        with cluster(broker) as address:
            code = run(["tail", "T", "-n", address, *arguments])
        out, err = capfdbinary.readouterr()
        return code, out, err.decode()

    return run_it


def records_of(out):
    return [json.loads(line) for line in out.splitlines()]


def test_a_range_is_merged_by_store_time(tail):
    broker = ScriptedBroker({0: 50, 1: 50})
    code, out, err = tail(broker, "--from", "earliest", "--to", "latest")
    records = records_of(out)
    assert code == 0
    assert [r["store_timestamp"] for r in records] == sorted(
        r["store_timestamp"] for r in records
    )
    for queue_id in (0, 1):
        mine = [r["queue_offset"] for r in records if r["queue_id"] == queue_id]
        assert mine == list(range(50))
    assert "T@b-a:0-1: each 0 to 50, 50 messages\n" in err
    assert "100 shown, 100 read, nothing missing" in err


@pytest.mark.parametrize(
    ("attributes", "expected"), [({}, 6), ({"cleanup.policy": "COMPACTION"}, 0)]
)
def test_offsets_that_the_broker_does_not_have_are_missing(
    rmq_cluster, capsys, attributes, expected
):
    """The exit code was 0, from which scripts took the output for all messages.

    Brokers remove messages amid the queues of a compaction topic.
    """
    topic = rmq_cluster.create_topic("T", queues=1, attributes=attributes)
    rmq_cluster.send(topic, ["a", "b", "c", "d", "e"])
    fields = {"nextBeginOffset": "3", "minOffset": "3", "maxOffset": "5"}
    fields["suggestWhichBrokerId"] = "0"
    moved = faults.answer(21, ext_fields=fields)
    rmq_cluster.faults.next(moved, code=int(RequestCode.PULL_MESSAGE))
    whole = ["--from", "earliest", "--to", "latest", "-o", "raw"]
    code = run(["tail", topic, "-n", rmq_cluster.namesrv, *whole])
    out, err = capsys.readouterr()
    assert (code, out) == (expected, "d\ne\n")
    assert err == (
        "T@broker-a:0: 0 to 5, 5 messages\n"
        "warning: T@broker-a:0: the broker does not have offsets 0 to 3\n"
        "2 shown, 2 read, 3 missing\n"
    )


def test_it_pulls_as_tools_consumer_and_nothing_else(tail):
    broker = ScriptedBroker({0: 5})
    tail(broker, "--no-follow")
    assert broker.groups == {"TOOLS_CONSUMER"}


def test_the_default_is_the_last_ten_of_all_queues(tail):
    broker = ScriptedBroker({0: 100, 1: 96})
    code, out, _ = tail(broker, "--no-follow")
    places = [(r["queue_id"], r["queue_offset"]) for r in records_of(out)]
    assert code == 0
    assert len(places) == 10
    assert places[-4:] == [(0, 96), (0, 97), (0, 98), (0, 99)]


def test_last_counts_messages_and_not_offsets(tail):
    tags = making(properties=lambda _q, o: {"TAGS": "A" if o % 50 == 0 else "B"})
    broker = ScriptedBroker({0: 1_000}, make_record=tags)
    _, out, _ = tail(broker, "--last", "3", "--no-follow", "--tag", "A")
    assert [r["queue_offset"] for r in records_of(out)] == [850, 900, 950]


@pytest.mark.parametrize("how", [["--count", "7"], ["--from", "10", "--count", "7"]])
def test_count_ends_it(tail, how):
    code, out, _ = tail(ScriptedBroker({0: 100}), *how)
    assert code == 0
    assert len(out.splitlines()) == 7


@pytest.mark.parametrize("flag", ["--for", "--idle-timeout"])
def test_time_ends_following(tail, flag):
    code, out, _ = tail(ScriptedBroker({0: 3}), flag, "300ms")
    assert code == 0
    assert len(out.splitlines()) == 3


def test_tags_of_one_hash_are_told_apart(tail):
    tags = making(properties=lambda _q, o: {"TAGS": "Aa" if o % 2 else "BB"})
    broker = ScriptedBroker({0: 10}, make_record=tags)
    _, out, err = tail(broker, "--tag", "Aa", "--from", "earliest", "--to", "latest")
    assert {r["tags"] for r in records_of(out)} == {"Aa"}
    assert "5 shown, 10 read, nothing missing" in err


@pytest.mark.parametrize(
    ("flags", "offsets"),
    [
        (["--key", "k3"], [3]),
        (["--key", "ID4"], [4]),
        (["--key", "k3 x"], [3]),
        (["--key", "x y"], [0, 1, 2, 3, 4, 5]),
        (["--key", "x\ty"], []),
        (["--key", "x z"], []),
        (["--key", "k3 "], []),
        (["--key", ""], []),
        (["--property", "region=eu-*"], [0, 2, 4]),
        (["--property", "region=eu-*", "--key", "k2"], [2]),
        (["--grep", "^0:[45]$"], [4, 5]),
        (["--grep", "^0:[45]$", "--not"], [0, 1, 2, 3]),
    ],
)
def test_filters_of_our_own(tail, flags, offsets):
    make = making(
        properties=lambda _q, o: {
            "KEYS": f"k{o} x y",
            "UNIQ_KEY": f"ID{o}",
            "region": "us-1" if o % 2 else "eu-1",
        }
    )
    broker = ScriptedBroker({0: 6}, make_record=make)
    _, out, _ = tail(broker, "--from", "earliest", "--to", "latest", *flags)
    assert [r["queue_offset"] for r in records_of(out)] == offsets


def test_a_key_with_a_space_that_was_sent_is_found(capfd):
    with EmbeddedCluster() as cluster:
        cluster.create_topic("T")
        servers = ["-n", cluster.namesrv]
        for key in ("order 42", "order 43", "42"):
            assert run(["send", "T", f"of {key}", "--key", key, *servers]) == 0
        capfd.readouterr()
        bounded = ["--from", "earliest", "--to", "latest", "-o", "raw"]
        assert run(["tail", "T", *servers, *bounded, "--key", "order 42"]) == 0
    assert capfd.readouterr().out == "of order 42\n"


def test_what_was_deleted_is_a_gap(tail):
    code, _, err = tail(
        ScriptedBroker({0: 20}, low=15), "--from", "0", "--to", "latest"
    )
    assert code == 0
    assert "15 to 20" in err


def test_empty_can_be_a_failure(tail):
    broker = ScriptedBroker({0: 0})
    assert tail(broker, "--no-follow", "--fail-if-empty")[0] == 8
    assert tail(broker, "--no-follow")[:2] == (0, b"")


def test_an_abandoned_queue_is_exit_6(tail):
    denied = {"code": 16, "remark": "no", "ext_fields": {}, "body": b""}
    broker = ScriptedBroker({0: 5, 1: 5}, override=lambda q, *_: denied if q else None)
    code, out, err = tail(broker, "--from", "earliest", "--to", "latest")
    assert code == 6
    assert len(out.splitlines()) == 5
    assert "T@b-a:1: abandoned at offset 0" in err
    assert " read, 1 queue abandoned" in err


def test_when_every_queue_is_refused_it_is_that_error(tail):
    denied = {"code": 16, "remark": "no", "ext_fields": {}, "body": b""}
    broker = ScriptedBroker({0: 5}, override=lambda *_: denied)
    assert tail(broker, "--from", "earliest", "--to", "latest")[0] == 4
    assert tail(broker, "--for", "5s")[0] == 4


def test_sql_that_is_off_says_how_to_switch_it_on(tail):
    remark = "The broker does not support consumer to filter message by SQL92"
    off = {"code": 1, "remark": remark, "ext_fields": {}, "body": b""}
    broker = ScriptedBroker({0: 5}, override=lambda *_: off)
    code, _, err = tail(broker, "--sql", "a > 5", "--no-follow")
    assert code == 1
    assert re.search(r"error: the broker \S+ does not filter by SQL92\n", err)
    hint = "hint: set enablePropertyFilter=true on the broker, or use --tag EXPR"
    assert err.splitlines()[-1] == hint


def test_sql_that_cannot_be_read_is_a_usage_error_without_names_of_classes(tail):
    remark = (
        'org.apache.rocketmq.filter.parser.ParseException: Encountered "<EOF>" at'
        " line 1, column 3.\nWas expecting one of:\n    <DECIMAL_LITERAL> ..."
    )
    refused = {"code": 23, "remark": remark, "ext_fields": {}, "body": b""}
    broker = ScriptedBroker({0: 5}, override=lambda *_: refused)
    code, _, err = tail(broker, "--sql", "a >", "--no-follow")
    assert code == 2
    assert err.splitlines()[-1] == (
        'error: the expression is not valid SQL92: Encountered "<EOF>" at line 1,'
        " column 3"
    )


def test_an_undecodable_message_is_a_record_and_hides_no_other(tail):
    def damaged(queue_id, offset):
        data = bytearray(making()(queue_id, offset))
        if offset == 2:
            data[4] ^= 0xFF
        return bytes(data)

    broker = ScriptedBroker({0: 5}, make_record=damaged)
    code, out, err = tail(broker, "--from", "earliest", "--to", "latest")
    records = records_of(out)
    assert code == 0
    assert len(records) == 5
    assert [bool(r.get("error")) for r in records] == [False, False, True, False, False]
    assert "1 undecodable" in err


NASTY = bytes(range(256)) + "\x1b]52;c;x\x07\u202eevil\x9b2J".encode()


@pytest.mark.parametrize("output", ["pretty", "table", "json", "jsonl", "hex", "csv"])
def test_no_format_but_raw_lets_control_bytes_out(tail, output):
    make = making(body=NASTY, properties={"TAGS": "\x1b[2J\u202e", "KEYS": "\x9b"})
    broker = ScriptedBroker({0: 1}, make_record=make)
    _, out, err = tail(broker, "--from", "0", "--to", "latest", "-o", output)
    text = out.decode()
    allowed = "\n\t" if output != "csv" else "\n\t\r"
    if output == "csv":  # in a pipe, CSV is not escaped
        return
    bad = [c for c in text if (ord(c) < 32 and c not in allowed) or 127 <= ord(c) < 160]
    assert bad == []
    assert "\u202e" not in text
    assert "\x1b" not in err


def test_raw_is_bodies_and_nothing_else(tail):
    _, out, _ = tail(
        ScriptedBroker({0: 3}), "--from", "0", "--to", "latest", "-o", "raw"
    )
    assert out == b"0:0\n0:1\n0:2\n"


def test_json_is_one_list_also_when_empty(tail):
    ends = ["--from", "0", "--to", "latest", "-o", "json"]
    _, out, _ = tail(ScriptedBroker({0: 3}), *ends)
    assert len(json.loads(out)) == 3
    _, out, _ = tail(ScriptedBroker({0: 0}), *ends)
    assert json.loads(out) == []


def test_csv_has_the_fields_as_heading(tail):
    _, out, _ = tail(
        ScriptedBroker({0: 2}), "--from", "0", "--to", "latest", "-o", "csv"
    )
    lines = out.decode().splitlines()
    assert lines[0].startswith("topic,broker_name,queue_id,queue_offset")
    assert len(lines) == 3


def test_a_format_of_ones_own(tail):
    flags = ["--from", "0", "--to", "latest", "--format", r"%o=%v\n"]
    assert tail(ScriptedBroker({0: 2}), *flags)[1] == b"0=0:0\n1=0:1\n"


def test_fields_are_listed(capsys):
    assert run(["tail", "-o", "help"]) == 0
    assert "commit_log_offset" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--format", "%t %z"], "no field %z"),
        (["--to", "latest", "--follow"], "cannot be used together"),
        (["--tag", "A", "--sql", "b"], "cannot be used together"),
        (["--from", "5", "--to", "4"], "--to is before --from"),
        (["--tag", "||"], "no tag"),
        (["--not"], "--not needs"),
        (["--tag", ""], "--tag is empty"),
        (["--sql", ""], "--sql is empty"),
        (["--key", ""], "--key is empty"),
        (["-B", "1"], "need --around-group"),
        (["--around-group", "G", "--last", "1"], "cannot be used together"),
        (["--grep", "("], "regular expression"),
        (["--property", "x"], "NAME=GLOB"),
        (["--rate", "fast"], "not a rate"),
        (["--count", "-1"], "count"),
        (["--from", "yesterday"], "not a position"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(tail, flags, words):
    code, out, err = tail(ScriptedBroker({0: 1}), *flags)
    assert (code, out) == (2, b"")
    assert words in err


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (["-B", "1"], "-B and -A need --around-group"),
        (["-A", "1"], "-B and -A need --around-group"),
        (
            ["--tag", "A", "--sql", "b"],
            "--tag and --sql cannot be used together: a broker accepts only one",
        ),
        (["--not"], "--not needs --key, --property or --grep"),
        (
            ["--group", "G"],
            (
                "--group needs --endpoints\n"
                "hint: leave out --group: with name servers, tail needs no group"
            ),
        ),
        (
            ["--rate", "0"],
            (
                "--rate: '0': not a rate\n"
                "                ^\n"
                "hint: write messages per second, for example 100/s or 0.5/s"
            ),
        ),
        (
            ["--from-queue", "orders@b:3"],
            (
                "--from-queue: 'orders@b:3': '=' is missing\n"
                "                      ^^^^^^^^^^\n"
                "hint: write TOPIC@BROKER:ID=POS, for example orders@broker-a:3=1200"
            ),
        ),
    ],
)
def test_a_refused_option_says_what_to_do_instead(tail, flags, error):
    assert tail(ScriptedBroker({0: 1}), *flags) == (2, b"", f"error: {error}\n")


def test_a_bad_token_has_a_caret(tail):
    _, _, err = tail(ScriptedBroker({0: 1}), "--format", "%t %z")
    lines = err.splitlines()
    caret = next(line for line in lines if line.strip() == "^^")
    text = next(line for line in lines if "%t %z" in line)
    assert text[caret.index("^") :].startswith("%z")


def test_rate_limits(tail):
    import time

    started = time.monotonic()
    flags = ["--from", "0", "--to", "latest", "--rate", "50/s"]
    _, out, _ = tail(ScriptedBroker({0: 30}), *flags)
    assert len(out.splitlines()) == 30
    assert time.monotonic() - started > 0.4


@pytest.mark.parametrize("how", [["--from", "0", "--to", "latest"], ["--last", "90"]])
def test_a_time_limit_ends_slow_output_too_and_is_said(tail, how):
    flags = [*how, "--no-follow", "--rate", "10/s", "--for", "500ms"]
    code, out, err = tail(ScriptedBroker({0: 100}), *flags)
    assert code == 0
    assert 0 < len(out.splitlines()) < 90
    assert "stopped by the time limit before all messages were shown" in err


def test_what_was_shown_in_time_is_not_said_to_be_cut_short(tail):
    flags = ["--from", "0", "--to", "latest", "--idle-timeout", "100ms"]
    code, out, err = tail(ScriptedBroker({0: 10}), *flags, "--rate", "20/s")
    assert (code, len(out.splitlines())) == (0, 10)
    assert "time limit" not in err


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_says_where_to_go_on(signum):
    went_on = threading.Event()  # tail has written all 20 and pulls the next

    def note(_queue_id, offset, _turn):
        if offset == 25:
            went_on.set()

    with cluster(ScriptedBroker({0: 25}, override=note)) as address:
        process = subprocess.Popen(
            [sys.executable, "-m", "rmqcli", "tail", "T", "-n", address, "--from", "5"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        killer = threading.Timer(30, process.kill)
        killer.start()
        with process:
            assert process.stdout is not None
            for _ in range(20):
                process.stdout.readline()
            assert went_on.wait(60)
            os.kill(process.pid, signum)
            _, err = process.communicate()
        killer.cancel()
    assert process.returncode == 130
    assert "20 shown, 20 read" in err
    assert f"rmq tail T -n {address} --from 25" in err


def test_a_closed_pipe_ends_quietly():
    with cluster(ScriptedBroker({0: 20_000})) as address:
        command = [sys.executable, "-m", "rmqcli", "tail", "T", "-n", address, "-q"]
        process = subprocess.Popen(
            [*command, "--from", "0", "--to", "latest"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.readline()
            process.stdout.close()
            err = process.stderr.read()
            process.wait(timeout=PATIENCE_S)
    assert (process.returncode, err) == (0, b"")
