"""Clean-ups show what would go, and look whether it is gone."""

from __future__ import annotations

import pytest

from rmqcli import Admin
from rmqcli.admin.clean import (
    apply_clean_expired,
    apply_clean_unused,
    plan_clean_expired,
    plan_clean_unused,
)
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.api.client import Client
from rmqcli.config import ClientConfig
from rmqcli.errors import DeniedError, PartialError
from rmqcli.testing import Seed, faults
from rmqcli.wire.codes import RequestCode

CLEAN_EXPIRED, CLEAN_UNUSED = 306, 316


@pytest.fixture
def cluster(cluster):
    """On broker-a, queue 1 of `orders` has lost all its messages, queue 0 has not."""
    cluster.create_topic("orders", queues=2)
    broker = cluster.broker()
    cluster.send("orders", ["x", "y"], queue_id=1, broker="broker-a")
    end = broker.state.store.log_bounds()[1]
    cluster.send("orders", ["z"], queue_id=0, broker="broker-a")
    broker.state.store.trim(None, end)
    return cluster


def rows_of(rows):
    return [
        (row["broker_name"], row["topic"], row["queue_id"], row["result"])
        for row in rows
    ]


def bounds(cluster, queue_id):
    return cluster.broker().state.store.queue_bounds("orders", queue_id)


def test_expired_queues_are_shown_before_they_go(rmq, cluster):
    code, rows, err = rmq("broker", "clean-expired-queues")
    assert (code, rows) == (7, None)
    assert "broker-a: queue 1 of orders, which ends at 2" in err
    assert "queue 0" not in err
    assert bounds(cluster, 1) == (2, 2)
    code, rows, _ = rmq("broker", "clean-expired-queues", "--yes")
    assert code == 0
    assert rows_of(rows) == [("broker-a", "orders", 1, "removed")]
    assert bounds(cluster, 1) in (None, (0, 0))
    assert bounds(cluster, 0) == (0, 1)
    code, rows, err = rmq("broker", "clean-expired-queues", "--yes")
    assert (code, rows) == (0, [])
    assert "nothing was changed: there are no expired queues" in err


def test_a_queue_that_the_broker_keeps_is_not_called_removed(rmq, cluster):
    cluster.faults.add(faults.answer(0), code=CLEAN_EXPIRED)
    code, rows, err = rmq("broker", "clean-expired-queues", "--yes")
    assert (code, rows_of(rows)) == (6, [("broker-a", "orders", 1, "failed")])
    assert "broker-a confirmed the clean-up, but still has queue 1 of orders" in err


def test_a_broker_that_cannot_be_asked_has_a_row(rmq, cluster):
    cluster.faults.add(faults.answer(1, "no"), code=202, broker="broker-b")
    code, rows, _ = rmq("broker", "clean-expired-queues", "--yes")
    assert code == 6
    assert rows_of(rows) == [
        ("broker-a", "orders", 1, "removed"),
        ("broker-b", None, None, "failed"),
    ]


def test_queues_of_a_topic_that_is_gone_are_removed(rmq, cluster):
    """A topic whose settings are lost leaves its queues behind."""
    broker = cluster.broker()
    cluster.create_group("billing")
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        call = update_consumer_offset("billing", "orders", 0, commit_offset=1)
        client.invoke(broker.address, call)
    broker.state.topics.delete("orders")
    code, rows, err = rmq("broker", "clean-unused-topics")
    assert (code, rows) == (7, None)
    assert "broker-a: queue 0 of orders" in err
    code, rows, _ = rmq("broker", "clean-unused-topics", "--yes")
    assert (code, rows_of(rows)) == (0, [("broker-a", "orders", 0, "removed")])
    assert bounds(cluster, 0) is None


def test_brokers_are_told_even_if_no_unused_queue_is_known(rmq, cluster):
    told = cluster.faults.observe(code=CLEAN_UNUSED)
    code, rows, err = rmq("broker", "clean-unused-topics", "--yes")
    assert (code, rows) == (0, [])
    assert told.seen == 2
    assert "was known; brokers do not say what they removed" in err


def test_the_library_does_the_same(cluster):
    with Admin(namesrv=cluster.namesrv) as admin:
        steps = admin.clean_expired_queues()
        assert [(s.topic, s.queue_id, s.result) for s in steps] == [
            ("orders", 1, "removed")
        ]
        assert admin.clean_unused_topics() == []


def steps_of(steps):
    return [(s.broker_name, s.topic, s.queue_id, s.result) for s in steps]


STATS = RequestCode.GET_TOPIC_STATS_INFO
REFUSED = faults.answer(16, "no permission")


@pytest.fixture
def client(cluster):
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        yield client


def plan_expired(client):
    return plan_clean_expired(client, client.masters())


