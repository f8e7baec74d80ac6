"""Delayed messages: what waits, when it is due, and what does not wait any more."""

from __future__ import annotations

import json

import pytest

from rmqcli import Admin, ClientConfig, Producer, ProducerMessage
from rmqcli.admin import delayed
from rmqcli.admin.delayed import DelayedMessage, DelayedMessages
from rmqcli.api.calls.producer import recall_message
from rmqcli.api.client import Client
from rmqcli.broker.cluster.seeding import Seed
from rmqcli.cli.main import run
from rmqcli.clock import SYSTEM_CLOCK, SystemClock
from rmqcli.errors import NotFoundError, PartialError
from rmqcli.model import MessageQueue
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.recall_handle import RecallHandle, encode_recall_handle
from tests.admin.doctor.planting import plant_runtime, plant_settings
from tests.kit.waiting import wait_until


@pytest.fixture
def start(rmq_cluster_factory):
    def start_(like="5.5.0", **settings):
        cluster = rmq_cluster_factory(like=like, settings=settings)
        cluster.create_topic("orders")
        cluster.create_topic("other")
        return cluster

    return start_


class HourAhead(SystemClock):
    """The clock of a machine that is an hour ahead of the broker's."""

    def epoch_ms(self) -> int:
        return super().epoch_ms() + 3_600_000


def send(cluster, body, topic="orders", **delay):
    with Producer(namesrv=cluster.namesrv) as producer:
        return producer.send(ProducerMessage(topic, body.encode(), keys=body, **delay))


def keys(found):
    return [each.keys for each in found.messages]


@pytest.mark.parametrize("like", ["5.5.0", "4.9.7"])
def test_levels_above_those_of_rocketmq_are_read_too(start, like):
    """Brokers refuse to have such queues pulled, and the rest was left out."""
    levels = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h 12h 1d"
    cluster = start(like=like, message_delay_level=levels)
    for body, level in (("hours", "19"), ("day", "20"), ("next", "20")):
        arguments = ["send", "orders", body, "--key", body, "--delay", level]
        assert run([*arguments, "-n", cluster.namesrv]) == 0
    if like == "5.5.0":
        send(cluster, "timer", delay_ms=3_600_000)
    with Admin(namesrv=cluster.namesrv) as admin:
        found = admin.delayed("orders")
    assert found.errors == {}
    wanted = ["timer"] * (like == "5.5.0") + ["hours", "day", "next"]
    assert keys(found) == wanted
    assert [(e.level, e.queue_offset) for e in found.messages][-2:] == [
        (20, 0),
        (20, 1),
    ]


def test_what_waits_in_a_level_that_was_removed_is_shown(start):
    """It waits for ever, and nothing seemed to wait."""
    cluster = start()
    send(cluster, "stuck", delay_level=18)
    plant_settings(cluster, messageDelayLevel="1s 5s 10s")
    with Admin(namesrv=cluster.namesrv) as admin:
        found = admin.delayed("orders")
        (message,) = admin.find_messages("stuck", topic="orders", pending=True).messages
        stored = admin.message_outcome(message).stored
    (waiting,) = found.messages
    assert (waiting.keys, waiting.level, waiting.due_ms) == ("stuck", 18, None)
    assert (stored.state, stored.next_at_ms, stored.reason) == (
        "delayed",
        None,
        "messageDelayLevel of the broker does not have it",
    )


def test_levels_and_times_are_listed_by_when_they_are_due(start):
    cluster = start()
    with Admin(namesrv=cluster.namesrv) as admin:
        assert admin.delayed("orders").count == 0
        now_ms = SYSTEM_CLOCK.epoch_ms()
        send(cluster, "hour", delay_ms=3_000_000)
        send(cluster, "level", delay_level=5)  # 1 min
        send(cluster, "elsewhere", topic="other", delay_level=9)
        send(cluster, "at", deliver_at_ms=now_ms + 500_000)
        found = admin.delayed("orders")
        assert keys(found) == ["level", "at", "hour"]
        assert [each.level for each in found.messages] == [5, None, None]
        assert (found.count, found.overdue, found.errors) == (3, 0, {})
        assert found.within == {60_000: 1, 600_000: 1, 3_600_000: 1}
        level, at, _ = found.messages
        assert level.due_ms == level.stored_ms + 60_000
        assert now_ms + 498_000 <= (at.due_ms or 0) <= now_ms + 500_000
        assert keys(admin.delayed("orders", limit=1)) == ["level"]
        with pytest.raises(NotFoundError):
            admin.delayed("never")


