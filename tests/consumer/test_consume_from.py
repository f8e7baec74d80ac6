"""`consume_from`, and the settings of a consumer that are arguments."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from rmqcli import (
    ConfigError,
    ConsumeFromWhere,
    Consumer,
    ConsumerConfig,
    SimpleConsumer,
    TextError,
    connect,
)
from rmqcli.position import Earliest, LastN
from tests.kit.waiting import wait_until


@pytest.fixture
def topic(rmq_cluster):
    """A topic with one queue that no longer has its first message.

    Brokers answer offset 0 to a new group while a queue still has it.
    """
    topic = rmq_cluster.create_topic("T", queues=1)
    rmq_cluster.send(topic, ["0", "1", "2", "3"])
    rmq_cluster.broker("broker-a").trim(topic, 1)
    return topic


def bodies_of(cluster, topic, count, **given):
    """The first bodies that a new group gets."""
    with Consumer("g", topic, namesrv=cluster.namesrv, **given) as consumer:
        messages = consumer.messages()
        return [next(messages).body for _ in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("begin", ["earliest", Earliest(), "-1h", "@0", "@2020-01-02"])
def test_a_new_group_begins_at_a_position(rmq_cluster, topic, begin):
    found = bodies_of(rmq_cluster, topic, 3, consume_from=begin)
    assert found == [b"1", b"2", b"3"]


@pytest.mark.parametrize("begin", ["latest", "now", None])
def test_a_new_group_begins_at_the_end(rmq_cluster, topic, begin):
    given = {} if begin is None else {"consume_from": begin}
    with Consumer("g", topic, namesrv=rmq_cluster.namesrv, **given) as consumer:
        wait_until(consumer.offsets)
        rmq_cluster.send(topic, ["new"])
        assert next(consumer.messages()).body == b"new"


def test_a_duration_is_counted_from_the_broker_s_clock(rmq_cluster_factory, rmq_clock):
    """The broker's clock is years behind this machine's."""
    cluster = rmq_cluster_factory(clock=rmq_clock)
    topic = cluster.create_topic("T", queues=1)
    cluster.send(topic, ["trimmed", "old"])
    cluster.advance(60_000)
    cluster.send(topic, ["young"])
    cluster.advance(20_000)
    cluster.broker("broker-a").trim(topic, 1)
    assert bodies_of(cluster, topic, 1, consume_from="-30s") == [b"young"]


def test_a_time_selects_the_first_message_that_is_not_older(
    rmq_cluster_factory, rmq_clock
):
    """Brokers up to 5.1 answer with the nearest message, which may be older."""
    cluster = rmq_cluster_factory(clock=rmq_clock, like="4.9.7")
    topic = cluster.create_topic("T", queues=1)
    cluster.send(topic, ["trimmed", "old"])
    cluster.advance(10_000)
    cluster.send(topic, ["young"])
    cluster.broker("broker-a").trim(topic, 1)
    at_ms = rmq_clock.epoch_ms() - 9_000
    assert bodies_of(cluster, topic, 1, consume_from=f"@{at_ms}") == [b"young"]


def test_java_s_names_still_work(rmq_cluster, topic):
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    config = ConsumerConfig(consume_from_where=first)
    assert bodies_of(rmq_cluster, topic, 1, config=config) == [b"1"]


def test_a_new_group_that_was_not_told_where_to_begin_says_once_where_it_did(
    rmq_cluster, caplog
):
    topic = rmq_cluster.create_topic("T", queues=4)
    rmq_cluster.send(topic, [str(number) for number in range(8)])
    rmq_cluster.broker("broker-a").trim(topic, 1)
    with (
        caplog.at_level(logging.WARNING, "rmqcli"),
        Consumer("g", topic, print, namesrv=rmq_cluster.namesrv) as consumer,
    ):
        wait_until(lambda: len(consumer.offsets()) >= 4)
    said = [each for each in caplog.messages if "has committed no offset" in each]
    assert len(said) == 1
    assert "begins at the end" in said[0]
    assert "set consume_from group=g queue=T@broker-a:" in said[0]


@pytest.mark.parametrize("given", [{"consume_from": "latest"}, {"is_old": True}])
def test_a_group_that_was_told_or_has_offsets_says_nothing(
    rmq_cluster, topic, caplog, given
):
    if given.pop("is_old", False):
        rmq_cluster.create_group("g")
        with Consumer("g", topic, print, namesrv=rmq_cluster.namesrv) as consumer:
            wait_until(consumer.offsets)
        caplog.clear()
    with Consumer("g", topic, print, namesrv=rmq_cluster.namesrv, **given) as consumer:
        wait_until(consumer.offsets)
    assert not [each for each in caplog.messages if "has committed no offset" in each]


def test_threads_and_batches_are_arguments(rmq_cluster):
    topic = rmq_cluster.create_topic("T", queues=1)
    rmq_cluster.send(topic, [str(number) for number in range(10)])
    sizes = []
    with Consumer(
        "g",
        topic,
        on_batch=lambda messages, context: sizes.append(len(messages)),
        namesrv=rmq_cluster.namesrv,
        consume_threads=1,
        batch=4,
    ) as consumer:
        wait_until(lambda: sum(sizes) == 10)
        assert consumer.config.consume_threads == 1
    assert sizes == [4, 4, 2]


@pytest.mark.parametrize(
    ("given", "error", "why"),
    [
        ({"consume_from": "first"}, TextError, "not a position"),
        ({"consume_from": "-100"}, TextError, "can begin only at earliest, latest"),
        ({"consume_from": "group:other"}, TextError, "can begin only at earliest"),
        ({"consume_from": LastN(3)}, ConfigError, "consume_from is -3: a group can"),
        ({"consume_from": 0}, TypeError, "consume_from is 0, an int"),
        ({"consume_threads": 0}, ConfigError, "consume_threads is 0; it must be 1 to"),
        ({"consume_threads": "1"}, TypeError, "consume_threads is '1', a str"),
        ({"batch": 1_025}, ConfigError, "batch is 1025; it must be 1 to 1024"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(given, error, why):
    with pytest.raises(error, match=why):
        Consumer("g", "T", print, namesrv="127.0.0.1:1", **given)


@pytest.mark.parametrize("name", ["consume_threads", "batch"])
def test_an_iterated_consumer_has_one_thread(name):
    given: dict[str, Any] = {name: 2}
    with pytest.raises(ConfigError, match=f"{name} needs a listener"):
        Consumer("g", "T", namesrv="127.0.0.1:1", **given)


def test_a_simple_consumer_begins_at_either_end(rmq_cluster, topic):
    with SimpleConsumer(
        "g", topic, namesrv=rmq_cluster.namesrv, consume_from="earliest"
    ) as consumer:
        wait_until(lambda: [m.body for m in consumer.receive()] == [b"1", b"2", b"3"])
    for begin in ("-15m", "now", "@2020-01-02"):
        with pytest.raises(ConfigError, match="can begin only at earliest or latest"):
            SimpleConsumer("g", topic, consume_from=begin)


def test_a_cluster_s_consumer_begins_there_too(rmq_cluster, topic):
    with (
        connect(rmq_cluster.namesrv) as cluster,
        cluster.consumer("g", topic, consume_from="earliest") as consumer,
    ):
        assert next(consumer.messages()).body == b"1"
