"""`rmq send --endpoints` sends through a proxy, and refuses what a proxy cannot do."""

from __future__ import annotations

import io
import json
import sys

import grpc
import pytest

from rmqcli.broker import faults
from rmqcli.cli.main import run
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.protobuf import definition_pb2 as pb
from rmqcli.wire.protobuf import service_pb2 as service
from tests.kit.proxy.scripted import OK, ScriptedProxy, status
from tests.producer.stored import bodies


@pytest.fixture
def proxy():
    with ScriptedProxy() as made:
        yield made


@pytest.fixture
def rmq(proxy, capsys, monkeypatch):
    """Runs a command with the proxy's endpoints; returns exit code, stdout, stderr."""

    def call(*arguments, stdin=b"", plaintext=True, endpoints=None):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        common = ["--endpoints", endpoints or proxy.endpoints]
        code = run([*arguments, *common, *(["--plaintext"] if plaintext else [])])
        return code, *capsys.readouterr()

    return call


def rows(out):
    return [json.loads(line) for line in out.splitlines()]


def sent(proxy):
    return [each for request in proxy.asked("SendMessage") for each in request.messages]


def test_lines_go_in_one_batch_and_have_an_outcome_each(rmq, proxy):
    code, out, err = rmq("send", "orders", "--lines", "-", "-o", "jsonl", stdin=b"a\nb")
    assert code == 0
    assert [each.body for each in sent(proxy)] == [b"a", b"b"]
    found = rows(out)
    ids = [each.system_properties.message_id for each in sent(proxy)]
    assert [each["msg_id"] for each in found] == ids
    assert [each["queue_offset"] for each in found] == [0, 1]
    assert [each["source"] for each in found] == ["stdin line 1", "stdin line 2"]
    assert {each["status"] for each in found} == {"SEND_OK"}
    assert {each["queue_id"] for each in found} == {None}
    assert "2 sent, 0 failed" in err


def test_a_body_above_the_limit_is_named_by_its_line(rmq, proxy):
    lines = b"a\n" + b"x" * 4_194_305 + b"\n"
    code, _, err = rmq("send", "orders", "--lines", "-", stdin=lines)
    assert code == 6
    assert (
        "stdin line 2: a body of 4194305 bytes is larger than the 4194304 that the"
        " proxy allows;"
    ) in err
    assert "1 message before it is sent, and nothing from there on" in err


def test_tags_keys_and_properties_arrive(rmq, proxy):
    options = ["--tag", "Paid", "--key", "a", "--key", "b", "--property", "x=y"]
    assert rmq("send", "orders", "hello", *options)[0] == 0
    (found,) = sent(proxy)
    system = found.system_properties
    assert (system.tag, list(system.keys)) == ("Paid", ["a", "b"])
    assert dict(found.user_properties) == {"x": "y"}


def test_a_record_s_own_properties_are_left_behind(rmq, proxy):
    record = {"body": "x", "keys": "k", "properties": {"UNIQ_KEY": "1", "a": "b"}}
    line = json.dumps(record).encode()
    assert rmq("send", "orders", "--jsonl", "-", stdin=line)[0] == 0
    (found,) = sent(proxy)
    assert dict(found.user_properties) == {"a": "b"}
    assert list(found.system_properties.keys) == ["k"]


def test_a_delay_and_a_message_group_are_of_kinds_of_their_own(rmq, proxy):
    assert rmq("send", "orders", "x", "--delay", "90s")[0] == 0
    assert rmq("send", "orders", "x", "--message-group", "g")[0] == 0
    delayed, ordered = (each.system_properties for each in sent(proxy))
    assert delayed.message_type == pb.MessageType.DELAY
    wait = delayed.delivery_timestamp.seconds - delayed.born_timestamp.seconds
    assert wait == 90
    assert (ordered.message_type, ordered.message_group) == (pb.MessageType.FIFO, "g")


def test_messages_of_a_group_are_sent_one_by_one(rmq, proxy):
    """A proxy stores a batch in any queue, so that the group was in several of them."""
    options = ["--message-group", "g", "--count", "20"]
    assert rmq("send", "orders", "x", *options)[0] == 0
    assert [len(each.messages) for each in proxy.asked("SendMessage")] == [1] * 20


