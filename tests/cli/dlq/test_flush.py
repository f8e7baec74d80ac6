"""`rmq retry flush` delivers what waits now, once, and says what comes again."""

from __future__ import annotations

import itertools
import json

import pytest

from rmqcli import (
    Admin,
    LocalTransactionState,
    MessageQueue,
    Producer,
    ProducerMessage,
    ReceivedMessage,
    SimpleConsumer,
)
from rmqcli.api.calls.client import lock_batch_mq
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.broker import faults
from rmqcli.cli.main import run
from rmqcli.redrive import flush as flush_module
from rmqcli.wire.codes import RequestCode
from tests.admin.dlq.letters import client_of, kill
from tests.consumer.collecting import Seen, consumer
from tests.kit.waiting import wait_until

#: Of five minutes, by the default levels.
LEVEL = 9


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def cluster(rmq_cluster_factory):
    cluster = rmq_cluster_factory(queues=1)
    cluster.create_topic("orders")
    for group in ("billing", "audit"):
        cluster.create_group(group, retry_max_times=5)
    return cluster


def fail(cluster, *bodies, group="billing", topic="orders", level=LEVEL, **fields):
    """Let a group fail to consume a message of each body; return them as sent.

    Brokers take turns.
    """
    with Producer(namesrv=cluster.namesrv) as producer:
        queues = itertools.cycle(producer.queues(topic))
        sent = [
            producer.send(
                ProducerMessage(topic, body.encode(), **fields), queue=next(queues)
            )
            for body in bodies
        ]
    kill(cluster, group, topic, sent, delay_level=level)
    return sent


def rmq(cluster, capsys, *words):
    capsys.readouterr()
    code = run([*words, "-n", cluster.namesrv, "-o", "json"])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else None, " ".join(err.split())


def flush(cluster, capsys, *words, group="billing"):
    return rmq(cluster, capsys, "retry", "flush", group, *words)


def execute(cluster, capsys, *words):
    return flush(cluster, capsys, *words, "--execute", "--yes")


def copies(cluster, group="billing"):
    """What is in the retry topic of a group."""
    with Admin(namesrv=cluster.namesrv) as admin:
        return list(admin.read(f"%RETRY%{group}"))


def test_a_plan_changes_nothing_and_says_that_each_message_comes_again(cluster, capsys):
    fail(cluster, "a", "b", keys="k")
    code, plan, err = flush(cluster, capsys)
    assert code == 0, err
    (topic,) = plan["topics"]
    assert (topic["topic"], topic["count"], topic["undated"]) == ("orders", 2, 0)
    assert topic["oldest"] < topic["next_at"] <= topic["last_at"]
    assert (plan["mode"], plan["count"], plan["second_deliveries"]) == ("plan", 2, 2)
    assert (plan["skipped"], plan["members"]) == ([], 0)
    assert "it delivers each again at its time" in err
    assert "listeners must tolerate a second delivery of 2 messages" in err
    assert "no member of group billing is connected" in err
    assert "add --execute to store the copies" in err
    assert copies(cluster) == []


def test_a_copy_is_as_the_broker_delivers_the_original(cluster, capsys):
    """Java's broker keeps DELAY, which would delay the copy that a client sends."""
    (original,) = fail(cluster, "b", keys="k", tags="T", level=1)
    wait_until(lambda: len(copies(cluster)) == 1)
    (sent,) = fail(cluster, "a", keys="k", tags="T", properties={"who": "me"})
    code, done, err = execute(cluster, capsys, "--topic", "orders", "--limit", "9")
    assert (code, done["sent"], done["failed"]) == (0, 1, []), err
    found = {message.body: message for message in copies(cluster)}
    copy, delivered = found[b"a"], found[b"b"]
    assert (copy.reconsume_times, copy.msg_id) == (1, sent.msg_id)
    assert (delivered.reconsume_times, delivered.msg_id) == (1, original.msg_id)
    assert copy.queue_id == delivered.queue_id == 0
    properties = copy.properties
    assert properties.pop("RMQ_FLUSHED_FROM") == f"broker-a:{LEVEL - 1}:0"
    assert properties["RETRY_TOPIC"] == "orders"
    assert properties["ORIGIN_MESSAGE_ID"] == sent.offset_msg_id
    assert properties["who"] == "me"
    assert "DELAY" not in properties
    assert set(properties) - {"who"} == set(delivered.properties) - {"WAIT", "DELAY"}


