"""When a broker has left the route, the others are not taken for the whole cluster."""

from __future__ import annotations

import json

import pytest

from rmqcli.cli.main import run
from rmqcli.testing import Seed, faults
from tests.admin.lag.test_embedded import commit, lag, pick
from tests.consumer.collecting import Seen, consumer
from tests.kit.waiting import wait_until

__all__ = ["lag"]  # the fixture


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def pair(rmq_cluster_factory):
    """Two brokers; of 100 messages to read, 72 are on broker-b."""
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_topic("orders", queues=2)
    cluster.create_group("billing")
    cluster.send("orders", ["x"] * 28, broker="broker-a")
    cluster.send("orders", ["x"] * 72, broker="broker-b")
    for broker in ("broker-a", "broker-b"):
        commit(cluster, "billing", "orders", {0: 0, 1: 0}, broker=broker)
    return cluster


def rows(group):
    return [pick(q, "broker_name", "queue_id", "state", "lag") for q in group["queues"]]


@pytest.mark.parametrize("named", [["billing"], []])
def test_after_a_run_a_broker_that_left_is_missed(pair, lag, named):
    before, code = lag(pair, *named)
    assert (before["billing"]["total_lag"], code) == (100, 0)
    pair.broker("broker-b").kill()
    found, code = lag(pair, *named)
    group = found["billing"]
    assert pick(group, "state", "total_lag", "known_lag") == ("UNKNOWN", None, 28)
    assert rows(group) == [
        ("broker-a", 0, "KNOWN", 14),
        ("broker-a", 1, "KNOWN", 14),
        ("broker-b", 0, "UNKNOWN", None),
        ("broker-b", 1, "UNKNOWN", None),
    ]
    assert group["reason"].startswith(
        "unknown in 2 of 4 queues: broker-b is no longer in the route; last seen "
    )
    assert group["reason"].endswith(
        " ago; when last read, the group's queues there had 72 unread messages"
    )
    assert group["dead_letters"] is None
    assert code == 6


def test_each_later_run_says_so_too(pair, lag):
    lag(pair, "billing")
    pair.broker("broker-b").kill()
    for _ in range(3):
        found, code = lag(pair, "billing")
        assert (found["billing"]["total_lag"], code) == (None, 6)


def test_the_text_says_when_a_broker_was_seen_and_how_to_forget_it(pair, capsys):
    run(["lag", "billing", "-n", pair.namesrv])
    pair.broker("broker-b").kill()
    capsys.readouterr()
    assert run(["lag", "billing", "-n", pair.namesrv]) == 6
    err = capsys.readouterr().err
    assert "billing: UNKNOWN, lag unknown (unknown in 2 of 4 queues: broker-b" in err
    assert (
        "broker-b: it is no longer in the route; a name server last listed it at 20"
        in err
    )
    assert "if it was removed for good, use --forget" in err


def test_a_broker_that_comes_back_has_its_numbers(pair, lag):
    lag(pair, "billing")
    pair.broker("broker-b").kill()
    lag(pair, "billing")
    pair.broker("broker-b").restart()
    found, code = lag(pair, "billing")
    assert (found["billing"]["total_lag"], code) == (100, 0)


def test_forget_ends_it(pair, lag):
    lag(pair, "billing")
    pair.broker("broker-b").kill()
    for arguments in (["--forget"], []):
        found, code = lag(pair, "billing", *arguments)
        assert (found["billing"]["total_lag"], code) == (28, 0)


def test_without_memory_nothing_is_read_and_nothing_written(pair, lag, tmp_path):
    lag(pair, "billing", "--no-memory")
    assert not (tmp_path / "state").exists()
    lag(pair, "billing")
    pair.broker("broker-b").kill()
    assert lag(pair, "billing", "--no-memory")[0]["billing"]["total_lag"] == 28


def test_a_topic_that_was_not_asked_for_is_not_missed(pair, lag):
    pair.create_topic("other", queues=1)
    lag(pair, "billing")
    pair.broker("broker-b").kill()
    found, code = lag(pair, "billing", "--topic", "other")
    assert ({q["broker_name"] for q in found["billing"]["queues"]}, code) == (
        {"broker-a"},
        0,
    )