def test_a_record_of_a_fifo_topic_keeps_its_message_group(rmq, proxy):
    properties = {"__SHARDINGKEY": "g", "a": "b"}
    line = json.dumps({"body": "x", "properties": properties}).encode() + b"\n"
    assert rmq("send", "orders", "--jsonl", "-", stdin=line * 2)[0] == 0
    assert len(proxy.asked("SendMessage")) == 2
    for found in sent(proxy):
        system = found.system_properties
        assert (system.message_type, system.message_group) == (pb.MessageType.FIFO, "g")
        assert dict(found.user_properties) == {"a": "b"}


def test_a_record_of_a_priority_topic_keeps_its_priority(rmq, proxy):
    lines = b"".join(
        json.dumps({"body": n, "properties": {"_SYS_MSG_PRIORITY_": n}}).encode()
        + b"\n"
        for n in ("3", "0")
    )
    assert rmq("send", "orders", "--jsonl", "-", stdin=lines)[0] == 0
    assert len(proxy.asked("SendMessage")) == 2
    found = {each.body: each.system_properties for each in sent(proxy)}
    for body, priority in ((b"3", 3), (b"0", 0)):
        assert found[body].message_type == pb.MessageType.PRIORITY
        assert found[body].HasField("priority")
        assert found[body].priority == priority
    assert [dict(each.user_properties) for each in sent(proxy)] == [{}, {}]


def test_a_priority_that_is_no_number_is_left_to_the_proxy(rmq, proxy):
    line = json.dumps({"body": "x", "properties": {"_SYS_MSG_PRIORITY_": "+1"}})
    assert rmq("send", "orders", "--jsonl", "-", stdin=line.encode())[0] == 0
    (found,) = sent(proxy)
    assert found.system_properties.message_type == pb.MessageType.NORMAL
    assert dict(found.user_properties) == {"_SYS_MSG_PRIORITY_": "+1"}


@pytest.mark.slow
def test_a_proxy_that_stays_away_is_named_as_such(rmq, proxy):
    def answer(request, context):
        if request.messages[0].body != b"a":
            context.abort(grpc.StatusCode.UNAVAILABLE, "Stream removed")
        found = service.SendMessageResponse(status=OK)
        found.entries.add(status=OK)
        return found

    proxy.answers["SendMessage"] = answer
    options = ["--lines", "-", "--message-group", "g", "--timeout", "100ms"]
    code, _, err = rmq("send", "orders", *options, stdin=b"a\nb\nc\n")
    assert code == 6
    assert "warning: gave up: no proxy can be reached; " in err


def test_an_old_proxy_gets_message_by_message(rmq, proxy):
    proxy.answers["SyncLiteSubscription"] = lambda _request, context: context.abort(
        grpc.StatusCode.UNIMPLEMENTED, ""
    )
    code, out, _ = rmq(
        "send", "orders", "--lines", "-", "-o", "jsonl", stdin=b"a\nb\nc"
    )
    assert (code, len(rows(out))) == (0, 3)
    assert len(proxy.asked("SendMessage")) == 3


def test_a_message_at_fault_fails_alone(rmq, proxy):
    def answer(request, _context):
        bodies = [each.body for each in request.messages]
        if b"bad" in bodies:
            return service.SendMessageResponse(status=status("ILLEGAL_MESSAGE_TAG"))
        found = service.SendMessageResponse(status=OK)
        for _ in bodies:
            found.entries.add(status=OK)
        return found

    proxy.answers["SendMessage"] = answer
    code, out, err = rmq(
        "send", "orders", "--lines", "-", "-o", "jsonl", stdin=b"a\nbad\nc"
    )
    assert code == 6
    assert [each["status"] for each in rows(out)] == [
        "SEND_OK",
        "ILLEGAL_MESSAGE_TAG",
        "SEND_OK",
    ]
    said, error = err.splitlines()
    assert said == "2 sent, 1 failed"
    assert json.loads(error)["error"]["message"] == (
        f"1 of 3 messages is not stored: message {rows(out)[1]['msg_id']} to topic"
        f" orders: {proxy.endpoints} answered ILLEGAL_MESSAGE_TAG"
    )


def test_a_call_that_was_cut_is_unknown_and_not_repeated(rmq, proxy):
    proxy.answers["SendMessage"] = lambda _request, context: context.abort(
        grpc.StatusCode.UNAVAILABLE, "going down"
    )
    code, out, err = rmq("send", "orders", "x", "-o", "jsonl")
    assert code == 5
    assert [each["status"] for each in rows(out)] == ["UNKNOWN"]
    assert len(sent(proxy)) == 1
    assert "may or may not be stored" in err