def test_a_member_gets_each_message_now_under_its_own_topic(cluster, capsys):
    first, second = fail(cluster, "a", "b")
    seen = Seen()
    with consumer(cluster, "billing", "orders", seen):
        wait_until(lambda: len(seen.messages) == 2)  # from the topic itself
        code, done, err = execute(cluster, capsys)
        assert (code, done["sent"], done["members"]) == (0, 2, 1), err
        assert "no member" not in err
        wait_until(lambda: len(seen.messages) == 4)
    assert sorted((m.msg_id, m.topic, m.reconsume_times) for m in seen.messages) == [
        (first.msg_id, "orders", 0),
        (first.msg_id, "orders", 1),
        (second.msg_id, "orders", 0),
        (second.msg_id, "orders", 1),
    ]


def test_what_was_flushed_is_not_flushed_twice_unasked(cluster, capsys):
    fail(cluster, "a")
    assert execute(cluster, capsys)[1]["sent"] == 1
    code, done, err = execute(cluster, capsys)
    assert (code, done["count"], done["sent"]) == (0, 0, 0), err
    (skipped,) = done["skipped"]
    assert (skipped["reason"], skipped["count"], skipped["example"]) == (
        "flushed before; the original still waits",
        1,
        f"broker-a:{LEVEL - 1}:0",
    )
    assert len(copies(cluster)) == 1
    fail(cluster, "b")
    assert execute(cluster, capsys)[1]["sent"] == 1
    assert execute(cluster, capsys, "--again")[1]["sent"] == 2
    assert sorted(m.body for m in copies(cluster)) == [b"a", b"a", b"b", b"b"]


def test_a_copy_that_failed_again_needs_to_be_asked_for(cluster, capsys):
    fail(cluster, "a")
    execute(cluster, capsys)
    (copy,) = copies(cluster)
    kill(cluster, "billing", "%RETRY%billing", [copy], delay_level=LEVEL)
    _, plan, _ = flush(cluster, capsys)
    assert {each["reason"]: each["count"] for each in plan["skipped"]} == {
        "flushed before; the original still waits": 1,
        "failed again after a flush": 1,
    }
    code, done, err = execute(cluster, capsys, "--again")
    assert (code, done["sent"]) == (0, 2), err
    assert sorted(m.reconsume_times for m in copies(cluster)) == [1, 1, 2]
    names = [m.properties["RMQ_FLUSHED_FROM"] for m in copies(cluster)]
    assert sorted(names) == ["broker-a:8:0", "broker-a:8:0", "broker-a:8:1"]


def test_message_and_retry_show_know_the_copy(cluster, capsys):
    (sent,) = fail(cluster, "a")
    execute(cluster, capsys)
    _, rows, _ = rmq(cluster, capsys, "retry", "show", "billing")
    assert sorted((r["place"], r["attempt"], r["topic"]) for r in rows) == [
        ("delay", 2, "orders"),
        ("retry", 2, "orders"),
    ]
    assert {row["msg_id"] for row in rows} == {sent.msg_id}
    show = ["message", "show", sent.msg_id, "-t", "orders", "-g", "billing"]
    code, (message,), err = rmq(cluster, capsys, *show)
    (found,) = message["groups"]
    assert (code, found["verdict"], found["attempt"]) == (0, "in_retry", 2), err


def test_a_copy_that_dies_is_a_dead_letter_that_can_be_redriven(cluster, capsys):
    fail(cluster, "a")
    execute(cluster, capsys)
    (copy,) = copies(cluster)
    kill(cluster, "billing", "%RETRY%billing", [copy])
    _, (letter,), _ = rmq(cluster, capsys, "dlq", "show", "billing")
    assert (letter["origin_topic"], letter["deliveries"]) == ("orders", 2)
    code, done, err = rmq(
        cluster, capsys, "dlq", "redrive", "billing", "--execute", "--yes"
    )
    assert (code, done["sent"]) == (0, 1), err
    with Admin(namesrv=cluster.namesrv) as admin:
        redriven = [m for m in admin.read("orders") if m.reconsume_times == 0][-1]
    assert "RMQ_REDRIVEN_FROM" in redriven.properties
    assert "RMQ_FLUSHED_FROM" not in redriven.properties