def clean_expired(client):
    return apply_clean_expired(client, plan_expired(client))


def plan_unused(client):
    return plan_clean_unused(client, client.masters())


def clean_unused(client):
    return apply_clean_unused(client, client.masters(), plan_unused(client))


def errors_of(steps):
    return [str(each.error) for each in steps if each.result == "failed"]


def test_a_broker_whose_queues_are_not_known_is_left_alone(cluster, client):
    told = cluster.faults.observe(code=CLEAN_EXPIRED)
    cluster.faults.add(REFUSED, code=STATS, broker="broker-a", topic="orders")
    (step,) = plan_expired(client)
    assert steps_of([step]) == [("broker-a", None, None, "failed")]
    assert step.server == "broker-a"
    assert step.address == cluster.broker("broker-a").address
    assert isinstance(step.error, DeniedError)
    cluster.faults.add(REFUSED, code=STATS, broker="broker-b")
    steps = plan_expired(client)
    assert steps_of(steps) == [
        ("broker-a", None, None, "failed"),
        ("broker-b", None, None, "failed"),
    ]
    assert apply_clean_expired(client, steps) == steps
    assert told.seen == 0


def test_queues_of_delayed_messages_are_not_removed_by_a_broker(cluster, client):
    """A broker passes them over, so that they would be planned for ever."""
    broker = cluster.broker()
    delayed = Seed(body=b"x", properties={"DELAY": "18"})
    cluster.send("orders", [delayed], queue_id=0, broker="broker-a")
    assert broker.state.store.queue_bounds("SCHEDULE_TOPIC_XXXX", 17) == (0, 1)
    broker.state.store.trim(None, broker.state.store.log_bounds()[1])
    assert steps_of(plan_expired(client)) == [
        ("broker-a", "orders", 0, "planned"),
        ("broker-a", "orders", 1, "planned"),
    ]


def test_a_topic_that_was_deleted_in_between_hides_no_other(cluster, client):
    gone = faults.answer(17, "no topic")
    cluster.faults.add(gone, code=STATS, topic="TBW102")
    steps = plan_expired(client)
    assert steps_of(steps) == [("broker-a", "orders", 1, "planned")]
    assert steps[0].max_offset == 2
    cluster.faults.add(gone, code=STATS, topic="orders")
    assert plan_expired(client) == []


def test_what_was_cleaned_is_unknown_if_the_broker_does_not_show_it(cluster, client):
    cluster.faults.add(REFUSED, code=STATS, topic="orders", broker="broker-a", nth=2)
    (step,) = clean_expired(client)
    assert (step.result, step.server) == ("unknown", "broker-a")
    said = str(step.error)
    assert "was told to clean up, but whether it did is not known: " in said


def test_a_clean_up_that_was_refused_is_not_called_unknown(cluster, client):
    """The error said "whether it did is not known" if the queues were not shown."""
    address = cluster.broker("broker-a").address
    cluster.faults.add(faults.answer(16, "read only"), code=CLEAN_EXPIRED)
    cluster.faults.add(REFUSED, code=STATS, topic="orders", broker="broker-a", nth=2)
    (step,) = clean_expired(client)
    assert step.result == "failed"
    assert str(step.error) == (
        f"broker-a refused to clean up: clean-up of queues: {address} answered"
        " NO_PERMISSION: read only"
    )
    assert isinstance(step.error, DeniedError)


def test_a_queue_that_is_expired_no_longer_was_not_removed_by_a_broker_that_refused(
    cluster, client
):
    steps = plan_expired(client)
    cluster.send("orders", ["new"], queue_id=1, broker="broker-a")
    cluster.faults.add(faults.answer(1, "read only"), code=CLEAN_EXPIRED)
    (step,) = apply_clean_expired(client, steps)
    assert step.result == "failed"


def test_a_broker_that_refuses_to_clean_up_says_why(cluster, client):
    cluster.faults.add(faults.answer(1, "read only"), code=CLEAN_EXPIRED)
    (said,) = errors_of(clean_expired(client))
    assert said.startswith("broker-a refused to clean up: ")
    assert said.endswith("read only")
    assert bounds(cluster, 1) == (2, 2)


@pytest.fixture
def leftover(cluster):
    """On broker-a, billing has read queues 0 and 1 of a topic that is gone."""
    cluster.create_group("billing")
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        for queue_id in (0, 1):
            call = update_consumer_offset(
                "billing", "orders", queue_id, commit_offset=1
            )
            client.invoke(cluster.broker().address, call)
    cluster.broker().state.topics.delete("orders")
    return cluster


