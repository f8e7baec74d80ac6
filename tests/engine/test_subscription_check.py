"""A consumer warns when another member of its group has a different subscription."""

from __future__ import annotations

import logging

import pytest

from rmqcli.engine.subscription_check import differences
from rmqcli.errors import DeniedError
from rmqcli.wire.bodies.consumer import Connection, ConsumerConnection
from rmqcli.wire.subscription import SubscriptionData
from tests.engine.world import ME, OTHER, START_MS, refusal, started

WARNING = "members have different subscriptions, so messages are lost group=g: "


def seen(*client_ids, **expressions):
    """Return a broker's answer; `orders="A"` is the expression of that topic."""
    return ConsumerConnection(
        connections=tuple(
            Connection(client_id=c, client_addr="127.0.0.1:1", language=0, version=409)
            for c in client_ids
        ),
        subscriptions={
            topic: SubscriptionData(topic=topic, sub_string=text)
            for topic, text in expressions.items()
        },
    )


def warnings_of(caplog):
    return [each.message for each in caplog.records if "different" in each.message]


def test_a_different_subscription_is_logged_before_each_heartbeat(caplog):
    """The broker is queried a second before the heartbeat, which replaces the
    subscription that the broker has."""
    world = started()
    world.network.connection = seen(ME, OTHER, orders="A || B")
    world.run(28_999)
    assert world.network.of("consumer_connection") == []
    world.run(1)
    (call,) = world.network.of("consumer_connection")
    assert call.args == {"topic": "orders"}
    beats = len(world.network.of("heartbeat"))
    assert warnings_of(caplog) == [WARNING + "orders: * here, A || B elsewhere"]
    world.run(1_000)
    assert len(world.network.of("heartbeat")) == beats + 1
    world.run(29_000)
    assert len(world.network.of("consumer_connection")) == 2


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"orders": "*"}, None),
        ({"orders": ""}, None),
        ({"orders": "*", "%RETRY%g": "*"}, None),
        ({"orders": "A"}, "orders: * here, A elsewhere"),
        ({"orders": "*", "more": "A"}, "more: no subscription here, A elsewhere"),
        ({"more": "*"}, "more: no subscription here, * elsewhere; orders: * here, no"),
        ({}, "orders: * here, no subscription elsewhere"),
    ],
)
def test_the_warning_names_the_topic_that_differs(caplog, table, words):
    world = started()
    world.network.connection = seen(ME, OTHER, **table)
    world.run(30_000)
    found = warnings_of(caplog)
    assert len(found) == (words is not None)
    if words is not None:
        assert found[0].startswith(WARNING + words)


def test_an_expression_of_another_type_differs(caplog):
    world = started()
    world.network.connection = ConsumerConnection(
        connections=(
            Connection(
                client_id=OTHER, client_addr="127.0.0.1:1", language=0, version=409
            ),
        ),
        subscriptions={
            "orders": SubscriptionData(
                topic="orders", sub_string="a > 1", expression_type="SQL92"
            )
        },
    )
    world.run(30_000)
    assert warnings_of(caplog) == [WARNING + "orders: * here, SQL92 a > 1 elsewhere"]


def test_a_lone_member_is_not_warned_about_subscriptions_of_members_that_left(caplog):
    world = started()
    for connection in (seen(ME, orders="A"), seen(orders="A"), None):
        world.network.connection = connection
        world.run(30_000)
    assert warnings_of(caplog) == []


def test_the_same_difference_is_logged_again_after_ten_minutes(caplog):
    world = started()
    world.network.connection = seen(ME, OTHER, orders="A")
    world.run(29_000 + 599_999)
    assert len(warnings_of(caplog)) == 1
    world.run(1)
    assert len(warnings_of(caplog)) == 2


def test_another_difference_is_logged_at_once(caplog):
    world = started()
    for expression in ("A", "B", "B"):
        world.network.connection = seen(ME, OTHER, orders=expression)
        world.run(30_000)
    assert [text[-11:] for text in warnings_of(caplog)] == [
        "A elsewhere",
        "B elsewhere",
    ]


def test_a_warning_about_many_topics_is_cut(caplog):
    world = started()
    table = {f"topic-{n}": "x" * 10_000 for n in range(1_000)}
    world.network.connection = seen(ME, OTHER, **table)
    world.run(30_000)
    (text,) = warnings_of(caplog)
    assert len(text) < 1_000


@pytest.mark.parametrize(("members", "turns"), [(49, 1), (50, 2), (149, 3), (150, 4)])
def test_the_members_of_a_large_group_query_less_often(members, turns):
    """The reason is that each answer lists all members."""
    world = started()
    ids = [ME, *(f"10.0.0.3@{n}" for n in range(members - 1))]
    world.network.connection = seen(*ids, orders="*")
    world.run(29_000)
    asked = world.network.of("consumer_connection")
    assert len(asked) == 1
    world.run(30_000 * turns - 1)
    assert len(world.network.of("consumer_connection")) == 1
    world.run(1)
    assert len(world.network.of("consumer_connection")) == 2


def test_a_broker_that_does_not_answer_is_not_logged_as_a_difference(caplog):
    world = started()
    world.network.fail["consumer_connection"] = refusal()
    world.run(60_000)
    assert len(world.network.of("consumer_connection")) == 2
    assert warnings_of(caplog) == []


def test_a_member_that_is_denied_the_query_does_not_repeat_it(caplog):
    caplog.set_level(logging.DEBUG)
    world = started()
    denied = DeniedError("no permission", code=16, name="NO_PERMISSION")
    world.network.fail["consumer_connection"] = denied
    world.run(90_000)
    assert len(world.network.of("consumer_connection")) == 1


@pytest.mark.parametrize(
    ("here", "there", "count"),
    [("A || B", "B||A", 0), ("A||A", "A", 0), ("A", "B", 1), ("A || B", "A", 1)],
)
def test_expressions_that_select_the_same_messages_do_not_differ(here, there, count):
    ours, theirs = (
        {"orders": SubscriptionData(topic="orders", sub_string=text)}
        for text in (here, there)
    )
    assert len(differences(ours, theirs)) == count


@pytest.mark.parametrize(
    ("interval_ms", "first_ms"), [(1_000, 900), (10_000, 9_000), (100_000, 99_000)]
)
def test_the_broker_is_queried_a_tenth_of_the_interval_before_a_heartbeat(
    interval_ms, first_ms
):
    """It is queried at most a second before it."""
    world = started(heartbeat_broker_interval_ms=interval_ms)
    world.run(2 * interval_ms)
    asked = [call.at_ms - START_MS for call in world.network.of("consumer_connection")]
    assert asked == [first_ms, first_ms + interval_ms]
