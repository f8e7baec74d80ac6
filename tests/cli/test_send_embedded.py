"""`rmq send` on the embedded cluster: unknown topics, unknown results, summaries."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from rmqcli import Admin
from rmqcli.broker import faults
from rmqcli.cli.main import run
from rmqcli.wire.codes import RequestCode
from tests.kit.waiting import wait_until
from tests.producer.stored import bodies

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60


@pytest.fixture
def rmq(rmq_cluster, capsys, monkeypatch):
    """Runs a command on the cluster; returns exit code, stdout, stderr."""

    def call(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = run([*arguments, "-n", rmq_cluster.namesrv])
        return code, *capsys.readouterr()

    return call


def topics_of(rmq):
    return [
        json.loads(line)["topic"]
        for line in rmq("topics", "-o", "jsonl")[1].split("\n")
        if line
    ]


def test_a_mistyped_topic_is_not_created_and_the_near_one_is_named(rmq, rmq_cluster):
    rmq_cluster.create_topic("orders")
    code, out, err = rmq("send", "ordres", "x")
    assert (code, out) == (3, "")
    assert "error: topic ordres does not exist; did you mean orders?\n" in err
    assert "hint: add --create to let a broker create it" in err
    assert "ordres" not in topics_of(rmq)


def test_a_topic_in_other_capitals_is_near(rmq, rmq_cluster):
    rmq_cluster.create_topic("ORDERS")
    assert "did you mean ORDERS?" in rmq("send", "orders", "x")[2]


def test_an_unknown_topic_without_a_near_one_is_not_created_either(rmq, rmq_cluster):
    code, _, err = rmq("send", "ordres", "x")
    assert code == 3
    assert "hint: add --create to let a broker create it, or list topics" in err
    assert "ordres" not in topics_of(rmq)


def test_create_lets_the_broker_create_it(rmq, rmq_cluster):
    code, _, err = rmq("send", "fresh", "x", "--create")
    assert code == 0
    assert err == "topic fresh did not exist; broker-a created it with 4 queues\n"


def no_answer(rmq_cluster):
    """Makes the broker store messages without answering."""
    for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
        rmq_cluster.faults.add(faults.drop_answer(), code=int(code))


@pytest.mark.slow
def test_an_unknown_result_is_not_called_not_stored(rmq, rmq_cluster, rmq_topic):
    no_answer(rmq_cluster)
    flags = ["--timeout", "2s", "-o", "jsonl"]
    code, out, err = rmq("send", rmq_topic, "x", *flags)
    assert code == 5
    assert json.loads(out)["status"] == "UNKNOWN"
    assert (
        "warning: 1 message may or may not be stored, and sending again may store a"
        f" message twice; look for each with: rmq tail {rmq_topic} --key MSG_ID --from"
        " -15m --no-follow\n" in err
    )
    assert "not stored" not in err
    msg_id = json.loads(out)["msg_id"]
    found = ["--key", msg_id, "--from", "-15m", "--no-follow", "-o", "raw"]
    assert rmq("tail", rmq_topic, *found)[1] == "x\n"
    whole = ["--from", "earliest", "--to", "latest", "-o", "raw"]
    assert rmq("tail", rmq_topic, *whole)[1] == "x\n"


def test_messages_sent_again_after_a_lost_connection_are_named(rmq, rmq_cluster):
    """They were stored twice, and the command said only that they are sent."""
    topic = rmq_cluster.create_topic("T", queues=1)
    code = int(RequestCode.SEND_BATCH_MESSAGE)
    rmq_cluster.faults.next(faults.disconnect(is_handled=True), code=code)
    flags = ["--lines", "-", "-o", "jsonl"]
    exit_code, out, err = rmq("send", topic, *flags, stdin=b"a\nb\n")
    rows = [json.loads(line) for line in out.splitlines()]
    assert (exit_code, [row["status"] for row in rows]) == (0, ["SEND_OK"] * 2)
    ids = [row["msg_id"] for row in rows]
    assert (
        "2 sent, 0 failed\n"
        "warning: 2 messages may be stored twice, sent again after the connection to a"
        f" broker was lost; look for each with: rmq tail {topic} --key MSG_ID"
        f" --from -15m --no-follow; IDs: {ids[0]}, {ids[1]}\n" in err
    )
    whole = ["--from", "earliest", "--to", "latest", "-o", "raw"]
    assert sorted(rmq("tail", topic, *whole)[1].split()) == ["a", "a", "b", "b"]


def test_of_many_messages_sent_again_the_first_are_named(rmq, rmq_cluster):
    """All their ids were kept, however many there were."""
    topic = rmq_cluster.create_topic("T", queues=1)
    code = int(RequestCode.SEND_BATCH_MESSAGE)
    rmq_cluster.faults.next(faults.disconnect(is_handled=True), code=code)
    flags = ["--count", "103", "-o", "jsonl"]
    exit_code, out, err = rmq("send", topic, "x", *flags)
    ids = [json.loads(line)["msg_id"] for line in out.splitlines()]
    assert (exit_code, len(ids)) == (0, 103)
    assert "warning: 103 messages may be stored twice, sent again after" in err
    assert f"; IDs: {', '.join(ids[:100])} and 3 more\n" in err


def test_one_message_sent_again_after_a_lost_connection_is_named(rmq, rmq_cluster):
    topic = rmq_cluster.create_topic("T", queues=1)
    code = int(RequestCode.SEND_MESSAGE_V2)
    rmq_cluster.faults.next(faults.disconnect(is_handled=True), code=code)
    exit_code, out, err = rmq("send", topic, "x", "-o", "jsonl")
    assert exit_code == 0
    assert err == (
        "warning: 1 message may be stored twice, sent again after the connection to a"
        f" broker was lost; look for each with: rmq tail {topic} --key MSG_ID"
        f" --from -15m --no-follow; ID: {json.loads(out)['msg_id']}\n"
    )


def test_messages_that_are_sent_once_are_not_said_to_be_stored_twice(
    rmq, rmq_cluster, rmq_topic
):
    """A broker that is busy, or to which no connection was made, stored nothing."""
    code = int(RequestCode.SEND_MESSAGE_V2)
    rmq_cluster.faults.next(faults.answer(2, "[PC_SYNCHRONIZED]broker busy"), code=code)
    exit_code, _, err = rmq("send", rmq_topic, "x")
    assert exit_code == 0
    assert "twice" not in err


@pytest.mark.slow
def test_unknown_results_among_others_are_counted_by_themselves(rmq, rmq_cluster):
    topic = rmq_cluster.create_topic("T", queues=2)
    rmq_cluster.faults.add(faults.drop_answer(), queue_id=1)
    flags = ["--timeout", "2s", "--lines", "-", "-o", "jsonl"]
    code, _, err = rmq("send", topic, *flags, stdin=b"a\nb\nc\nd\n")
    assert code == 6
    *_, first, second, error = err.splitlines()
    assert first == "2 sent, 0 failed, 2 unknown"
    assert second == (
        "warning: 2 messages may or may not be stored, and sending again may store a"
        " message twice; look for each with: rmq tail T --key MSG_ID --from -15m"
        " --no-follow"
    )
    said = "it is unknown whether 2 of 4 messages are stored: no answer from "
    assert said in error


@pytest.mark.slow
def test_refused_unknown_and_stored_messages_are_counted_apart(rmq, rmq_cluster):
    topic = rmq_cluster.create_topic("T", queues=3)
    rmq_cluster.faults.add(faults.drop_answer(), queue_id=1)
    rmq_cluster.faults.add(faults.answer(16, "no"), queue_id=2)
    flags = ["--timeout", "2s", "--lines", "-"]
    code, out, err = rmq("send", topic, *flags, stdin=b"a\nb\nc\n")
    assert (code, out.count("see below")) == (6, 1)
    assert "\n1 sent, 1 failed, 1 unknown\nwarning: 1 message may or may not" in err
    assert (
        "\nerror: 1 of 3 messages is not stored, and it is unknown whether 1 is: "
    ) in err


@pytest.mark.slow
def test_when_no_broker_is_left_the_line_is_named_from_which_to_send_again(
    rmq, rmq_cluster
):
    topic = rmq_cluster.create_topic("T", queues=1)
    # Two batches of 512 lines are stored, and no connection lasts after that.
    rmq_cluster.faults.add(
        faults.disconnect(), nth=3, code=int(RequestCode.SEND_BATCH_MESSAGE)
    )
    lines = b"".join(b"%d\n" % n for n in range(1, 20_001))
    flags = ["--timeout", "1s"]  # a sixth of the time that a restart may take
    code, _, err = rmq("send", topic, "--lines", "-", *flags, stdin=lines)
    assert code == 6
    assert (
        "warning: gave up: no broker can be reached; the rest of the input was not"
        " read; nothing from stdin line 1025 on is known to be stored\n" in err
    )
    assert "1024 sent, " in err


def test_a_broker_that_goes_away_and_comes_back_is_waited_for(rmq_cluster, tmp_path):
    topic = rmq_cluster.create_topic("T", queues=2)
    out = tmp_path / "out"
    command = [*(sys.executable, "-m", "rmqcli", "send", topic, "--lines", "-")]
    command += ["-o", "jsonl", "-n", rmq_cluster.namesrv, "--timeout", f"{DEADLINE_S}s"]
    with out.open("wb") as stdout:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=subprocess.PIPE,
        )
    assert process.stdin is not None
    assert process.stderr is not None
    try:
        process.stdin.write(b"before\n" * 10)
        process.stdin.flush()
        wait_until(lambda: len(bodies(rmq_cluster, topic)) == 10)
        wait_until(lambda: out.read_bytes().count(b"SEND_OK") == 10)
        rmq_cluster.broker().kill()
        process.stdin.write(b"after\n" * 10)
        process.stdin.close()
        gone = process.stderr.readline().decode()
        rmq_cluster.broker().restart()
        back, total = (line.decode() for line in process.stderr)
        assert process.wait(DEADLINE_S) == 0
    finally:
        process.kill()
        process.wait(DEADLINE_S)
        process.stderr.close()
    assert gone.startswith("broker-a: cannot connect to 127.0.0.1:")
    assert gone.endswith("; retrying for up to 6m\n")
    assert back == "broker-a is back; continuing\n"
    assert total == "20 sent, 0 failed\n"
    assert bodies(rmq_cluster, topic) == [b"after"] * 10 + [b"before"] * 10


def without_reader(namesrv, topic, file, *, lines):
    """Send the lines of a file to a reader that leaves; return exit code and stderr."""
    ours, theirs = os.pipe()
    words = [*("send", topic, "--lines", str(file)), "-o", "jsonl", "-n", namesrv]
    process = subprocess.Popen(
        [sys.executable, "-m", "rmqcli", *words],
        cwd=ROOT,
        stdout=theirs,
        stderr=subprocess.PIPE,
    )
    os.close(theirs)
    try:
        with open(ours, "rb") as results:
            for _ in range(lines):
                assert b"SEND_OK" in results.readline()
        err = process.communicate(timeout=DEADLINE_S)[1].decode()
        return process.returncode, err
    finally:
        process.kill()
        process.wait(DEADLINE_S)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is full")
@pytest.mark.parametrize("output", ["table", "jsonl"])
@pytest.mark.parametrize("quiet", [[], ["-q"]])
def test_what_was_sent_is_said_when_the_disk_of_the_results_is_full(
    rmq_cluster, output, quiet
):
    """The error named the disk alone; who sent again then sent messages twice."""
    topic = rmq_cluster.create_topic("T", queues=2)
    words = ["send", topic, "x", "--count", "3", "-o", output, *quiet]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "rmqcli", *words, "-n", rmq_cluster.namesrv],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
    assert done.returncode == 1
    assert bodies(rmq_cluster, topic) == [b"x"] * 3
    assert (
        "warning: 3 messages are sent, and the results do not list all of them\n"
        in (done.stderr)
    )
    assert "cannot write the output: no space left on device" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is full")
def test_lines_that_were_not_read_because_of_a_full_disk_are_not_said_to_be_sent(
    rmq_cluster, tmp_path
):
    topic = rmq_cluster.create_topic("T", queues=2)
    file = tmp_path / "lines"
    file.write_bytes(b"".join(b"%d\n" % n for n in range(100_000)))
    words = ["send", topic, "--lines", str(file), "-o", "csv"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "rmqcli", *words, "-n", rmq_cluster.namesrv],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
    stored = len(bodies(rmq_cluster, topic))
    assert done.returncode == 6
    assert 0 < stored < 100_000
    assert (
        "error: cannot write the output: no space left on device: nothing after"
        f" {file} line {stored} is sent, {stored:,} messages before\n" in done.stderr
    )


def test_when_the_reader_of_the_results_leaves_the_rest_is_not_said_to_be_sent(
    rmq_cluster, tmp_path
):
    topic = rmq_cluster.create_topic("T", queues=2)
    file = tmp_path / "lines"
    file.write_bytes(b"".join(b"%d\n" % n for n in range(100_000)))
    code, err = without_reader(rmq_cluster.namesrv, topic, file, lines=1)
    stored = len(bodies(rmq_cluster, topic))
    assert code == 6
    assert 0 < stored < 100_000
    assert f"nothing after {file} line {stored} is sent" in err
    assert f"{stored} sent, 0 failed\n" in err


def test_a_reader_that_leaves_when_all_is_sent_is_no_error(rmq_cluster, tmp_path):
    topic = rmq_cluster.create_topic("T", queues=2)
    file = tmp_path / "lines"
    file.write_bytes(b"a\nb\nc\n")
    code, err = without_reader(rmq_cluster.namesrv, topic, file, lines=0)
    assert (code, err) == (0, "3 sent, 0 failed\n")
    assert bodies(rmq_cluster, topic) == [b"a", b"b", b"c"]


def test_an_error_before_the_first_message_comes_alone(rmq, rmq_topic):
    code, out, err = rmq("send", rmq_topic, "--jsonl", "-", stdin=b"not json\n")
    assert (code, out) == (2, "")
    assert err.startswith("error: stdin line 1: ")
    assert "0 sent" not in err


def test_rows_that_a_table_leaves_out_are_said_even_when_it_is_quiet(rmq, rmq_topic):
    lines = b"x\n" * 1_002
    code, out, err = rmq("send", rmq_topic, "--lines", "-", "-q", stdin=lines)
    assert (code, out.count("\n")) == (0, 1_001)
    assert err == "warning: 2 sent messages not listed; -o jsonl lists all\n"


def test_a_bad_record_is_named_with_the_number_of_those_before_it(rmq, rmq_topic):
    records = b'{"body": "a"}\nnot json\n{"body": "c"}\n'
    code, out, err = rmq("send", rmq_topic, "--jsonl", "-", "-o", "csv", stdin=records)
    assert (code, out.count("SEND_OK")) == (6, 1)
    assert err.startswith("1 sent, 0 failed\nerror: stdin line 2: not JSON: ")
    assert err.endswith(
        "; 1 message before it is sent, and nothing from there on\n"
        "hint: correct it, then send the rest of the input\n"
    )


def test_a_bad_first_record_sends_nothing(rmq, rmq_topic):
    records = b'{"no_body": 1}\n{"body": "c"}\n'
    code, out, err = rmq("send", rmq_topic, "--jsonl", "-", "-o", "csv", stdin=records)
    assert (code, out.count("SEND_OK")) == (2, 0)
    assert "before it" not in err


def test_a_dash_is_the_lines_of_stdin(rmq, rmq_topic):
    code, out, err = rmq("send", rmq_topic, "-", "-o", "jsonl", stdin=b"a\nb\n")
    assert (code, len(out.splitlines())) == (0, 2)
    assert err == "sending the lines of stdin\n2 sent, 0 failed\n"
    whole = ["--from", "earliest", "--to", "latest", "-o", "raw"]
    assert sorted(rmq("tail", rmq_topic, *whole)[1].split()) == ["a", "b"]


def test_a_dash_beside_a_file_is_refused(rmq, rmq_topic):
    assert rmq("send", rmq_topic, "-", "--lines", "f") == (
        *(2, ""),
        "error: BODY and --lines cannot be used together\n",
    )


def test_two_sources_are_refused_and_stdin_is_read_by_one(rmq, rmq_topic):
    error = "error: --file and --jsonl cannot be used together\n"
    assert rmq("send", rmq_topic, "--file", "f", "--jsonl", "f") == (2, "", error)
    error = "error: --acl-file and the messages cannot both be read from stdin\n"
    for flag in ("--lines", "--jsonl"):
        code, _, err = rmq("send", rmq_topic, flag, "-", "--acl-file", "-")
        assert (code, err) == (2, error)


def test_credentials_from_stdin_also_sign_the_traces(rmq, rmq_topic):
    """stdin can be read once, and its second reader found no credentials."""
    words = ("send", rmq_topic, "x", "--trace", "--acl-file", "-", "-o", "jsonl")
    code, out, err = rmq(*words, stdin=b"key\nsecret\n")
    assert (code, err) == (0, "")
    msg_id = json.loads(out)["msg_id"]
    code, out, _ = rmq("message", "trace", msg_id, "-o", "json")
    assert (code, json.loads(out)[0]["events"][0]["event"]) == (0, "produced")


def test_a_property_without_a_value_is_refused(rmq, rmq_topic):
    for text in ("a", "a=", "=b"):
        assert rmq("send", rmq_topic, "x", "--property", text) == (
            *(2, ""),
            f"error: --property: '{text}' is not NAME=VALUE\n",
        )


@pytest.mark.parametrize(
    ("words", "stdin", "sources"),
    [
        (["--lines", "-"], b"a\nb\nc\n", ["stdin line 1", "stdin line 2"]),
        (["--jsonl", "-"], b'{"body": "a"}\n\n{"body": "b"}\nnever\n', None),
        (["a"], b"", [None, None]),
        (["--file", "-"], b"a\nb\n", ["stdin", "stdin"]),
    ],
)
def test_a_count_repeats_a_body_and_limits_lines(rmq, rmq_topic, words, stdin, sources):
    flags = ["--count", "2", "-o", "jsonl"]
    code, out, err = rmq("send", rmq_topic, *words, *flags, stdin=stdin)
    assert (code, err) == (0, "2 sent, 0 failed\n")
    found = [json.loads(line)["source"] for line in out.splitlines()]
    assert found == (sources or ["stdin line 1", "stdin line 3"])


def test_messages_that_are_all_refused_are_counted_before_the_error(rmq, rmq_cluster):
    topic = rmq_cluster.create_topic("T", queues=1)
    refused = faults.answer(14, "no")
    rmq_cluster.faults.add(refused, code=int(RequestCode.SEND_BATCH_MESSAGE))
    rmq_cluster.faults.add(refused, code=int(RequestCode.SEND_MESSAGE_V2))
    code, out, err = rmq("send", topic, "--lines", "-", stdin=b"a\nb\n")
    address = rmq_cluster.broker().address
    assert (code, out.count("see below")) == (1, 2)
    assert err == (
        "0 sent, 2 failed\n"
        "warning: 2 messages are not stored\n"
        f"error: batch send to topic T: {address} answered SERVICE_NOT_AVAILABLE: no\n"
        "hint: the broker is starting or stopping, is read-only, or its disk is full\n"
    )


def test_messages_that_are_not_flushed_or_copied_in_time_are_counted(rmq, rmq_cluster):
    topic = rmq_cluster.create_topic("T", queues=1)
    for code in (10, 11):  # FLUSH_DISK_TIMEOUT, SLAVE_NOT_AVAILABLE
        fields = {"msgId": "7F" * 16, "queueId": "0", "queueOffset": "7"}
        stored = faults.answer(code, ext_fields=fields)
        rmq_cluster.faults.next(stored, code=int(RequestCode.SEND_MESSAGE_V2))
    for status in ("FLUSH_DISK_TIMEOUT", "SLAVE_NOT_AVAILABLE"):
        code, out, err = rmq("send", topic, "x")
        assert code == 0
        assert status in out
        assert err == (
            "warning: 1 message is stored, but the broker could not flush or replicate"
            " them in time\n"
        )


def test_records_of_a_message_group_keep_their_order_in_the_queue_of_their_group(
    rmq, rmq_cluster
):
    """They were spread over the queues, where consumers got them in any order."""
    topic = rmq_cluster.create_topic("T", queues=4)
    records = [
        {"body": f"{group} {n}", "properties": {"__SHARDINGKEY": group}}
        for n in range(3)
        for group in ("a", "group-1", "zzzzzzzz")
    ]
    lines = "".join(json.dumps(each) + "\n" for each in records).encode()
    assert rmq("send", topic, "--jsonl", "-", stdin=lines)[0] == 0
    with Admin(namesrv=rmq_cluster.namesrv) as admin:
        found = sorted(
            (m.queue_id, m.queue_offset, m.body.decode()) for m in admin.read(topic)
        )
    assert found == [
        *((0, n, f"a {n}") for n in range(3)),
        *((1, n, f"group-1 {n}") for n in range(3)),
        *((2, n, f"zzzzzzzz {n}") for n in range(3)),
    ]


def test_records_with_a_priority_are_stored_in_the_queue_of_their_priority(
    rmq, rmq_cluster
):
    """A broker stores a batch in the queue of the request, whatever the priorities."""
    topic = rmq_cluster.create_topic("T", queues=4)
    records = [
        {"body": str(n % 4), "properties": {"_SYS_MSG_PRIORITY_": str(n % 4)}}
        for n in range(40)
    ]
    lines = "".join(json.dumps(each) + "\n" for each in records).encode()
    assert rmq("send", topic, "--jsonl", "-", stdin=lines)[0] == 0
    with Admin(namesrv=rmq_cluster.namesrv) as admin:
        found = sorted((m.queue_id, m.body.decode()) for m in admin.read(topic))
    assert found == [(n, str(n)) for n in range(4) for _ in range(10)]


def test_records_of_a_lite_topic_can_be_consumed_by_it(rmq, rmq_cluster):
    """Of a batch a broker does not note the lite topics."""
    topic = rmq_cluster.create_topic("T", queues=1)
    line = b'{"body": "x", "properties": {"__LITE_TOPIC": "a"}}\n'
    assert rmq("send", topic, "--jsonl", "-", stdin=line * 3)[0] == 0
    with Admin(namesrv=rmq_cluster.namesrv) as admin:
        found = [m.properties["INNER_MULTI_DISPATCH"] for m in admin.read(topic)]
    assert found == ["%LMQ%$T$a"] * 3


def test_a_tag_to_which_no_consumer_can_subscribe_is_refused(rmq, rmq_topic):
    """Consumers take `a||b` for the tags a and b, so none would receive it."""
    code, out, err = rmq("send", rmq_topic, "x", "--tag", "a||b")
    assert (code, out) == (2, "")
    assert err == (
        "error: --tag: 'a||b': || separates the tags of a subscription, so no consumer"
        " can subscribe to this tag\n"
        "                ^^\n"
        "hint: send a message for each tag, or choose another separator\n"
    )
    assert rmq("tail", rmq_topic, "--no-follow")[1] == ""
    assert rmq("send", rmq_topic, "x", "--tag", "a|b")[0] == 0


def test_a_key_with_a_space_is_warned_about(rmq, rmq_topic):
    code, _, err = rmq("send", rmq_topic, "x", "--key", "a b", "--key", "c")
    assert code == 0
    assert err == (
        "warning: --key 'a b': RocketMQ separates keys by spaces, so brokers index it"
        " as 'a' and 'b'\n"
    )
    assert rmq("send", rmq_topic, "x", "--key", " ")[2] == (
        "warning: --key ' ': RocketMQ separates keys by spaces, so brokers index it as"
        " nothing\n"
    )


def on_terminal(namesrv, *arguments, stdin=b""):
    """Run a command with a terminal as stdout; return stdout and stderr."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "rmqcli", *arguments, "-n", namesrv],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "200", "TERM": "xterm", "NO_COLOR": "1"},
        stdin=subprocess.PIPE,
        stdout=theirs,
        stderr=subprocess.PIPE,
    )
    os.close(theirs)
    try:
        err = process.communicate(stdin, timeout=DEADLINE_S)[1].decode()
        out = b""
        try:
            while data := os.read(ours, 65_536):
                out += data
        except OSError:  # Linux raises EIO at the end
            pass
    finally:
        process.kill()
        process.wait(DEADLINE_S)
        os.close(ours)
    return out.decode(), err