def test_what_is_overdue_is_told_by_the_broker_s_clock(start):
    cluster = start()
    send(cluster, "level", delay_level=9)  # 5 min
    send(cluster, "time", delay_ms=3_000_000)
    with Admin(namesrv=cluster.namesrv, clock=HourAhead()) as admin:
        found = admin.delayed("orders")
    assert (found.overdue, found.within) == (0, {600_000: 1, 3_600_000: 1})
    (note,) = found.notes.items()
    assert note[0] == "broker-a"
    assert "behind this machine's; using the broker's" in note[1]


@pytest.mark.slow
def test_what_was_delivered_waits_no_longer(start):
    cluster = start()
    send(cluster, "soon", delay_ms=1_000)
    send(cluster, "later", delay_ms=3_000_000)
    with Admin(namesrv=cluster.namesrv) as admin:
        wait_until(lambda: [each.keys for each in admin.read("orders")] == ["soon"])
        assert keys(admin.delayed("orders")) == ["later"]


def test_a_recalled_message_waits_no_longer(start):
    cluster = start(recall_message_enable=True, append_topic_for_timer_delete_key=True)
    sent = send(cluster, "recalled", delay_ms=3_000_000)
    send(cluster, "kept", delay_ms=3_000_000)
    config = ClientConfig(namesrv=(cluster.namesrv,))
    with Admin(namesrv=cluster.namesrv) as admin, Client(config) as client:
        assert admin.delayed("orders").count == 2
        due_ms = admin.delayed("orders").messages[0].due_ms
        handle = encode_recall_handle(
            RecallHandle(
                topic="orders",
                broker_name="broker-a",
                timestamp_ms=str((due_ms or 0) + 1),
                message_id=sent.msg_id,
            )
        )
        address = cluster.broker("broker-a").address
        assert client.invoke(address, recall_message("orders", handle)) == sent.msg_id
        assert keys(admin.delayed("orders")) == ["kept"]


def record(keys, *, due_ms, **properties):
    """A record of the timer topic, of a message to `orders`."""
    more = {"REAL_TOPIC": "orders", "REAL_QID": "0", "TIMER_OUT_MS": str(due_ms)}
    return Seed(body=b"x", keys=keys, properties=more | properties)