def test_other_groups_and_topics_and_more_than_a_limit_stay(cluster, capsys):
    cluster.create_topic("bills")
    fail(cluster, "a", "b", "c", level=LEVEL)
    fail(cluster, "d", topic="bills", level=LEVEL - 1)
    fail(cluster, "e", group="audit")
    _, plan, _ = flush(cluster, capsys)
    assert {t["topic"]: t["count"] for t in plan["topics"]} == {"orders": 3, "bills": 1}
    _, plan, err = flush(cluster, capsys, "--topic", "bills")
    assert [t["topic"] for t in plan["topics"]] == ["bills"]
    assert "only messages with --topic bills" in err
    code, done, err = execute(cluster, capsys, "--limit", "2")
    assert (code, done["sent"]) == (0, 2), err
    assert [(e["reason"], e["count"]) for e in done["skipped"]] == [
        ("not among those that come next, by the limit", 2)
    ]
    assert sorted(m.body for m in copies(cluster)) == [b"a", b"d"]
    assert copies(cluster, "audit") == []


def test_a_compressed_body_arrives_as_it_was(cluster, capsys):
    fail(cluster, "x" * 10_000)
    assert execute(cluster, capsys)[1]["sent"] == 1
    (copy,) = copies(cluster)
    assert copy.body == b"x" * 10_000
    assert len(copy.raw_body) < 1_000


def test_without_a_confirmation_nothing_is_changed(cluster, capsys):
    fail(cluster, "a")
    code, _, err = flush(cluster, capsys, "--execute")
    assert code == 7, err
    assert "not confirmed: nothing was changed" in err
    assert "it delivers each again at its time" in err
    assert copies(cluster) == []


def test_where_nothing_waits_that_is_said(cluster, capsys):
    code, plan, err = flush(cluster, capsys)
    assert (code, plan["count"], plan["log"]) == (0, 0, None), err
    assert "nothing of group billing waits in a delay level" in err
    assert "what orderly consumers retry waits in the consumers" in err
    fail(cluster, "a")
    execute(cluster, capsys)
    code, done, _ = execute(cluster, capsys)
    assert (code, done["sent"]) == (0, 0)
    code, _, err = flush(cluster, capsys, "--topic", "nowhere")
    assert (code, "topic nowhere does not exist" in err) == (3, True), err
    code, _, err = flush(cluster, capsys, group="nobody")
    assert (code, "group nobody does not exist" in err) == (3, True), err


def test_what_pop_has_handed_out_is_refused_with_the_reason(cluster, capsys):
    cluster.send("orders", ["a"])
    with SimpleConsumer(
        "billing", "orders", namesrv=cluster.namesrv, consume_from="earliest"
    ) as popping:
        found: list[ReceivedMessage] = []
        while not found:
            found = popping.receive(1, invisible_duration_ms=3_600_000, await_ms=1_000)
        code, _, err = flush(cluster, capsys)
        assert code == 7, err
        assert "what POP has handed out (1 message) waits for an acknowledgement" in err
        fail(cluster, "b")
        code, done, err = execute(cluster, capsys)
        assert (code, done["sent"], done["skipped"][0]["count"]) == (0, 0, 1), err
        assert done["skipped"][0]["reason"].startswith(
            "the group consumes by POP and has committed nothing in %RETRY%billing"
        )
        assert copies(cluster) == []
        popping.ack(found)


def test_a_message_that_came_due_is_left_to_its_broker(cluster, capsys):
    """Level 1 is a second: between plan and run it came, or it is due in the plan."""
    fail(cluster, "a", level=1)
    code, done, err = execute(cluster, capsys)
    assert code == 0, err
    wait_until(lambda: len(copies(cluster)) == 1 + done["sent"])
    marked = [m for m in copies(cluster) if "RMQ_FLUSHED_FROM" in m.properties]
    assert len(marked) == done["sent"]