def test_lines_are_stored_once_when_a_proxy_loses_its_broker(rmq, rmq_cluster_factory):
    """They were sent again, stored twice and called sent."""
    cluster = rmq_cluster_factory(proxy=True)
    cluster.create_topic("orders")
    for request in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
        cluster.faults.next(faults.disconnect(is_handled=True), code=request)
    code, out, err = rmq(
        *("send", "orders", "--lines", "-", "-o", "jsonl"),
        stdin=b"a\nb\nc\nd\n",
        endpoints=cluster.endpoints,
    )
    assert bodies(cluster, "orders") == [b"a", b"b", b"c", b"d"]
    assert code == 5
    assert [each["status"] for each in rows(out)] == ["UNKNOWN"] * 4
    assert "warning: 4 messages may or may not be stored" in err
    assert "not stored" not in err


def test_a_topic_that_does_not_exist(rmq, proxy):
    proxy.missing = {"ordres"}
    code, out, err = rmq("send", "ordres", "x")
    assert (code, out) == (3, "")
    assert err == (
        "error: topic ordres does not exist\n"
        "hint: a proxy creates no topics; create it with: rmq topic create; if it was"
        " there, check that its brokers run\n"
    )


def test_nobody_listens(rmq):
    code, out, err = rmq("send", "orders", "x", endpoints="127.0.0.1:1")
    assert (code, out) == (5, "")
    assert err.splitlines()[0] == (
        "error: cannot connect to 127.0.0.1:1: connection refused"
    )


def test_tls_to_a_proxy_without_it_is_said_in_two_lines(rmq, proxy):
    code, out, err = rmq("send", "orders", "x", plaintext=False)
    assert (code, out) == (5, "")
    assert err.splitlines() == [
        (
            f"error: TLS handshake with {proxy.endpoints} failed: the peer does not"
            " speak TLS"
        ),
        "hint: a proxy without TLS needs --plaintext",
    ]


_INSTEAD_OF_QUEUES = "a proxy chooses the queue; use --message-group to keep an order"


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (
            ["--queue", "1"],
            "--queue and --endpoints cannot be used together",
            _INSTEAD_OF_QUEUES,
        ),
        (
            ["--shard-by", "id"],
            "--shard-by and --endpoints cannot be used together",
            _INSTEAD_OF_QUEUES,
        ),
        (
            ["--create"],
            "--create and --endpoints cannot be used together",
            "a proxy creates no topics; create it with: rmq topic create",
        ),
        (
            ["--trace"],
            "--trace and --endpoints cannot be used together",
            "traces are written over name servers only",
        ),
        (
            ["--delay", "3"],
            "a proxy has no delay levels",
            "give a time, e.g. --delay 10s",
        ),
        (
            ["-n", "127.0.0.1:9876"],
            "--namesrv and --endpoints cannot be used together",
            None,
        ),
        (["--tls"], "--plaintext and --tls cannot be used together", None),
    ],
)
def test_what_does_not_go_together(rmq, proxy, arguments, error, hint):
    code, out, err = rmq("send", "orders", "x", *arguments)
    assert (code, out) == (2, "")
    assert err == f"error: {error}\n" + (f"hint: {hint}\n" if hint else "")
    assert sent(proxy) == []


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (
            ["--plaintext"],
            (
                "--plaintext needs --endpoints\n"
                "hint: connections to name servers and brokers use TLS only with --tls"
            ),
        ),
        (
            ["--message-group", "g"],
            (
                "--message-group needs --endpoints\n"
                "hint: use --shard-by FIELD with name servers"
            ),
        ),
    ],
)
def test_options_of_a_proxy_need_one(capsys, monkeypatch, arguments, error):
    monkeypatch.delenv("ROCKETMQ_ENDPOINTS", raising=False)
    assert run(["send", "orders", "x", *arguments]) == 2
    assert capsys.readouterr().err == f"error: {error}\n"


def test_endpoints_may_come_from_the_environment(rmq_cluster, proxy, monkeypatch):
    rmq_cluster.create_topic("orders")
    monkeypatch.setenv("ROCKETMQ_ENDPOINTS", proxy.endpoints)
    monkeypatch.setenv("NAMESRV_ADDR", rmq_cluster.namesrv)
    assert run(["send", "orders", "x", "--plaintext"]) == 0
    assert len(sent(proxy)) == 1
    # --namesrv takes precedence over the environment's proxy.
    assert run(["send", "orders", "x", "-n", rmq_cluster.namesrv]) == 0
    assert len(sent(proxy)) == 1