def test_a_run_for_one_topic_does_not_forget_the_others(pair, lag):
    pair.create_topic("other", queues=1)
    lag(pair, "billing")
    lag(pair, "billing", "--topic", "other")
    pair.broker("broker-b").kill()
    assert lag(pair, "billing")[0]["billing"]["state"] == "UNKNOWN"


def test_a_topic_that_was_deleted_while_the_broker_lived_is_not_missed(pair, lag):
    lag(pair, "billing")
    core = pair.broker("broker-b").state
    pair.call(lambda: core.topics.delete("orders"))
    pair.call(lambda: core.offsets.delete_topic("orders"))
    lag(pair, "billing")
    pair.broker("broker-b").kill()
    found, code = lag(pair, "billing")
    assert (found["billing"]["known_lag"], code) == (28, 0)


def test_a_group_of_the_lost_broker_alone_is_known(pair, lag):
    core = pair.broker("broker-b").state
    pair.call(lambda: core.offsets.commit("shipping", "orders", 0, 3))
    assert lag(pair, "shipping")[1] == 0
    pair.broker("broker-b").kill()
    for named in (["shipping"], []):
        found, code = lag(pair, *named)
        assert (found["shipping"]["state"], code) == ("UNKNOWN", 6)


def test_another_cluster_behind_the_same_name_server_is_not_missed(pair, lag, tmp_path):
    lag(pair, "billing")
    (path,) = (tmp_path / "state" / "rmqcli" / "lag").glob("*.json")
    notes = json.loads(path.read_text())
    for number, broker in enumerate(notes["brokers"].values()):
        broker["address"] = f"10.0.0.{number}:10911"
    path.write_text(json.dumps(notes))
    pair.broker("broker-b").kill()
    found, code = lag(pair, "billing")
    assert (found["billing"]["total_lag"], code) == (28, 0)


def test_other_name_servers_are_asked_for_brokers(rmq_cluster_factory, lag):
    """The first name server has lost broker-b, the second has not."""
    first, second = rmq_cluster_factory(), rmq_cluster_factory(brokers=2)
    for cluster in (first, second):
        cluster.create_topic("orders", queues=2)
        cluster.create_group("billing")
    first.send("orders", ["x"] * 28)
    second.send("orders", ["x"] * 72, broker="broker-b")
    commit(first, "billing", "orders", {0: 0, 1: 0})
    commit(second, "billing", "orders", {0: 0, 1: 0}, broker="broker-b")
    both = f"{first.namesrv};{second.namesrv}"
    found, code = lag(first, "billing", "-n", both)
    assert (found["billing"]["total_lag"], code) == (100, 0)
    second.broker("broker-b").hang()
    found, code = lag(first, "billing", "-n", both, "--timeout", "700ms")
    assert rows(found["billing"]) == [
        ("broker-a", 0, "KNOWN", 14),
        ("broker-a", 1, "KNOWN", 14),
        ("broker-b", 0, "UNKNOWN", None),
        ("broker-b", 1, "UNKNOWN", None),
    ]
    assert code == 6


def test_a_broker_without_a_master_at_another_name_server_is_reported(
    rmq_cluster_factory, lag
):
    first, second = rmq_cluster_factory(), rmq_cluster_factory(brokers=2)
    for cluster in (first, second):
        cluster.create_topic("orders", queues=1)
        cluster.create_group("billing")
    commit(first, "billing", "orders", {0: 0})
    second.add_slave("broker-b")
    second.fail_over("broker-b")
    both = f"{first.namesrv};{second.namesrv}"
    found, code = lag(first, "billing", "-n", both)
    assert rows(found["billing"]) == [
        ("broker-a", 0, "OK", 0),
        ("broker-b", 0, "UNKNOWN", None),
    ]
    assert found["billing"]["errors"][0]["message"] == (
        "broker-b currently has no master, only slaves"
    )
    assert code == 6


@pytest.mark.slow
def test_a_broker_that_hung_before_it_left_is_missed(pair, lag):
    lag(pair, "billing")
    pair.broker("broker-b").hang()
    assert lag(pair, "billing", "--timeout", "3s")[1] == 6
    pair.broker("broker-b").kill()
    found, code = lag(pair, "billing")
    assert (len(rows(found["billing"])), code) == (4, 6)
    assert found["billing"]["reason"].endswith(
        " ago; when last read, the group's queues there had 72 unread messages"
    )