def test_messages_with_one_unique_key_are_counted_as_stored(start):
    """Two were counted as one, which a broker that writes it again makes of one."""
    cluster = start()
    due_ms = (SYSTEM_CLOCK.epoch_ms() // 1_000 + 3_000) * 1_000
    for seed in (
        record("one", due_ms=due_ms, UNIQ_KEY="AA"),
        record("other", due_ms=due_ms, UNIQ_KEY="AA"),
        record("later", due_ms=due_ms + 60_000, UNIQ_KEY="AA"),
        record("one", due_ms=due_ms, UNIQ_KEY="AA", TIMER_ROLL_TIMES="1"),
        record("far", due_ms=due_ms + 90_000, UNIQ_KEY="BB", TIMER_ROLL_TIMES="7"),
        record("one", due_ms=due_ms, UNIQ_KEY="AA", TIMER_ROLL_TIMES="2"),
        record("far", due_ms=due_ms + 90_000, UNIQ_KEY="BB", TIMER_ROLL_TIMES="8"),
    ):
        cluster.send("rmq_sys_wheel_timer", [seed], queue_id=0)
    with Admin(namesrv=cluster.namesrv) as admin:
        found = admin.delayed("orders")
        assert keys(found) == ["other", "one", "later", "far"]
        assert found.count == 4


def test_a_message_that_was_sent_twice_waits_twice(start):
    cluster = start()
    seed = Seed(
        body=b"x", keys="k", properties={"UNIQ_KEY": "AA", "TIMER_DELAY_MS": "3000000"}
    )
    for _ in range(2):
        cluster.send("orders", [seed], queue_id=0)
    with Admin(namesrv=cluster.namesrv) as admin:
        assert keys(admin.delayed("orders")) == ["k", "k"]


def test_without_settings_of_the_broker_the_time_of_a_level_is_not_known(start):
    cluster = start()
    send(cluster, "level", delay_level=5)
    refused = faults.answer(16, "no permission")
    with Admin(namesrv=cluster.namesrv) as admin:
        cluster.faults.next(refused, code=RequestCode.GET_BROKER_CONFIG)
        (found,) = admin.delayed("orders").messages
    assert (found.level, found.due_ms) == (5, None)


def test_an_old_broker_has_levels_only(start):
    cluster = start("4.9.7")
    send(cluster, "level", delay_level=18)
    with Admin(namesrv=cluster.namesrv) as admin:
        found = admin.delayed("orders")
    assert (keys(found), found.within, found.errors) == (["level"], {86_400_000: 1}, {})


def test_the_command_counts_by_due_time_and_says_what_it_could_not_read(start, capsys):
    cluster = start()
    send(cluster, "level", delay_level=5)
    do = ["delayed", "orders", "-n", cluster.namesrv]
    capsys.readouterr()
    assert run([*do, "-o", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["count"], data["overdue"]) == (1, 0)
    assert {e["due_within"]: e["messages"] for e in data["steps"]}["1m"] == 1
    assert [row["keys"] for row in data["messages"]] == ["level"]
    send(cluster, "time", delay_ms=3_000_000)
    assert run(do) == 0
    out, err = capsys.readouterr()
    assert err == "2 records of all topics read\n"
    head, messages = out.split("\nDUE  ")
    assert (
        head
        == """\
orders: 2 delayed messages

DUE WITHIN        MESSAGES
overdue                  0
1m                       1
10m                      0
1h                       1
1d                       0
later or unknown         0
"""
    )
    heading, level, time = (line.split() for line in messages.splitlines())
    assert heading == ["LEVEL", "MSG", "ID", "KEYS", "QUEUE"]
    assert level[1:] == [
        *("5", data["messages"][0]["msg_id"], "level"),
        "SCHEDULE_TOPIC_XXXX@broker-a:4",
    ]
    assert (time[1], time[3:]) == ("time", ["time", "rmq_sys_wheel_timer@broker-a:0"])
    cluster.faults.next(faults.answer(1, "no"), code=RequestCode.PULL_MESSAGE)
    assert run(do) == 6


def test_a_topic_without_delayed_messages_says_so(start, capsys):
    assert run(["delayed", "orders", "-n", start().namesrv]) == 0
    said = "orders: 0 delayed messages\n\n"
    assert capsys.readouterr() == (said, "0 records of all topics read\n")


@pytest.mark.parametrize("kind", [{"delay_level": 9}, {"delay_ms": 3_000_000}])
def test_as_many_messages_as_are_read_are_no_more_than_that(start, monkeypatch, kind):
    """The messages of all topics count: each of them is read."""
    monkeypatch.setattr(delayed, "SCANNED_MAX", 3)
    cluster = start()
    send(cluster, "1", **kind)
    send(cluster, "elsewhere", topic="other", **kind)
    send(cluster, "2", **kind)
    with Admin(namesrv=cluster.namesrv) as admin:
        found = admin.delayed("orders")
        assert (found.count, found.scanned, found.errors) == (2, 3, {})
        send(cluster, "3", **kind)
        (error,) = admin.delayed("orders").errors.values()
    assert isinstance(error, PartialError)
    assert "more" in error.message


def test_the_levels_of_a_broker_share_one_limit(start, monkeypatch):
    monkeypatch.setattr(delayed, "SCANNED_MAX", 2)
    cluster = start()
    send(cluster, "1", delay_level=9)
    send(cluster, "2", delay_level=10)
    with Admin(namesrv=cluster.namesrv) as admin:
        found = admin.delayed("orders")
        assert (keys(found), found.errors) == (["1", "2"], {})
        send(cluster, "3", delay_level=11)
        found = admin.delayed("orders")
        assert (keys(found), found.scanned) == (["1", "2"], 2)
        assert "more delayed messages than the 2" in found.errors["broker-a"].message


def waiting(due_ms, queue_offset=0):
    return DelayedMessage(
        queue=MessageQueue("SCHEDULE_TOPIC_XXXX", "broker-a", 0),
        queue_offset=queue_offset,
        msg_id=None,
        keys=None,
        stored_ms=1,
        level=None,
        due_ms=due_ms,
    )


def test_messages_are_counted_by_the_time_until_they_are_due():
    found = DelayedMessages()
    due = [None, 99, 100, 60_100, 60_101, 600_100, 600_101, 3_600_100, 3_600_101]
    due += [86_400_100, 86_400_101, 98]
    for due_ms in due:
        found.add(waiting(due_ms), now_ms=100, limit=3)
    assert (found.count, found.overdue) == (12, 2)
    assert found.within == {
        60_000: 2,
        600_000: 2,
        3_600_000: 2,
        86_400_000: 2,
        None: 2,
    }
    found.keep(11)
    assert [each.due_ms for each in found.messages][:3] == [98, 99, 100]
    assert len(found.messages) == 11
    found.keep(3)
    assert [each.due_ms for each in found.messages] == [98, 99, 100]


def test_of_many_messages_the_next_are_kept_and_those_without_a_time_are_last():
    found = DelayedMessages()
    found.add(waiting(None), now_ms=0, limit=2)
    for number in range(3_000, 0, -1):
        found.add(waiting(number), now_ms=0, limit=2)
    found.keep(2)
    assert [each.due_ms for each in found.messages] == [1, 2]
    assert found.count == 3_001
    found.messages[:] = [waiting(None, 2), waiting(7), waiting(None, 1)]
    found.keep(3)
    assert [(e.due_ms, e.queue_offset) for e in found.messages] == [
        (7, 0),
        (None, 1),
        (None, 2),
    ]


def test_the_delays_of_levels_are_those_of_the_broker(start):
    cluster = start()
    send(cluster, "ninth", delay_level=9)
    plant_settings(cluster, messageDelayLevel="1s 2s 3s 4s 5s 6s 7s 8s 8m")
    with Admin(namesrv=cluster.namesrv) as admin:
        (found,) = admin.delayed("orders").messages
    assert found.due_ms == found.stored_ms + 480_000


def test_a_level_whose_delay_cannot_be_read_hides_no_other_one(start):
    """A broker shows any text that its setting was changed to, until it restarts."""
    cluster = start()
    for level in (3, 4):
        send(cluster, str(level), delay_level=level)
    plant_settings(cluster, messageDelayLevel="1s 5s soon 30s")
    with Admin(namesrv=cluster.namesrv) as admin:
        found = admin.delayed("orders")
        (message,) = admin.find_messages("4", topic="orders", pending=True).messages
        stored = admin.message_outcome(message).stored
    assert found.errors == {}
    fourth, third = found.messages
    assert (fourth.keys, fourth.due_ms) == ("4", fourth.stored_ms + 30_000)
    assert (third.keys, third.due_ms) == ("3", None)
    assert stored.next_at_ms == fourth.due_ms


def test_what_a_level_has_delivered_waits_no_longer(start):
    cluster = start()
    for body in ("1", "2", "3"):
        send(cluster, body, delay_level=9)
    plant_runtime(cluster, scheduleMessageOffset_9="2,3")
    with Admin(namesrv=cluster.namesrv) as admin:
        assert keys(admin.delayed("orders")) == ["3"]


def test_a_broker_that_has_left_the_route_is_an_error(
    rmq_cluster_factory, monkeypatch, tmp_path
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_topic("orders", queues=1)
    cluster.create_group("billing")
    for each in cluster.brokers:
        offsets = each.state.offsets
        cluster.call(lambda at=offsets: at.commit("billing", "orders", 0, 0))
    assert run(["lag", "billing", "-n", cluster.namesrv]) == 0
    cluster.broker("broker-b").kill()
    with Admin(namesrv=cluster.namesrv) as admin:
        found = admin.delayed("orders")
    assert (list(found.errors), found.count) == (["broker-b"], 0)


def test_what_a_broker_that_is_behind_has_not_looked_at_still_waits(start):
    cluster = start()
    send(cluster, "soon", delay_ms=1_000)
    with Admin(namesrv=cluster.namesrv) as admin:
        wait_until(lambda: [each.keys for each in admin.read("orders")] == ["soon"])
        assert keys(admin.delayed("orders")) == []
        plant_runtime(cluster, timerReadBehind="3600")
        found = admin.delayed("orders")
    assert (keys(found), found.overdue) == (["soon"], 1)
