"""`rmq message trace`, and the traces that `rmq send` and `rmq consume` write."""

from __future__ import annotations

import json

import pytest

from rmqcli.cli.main import run
from rmqcli.testing import Seed, faults
from rmqcli.trace.codec import encode_records
from rmqcli.trace.record import (
    ConsumeReturnType,
    Pub,
    SubAfter,
    SubBefore,
    TraceMessageType,
    TraceRecord,
)
from rmqcli.trace.setting import TRACE_TOPIC
from rmqcli.wire.codes import RequestCode

T0 = 1_700_000_000_000


@pytest.fixture
def rmq(rmq_cluster, capsys):
    """Run a command; return its exit code, stdout and stderr."""

    def run_(*words):
        capsys.readouterr()
        code = run([*words, "-n", rmq_cluster.namesrv])
        return code, *capsys.readouterr()

    return run_


@pytest.fixture
def told(rmq_cluster):
    """The id of a message of orders, which failed once in group billing."""
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.create_topic(TRACE_TOPIC)
    (seeded,) = rmq_cluster.send("orders", ["x"])
    common = {"region_id": None, "group": "billing", "msg_id": seeded.msg_id}
    records: list[TraceRecord] = [
        Pub(
            **{**common, "group": "shop"},
            timestamp_ms=T0,
            topic="orders",
            tags=None,
            keys=None,
            store_host=None,
            body_bytes=1,
            cost_ms=3,
            message_type=TraceMessageType.Delay_Msg,
            offset_msg_id=None,
            is_success=True,
        ),
        SubBefore(
            **common, timestamp_ms=T0 + 20, request_id="r1", retry_times=0, keys=None
        ),
        SubAfter(
            request_id="r1",
            msg_id=seeded.msg_id,
            cost_ms=2,
            is_success=False,
            keys=None,
            return_type=ConsumeReturnType.FAILED,
            timestamp_ms=T0 + 22,
            group="billing",
        ),
        SubBefore(
            **common, timestamp_ms=T0 + 90, request_id="r2", retry_times=1, keys=None
        ),
    ]
    body = encode_records(records).encode()
    rmq_cluster.send(TRACE_TOPIC, [Seed(body=body, keys=[seeded.msg_id])])
    return seeded.msg_id


def test_the_table_is_a_timeline(rmq, told):
    code, out, err = rmq("message", "trace", told)
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert lines[0] == f"message {told} of orders"
    assert lines[2].split() == [
        *("AT", "EVENT", "STATUS", "GROUP", "CLIENT", "COST", "DETAIL")
    ]
    tail = ("attempt", "1,", "FAILED")
    assert [line.split()[1:] for line in lines[3:6]] == [
        ["produced", "success", "shop", "127.0.0.1", "3ms", "Delay_Msg"],
        ["delivered", "failed", "billing", "127.0.0.1", "2ms", *tail],
        ["delivered", "no_end", "billing", "127.0.0.1", "-", "attempt", "2"],
    ]
    assert lines[6].split()[1:4] == ["stored", "stored", "-"]
    assert "orders@broker-a:0:0" in lines[6]
    assert (lines[1], lines[7:]) == ("", [""])


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--topic", ""], "error: the topic's name is empty\n"),
        (
            ["--trace-topic", ""],
            (
                "error: --trace-topic is empty\n"
                "hint: leave it out for RMQ_SYS_TRACE_TOPIC\n"
            ),
        ),
    ],
)
def test_an_empty_topic_is_refused(rmq, words, error):
    assert rmq("message", "trace", "k", *words) == (2, "", error)


def test_json_has_the_same_keys_for_each_event(rmq, told):
    code, out, _ = rmq("message", "trace", told, "-o", "json")
    (trace,) = json.loads(out)
    assert code == 0
    assert sorted(trace) == [
        "errors",
        "events",
        "missing",
        "msg_id",
        "topic",
        "trace_topic",
        "unreadable",
    ]
    assert trace["events"][0] == {
        "at": "2023-11-14T22:13:20.000Z",
        "event": "produced",
        "status": "success",
        "group": "shop",
        "client_host": "127.0.0.1",
        "cost_ms": 3,
        "attempt": None,
        "return_type": None,
        "message_type": "Delay_Msg",
        "is_from_check": None,
        "where": None,
    }
    assert len({tuple(each) for each in trace["events"]}) == 1
    assert (trace["missing"], trace["unreadable"], trace["errors"]) == ([], 0, [])
    assert json.loads(rmq("message", "trace", told, "-o", "jsonl")[1]) == trace


