"""`Cluster.copy`: a topic is copied by a program."""

from __future__ import annotations

from typing import Any

import pytest

from rmqcli import (
    Admin,
    ConfigError,
    Copy,
    CopyReport,
    NotFoundError,
    RefusedError,
    TextError,
    UsageError,
    connect,
)
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.cli.main import run
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from tests.admin.dlq.letters import client_of
from tests.copy.copying import stored
from tests.kit.wiped import wiped


@pytest.fixture(autouse=True)
def _logs_of_this_test(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def source(rmq_cluster):
    rmq_cluster.create_topic("src", queues=2)
    rmq_cluster.send("src", [b"%02d" % number for number in range(10)])
    return rmq_cluster


@pytest.fixture
def target(rmq_cluster_factory):
    cluster = rmq_cluster_factory()
    cluster.create_topic("dst", queues=2)
    return cluster


@pytest.fixture
def copy(source, target):
    return connect(source.namesrv).copy("src", "dst", to=connect(target.namesrv))


def test_a_plan_changes_nothing_and_execute_copies_once(copy, source, target):
    assert isinstance(copy, Copy)
    plan = copy.plan()
    assert (plan.count, plan.mapping, plan.copied, plan.unread) == (10, "index", 0, {})
    assert plan.log is not None
    assert not plan.log.exists()
    assert stored(target, "dst") == {}
    plans: list[Any] = []
    seen = []
    report = copy.execute(
        on_plan=plans.append, on_batch=lambda report: seen.append(report.copied)
    )
    assert isinstance(report, CopyReport)
    assert (report.copied, report.is_complete) == (10, True)
    assert [each.count for each in plans] == [10]
    assert plans[0].log == plan.log
    assert seen == [0, 10]
    assert stored(target, "dst") == stored(source, "src")
    assert copy.execute().copied == 0
    assert copy.plan().copied == 10


def test_the_command_goes_on_with_the_log_of_a_program(source, target, capsys):
    """The log is of the same conditions, and has the same name."""
    source.send("src", [b"x"], tags="Paid")
    connect(source.namesrv).copy(
        "src",
        "dst",
        to=connect(target.namesrv),
        tag="Paid",
        properties={"a": "*"},
        pattern="x",
        where="tags = 'Paid'",
    ).execute()
    words = ["copy", "src", "dst", "-n", source.namesrv, "--to-namesrv", target.namesrv]
    words += ["--tag", "Paid", "--property", "a=*", "--grep", "x"]
    words += ["--where", "tags = 'Paid'", "--execute", "--yes"]
    assert run(words) == 0, capsys.readouterr().err


def test_a_copy_is_ended_by_its_caller_and_goes_on_later(copy, target):
    def refuse(plan):
        raise RefusedError(f"{plan.count} messages are too many")

    with pytest.raises(RefusedError, match="10 messages are too many"):
        copy.execute(on_plan=refuse)
    assert stored(target, "dst") == {}

    def stop(report):
        if report.copied:
            raise RefusedError("enough")

    with pytest.raises(RefusedError, match="enough"):
        copy.execute(rate_per_s=4, on_batch=stop)
    assert copy.plan().copied == 4
    assert copy.execute().copied == 6
    assert sum(map(len, stored(target, "dst").values())) == 10


def test_a_copy_goes_to_brokers_where_a_proxy_is_configured_too(source, monkeypatch):
    """The copy was planned with name servers, and then nothing could be sent."""
    source.create_topic("dst", queues=2)
    monkeypatch.setenv("NAMESRV_ADDR", source.namesrv)
    monkeypatch.setenv("ROCKETMQ_ENDPOINTS", "127.0.0.1:1")
    report = connect().copy("src", "dst").execute()
    assert (report.copied, report.given_up) == (10, None)


def test_new_messages_are_followed_until_the_caller_ends_it(copy, source, target):
    def stop(report):
        if report.copied == 10:
            source.send("src", [b"new"])
        if report.copied > 10:
            raise RefusedError("enough")

    with pytest.raises(RefusedError, match="enough"):
        copy.execute(follow=True, on_batch=stop)
    bodies = [body for queue in stored(target, "dst").values() for body in queue]
    assert b"new" in bodies


def commit(source, group, *, topic="src", queue_id=0, offset):
    with Admin(namesrv=source.namesrv) as admin:
        admin.create_group(group)
    with client_of(source) as client:
        call = update_consumer_offset(group, topic, queue_id, commit_offset=offset)
        client.invoke(source.broker().address, call)


def lose_answer(target):
    """Let the next request store its messages, and lose the answer."""
    target.faults.next(
        faults.disconnect(is_handled=True), code=RequestCode.SEND_BATCH_MESSAGE
    )


def test_a_group_goes_on_in_the_copy(copy, source, target):
    copy.execute()
    commit(source, "g", queue_id=1, offset=3)
    with pytest.raises(NotFoundError) as caught:
        copy.plan_group("g")
    assert caught.value.hint.endswith("with: Admin.create_group('g')")
    with Admin(namesrv=target.namesrv) as admin:
        admin.create_group("g")
        assert admin.apply_reset(copy.plan_group("g")).is_complete
        lags = {each.queue_id: each.committed for each in admin.lag("g").queues}
    assert lags == {0: 0, 1: 3}


def test_a_group_skips_no_message_that_producers_sent_between_two_copies(
    copy, source, target
):
    copy.execute()
    target.send("dst", [b"new"], queue_id=1)
    source.send("src", [b"last"], queue_id=1)
    copy.execute()
    commit(source, "g", queue_id=1, offset=6)
    with Admin(namesrv=target.namesrv) as admin:
        admin.create_group("g")
    planned = copy.plan_group("g")
    assert {q.queue.queue_id: q.target for q in planned.plan.queues}[1] == 5


def test_a_group_goes_on_behind_copies_that_were_stored_twice(source, target):
    source.create_topic("one", queues=1)
    target.create_topic("other", queues=1)
    copy = connect(source.namesrv).copy("one", "other", to=connect(target.namesrv))
    source.send("one", [b"first"] * 2)
    assert copy.execute().copied == 2
    source.send("one", [b"twice"] * 3)
    lose_answer(target)
    assert len(copy.execute().unknown) == 1
    assert copy.execute().is_complete
    commit(source, "g", topic="one", offset=4)
    with Admin(namesrv=target.namesrv) as admin:
        admin.create_group("g")
    assert stored(target, "other") == {("broker-a", 0): [b"first"] * 2 + [b"twice"] * 6}
    assert [each.target for each in copy.plan_group("g").plan.queues] == [7]


def test_messages_in_doubt_of_one_queue_hide_no_message_of_others_in_another(
    copy, source, target
):
    """The group went on behind what producers had sent to the second queue."""
    copy.execute()
    source.send("src", [b"twice"] * 3, queue_id=0)
    lose_answer(target)
    assert [str(span) for span in copy.execute().unknown] == ["broker-a:0:5-7"]
    target.send("dst", [b"new"] * 2, queue_id=1)
    source.send("src", [b"last"], queue_id=1)
    assert copy.execute().is_complete
    commit(source, "g", queue_id=0, offset=8)
    commit(source, "g", queue_id=1, offset=6)
    with Admin(namesrv=target.namesrv) as admin:
        admin.create_group("g")
    planned = copy.plan_group("g").plan
    assert {q.queue.queue_id: q.target for q in planned.queues} == {0: 11, 1: 5}


def test_messages_that_a_condition_left_out_are_not_in_doubt(source, target):
    """They counted as copies, so that as many messages of producers were skipped."""
    source.create_topic("one", queues=1)
    target.create_topic("other", queues=1)
    copy = connect(source.namesrv).copy(
        "one", "other", to=connect(target.namesrv), tag="a"
    )
    source.send("one", [b"first"], tags="a")
    assert copy.execute().copied == 1
    for tag in ("a", "b", "b", "b", "b", "a"):
        source.send("one", [b"twice"], tags=tag)
    lose_answer(target)
    assert [str(span) for span in copy.execute().unknown] == ["broker-a:0:1-6"]
    target.send("other", [b"new"])
    assert copy.execute().is_complete
    commit(source, "g", topic="one", offset=7)
    with Admin(namesrv=target.namesrv) as admin:
        admin.create_group("g")
    found = [b"first", b"twice", b"twice", b"new", b"twice", b"twice"]
    assert stored(target, "other") == {("broker-a", 0): found}
    assert [each.target for each in copy.plan_group("g").plan.queues] == [1]


def test_positions_are_not_planned_by_the_log_of_other_topics(
    copy, source, target, rmq_cluster_factory
):
    """They were those of copies that the target had lost."""
    copy.execute()
    commit(source, "g", queue_id=1, offset=3)
    again = wiped(target, rmq_cluster_factory)
    again.create_topic("dst", queues=2)
    again.send("dst", [b"other"] * 20)
    with Admin(namesrv=again.namesrv) as admin:
        admin.create_group("g")
    with pytest.raises(RefusedError, match="dst@broker-a:0 has another message at"):
        copy.plan_group("g")


def test_positions_are_not_planned_with_queues_that_could_not_be_read(copy, target):
    copy.execute()
    target.faults.add(faults.answer(1, "disk is gone"), code=RequestCode.PULL_MESSAGE)
    with pytest.raises(RefusedError, match="2 queues could not be read: no positions"):
        copy.plan_group("g")


async def confirm(_plan):
    raise RefusedError("no")


@pytest.mark.parametrize("name", ["on_plan", "on_batch"])
@pytest.mark.parametrize("function", [confirm, lambda plan: confirm(plan)])
def test_a_coroutine_function_is_refused_in_place_of_one_that_confirms(
    copy, target, name, function
):
    """It was called and never ran, and the messages that it refuses were copied."""
    with pytest.raises(TypeError, match=f"{name} .*; pass a plain function"):
        copy.execute(**dict[str, Any]({name: function}))
    assert stored(target, "dst") == {}


@pytest.mark.parametrize("rate", [0, -1, -0.5, float("nan"), float("inf")])
def test_a_rate_that_is_not_greater_than_zero_is_refused(copy, target, rate):
    """A negative one counted as none, and 0 failed after the first message."""
    with pytest.raises(ConfigError, match=r"rate_per_s is .*; it must be greater"):
        copy.execute(rate_per_s=rate)
    with pytest.raises(TypeError, match="rate_per_s"):
        copy.execute(rate_per_s="100")
    assert stored(target, "dst") == {}


def test_wrong_uses_are_errors(source, target):
    connected = connect(source.namesrv)
    with pytest.raises(NotFoundError) as caught:
        connected.copy("src", "nowhere", to=connect(target.namesrv)).plan()
    assert caught.value.hint == (
        "create it first: in the target's cluster, Admin.create_topic('nowhere')"
    )
    with pytest.raises(RefusedError, match="copied to itself"):
        connected.copy("src", "src").plan()
    with pytest.raises(TextError):
        connected.copy("src", "dst", where="(")
    with pytest.raises(UsageError, match="decode needs where"):
        connected.copy("src", "dst", decode="json")
    with pytest.raises(UsageError, match="tag and sql cannot be used together"):
        connected.copy("src", "dst", tag="a", sql="a > 1")
    wrong: Any
    for wrong in ({"to": source.namesrv}, {"from_": 5}, {"tag": 5}):
        with pytest.raises(TypeError):
            connected.copy("src", "dst", **wrong)
    proxy = connect(endpoints="127.0.0.1:8081")
    for made in (proxy.copy, lambda a, b: connected.copy(a, b, to=proxy)):
        with pytest.raises(UsageError, match="Copy needs name servers"):
            made("src", "dst")


def test_nothing_is_copied_unless_all_queues_can_be_read(rmq_cluster_factory, target):
    source = rmq_cluster_factory(brokers=2)
    source.create_topic("src", queues=1)
    source.send("src", [b"a"] * 4)
    source.faults.add(faults.disconnect(), broker="broker-b")
    copy = connect(source.namesrv).copy("src", "dst", to=connect(target.namesrv))
    assert [each.broker_name for each in copy.plan().unread] == ["broker-b"]
    with pytest.raises(RefusedError, match="1 queue could not be read: nothing was"):
        copy.execute()
    assert stored(target, "dst") == {}