def test_a_broker_that_refused_before_it_left_is_missed(pair, lag):
    lag(pair, "billing")
    pair.faults.add(faults.answer(1, "no"), code=208, broker="broker-b")
    assert lag(pair, "billing")[1] == 6
    pair.broker("broker-b").kill()
    found, code = lag(pair, "billing")
    assert (len(rows(found["billing"])), code) == (4, 6)


def test_a_run_for_one_group_does_not_forget_the_others(pair, lag):
    pair.create_group("audit")
    lag(pair)
    lag(pair, "audit")
    pair.broker("broker-b").kill()
    assert lag(pair, "billing")[1] == 6


def delete_group(cluster, group):
    for broker in cluster.brokers:
        core = broker.state
        cluster.call(lambda core=core: core.offsets.delete_group(group))
        cluster.call(lambda core=core: core.groups.delete(group))


@pytest.mark.parametrize("named", [["billing"], []])
def test_a_group_that_was_deleted_while_the_broker_lived_is_not_missed(
    pair, lag, named
):
    lag(pair)
    delete_group(pair, "billing")
    assert lag(pair, *named) == ({}, 3 if named else 0)
    pair.broker("broker-b").kill()
    assert lag(pair) == ({}, 0)


@pytest.mark.parametrize("named", [["billing"], []])
def test_a_group_that_was_deleted_while_a_broker_hung_is_not_shown_afterwards(
    pair, lag, named
):
    lag(pair)
    pair.broker("broker-b").hang()
    delete_group(pair, "billing")
    found, code = lag(pair, *named, "--timeout", "500ms")
    assert (found["billing"]["state"], code) == ("UNKNOWN", 6)
    pair.broker("broker-b").resume()
    assert lag(pair, *named) == ({}, 3 if named else 0)
    pair.broker("broker-b").hang()
    assert lag(pair, "--timeout", "500ms") == ({}, 6)


def test_a_name_server_that_is_gone_does_not_matter(pair, lag):
    found, code = lag(pair, "billing", "-n", f"{pair.namesrv};127.0.0.1:1")
    assert (found["billing"]["total_lag"], code) == (100, 0)


def test_queues_that_members_still_hold_are_missed(pair, lag):
    """Members keep a lost broker's queues until they fetch the route again."""
    with consumer(pair, "billing", "orders", Seen()) as member:
        wait_until(
            lambda: sum(queue.topic == "orders" for queue in member.queues()) == 4
        )
        pair.broker("broker-b").kill()
        found, code = lag(pair, "billing", "--no-memory")
    lost = [q for q in found["billing"]["queues"] if q["broker_name"] == "broker-b"]
    assert {pick(q, "topic", "queue_id") for q in lost} >= {
        ("orders", 0),
        ("orders", 1),
    }
    assert {q["state"] for q in lost} == {"UNKNOWN"}
    assert lost[0]["reason"].startswith("broker-b is no longer in the route, but ")
    assert lost[0]["reason"].endswith(" still holds the queue")
    assert code == 6


@pytest.fixture
def half_gone(pair, capfd):
    """The pair of brokers after `rmq lag`, without broker-b."""
    run(["lag", "billing", "-n", pair.namesrv])
    pair.broker("broker-b").kill()
    capfd.readouterr()
    return pair


@pytest.mark.parametrize(
    ("flags", "misses"),
    [
        ([], True),
        (["--queue", "0"], True),
        (["--queue", "broker-a:0"], False),
        (["--where", "broker_name = 'broker-a'"], False),
    ],
)
def test_tail_misses_queues_that_groups_had_on_a_broker_that_left(
    half_gone, capfd, flags, misses
):
    """It said that nothing was missing, although half of the topic was not read."""
    words = ["tail", "orders", "--from", "earliest", "--to", "latest", *flags]
    code = run([*words, "-n", half_gone.namesrv])
    err = capfd.readouterr().err
    assert code == (6 if misses else 0), err
    assert ("28 read, broker-b not read" in err) == (misses and not flags)
    assert ("broker-b is no longer in the route (last seen " in err) == misses
    assert ("nothing missing" in err) == (not misses)