def test_a_terminal_gets_a_summary_of_many_and_rows_if_asked(rmq_cluster):
    topic = rmq_cluster.create_topic("T", queues=2)
    lines = b"".join(b"%d\n" % n for n in range(30))
    words = ["send", topic, "--lines", "-"]
    out, err = on_terminal(rmq_cluster.namesrv, *words, stdin=lines)
    assert out == ""
    assert err == (
        "30 sent, 0 failed\n"
        "by queue: broker-a:0 15, broker-a:1 15\n"
        "--rows lists each result, -o jsonl as data\n"
    )
    out, err = on_terminal(rmq_cluster.namesrv, *words, "--rows", stdin=lines)
    assert out.count("SEND_OK") == 30
    out, _ = on_terminal(rmq_cluster.namesrv, *words, stdin=b"a\nb\n")
    assert out.count("SEND_OK") == 2


def test_a_summary_lists_what_is_not_stored(rmq_cluster):
    topic = rmq_cluster.create_topic("T", queues=2)
    rmq_cluster.faults.add(faults.answer(16, "no"), queue_id=1)
    lines = b"".join(b"%d\n" % n for n in range(60))
    out, err = on_terminal(
        rmq_cluster.namesrv, "send", topic, "--lines", "-", stdin=lines
    )
    assert out.count("NO_PERMISSION  stdin line") == 30
    assert "SEND_OK" not in out
    assert "by result: NO_PERMISSION 30, SEND_OK 30\n" in err
    assert "error: 30 of 60 messages are not stored: " in err