@pytest.mark.parametrize("fault", [faults.disconnect(), faults.answer(16, "no")])
def test_what_waits_on_a_broker_that_is_silent_or_denies_is_flushed_later(
    rmq_cluster_factory, capsys, fault
):
    cluster = rmq_cluster_factory(brokers=2, queues=1)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    fail(cluster, *"abcdefgh")
    cluster.faults.add(fault, broker="broker-b")
    code, plan, err = flush(cluster, capsys)
    assert (code, plan["unread"][0]["broker"]) == (6, "broker-b"), err
    assert "not all that waits on broker-b can be flushed" in err
    code, done, err = execute(cluster, capsys)
    assert (code, done["sent"], done["unread"][0]["broker"]) == (6, 4, "broker-b"), err
    cluster.faults.clear()
    assert len(copies(cluster)) == 4
    code, done, err = execute(cluster, capsys)
    assert (code, done["sent"], done["skipped"][0]["count"]) == (0, 4, 4), err
    assert sorted(m.body for m in copies(cluster)) == [b"%c" % c for c in b"abcdefgh"]


def test_a_message_of_a_transaction_is_copied_as_a_normal_one(cluster, capsys):
    """With TRAN_MSG the broker would keep the copy as a half message."""
    commit = LocalTransactionState.COMMIT_MESSAGE
    with Producer(
        "shop", namesrv=cluster.namesrv, on_check=lambda _message: commit
    ) as shop:
        shop.send_in_transaction(ProducerMessage("orders", b"a"), lambda *_: commit)
    with Admin(namesrv=cluster.namesrv) as admin:
        (sent,) = admin.read("orders")
    assert sent.properties["TRAN_MSG"] == "true"
    kill(cluster, "billing", "orders", [sent], delay_level=LEVEL)
    code, done, err = execute(cluster, capsys)
    assert (code, done["sent"]) == (0, 1), err
    (copy,) = copies(cluster)
    assert (copy.body, "TRAN_MSG" in copy.properties) == (b"a", False)


def test_messages_of_a_topic_that_the_group_consumes_by_pop_stay(cluster, capsys):
    """A group that has moved to POP does not read its retry topic any more."""
    cluster.create_topic("bills")
    fail(cluster, "a")
    fail(cluster, "b", topic="bills")
    cluster.create_topic("%RETRY%billing_bills")
    with client_of(cluster) as client:
        call = update_consumer_offset(
            "billing", "%RETRY%billing_bills", 0, commit_offset=0
        )
        client.invoke(cluster.broker().address, call)
    code, done, err = execute(cluster, capsys)
    assert (code, done["sent"]) == (0, 1), err
    (skipped,) = done["skipped"]
    assert skipped["reason"] == (
        "the group consumes bills by POP, and does not read %RETRY%billing; brokers"
        " take nothing for the retry topics of POP"
    )
    assert [m.body for m in copies(cluster)] == [b"a"]


def test_a_broker_of_which_only_a_slave_answers_is_named(rmq_cluster_factory, capsys):
    """The slave may be behind, and takes no copies; the other broker's are flushed."""
    cluster = rmq_cluster_factory(brokers=2, queues=1)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    fail(cluster, "a", "b")
    cluster.add_slave("broker-b", behind=0)
    cluster.broker("broker-b").kill()
    code, _, err = flush(cluster, capsys)
    assert (code, "broker-b" in err) == (6, True), err
    code, done, err = execute(cluster, capsys)
    assert (code, done["sent"]) == (6, 1), err
    code, done, err = execute(cluster, capsys)
    assert (code, done["sent"]) == (6, 0), err
    assert "nothing of group billing waits" not in err


def test_a_broker_of_4_6_does_not_show_what_waits(rmq_cluster_factory, capsys):
    cluster = rmq_cluster_factory(queues=1, like="4.6.0")
    cluster.create_topic("orders")
    cluster.create_group("billing")
    fail(cluster, "a")
    code, plan, err = flush(cluster, capsys, "--execute", "--yes")
    assert plan is None
    assert "does not show the 1 message of all topics" in err
    assert code == 1, err
    assert copies(cluster) == []


