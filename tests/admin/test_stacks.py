"""Dumps of threads: equal stacks are one, and the listener's frame is found."""

from __future__ import annotations

import threading

import pytest

from rmqcli import Admin, Consumer
from rmqcli.admin.stacks import group_stacks, parse_thread_dump
from rmqcli.cli.main import run
from rmqcli.errors import NotFoundError, PartialError
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from tests.kit.waiting import wait_until

#: Of a Java client of 5.5.0, with the lines of UtilAll.jstack.
JAVA = """\
ConsumeMessageThread_G_1                TID: 41 STATE: WAITING
ConsumeMessageThread_G_1                java.base@17.0.15/jdk.internal.misc.Unsafe.park(Native Method)
ConsumeMessageThread_G_1                shop.Listener.consumeMessage(Listener.java:9)
ConsumeMessageThread_G_1                app//org.apache.rocketmq.client.impl.consumer.ConsumeMessageConcurrentlyService$ConsumeRequest.run(ConsumeMessageConcurrentlyService.java:402)
ConsumeMessageThread_G_1                java.lang.Thread.run(Thread.java:840)

ConsumeMessageThread_G_2                TID: 42 STATE: WAITING
ConsumeMessageThread_G_2                java.util.concurrent.ThreadPoolExecutor.getTask(ThreadPoolExecutor.java:1062)

a thread with a name of more than forty charactersTID: 43 STATE: RUNNABLE
a thread with a name of more than forty charactersjava.lang.Thread.run(Thread.java:840)

ConsumeMessageThread_G_3                TID: 44 STATE: WAITING
ConsumeMessageThread_G_3                java.base@17.0.15/jdk.internal.misc.Unsafe.park(Native Method)
ConsumeMessageThread_G_3                shop.Listener.consumeMessage(Listener.java:9)
ConsumeMessageThread_G_3                app//org.apache.rocketmq.client.impl.consumer.ConsumeMessageConcurrentlyService$ConsumeRequest.run(ConsumeMessageConcurrentlyService.java:402)
ConsumeMessageThread_G_3                java.lang.Thread.run(Thread.java:840)

"""  # noqa: E501  # as Java writes it


def test_equal_stacks_are_one_and_those_of_listeners_come_first():
    busy, idle, other = group_stacks(parse_thread_dump(JAVA))
    assert busy.threads == ("ConsumeMessageThread_G_1", "ConsumeMessageThread_G_3")
    assert busy.listener == "shop.Listener.consumeMessage(Listener.java:9)"
    assert (busy.state, len(busy.frames)) == ("WAITING", 4)
    assert (idle.threads, idle.listener) == (("ConsumeMessageThread_G_2",), None)
    assert idle.is_consuming
    assert other.threads == ("a thread with a name of more than forty characters",)
    assert other.frames == ("java.lang.Thread.run(Thread.java:840)",)
    assert not other.is_consuming


def test_what_jstack_prints_is_read_too():
    (thread,) = parse_thread_dump(
        '"main" #1 prio=5 os_prio=0 tid=0x1 nid=0x2 runnable\n'
        "   java.lang.Thread.State: RUNNABLE\n"
        "\tat shop.Main.main(Main.java:3)\n\n"
    )
    assert (thread.name, thread.state) == ("main", "RUNNABLE")
    assert thread.frames == ("shop.Main.main(Main.java:3)",)


@pytest.mark.parametrize("dump", ["", "no thread at all", "\tat nowhere\n"])
def test_a_text_without_threads_has_none(dump):
    assert parse_thread_dump(dump) == []


@pytest.fixture
def cluster(rmq_cluster_factory):
    cluster = rmq_cluster_factory(queues=1)
    cluster.create_topic("orders")
    return cluster


def test_a_python_member_shows_the_listener_that_its_threads_are_in(cluster):
    gate = threading.Event()
    inside = threading.Semaphore(0)

    def stuck_listener(message):
        inside.release()
        gate.wait()

    cluster.send("orders", ["a", "b"])
    with (
        Consumer(
            "G",
            "orders",
            stuck_listener,
            consume_from="earliest",
            namesrv=cluster.namesrv,
        ) as consumer,
        Admin(namesrv=cluster.namesrv) as admin,
    ):
        inside.acquire()
        inside.acquire()  # two threads are in the listener
        try:
            (member,) = admin.member_stacks("G", client_id=consumer.client_id).members
        finally:
            gate.set()
    assert member.client_id == consumer.client_id
    busy = [each for each in member.stacks if each.listener is not None]
    assert member.stacks[: len(busy)] == tuple(busy)
    for stacks in busy:
        assert ".<locals>.stuck_listener(test_stacks.py:" in (stacks.listener or "")
    names = [name for stacks in busy for name in stacks.threads]
    assert len(names) == 2
    assert all(name.startswith("rmq-consume-") for name in names)
    assert any(not stacks.is_consuming for stacks in member.stacks)


def test_a_member_that_does_not_answer_has_an_error_in_its_place(cluster):
    with (
        Consumer("G", "orders", print, namesrv=cluster.namesrv),
        Admin(namesrv=cluster.namesrv) as admin,
    ):
        wait_until(lambda: admin.group("G").members)
        refused = faults.answer(207, "timed out")
        cluster.faults.next(refused, code=RequestCode.GET_CONSUMER_RUNNING_INFO)
        (member,) = admin.member_stacks("G").members
    assert member.stacks == ()
    assert member.error is not None
    assert "timed out" in member.error.message


def test_a_broker_that_does_not_tell_its_members_is_named(rmq_cluster_factory, capsys):
    """Members that only this broker knows were left out, and the command exited 0."""
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_topic("orders", queues=1)
    cluster.create_group("G")
    with (
        Consumer("G", "orders", print, namesrv=cluster.namesrv) as consumer,
        Admin(namesrv=cluster.namesrv) as admin,
    ):
        wait_until(lambda: admin.group("G").members)
        cluster.faults.add(
            faults.answer(16, "no rights"),
            code=RequestCode.GET_CONSUMER_CONNECTION_LIST,
            broker="broker-b",
        )
        found = admin.member_stacks("G")
        assert [each.client_id for each in found.members] == [consumer.client_id]
        assert list(found.errors) == ["broker-b"]
        assert admin.member_stacks("G", client_id=consumer.client_id).errors == {}
        with pytest.raises(PartialError, match="whether other is a member of group G"):
            admin.member_stacks("G", client_id="other")
        assert run(["group", "stack", "G", "-n", cluster.namesrv]) == 6
    assert "broker-b denied access: members of group G: " in capsys.readouterr().err


def test_a_client_of_another_group_and_a_group_without_members_are_not_found(cluster):
    cluster.create_group("empty")
    with (
        Consumer("G", "orders", print, namesrv=cluster.namesrv) as consumer,
        Admin(namesrv=cluster.namesrv) as admin,
    ):
        wait_until(lambda: admin.group("G").members)
        with pytest.raises(
            NotFoundError, match=f"its members are {consumer.client_id}"
        ):
            admin.member_stacks("G", client_id="nobody")
        with pytest.raises(NotFoundError, match="no broker knows a member of group"):
            admin.member_stacks("empty")
        with pytest.raises(NotFoundError, match="group never does not exist"):
            admin.member_stacks("never")