@pytest.mark.parametrize(
    "code", [RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_CONSUMER_OFFSET]
)
def test_a_broker_that_does_not_tell_its_topics_or_offsets_is_not_told(
    leftover, client, code
):
    leftover.faults.add(REFUSED, code=code, broker="broker-a")
    told = leftover.faults.observe(code=CLEAN_UNUSED)
    (step,) = plan_unused(client)
    assert steps_of([step]) == [("broker-a", None, None, "failed")]
    (said,) = errors_of(clean_unused(client))
    assert "no permission" in said
    assert [each.broker for each in told.requests] == ["broker-b"]


def test_unused_queues_are_planned_and_those_that_stay_are_named(leftover, client):
    steps = plan_unused(client)
    assert steps_of(steps) == [
        ("broker-a", "orders", 0, "planned"),
        ("broker-a", "orders", 1, "planned"),
    ]
    assert [each.max_offset for each in steps] == [None, None]
    leftover.faults.next(faults.answer(0), code=CLEAN_UNUSED, broker="broker-a")
    assert errors_of(clean_unused(client)) == [
        f"broker-a confirmed the clean-up, but still has queue {n} of orders"
        for n in (0, 1)
    ]
    leftover.faults.next(
        faults.answer(1, "read only"), code=CLEAN_UNUSED, broker="broker-a"
    )
    said = errors_of(clean_unused(client))
    assert ["read only" in each for each in said] == [True, True]
    assert [each.result for each in clean_unused(client)] == ["removed"] * 2


def test_queues_that_groups_have_read_are_not_unused_while_their_topic_exists(
    leftover, client
):
    leftover.create_topic("alive", queues=1)
    leftover.send("alive", ["x"], queue_id=0, broker="broker-a")
    call = update_consumer_offset("billing", "alive", 0, commit_offset=0)
    client.invoke(leftover.broker().address, call)
    assert {each.topic for each in plan_unused(client)} == {"orders"}


ENTRIES = RequestCode.QUERY_CONSUME_QUEUE


@pytest.mark.parametrize(
    "answer",
    [
        faults.disconnect(),
        REFUSED,
        faults.answer(2, "busy"),
        faults.answer(1, "AclException: no permission"),
        faults.answer(1, "1@orders is not exist, too"),
    ],
)
def test_a_queue_of_which_it_is_not_known_whether_it_exists_is_planned(
    leftover, client, answer
):
    """Any answer but a success left the queue out, and was called `removed`."""
    leftover.faults.add(answer, code=ENTRIES, broker="broker-a")
    assert steps_of(plan_unused(client)) == [
        ("broker-a", "orders", 0, "planned"),
        ("broker-a", "orders", 1, "planned"),
    ]
    results = clean_unused(client)
    assert [each.result for each in results] == ["unknown", "unknown"]
    assert "whether it did is not known: " in str(results[0].error)


def test_the_plan_says_why_it_is_not_known_whether_a_queue_exists(rmq, leftover):
    denied = faults.answer(16, "no permission")
    leftover.faults.add(denied, code=ENTRIES, broker="broker-a")
    code, rows, err = rmq("broker", "clean-unused-topics", "--yes")
    assert (code, [row["result"] for row in rows]) == (6, ["unknown", "unknown"])
    assert "broker-a: queue 0 of orders; whether it exists is not known: " in err
    assert "NO_PERMISSION: no permission" in err


def test_a_queue_that_is_absent_is_not_planned(leftover, client):
    absent = faults.answer(1, "1@orders is not exist!")
    leftover.faults.add(absent, code=ENTRIES, broker="broker-a")
    assert steps_of(plan_unused(client)) == [("broker-a", "orders", 0, "planned")]


def test_a_broker_that_is_told_for_nothing_and_refuses_is_named(cluster, client):
    refused = faults.answer(1, "read only")
    cluster.faults.add(refused, code=CLEAN_UNUSED, broker="broker-b")
    (step,) = clean_unused(client)
    assert steps_of([step]) == [("broker-b", None, None, "failed")]
    assert "read only" in str(step.error)


@pytest.mark.parametrize("command", ["clean-unused-topics", "clean-expired-queues"])
def test_a_clean_up_that_one_broker_refuses_is_a_part_if_others_show_nothing(
    rmq, cluster, command
):
    """Its exit code was that of the refusal, as if no broker had been told."""
    for code in (CLEAN_UNUSED, RequestCode.GET_TOPIC_STATS_INFO):
        cluster.faults.add(
            faults.answer(16, "not allowed"), code=code, broker="broker-a"
        )
    code, rows, err = rmq("broker", command, "--yes")
    assert (code, rows_of(rows)) == (6, [("broker-a", None, None, "failed")])
    assert "1 of 2 servers failed: broker-a" in err
    with (
        Admin(namesrv=cluster.namesrv) as admin,
        pytest.raises(PartialError, match="1 of 2 servers failed"),
    ):
        getattr(admin, command.replace("-", "_"))()