@pytest.mark.parametrize(
    ("flags", "is_sure"),
    [
        ([], False),
        (["--queue", "0"], False),
        (["--queue", "broker-a:0"], True),
        (["--where", "broker_name = 'broker-a'"], True),
    ],
)
def test_a_topic_that_no_group_reads_may_have_been_on_a_broker_that_left(
    half_gone, capfd, flags, is_sure
):
    """It said that nothing was missing, although half of the topic was not read."""
    half_gone.create_topic("payments")
    words = ["tail", "payments", "--from", "earliest", "--to", "latest", *flags]
    assert run([*words, "-n", half_gone.namesrv]) == 0
    err = capfd.readouterr().err
    assert ("0 read, nothing missing\n" in err) == is_sure
    assert ("0 read, nothing missing on the brokers that are left\n" in err) != is_sure
    assert (
        "warning: broker-b is no longer in the route (last seen " in err
        and "): what it may have of the topic is not read; if it was removed for good:"
        " rmq lag --forget\n"
        in err
    ) != is_sure
    run(["lag", "--forget", "-n", half_gone.namesrv])
    capfd.readouterr()
    assert run([*words, "-n", half_gone.namesrv]) == 0
    assert "0 read, nothing missing\n" in capfd.readouterr().err


def test_a_message_that_may_be_on_a_broker_that_left_is_not_called_unknown(
    half_gone, capfd
):
    """It said that no broker has such a message (3)."""
    gone = "7F0000010000000000000000000000AB"
    words = ["message", "show", gone, "--topic", "orders"]
    assert run([*words, "-n", half_gone.namesrv]) == 6
    err = capfd.readouterr().err
    assert "broker-b did not answer: it is no longer in the route" in err


def test_a_key_may_have_more_messages_on_a_broker_that_left_and_an_id_more_groups(
    half_gone, capfd
):
    seed = Seed(body=b"x", keys=["order-4"])
    (sent,) = half_gone.send("orders", [seed], broker="broker-a")
    words = ["message", "find", "orders", "--key", "order-4"]
    assert run([*words, "-n", half_gone.namesrv]) == 6
    err = capfd.readouterr().err
    assert "1 found by the index" in err
    assert "broker-b did not answer: it is no longer in the route" in err
    words = ["message", "show", sent.msg_id, "--topic", "orders", "-o", "json"]
    assert run([*words, "-n", half_gone.namesrv]) == 6
    out, err = capfd.readouterr()
    assert [row["msg_id"] for row in json.loads(out)] == [sent.msg_id]
    assert "broker-b did not answer: it is no longer in the route" in err


def test_a_key_of_a_topic_that_no_group_reads_may_be_on_a_broker_that_left_too(
    half_gone, capfd
):
    """It said "1 found by the index", and nothing of the broker."""
    half_gone.create_topic("payments")
    half_gone.send("payments", [Seed(body=b"x", keys=["k"])], broker="broker-a")
    words = ["message", "find", "payments", "--key", "k", "-n", half_gone.namesrv]
    assert run(words) == 0
    err = capfd.readouterr().err
    assert "1 found by the index\n" in err
    assert "warning: broker-b is no longer in the route (last seen " in err
    assert (
        "): what it may have of the topic is not searched; if it was removed for good:"
        " rmq lag --forget\n" in err
    )
    run(["lag", "--forget", "-n", half_gone.namesrv])
    capfd.readouterr()
    assert run(words) == 0
    assert "broker-b" not in capfd.readouterr().err


@pytest.mark.parametrize("words", ["topics", "groups", "brokers", "topics --all"])
def test_lists_say_that_a_broker_has_left_and_how_to_forget_it(half_gone, capfd, words):
    command = [*words.split(), "-n", half_gone.namesrv]
    for _ in range(2):
        assert run(command) == 0
        err = capfd.readouterr().err
        assert "warning: broker-b is no longer in the route (last seen " in err
        assert "rmq lag --forget" in err
    run(["lag", "--forget", "-n", half_gone.namesrv])
    capfd.readouterr()
    assert run(command) == 0
    assert "broker-b" not in capfd.readouterr().err