def test_a_pipe_gets_every_result(rmq, rmq_topic):
    lines = b"".join(b"%d\n" % n for n in range(30))
    code, out, _ = rmq("send", rmq_topic, "--lines", "-", stdin=lines)
    assert code == 0
    assert out.count("SEND_OK") == 30


@pytest.mark.parametrize("kind", ["--file", "--jsonl", "--lines"])
def test_a_body_above_the_limit_is_named_with_its_size_and_the_limit_once(
    rmq, rmq_cluster, tmp_path, kind
):
    rmq_cluster.create_topic("orders")
    body = "x" * 5_000_000
    content = json.dumps({"body": body}) if kind == "--jsonl" else body
    (tmp_path / "large").write_text(content)
    code, out, err = rmq("send", "orders", kind, str(tmp_path / "large"))
    assert code == 1
    assert "MESSAGE_ILLEGAL" in out
    assert out.endswith("  see below\n")
    assert err.splitlines()[-2:] == [
        "error: the body has 5,000,000 bytes; the limit of the broker is 4,194,304",
        "hint: raise maxMessageSize on the broker, or send a smaller body",
    ]
    assert (out + err).count("4,194,304") == 1


def test_a_row_of_json_has_its_own_error(rmq, rmq_cluster, tmp_path):
    rmq_cluster.create_topic("orders")
    (tmp_path / "large").write_text("x" * 5_000_000)
    arguments = ["--file", str(tmp_path / "large"), "-o", "jsonl"]
    _, out, _ = rmq("send", "orders", *arguments)
    assert json.loads(out)["error"] == (
        "the body has 5,000,000 bytes; the limit of the broker is 4,194,304"
    )


@pytest.mark.parametrize("flag", ["--file", "--lines", "--jsonl"])
def test_a_file_that_does_not_exist_is_a_usage_error_before_anything_is_sent(
    rmq, rmq_cluster, rmq_topic, tmp_path, flag
):
    good, missing = tmp_path / "good", tmp_path / "missing"
    good.write_text("x", encoding="utf-8")
    files = [flag, str(missing)]
    if flag == "--file":  # the only one that is repeatable
        files = [flag, str(good), *files]
    code, out, err = rmq("send", rmq_topic, *files)
    assert (code, out) == (2, "")
    assert f"{missing}: no such file or directory" in err
    assert rmq("tail", rmq_topic, "--from", "earliest", "--no-follow")[1] == ""
