"""`rmq retry show` finds what waits for a group, and when each message comes next."""

from __future__ import annotations

import json
from datetime import datetime

import pytest

from rmqcli import Producer, ProducerMessage, ReceivedMessage, SimpleConsumer
from rmqcli.broker import faults
from rmqcli.cli.main import run
from rmqcli.wire.codes import RequestCode
from tests.admin.dlq.letters import kill


@pytest.fixture
def cluster(rmq_cluster_factory):
    cluster = rmq_cluster_factory(queues=1)
    cluster.create_topic("orders")
    for group in ("billing", "audit"):
        cluster.create_group(group, retry_max_times=5)
    return cluster


def send(cluster, *bodies):
    with Producer(namesrv=cluster.namesrv) as producer:
        return [
            producer.send(ProducerMessage("orders", body.encode(), keys=body))
            for body in bodies
        ]


def shown(cluster, capsys, *words, group="billing"):
    capsys.readouterr()
    code = run(["retry", "show", group, "-n", cluster.namesrv, "-o", "json", *words])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else None, err


def test_a_failed_message_waits_in_its_delay_level_until_it_is_due(cluster, capsys):
    (sent,) = send(cluster, "a")
    kill(cluster, "billing", "orders", [sent], delay_level=0)
    code, rows, err = shown(cluster, capsys)
    assert code == 0, err
    (row,) = rows
    assert (row["place"], row["topic"], row["keys"]) == ("delay", "orders", "a")
    assert (row["attempt"], row["attempts_max"]) == (2, 6)
    assert row["msg_id"] == sent.msg_id
    waits = datetime.fromisoformat(row["next_at"]) - datetime.fromisoformat(
        row["store_timestamp"]
    )
    assert waits.total_seconds() == 10  # level 3
    assert "1 in delay levels, 0 in the retry topic" in err
    assert shown(cluster, capsys, group="%RETRY%billing")[1] == rows


def test_a_copy_has_the_same_number_of_deliveries_as_in_message_show(cluster, capsys):
    (sent,) = send(cluster, "a")
    kill(cluster, "billing", "orders", [sent], delay_level=0)
    (row,) = shown(cluster, capsys)[1]
    show = ["message", "show", sent.msg_id, "-t", "orders", "-g", "billing"]
    assert run([*show, "-n", cluster.namesrv, "-o", "json"]) == 0
    ((verdict,),) = [each["groups"] for each in json.loads(capsys.readouterr().out)]
    for name in ("attempt", "attempts_max"):
        assert row[name] == verdict[name] == {"attempt": 2, "attempts_max": 6}[name]


def test_a_limit_that_deliveries_have_passed_is_not_shown(cluster, capsys):
    """After max-retries was lowered, both commands said delivery 2 of 1."""
    (sent,) = send(cluster, "a")
    kill(cluster, "billing", "orders", [sent], delay_level=0)
    update = ["group", "update", "billing", "--max-retries", "0", "--yes"]
    assert run([*update, "-n", cluster.namesrv]) == 0
    (row,) = shown(cluster, capsys)[1]
    show = ["message", "show", sent.msg_id, "-t", "orders", "-g", "billing"]
    assert run([*show, "-n", cluster.namesrv, "-o", "json"]) == 0
    ((verdict,),) = [each["groups"] for each in json.loads(capsys.readouterr().out)]
    for found in (row, verdict):
        assert (found["attempt"], found["attempts_max"]) == (2, None)


def test_messages_of_other_groups_and_other_delays_are_not_shown(cluster, capsys):
    first, second = send(cluster, "a", "b")
    kill(cluster, "audit", "orders", [first], delay_level=0)
    kill(cluster, "billing", "orders", [second], delay_level=4)
    with Producer(namesrv=cluster.namesrv) as producer:
        producer.send(ProducerMessage("orders", b"later", delay_level=3))
    _, rows, _ = shown(cluster, capsys)
    assert [(row["keys"], row["queue"]) for row in rows] == [
        ("b", "SCHEDULE_TOPIC_XXXX@broker-a:3")
    ]
    _, rows, _ = shown(cluster, capsys, group="audit")
    assert [row["keys"] for row in rows] == ["a"]


def test_what_is_in_the_retry_topic_comes_now(cluster, capsys):
    cluster.create_topic("%RETRY%billing", queues=1)
    for body in "xyz":
        cluster.send("%RETRY%billing", [body])
    code, rows, err = shown(cluster, capsys, "--limit", "2")
    assert code == 0, err
    assert [(row["place"], row["next_at"]) for row in rows] == [("retry", None)] * 2
    counts = "0 in delay levels, 3 in the retry topic, 0 in retry topics of POP\n"
    assert err == f"{counts}1 more not shown; see --limit\n"
    assert run(["retry", "show", "billing", "-n", cluster.namesrv, "--limit", "3"]) == 0
    out, err = capsys.readouterr()
    assert err == counts
    table = [line.split() for line in out.splitlines()]
    assert (" ".join(table[0]), len(table)) == (
        "NEXT PLACE DELIVERY OF TOPIC MSG ID KEYS QUEUE",
        4,
    )
    place = ["now", "retry", "1", "6", "-"]
    assert [(row[:5], row[6:]) for row in table[1:]] == [
        (place, ["-", "%RETRY%billing@broker-a:0"])
    ] * 3