def test_a_message_that_nobody_has_reported_is_no_empty_table(rmq, rmq_cluster, told):
    (seeded,) = rmq_cluster.send("orders", ["y"])
    code, out, err = rmq("message", "trace", seeded.msg_id)
    assert code == 3
    *_, before, missing, last = out.splitlines()
    assert (before, last) == ("", "")
    assert missing.startswith("missing: producer: no report of the send: traces are")
    assert err == (
        f"error: no client has reported anything about {seeded.msg_id} to"
        " RMQ_SYS_TRACE_TOPIC\n"
        f"hint: what brokers know: rmq message show {seeded.msg_id}\n"
    )
    code, out, err = rmq("message", "trace", seeded.msg_id, "-o", "json")
    (trace,) = json.loads(out)
    assert (code, trace["events"][0]["event"]) == (3, "stored")
    (gap,) = trace["missing"]
    assert (gap.pop("reason") in missing, gap) == (
        True,
        {"part": "producer", "group": None},
    )


def test_a_broker_that_does_not_tell_whether_it_has_traces_is_named(rmq, rmq_cluster):
    rmq_cluster.create_topic("orders")
    (seeded,) = rmq_cluster.send("orders", ["x"])
    rmq_cluster.faults.add(faults.answer(1, "no"), code=RequestCode.GET_BROKER_CONFIG)
    code, out, err = rmq("message", "trace", seeded.msg_id)
    assert (code, out) == (3, "")
    assert "a trace there; the settings of broker-a are not known" in err


def test_a_cluster_without_traces_says_so(rmq, rmq_cluster, rmq_topic):
    (seeded,) = rmq_cluster.send(rmq_topic, ["x"])
    code, out, err = rmq("message", "trace", seeded.msg_id)
    assert (code, out) == (3, "")
    assert err.splitlines() == [
        (
            "error: topic RMQ_SYS_TRACE_TOPIC does not exist, so no client has written"
            " a trace there"
        ),
        (
            "hint: switch traces on in clients; for traces in another topic:"
            " --trace-topic TOPIC"
        ),
    ]


def test_a_broker_that_does_not_answer_is_named(rmq, rmq_cluster, told):
    rmq_cluster.faults.add(
        faults.answer(1, "the disk is full"),
        code=RequestCode.QUERY_MESSAGE,
        topic=TRACE_TOPIC,
    )
    code, out, err = rmq("message", "trace", told, "--topic", "orders")
    assert code == 6
    assert "broker-a did not answer" in err
    assert "no answer" in out


def test_text_of_reports_reaches_the_terminal_escaped(rmq, rmq_cluster, told):
    record = SubBefore(
        timestamp_ms=T0,
        region_id=None,
        group="\x1b[31mevil\n",
        request_id="r",
        msg_id=told,
        retry_times=0,
        keys=None,
    )
    seed = Seed(body=encode_records([record]).encode(), keys=[told])
    rmq_cluster.send(TRACE_TOPIC, [seed])
    _, out, _ = rmq("message", "trace", told)
    assert "\x1b" not in out
    assert "evil" in out


def test_what_send_and_consume_report_is_shown(rmq, rmq_cluster):
    rmq_cluster.create_topic("orders", queues=1)
    code, out, _ = rmq(
        *("send", "orders", "hello", "--key", "k1", "--trace", "-o", "jsonl")
    )
    assert code == 0
    msg_id = json.loads(out)["msg_id"]
    code, _, _ = rmq(
        *("consume", "orders", "--group", "billing", "--from", "earliest"),
        *("--count", "1", "--trace"),
    )
    assert code == 0
    code, out, _ = rmq("message", "trace", msg_id, "-o", "json")
    (trace,) = json.loads(out)
    assert (code, trace["missing"]) == (0, [])
    assert [(e["event"], e["status"], e["group"]) for e in trace["events"]] == [
        ("produced", "success", "CLIENT_INNER_PRODUCER"),
        ("stored", "stored", None),
        ("delivered", "success", "billing"),
    ]


@pytest.mark.parametrize(
    "words", [("send", "orders", "x"), ("consume", "orders", "--group", "billing")]
)
def test_through_a_proxy_no_traces_are_written(capsys, words):
    assert run([*words, "--trace", "--endpoints", "127.0.0.1:1"]) == 2
    err = capsys.readouterr().err
    assert "--trace and --endpoints cannot be used together" in err
