"""`rmq tail --endpoints` is refused without a group, and with one joins the group."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rmqcli import ClientConfig, SimpleConsumer
from rmqcli.broker.cluster.seeding import Seed
from rmqcli.cli.main import run
from rmqcli.wire.protobuf import definition_pb2 as pb
from rmqcli.wire.protobuf import service_pb2 as service
from tests.kit.proxy.scripted import OK, ScriptedProxy, status
from tests.kit.waiting import PATIENCE_S, wait_until

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def no_addresses(monkeypatch):
    for name in ("ROCKETMQ_ENDPOINTS", "NAMESRV_ADDR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def cluster(rmq_cluster_factory):
    made = rmq_cluster_factory(proxy=True, settings={"enable_property_filter": True})
    made.create_topic("T", queues=1)
    return made


@pytest.fixture
def proxy():
    """A scripted proxy; `give` sets the messages that its receives return."""
    with ScriptedProxy() as made:
        yield made


@pytest.fixture
def tail(capfdbinary):
    """Runs `rmq tail T -g g` through a proxy; returns stdout and stderr as text."""

    def run_it(server, *arguments, code=0):
        words = ["-g", "g", "--endpoints", server.endpoints, "--plaintext"]
        returned = run(["tail", "T", *words, *arguments])
        out, err = capfdbinary.readouterr()
        assert returned == code, err.decode()
        return out.decode(), err.decode()

    return run_it


def left_over(cluster):
    """Receive what the group has not acknowledged; return the bodies, sorted."""
    config = ClientConfig(endpoints=(cluster.endpoints,), plaintext=True)
    found = []
    with SimpleConsumer("g", "T", client=config) as other:
        while messages := other.receive(await_ms=5_000):
            found += [each.body.decode() for each in messages]
            other.ack(messages)
    return sorted(found)


def give(proxy, *bodies):
    """Make each receive return the next of these messages, and later ones nothing.

    The messages have the receipt handles h0, h1, ...
    """
    waiting = list(enumerate(bodies))

    def answer(_request, _context):
        if not waiting:
            yield service.ReceiveMessageResponse(status=status("MESSAGE_NOT_FOUND"))
            return
        number, body = waiting.pop(0)
        yield service.ReceiveMessageResponse(status=OK)
        part = service.ReceiveMessageResponse()
        part.message.topic.name, part.message.body = "T", body
        system = part.message.system_properties
        system.receipt_handle, system.message_id = f"h{number}", f"ID{number}"
        yield part

    proxy.answers["ReceiveMessage"] = answer


def test_without_a_group_it_says_what_a_group_would_mean(proxy, capsys):
    words = ["--endpoints", proxy.endpoints, "--plaintext"]
    assert run(["tail", "T", *words]) == 2
    assert proxy.requests == []
    out, err = capsys.readouterr()
    error, hint = err.splitlines()
    assert out == ""
    assert error == (
        "error: through a proxy tail needs --group: a proxy gives messages only to"
        " members of groups"
    )
    for part in (
        "add --group G, an existing group, which then consumes the messages",
        "other members do not receive them",
        "delivered again with a higher retry count",
        "read without a group with --namesrv HOST:PORT",
    ):
        assert part in hint


@pytest.mark.slow
def test_what_is_shown_is_consumed_and_the_rest_is_not(cluster, tail):
    cluster.send("T", [f"m{n}" for n in range(10)])
    out, err = tail(cluster, "--count", "4", "-o", "raw")
    assert out.split() == ["m0", "m1", "m2", "m3"]
    assert err.splitlines() == [
        (
            f"tail joined group g through {cluster.endpoints}: the group consumes every"
            " message that tail shows"
        ),
        "4 shown, 4 acknowledged",
    ]
    assert left_over(cluster) == ["m4", "m5", "m6", "m7", "m8", "m9"]


def test_records_have_the_keys_of_every_tail(cluster, tail, capfdbinary):
    cluster.send("T", [Seed(body=b"x", tags="A", keys=["k"])])
    record = json.loads(tail(cluster, "--count", "1", "-o", "jsonl")[0])
    whole = ["--from", "earliest", "--to", "latest", "-o", "jsonl"]
    assert run(["tail", "T", "-n", cluster.namesrv, *whole]) == 0
    assert list(record) == list(json.loads(capfdbinary.readouterr().out))
    assert (record["body"], record["tags"], record["keys"]) == ("x", "A", "k")
    assert (record["queue_offset"], record["commit_log_offset"]) == (0, None)


@pytest.mark.parametrize("choice", [["--tag", "B"], ["--sql", "a > 5"]])
def test_tags_and_sql_select(cluster, tail, choice):
    cluster.send("T", [Seed(body=b"a", tags="A", properties={"a": "1"})])
    cluster.send("T", [Seed(body=b"b", tags="B", properties={"a": "7"})])
    assert tail(cluster, *choice, "--count", "1", "-o", "raw")[0] == "b\n"


@pytest.mark.parametrize("limit", ["--for", "--idle-timeout"])
def test_a_time_limit_ends_it(cluster, tail, limit):
    out, err = tail(cluster, limit, "300ms", "-o", "json", "--fail-if-empty", code=8)
    assert out == "[]\n"
    assert err.endswith("0 shown, 0 acknowledged\n")


def test_nothing_is_acknowledged_before_it_is_written(proxy, tail, monkeypatch):
    """When the reader of a pipe has left, the message is not acknowledged."""
    give(proxy, b"x")

    class Closed:
        def write(self, _text):
            assert proxy.asked("AckMessage") == []
            raise BrokenPipeError

        def flush(self):
            pass

        def isatty(self):
            return False

    monkeypatch.setattr(sys, "stdout", Closed())
    words = ["-g", "g", "--endpoints", proxy.endpoints, "--plaintext"]
    assert run(["tail", "T", *words, "-o", "jsonl"]) == 0
    assert proxy.asked("AckMessage") == []


def test_an_ack_that_is_refused_is_told_and_ends_with_6(proxy, tail):
    give(proxy, b"x", b"y")

    def refuse(request, _context):
        answer = service.AckMessageResponse(status=OK)
        for entry in request.entries:
            code = "INVALID_RECEIPT_HANDLE" if entry.receipt_handle == "h0" else "OK"
            answer.entries.add(status=status(code), receipt_handle=entry.receipt_handle)
        return answer

    proxy.answers["AckMessage"] = refuse
    out, err = tail(proxy, "--count", "2", "-o", "raw", code=6)
    assert out == "x\ny\n"
    assert "INVALID_RECEIPT_HANDLE" in err
    assert "the group will receive them again although they were shown" in err
    assert err.endswith("2 shown, 1 acknowledged\n")


def test_a_damaged_body_is_shown_as_such(proxy, tail):
    def damaged(_request, _context):
        yield service.ReceiveMessageResponse(status=OK)
        part = service.ReceiveMessageResponse()
        part.message.topic.name, part.message.body = "T", b"abc"
        system = part.message.system_properties
        system.receipt_handle, system.message_id = "h", "ID"
        system.body_digest.type = pb.DigestType.MD5
        system.body_digest.checksum = "0" * 32
        yield part

    proxy.answers["ReceiveMessage"] = damaged
    record = json.loads(tail(proxy, "--count", "1", "-o", "jsonl")[0])
    assert record["raw_b64"] == "YWJj"


_CONSUMED = (
    "leave it out: a member receives the messages that its group has not consumed"
)
_FILTERED = (
    "use --tag or --sql: otherwise the group would consume messages that are not shown"
)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--from", "-15m"], _CONSUMED),
        (["--from-queue", "T@b:0=1"], _CONSUMED),
        (["--to", "latest"], _CONSUMED),
        (["--last", "5"], _CONSUMED),
        (["--queue", "0"], _CONSUMED),
        (["--around-group", "h"], _CONSUMED),
        (["--rate", "1/s"], _CONSUMED),
        (["--no-follow"], "use --count, --for or --idle-timeout to end tail"),
        (["--key", "k"], _FILTERED),
        (["--property", "a=b"], _FILTERED),
        (["--grep", "x"], _FILTERED),
        (["--where", "x=1", "--decode", "json"], _FILTERED),
    ],
)
def test_what_a_member_cannot_choose_is_refused(proxy, tail, arguments, hint):
    _, err = tail(proxy, *arguments, code=2)
    assert err == (
        f"error: {arguments[0]} and --group cannot be used together\nhint: {hint}\n"
    )
    assert proxy.requests == []


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (
            ["--store", "."],
            (
                "--store and --endpoints cannot be used together\n"
                "hint: leave out --endpoints: --store reads a folder, not a cluster"
            ),
        ),
        (
            ["-n", "127.0.0.1:1"],
            "--namesrv and --endpoints cannot be used together",
        ),
    ],
)
def test_a_second_place_to_read_from_is_refused(proxy, tail, arguments, error):
    _, err = tail(proxy, *arguments, code=2)
    assert err == f"error: {error}\n"
    assert proxy.requests == []


def test_a_group_needs_a_proxy(capsys):
    assert run(["tail", "T", "-g", "g"]) == 2
    assert "--group needs --endpoints" in capsys.readouterr().err


def test_a_name_server_of_the_environment_reads_without_a_group(
    cluster, capsys, monkeypatch
):
    cluster.send("T", ["x"])
    monkeypatch.setenv("ROCKETMQ_ENDPOINTS", cluster.endpoints)
    monkeypatch.setenv("NAMESRV_ADDR", cluster.namesrv)
    assert run(["tail", "T", "--no-follow", "-o", "raw"]) == 0
    assert capsys.readouterr().out == "x\n"
    # With --group, tail uses the proxy of the environment.
    assert run(["tail", "T", "-g", "g", "--count", "1", "--plaintext"]) == 0
    assert "1 shown, 1 acknowledged" in capsys.readouterr().err


def test_an_interrupt_leaves_a_list_that_has_its_end(proxy, tmp_path):
    give(proxy, b"x")
    words = ["-g", "g", "--endpoints", proxy.endpoints, "--plaintext", "-o", "json"]
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "rmqcli", "tail", "T", *words],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )
    try:
        wait_until(lambda: proxy.asked("AckMessage"), "the ack")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 130
    finally:
        process.kill()
        process.wait(PATIENCE_S)
    (record,) = json.loads((tmp_path / "out").read_text())
    assert record["body"] == "x"
    said = (tmp_path / "err").read_text()
    assert "1 shown, 1 acknowledged\n" in said
