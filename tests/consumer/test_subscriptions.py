"""What both kinds of consumers refuse to subscribe to."""

from __future__ import annotations

import pytest

from rmqcli import Consumer, SimpleConsumer, UsageError, sql


def ignore(_message):
    return None


@pytest.fixture(params=["Consumer", "SimpleConsumer"])
def subscribe(request):
    if request.param == "Consumer":
        return lambda topics: Consumer("g", topics, ignore, namesrv="127.0.0.1:9")
    return lambda topics: SimpleConsumer("g", topics, namesrv="127.0.0.1:9")


def test_a_subscription_for_another_topic_than_its_key_is_refused(subscribe):
    with pytest.raises(UsageError) as refused:
        subscribe({"orders": sql("payments", "a > 1")})
    assert refused.value.message == (
        "the subscription for topic orders is for topic payments"
    )


def test_two_subscriptions_for_one_topic_are_refused(subscribe):
    with pytest.raises(UsageError) as refused:
        subscribe(["orders", sql("orders", "a > 1")])
    assert refused.value.message == "topic orders has two different subscriptions"


@pytest.mark.parametrize("topics", [(), {}])
def test_a_consumer_of_no_topic_is_refused(subscribe, topics):
    with pytest.raises(UsageError) as refused:
        subscribe(topics)
    assert refused.value.message == "topics is empty; at least one is needed"
