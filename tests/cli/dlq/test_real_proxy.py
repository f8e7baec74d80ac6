"""`rmq dlq` and groups that consume through a real proxy, by POP."""

from __future__ import annotations

import json
import uuid

import pytest

from rmqcli import Admin, ReceivedMessage, SimpleConsumer
from rmqcli.cli.main import run
from rmqcli.config import ClientConfig
from tests.admin.dlq.letters import kill

pytestmark = [
    pytest.mark.java,
    pytest.mark.rmq_versions("5.3.3", "5.5.0"),
    pytest.mark.real_only,
]


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def proxy(local_proxy):
    return local_proxy


def rmq(capfd, *words, code=0):
    capfd.readouterr()
    assert run([*words]) == code
    out, err = capfd.readouterr()
    return out, err


def test_letters_of_a_pop_group_name_their_topic_and_can_be_sent_again(proxy, capfd):
    topic = proxy.create_topic(queues=1)
    group = f"g-{uuid.uuid4().hex[:12]}"
    with Admin(namesrv=proxy.namesrv) as admin:
        admin.create_group(group, retry_max_times=1)
    grpc = ["--endpoints", proxy.endpoints, "--plaintext"]
    remoting = ["-n", proxy.namesrv, "-o", "json"]
    rmq(capfd, "send", topic, "a", "--tag", "T", *grpc)
    fail = ["consume", topic, "-g", group, "--exec", "false", "--max-failures", "2"]
    rmq(capfd, *fail, *grpc, code=1)
    out, _ = rmq(capfd, "dlq", "show", group, "--from", "earliest", *remoting)
    (row,) = json.loads(out)
    assert (row["body"], row["origin_topic"], row["tags"]) == ("a", topic, "T")
    out, _ = rmq(capfd, "dlq", "list", *remoting)
    counts = {each["group"]: each["count"] for each in json.loads(out)}
    assert counts[group] == 1
    do = ["dlq", "redrive", group, "--execute", "--yes", *remoting]
    _, err = rmq(capfd, *do, "--to", "retry", code=7)
    assert "groups that consume by POP or gRPC do not" in err
    out, _ = rmq(capfd, *do)
    assert json.loads(out)["sent"] == 1
    out, _ = rmq(capfd, "consume", topic, "-g", group, "--count", "1", *grpc)
    assert "RMQ_REDRIVEN_FROM" in out


def test_letters_of_message_groups_go_back_to_the_queues_that_the_proxy_chose(
    proxy, capfd
):
    topic = proxy.create_topic(queues=4, attributes="+message.type=FIFO")
    group = f"g-{uuid.uuid4().hex[:12]}"
    with Admin(namesrv=proxy.namesrv) as admin:
        admin.create_group(group, retry_max_times=0, consume_message_orderly=True)
    grpc = ["--endpoints", proxy.endpoints, "--plaintext"]
    for name in ("a", "c"):
        words = ["--count", "3", "--message-group", name]
        rmq(capfd, "send", topic, name, *words, *grpc)
    fail = ["consume", topic, "-g", group, "--orderly", "--exec", "false"]
    rmq(capfd, *fail, "--max-failures", "6", *grpc, code=1)
    do = ["dlq", "redrive", group, "--execute", "--yes", "-n", proxy.namesrv]
    rmq(capfd, *do)
    with Admin(namesrv=proxy.namesrv) as admin:
        places = sorted((m.queue_id, m.queue_offset, m.body) for m in admin.read(topic))
    assert places == [
        *((0, offset, b"a") for offset in range(6)),
        *((2, offset, b"c") for offset in range(6)),
    ]


def test_of_a_pop_group_nothing_is_flushed_and_the_reason_is_told(proxy, capfd):
    """Neither what POP holds, nor a retry: copies would stay in a topic not read."""
    topic = proxy.create_topic(queues=1)
    group = f"g-{uuid.uuid4().hex[:12]}"
    with Admin(namesrv=proxy.namesrv) as admin:
        admin.create_group(group)
    grpc = ["--endpoints", proxy.endpoints, "--plaintext"]
    flush = ["retry", "flush", group, "--execute", "--yes", "-n", proxy.namesrv]
    for body in "ab":
        rmq(capfd, "send", topic, body, *grpc)
    config = ClientConfig(endpoints=(proxy.endpoints,), plaintext=True)
    with SimpleConsumer(group, topic, client=config) as popping:
        found: list[ReceivedMessage] = []
        while not found:
            found = popping.receive(1, invisible_duration_ms=600_000, await_ms=1_000)
        _, err = rmq(capfd, *flush, code=7)
        assert "what POP has handed out (1 message) waits for an ack" in err
        with Admin(namesrv=proxy.namesrv) as admin:
            sent = list(admin.read(topic))
        kill(proxy, group, topic, sent, delay_level=18)
        out, _ = rmq(capfd, *flush, "-o", "json")
        done = json.loads(out)
        assert (done["count"], done["sent"], done["pop_inflight"]) == (0, 0, 1)
        (skipped,) = done["skipped"]
        assert skipped["count"] == 2
        assert skipped["reason"] == (
            f"the group consumes by POP and has committed nothing in %RETRY%{group},"
            " so nothing shows that it reads that topic"
        )
        with Admin(namesrv=proxy.namesrv) as admin:
            assert list(admin.read(f"%RETRY%{group}")) == []
        popping.ack(found)