def test_a_copy_that_a_broker_makes_a_dead_letter_ends_the_flush(cluster, capsys):
    """As brokers do from 5.1.1 on while the group holds locks of queues."""
    fail(cluster, "a", "b", "c")
    with client_of(cluster) as client:
        call = lock_batch_mq("billing", "c", [MessageQueue("orders", "broker-a", 0)])
        client.invoke(cluster.broker().address, call)
    code, done, err = execute(cluster, capsys)
    assert (code, done["sent"], copies(cluster)) == (7, 0, []), err
    (failed,) = done["failed"]
    assert (failed["message"], failed["status"]) == ("broker-a:8:0", "DEAD_AGAIN")
    assert "broker-a stored a copy in %DLQ%billing instead of %RETRY%billing" in err
    assert "the original still waits" in err
    with Admin(namesrv=cluster.namesrv) as admin:
        assert len(list(admin.read("%DLQ%billing"))) == 1


def test_a_copy_without_an_answer_is_named_and_stored_by_the_next_flush(
    cluster, capsys
):
    fail(cluster, "a", "b")
    cluster.faults.add(faults.drop_answer(), code=RequestCode.SEND_MESSAGE_V2, times=1)
    code, done, err = execute(cluster, capsys, "--timeout", "500ms")
    assert code == 6, err
    assert "1 message may or may not have been sent" in err
    _, plan, err = flush(cluster, capsys)
    assert (plan["doubtful_count"], plan["doubtful"]) == (1, ["broker-a:8:0"])
    assert "may have been sent already by a flush that was interrupted" in err
    code, done, err = execute(cluster, capsys)
    assert (code, done["sent"]) == (0, 2), err
    assert sorted(m.body for m in copies(cluster)) == [b"a", b"a", b"b"]


def test_where_a_broker_hides_its_delays_messages_are_flushed_without_a_time(
    cluster, capsys
):
    fail(cluster, "a")
    denied = faults.answer(16, "no rights")
    cluster.faults.add(denied, code=RequestCode.GET_BROKER_CONFIG)
    code, done, err = execute(cluster, capsys)
    assert (code, done["sent"]) == (0, 1), err
    (topic,) = done["topics"]
    assert (topic["next_at"], topic["last_at"], topic["undated"]) == (None, None, 1)
    assert "when 1 original will come is not known" in err


def test_a_message_whose_copy_would_be_too_large_stays(cluster, capsys, monkeypatch):
    """A broker leaves more room than that; another limit stands for such a message."""
    monkeypatch.setattr(flush_module, "PROPERTIES_BYTES_MAX", 1_500)
    fail(cluster, "a", properties={"long": "x" * 900})
    fail(cluster, "b")
    code, done, _ = execute(cluster, capsys)
    (skipped,) = done["skipped"]
    assert (code, done["sent"], skipped["count"]) == (0, 1, 1)
    assert "its properties would need 1," in skipped["reason"]


def test_a_table_has_a_row_for_each_topic_and_reason(cluster, capsys):
    fail(cluster, "a", "b")
    assert execute(cluster, capsys, "--limit", "1")[0] == 0
    assert run(["retry", "flush", "billing", "-n", cluster.namesrv]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0][:3] == ["ACTION", "COUNT", "TOPIC"]
    assert [line[:3] for line in lines[1:]] == [
        ["flush", "1", "orders"],
        ["skip", "1", "-"],
    ]


def test_the_log_of_a_redrive_is_refused(cluster, capsys, tmp_path):
    fail(cluster, "a")
    log = tmp_path / "log.jsonl"
    assert execute(cluster, capsys, "--log", str(log))[1]["sent"] == 1
    sent = fail(cluster, "b", level=-1)
    assert sent
    code, _, err = rmq(cluster, capsys, "dlq", "redrive", "billing", "--log", str(log))
    assert (code, "is the log of a flush, not of a redrive" in err) == (7, True), err
