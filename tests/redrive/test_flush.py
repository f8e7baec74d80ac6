"""Flushes of retries by programs, and flushes that are killed and started again."""

from __future__ import annotations

import itertools
from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqcli import Admin, NotFoundError, Producer, ProducerMessage, connect
from rmqcli.admin.dlq.log import FLUSH, RedriveLog, open_log, read_log
from rmqcli.admin.reset.cluster_identity import identity_of
from rmqcli.aio import AsyncRetryFlush
from rmqcli.aio import connect as aio_connect
from rmqcli.errors import ConfigError, RefusedError
from rmqcli.redrive.flush import FlushRequest, plan_flush
from rmqcli.redrive.redrive import RedriveRun
from tests.admin.dlq.letters import client_of, kill
from tests.aio.interrupting import run_clean
from tests.kit.waiting import wait_until
from tests.redrive.test_kills import DyingFile, Killed

MESSAGES = 9
BATCH = 3
#: Of two hours, by the default levels.
LEVEL = 18


def fail(cluster, group, bodies, *, level=LEVEL):
    """Let a group fail to consume a message of each body."""
    with Producer(namesrv=cluster.namesrv) as producer:
        sent = [
            producer.send(ProducerMessage("orders", body.encode())) for body in bodies
        ]
    kill(cluster, group, "orders", sent, delay_level=level)
    return sent


def copies(cluster, group="billing"):
    """How often the message of each body is in the group's retry topic."""
    with Admin(namesrv=cluster.namesrv) as admin:
        return Counter(m.body.decode() for m in admin.read(f"%RETRY%{group}"))


@pytest.fixture
def cluster(rmq_cluster_factory):
    cluster = rmq_cluster_factory(queues=1)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    return cluster


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log.jsonl"


def test_a_plan_changes_nothing_and_execute_copies_each_message_once(cluster, log):
    fail(cluster, "billing", "abc")
    with connect(cluster.namesrv) as connected:
        flush = connected.flush_retries("billing", log=log)
        assert repr(flush) == "RetryFlush('billing')"
        plan = flush.plan()
        assert (plan.count, list(plan.topics), plan.unread) == (3, ["orders"], {})
        assert not log.exists()
        report = flush.execute()
        assert (report.stored, report.came_due, report.is_complete) == (3, 0, True)
        assert report.by_topic == {"%RETRY%billing": 3}
        assert flush.execute().stored == 0
        again = connected.flush_retries("billing", again=True, limit=1, log=log)
        assert again.execute().stored == 1
    assert copies(cluster) == {"a": 2, "b": 1, "c": 1}


@pytest.mark.slow
def test_a_message_that_came_due_after_the_plan_is_left_to_its_broker(cluster, log):
    """Its copy would be one delivery more, and no sooner."""
    fail(cluster, "billing", "a", level=2)
    fail(cluster, "billing", "b")
    plans = []

    def on_plan(plan):
        plans.append(plan)
        wait_until(lambda: copies(cluster)["a"] == 1)

    with connect(cluster.namesrv) as connected:
        report = connected.flush_retries("billing", log=log).execute(on_plan=on_plan)
    (plan,) = plans
    assert (report.stored, report.came_due) == (1, plan.count - 1)
    assert report.is_complete
    assert copies(cluster) == {"a": 1, "b": 1}


def test_a_group_of_which_nothing_failed_has_nothing_to_flush(cluster, log):
    with connect(cluster.namesrv) as connected:
        flush = connected.flush_retries("billing", log=log)
        assert flush.plan().count == 0
        assert flush.execute().is_complete
        assert not log.exists()
        with pytest.raises(NotFoundError, match="group nobody does not exist"):
            connected.flush_retries("nobody", log=log).plan()
        with pytest.raises(ConfigError, match="limit"):
            connected.flush_retries("billing", limit=0, log=log).plan()


def test_what_a_flush_that_runs_has_open_no_other_one_copies(cluster, log):
    fail(cluster, "billing", "a")

    with connect(cluster.namesrv) as connected:
        flush = connected.flush_retries("billing", log=log)

        def second(_):
            with pytest.raises(RefusedError, match="another flush is running"):
                flush.execute()

        assert flush.execute(on_plan=second).stored == 1


@pytest.mark.slow
def test_coroutines_flush_too(cluster, log):
    fail(cluster, "billing", "ab")

    async def main():
        async with aio_connect(cluster.namesrv) as connected:
            flush = connected.flush_retries("billing", topic="orders", log=log)
            assert isinstance(flush, AsyncRetryFlush)
            assert repr(flush) == "AsyncRetryFlush('billing')"
            assert flush.request.topic == "orders"
            assert (await flush.plan()).count == 2
            assert (await flush.execute()).stored == 2

    run_clean(main)
    assert copies(cluster) == {"a": 1, "b": 1}


@pytest.fixture(scope="module")
def two_brokers():
    from rmqcli.broker.cluster.embedded import EmbeddedCluster

    with EmbeddedCluster(brokers=2, queues=1) as cluster:
        cluster.create_topic("orders")
        yield cluster


_numbers = itertools.count()


@pytest.mark.slow
@settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    max_examples=30,
)
@given(left=st.integers(1, 4_000))
def test_a_flush_that_is_killed_loses_nothing_and_doubles_one_batch_at_most(
    two_brokers, tmp_path_factory, left
):
    cluster, group = two_brokers, f"g-{next(_numbers)}"
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    cluster.create_group(group)
    fail(cluster, group, [f"{n}" for n in range(MESSAGES)])
    request = FlushRequest(group=group)
    with client_of(cluster) as client:
        identity = identity_of(client.route(f"%RETRY%{group}"))
        file = DyingFile(path)
        file.left = left
        try:
            states, batch, _ = read_log(path, group, identity, kind=FLUSH)
            with suppress(Killed):
                killed = RedriveLog(file, states, batch)
                killed.begin(group, identity, at_ms=0, kind=FLUSH)
                plan = plan_flush(client, request, states)
                for _ in RedriveRun(client, plan, killed, batch_max=BATCH).batches():
                    pass
        finally:
            file.close()
        found = open_log(path, group, identity, at_ms=0, kind=FLUSH)
        plan = plan_flush(client, request, found.states)
        for _ in RedriveRun(client, plan, found, batch_max=BATCH).batches():
            pass
        found.close()
        counts = copies(cluster, group)
        assert sorted(counts) == [f"{n}" for n in range(MESSAGES)]
        doubled = sum(counts.values()) - MESSAGES
        assert doubled <= plan.doubtful_count == len(plan.doubtful) <= BATCH
        states, _, _ = read_log(path, group, identity, kind=FLUSH)
        after = plan_flush(client, request, states)
        assert (after.count, after.doubtful) == (0, ())
