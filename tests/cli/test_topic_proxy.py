"""`rmq topic show --endpoints`: keys that a proxy does not report are null."""

from __future__ import annotations

import json

import pytest

from rmqcli.cli.main import run
from rmqcli.wire.protobuf import definition_pb2 as pb
from rmqcli.wire.protobuf import service_pb2 as service
from tests.kit.proxy.scripted import OK, ScriptedProxy


@pytest.fixture(autouse=True)
def no_addresses(monkeypatch):
    for name in ("ROCKETMQ_ENDPOINTS", "NAMESRV_ADDR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def cluster(rmq_cluster_factory):
    return rmq_cluster_factory(proxy=True)


@pytest.fixture
def proxy():
    with ScriptedProxy() as made:
        yield made


def shown(server, capsys, *flags):
    """Run `rmq topic show T`, and return its JSON."""
    words = ["--endpoints", server.endpoints, "--plaintext", "-o", "json"]
    assert run(["topic", "show", "T", *words, *flags]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_keys_are_those_of_a_name_server_s_answer(cluster, capsys):
    cluster.create_topic("T", queues=2, attributes={"message.type": "FIFO"})
    found = shown(cluster, capsys)
    assert run(["topic", "show", "T", "-n", cluster.namesrv, "-o", "json"]) == 0
    known = json.loads(capsys.readouterr().out)
    assert list(found) == list(known)
    assert list(found["brokers"][0]) == list(known["brokers"][0])
    assert list(found["queues"][0]) == list(known["queues"][0])
    same = ("topic", "kind", "message_type")
    assert {name: found[name] for name in same} == {
        "topic": "T",
        "kind": "normal",
        "message_type": "FIFO",
    }
    assert found["groups"] is None
    (broker,) = found["brokers"]
    assert {name: value for name, value in broker.items() if value is not None} == {
        "broker_name": "broker-a",
        "read_queue_nums": 2,
        "write_queue_nums": 2,
        "perm": "rw",
        "route_perm": "rw",
    }
    assert found["queues"] == [
        {
            "broker_name": "broker-a",
            "queue_id": number,
            "min_offset": None,
            "max_offset": None,
            "messages": None,
            "last_update": None,
        }
        for number in range(2)
    ]


@pytest.mark.parametrize(
    ("types", "text"),
    [
        ([], None),
        (["MESSAGE_TYPE_UNSPECIFIED"], None),
        (["DELAY"], "DELAY"),
        (["NORMAL", "FIFO"], "NORMAL/FIFO"),
        (["NORMAL", "FIFO", "DELAY", "TRANSACTION"], "MIXED"),
    ],
)
def test_message_types(proxy, capsys, types, text):
    def route(request, _context):
        answer = service.QueryRouteResponse(status=OK)
        queue = proxy.queue(request.topic.name, 0)
        del queue.accept_message_types[:]
        queue.accept_message_types.extend(map(pb.MessageType.Value, types))
        answer.message_queues.append(queue)
        return answer

    proxy.answers["QueryRoute"] = route
    assert shown(proxy, capsys)["message_type"] == text


def test_queues_that_are_only_read_or_written(proxy, capsys):
    def route(request, _context):
        answer = service.QueryRouteResponse(status=OK)
        for number, permission in enumerate((pb.READ_WRITE, pb.READ, pb.READ)):
            queue = proxy.queue(request.topic.name, number)
            queue.permission = permission
            answer.message_queues.append(queue)
        return answer

    proxy.answers["QueryRoute"] = route
    (broker,) = shown(proxy, capsys)["brokers"]
    assert (broker["read_queue_nums"], broker["write_queue_nums"]) == (3, 1)
    assert broker["perm"] == "rw"


def test_it_leaves_no_client_behind(proxy, capsys):
    shown(proxy, capsys)
    assert [name for name, _, _ in proxy.requests] == ["QueryRoute"]


def test_the_table_says_what_is_not_known(cluster, capsys):
    cluster.create_topic("T", queues=2)
    words = ["--endpoints", cluster.endpoints, "--plaintext"]
    assert run(["topic", "show", "T", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "topic T: NORMAL, 2 queues",
        "offsets and groups: unknown, because a proxy does not report them",
    ]


def test_a_topic_that_does_not_exist(cluster, capsys):
    words = ["--endpoints", cluster.endpoints, "--plaintext"]
    assert run(["topic", "show", "Nope", *words]) == 3
    assert capsys.readouterr().err == (
        "error: topic Nope does not exist\n"
        "hint: a proxy creates no topics; create it with: rmq topic create; if it was"
        " there, check that its brokers run\n"
    )
    assert run(["topic", "show", "Nope", *words, "-v"]) == 3
    assert f"{cluster.endpoints} answered TOPIC_NOT_FOUND: " in capsys.readouterr().err


def test_name_servers_of_the_environment_tell_more(cluster, capsys, monkeypatch):
    cluster.create_topic("T", queues=1)
    monkeypatch.setenv("NAMESRV_ADDR", cluster.namesrv)
    monkeypatch.setenv("ROCKETMQ_ENDPOINTS", cluster.endpoints)
    assert run(["topic", "show", "T", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["groups"] == []
    assert shown(cluster, capsys)["groups"] is None
    monkeypatch.delenv("NAMESRV_ADDR")
    assert run(["topic", "show", "T", "-o", "json", "--plaintext"]) == 0
    assert json.loads(capsys.readouterr().out)["groups"] is None