def test_what_pop_has_handed_out_is_counted_also_out_of_a_retry_topic(
    rmq_cluster_factory, capsys
):
    cluster = rmq_cluster_factory(queues=1)
    cluster.create_topic("orders", queues=1)
    cluster.create_group("billing")
    cluster.send("orders", ["a", "b", "c"])
    found: list[ReceivedMessage] = []

    def receive(count, invisible_ms):
        found.clear()
        while len(found) < count:
            found.extend(
                consumer.receive(8, invisible_duration_ms=invisible_ms, await_ms=1_000)
            )

    with SimpleConsumer("billing", "orders", namesrv=cluster.namesrv) as consumer:
        receive(3, 1_000)
        receive(3, 3_600_000)
        code, rows, err = shown(cluster, capsys)
        assert (code, rows) == (0, []), err
        assert "3 messages handed out by POP come back unless acknowledged, " in err
        assert run(["retry", "show", "billing", "-n", cluster.namesrv]) == 0
        assert "nothing waits in a topic" in "".join(capsys.readouterr())
        consumer.ack(found)
        _, _, err = shown(cluster, capsys)
        assert "POP come" not in err


def test_what_pop_has_handed_out_may_be_denied(cluster, capsys):
    """The exit code was 0, as if nothing could come back from there."""
    denied = faults.answer(16, "no rights")
    cluster.faults.add(denied, code=RequestCode.GET_CONSUME_STATS)
    code, rows, err = shown(cluster, capsys)
    assert (code, rows) == (6, [])
    assert "how many messages POP has handed out is not known: " in err
    assert "no rights" in err


def test_where_a_broker_denies_its_settings_it_is_not_known_when_messages_are_due(
    cluster, capsys
):
    """`retry show` and `delayed` showed no time and no reason, with exit code 0."""
    (sent,) = send(cluster, "a")
    kill(cluster, "billing", "orders", [sent], delay_level=5)
    with Producer(namesrv=cluster.namesrv) as producer:
        producer.send(ProducerMessage("orders", b"b", delay_level=5))
    denied = faults.answer(16, "no rights")
    cluster.faults.add(denied, code=RequestCode.GET_BROKER_CONFIG)
    code, (row,), err = shown(cluster, capsys)
    assert (code, row["place"], row["next_at"]) == (6, "delay", None)
    assert "when messages in delay levels are due is not known" in err
    assert run(["delayed", "orders", "-n", cluster.namesrv]) == 6
    assert "which were not shown by broker-a" in " ".join(
        capsys.readouterr().err.split()
    )


def test_where_the_retry_topic_is_denied_the_delay_levels_are_shown(cluster, capsys):
    """They were not read, and nothing said so."""
    (sent,) = send(cluster, "a")
    kill(cluster, "billing", "orders", [sent], delay_level=0)
    denied = faults.answer(16, "no permission")
    cluster.faults.add(denied, code=202, topic="%RETRY%billing")
    code, rows, err = shown(cluster, capsys)
    assert (code, [row["place"] for row in rows]) == (6, ["delay"])
    assert "at least 1 in delay levels" in err
    assert "what waits on broker-a is not known: " in err
    assert "%RETRY%billing" in err


def test_where_nothing_waits_that_is_said(cluster, capsys):
    assert run(["retry", "show", "billing", "-n", cluster.namesrv]) == 0
    assert capsys.readouterr() == (
        "",
        (
            "nothing waits\n"
            "0 in delay levels, 0 in the retry topic, 0 in retry topics of POP\n"
        ),
    )


def test_a_group_that_does_not_exist_is_not_found(cluster, capsys):
    code, _, err = shown(cluster, capsys, group="nobody")
    assert code == 3
    assert "group nobody does not exist" in err


def test_a_silent_broker_is_named(rmq_cluster_factory, capsys):
    cluster = rmq_cluster_factory(brokers=2, queues=1)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    cluster.faults.add(faults.disconnect(), broker="broker-b")
    code, rows, err = shown(cluster, capsys)
    assert (code, rows) == (6, [])
    assert "what waits on broker-b is not known" in err


def test_a_broker_that_does_not_show_its_delay_levels_is_named(
    rmq_cluster_factory, capsys
):
    cluster = rmq_cluster_factory(queues=1, like="4.6.0")
    cluster.create_topic("orders")
    cluster.create_group("billing")
    (sent,) = send(cluster, "a")
    kill(cluster, "billing", "orders", [sent], delay_level=0)
    code, rows, err = shown(cluster, capsys)
    assert (code, rows) == (6, [])
    assert "what waits on broker-a is not known" in err
