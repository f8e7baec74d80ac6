"""A start without a topic, name server or broker raises an error or waits."""

from __future__ import annotations

import logging
import socket
import threading
import time
from contextlib import contextmanager

import pytest

from rmqcli import ConsumerConfig, sql
from rmqcli.errors import ConnectError, DeadlineError, DeniedError, NotFoundError
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from tests.consumer.collecting import (
    FROM_FIRST,
    ConsumerUnderTest,
    Seen,
    committed,
    consumer,
)
from tests.kit.rows import each_row
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.engine_threads("plain", "leasing")

#: Much less than the 30 s for which a start may wait, but enough on a busy machine.
AT_ONCE_S = 10


@contextmanager
def at_once():
    began = time.monotonic()
    yield
    assert time.monotonic() - began < AT_ONCE_S


@contextmanager
def silence():
    """A peer that accepts connections and never answers; yields its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def refused():
    """Return an address at which no process listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def none_left():
    return not [t for t in threading.enumerate() if t.name.startswith("rmq-engine")]


def test_an_unknown_topic_is_an_error_at_once_and_is_said_once(rmq_cluster, caplog):
    running = consumer(rmq_cluster, "g", "no-such-topic", Seen())
    with pytest.raises(NotFoundError, match="no-such-topic") as caught, at_once():
        running.start()
    assert caught.value.name == "TOPIC_NOT_EXIST"
    assert "topics argument" in caught.value.hint
    assert "--" not in caught.value.hint
    assert caplog.messages == []
    assert none_left()


def test_an_unknown_topic_is_an_error_when_the_group_has_a_retry_topic(
    rmq_cluster, caplog
):
    """Every group has one that had members before."""
    rmq_cluster.create_topic("%RETRY%g", queues=1)
    running = consumer(rmq_cluster, "g", "no-such-topic", Seen())
    with pytest.raises(NotFoundError, match="no-such-topic"), at_once():
        running.start()
    assert caplog.messages == []
    assert none_left()


def test_several_topics_that_are_all_unknown_are_an_error_at_once(rmq_cluster):
    running = consumer(rmq_cluster, "g", ["one", "two"], Seen())
    with pytest.raises(NotFoundError, match="one"), at_once():
        running.start()


def test_an_unknown_topic_among_others_causes_a_warning(rmq_cluster, rmq_topic, caplog):
    """The topic is consumed as soon as it exists."""
    seen = Seen()
    fast = {"poll_namesrv_interval_ms": 100}
    topics = [rmq_topic, "comes-later"]
    with caplog.at_level(logging.WARNING), at_once():
        running = consumer(rmq_cluster, "g", topics, seen, **fast)
        running.start()
    with running:
        assert "no route topic=comes-later" in caplog.text
        rmq_cluster.send(rmq_topic, ["first"])
        seen.wait_for(1)
        rmq_cluster.create_topic("comes-later")
        rmq_cluster.send("comes-later", ["second"])
        assert seen.wait_for(2) == ["first", "second"]


def test_sql_for_a_topic_that_is_unknown_among_others_is_no_error(
    rmq_cluster, rmq_topic
):
    topics = {rmq_topic: "*", "comes-later": sql("comes-later", "a > 1")}
    with at_once(), consumer(rmq_cluster, "g", topics, Seen()) as running:
        wait_until(lambda: len(running.queues()) == 5)


@pytest.mark.parametrize("count", [1, 2])
def test_name_servers_that_refuse_connections_are_an_error_at_once(count):
    namesrvs = [refused() for _ in range(count)]
    running = ConsumerUnderTest("g", "orders", Seen(), namesrv=";".join(namesrvs))
    with pytest.raises(ConnectError, match="refused") as caught, at_once():
        running.start()
    assert all(each in caught.value.message for each in namesrvs)
    assert "namesrv argument" in caught.value.hint
    assert none_left()


@pytest.mark.slow
def test_a_silent_name_server_is_an_error_after_its_deadline():
    with silence() as address:
        running = ConsumerUnderTest("g", "orders", Seen(), namesrv=address)
        with pytest.raises(DeadlineError, match=address), at_once():
            running.start()


def test_one_name_server_that_has_the_topic_is_enough(rmq_cluster, rmq_cluster_factory):
    """The other name servers may refuse connections or not know the topic."""
    other = rmq_cluster_factory()
    rmq_cluster.create_topic("orders")
    rmq_cluster.send("orders", ["one"])
    seen = Seen()
    namesrv = ";".join([refused(), other.namesrv, rmq_cluster.namesrv])
    with ConsumerUnderTest(
        "g",
        "orders",
        seen,
        namesrv=namesrv,
        config=ConsumerConfig(consume_from_where=FROM_FIRST),
    ):
        assert seen.wait_for(1) == ["one"]


def test_a_start_may_wait_for_a_topic_that_is_created_later(rmq_cluster):
    seen = Seen()
    running = consumer(rmq_cluster, "g", "later", seen)
    starting = threading.Thread(
        target=running.start, kwargs={"wait_for_cluster": True}, daemon=True
    )
    starting.start()
    wait_until(lambda: running._backend.engine and running._backend.engine.start_error)
    assert starting.is_alive()
    rmq_cluster.create_topic("later")
    rmq_cluster.send("later", ["one"])
    starting.join(20)
    assert not starting.is_alive()
    with running:
        assert seen.wait_for(1) == ["one"]


def test_a_start_may_wait_for_a_name_server_that_comes_up_later(rmq_cluster_factory):
    address = refused()
    seen = Seen()
    running = ConsumerUnderTest("g", "orders", seen, namesrv=address)
    starting = threading.Thread(
        target=running.start, kwargs={"wait_for_cluster": True}, daemon=True
    )
    starting.start()
    wait_until(lambda: running._backend.engine and running._backend.engine.start_error)
    cluster = rmq_cluster_factory(namesrv_port=int(address.rpartition(":")[2]))
    cluster.create_topic("orders")
    starting.join(20)
    assert not starting.is_alive()
    with running:
        wait_until(lambda: len(running.queues()) == 5)


def test_a_start_that_waited_in_vain_says_what_was_missing():
    address = refused()
    running = ConsumerUnderTest("g", "orders", Seen(), namesrv=address)
    with pytest.raises(DeadlineError, match="refused") as caught:
        running.start(timeout_ms=300, wait_for_cluster=True)
    assert "300 ms" in caught.value.message
    assert address in caught.value.message
    assert str(caught.value.hint) == "check the namesrv argument or NAMESRV_ADDR"


@pytest.mark.slow
def test_a_start_waits_for_a_broker_of_the_route_that_is_not_up(rmq_cluster, rmq_topic):
    """The broker may be restarting."""
    rmq_cluster.send(rmq_topic, ["one"])
    rule = rmq_cluster.faults.add(
        faults.disconnect(), code=RequestCode.HEART_BEAT, times=3
    )
    seen = Seen()
    with consumer(rmq_cluster, "g", rmq_topic, seen):
        assert seen.wait_for(1) == ["one"]
    assert rule.hits == 3


def test_retries_of_a_new_group_are_consumed_from_a_broker_that_is_a_little_slower(
    rmq_cluster_factory,
):
    """Its heartbeat creates the retry topic after the route was fetched."""
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_topic("orders")
    cluster.faults.add(
        faults.drop_request(), code=RequestCode.HEART_BEAT, broker="broker-b", times=1
    )
    often = {"heartbeat_broker_interval_ms": 500}
    with consumer(cluster, "g", "orders", Seen(), **often) as running, at_once():
        wait_until(
            lambda: (
                {q.broker_name for q in running.queues() if q.topic == "%RETRY%g"}
                == {"broker-a", "broker-b"}
            )
        )


def test_the_error_names_a_broker_that_never_accepts_a_heartbeat(
    rmq_cluster, rmq_topic
):
    rmq_cluster.faults.add(faults.answer(1, "not today"), code=RequestCode.HEART_BEAT)
    running = consumer(rmq_cluster, "g", rmq_topic, Seen())
    with pytest.raises(DeadlineError, match="not today") as caught:
        running.start(timeout_ms=500)
    assert caught.value.hint == "check that the brokers of the topics are online"
    assert committed(rmq_cluster, "g", rmq_topic) == {}


def test_a_start_without_the_rights_to_join_the_group_is_denied(rmq_cluster, rmq_topic):
    """A script took it for brokers that are away (exit code 5)."""
    denial = faults.answer(16, "no rights")
    rmq_cluster.faults.add(denial, code=RequestCode.HEART_BEAT)
    running = consumer(rmq_cluster, "g", rmq_topic, Seen())
    with pytest.raises(DeniedError, match=r"heartbeat of group g .*no rights") as found:
        running.start(timeout_ms=500)
    assert found.value.exit_code == 4


# Settings


@each_row(
    ("settings", "message"),
    [
        ({"consume_threads": "3"}, "consume_threads is '3', a str; it must be an int"),
        ({"consume_threads": True}, "consume_threads is True, a bool; it must be"),
        ({"pull_batch_size": 2.0}, "pull_batch_size is 2.0, a float; it must be an"),
        ({"max_reconsume_times": "x"}, "it must be an int or None"),
        ({"message_model": "CLUSTERING"}, "it must be a MessageModel"),
        ({"consume_from_where": 1}, "it must be a ConsumeFromWhere"),
        ({"client_ip": 127}, "client_ip is 127, an int; it must be a str or None"),
        ({"like_4_6_offset_illegal": 1}, "is 1, an int; it must be a bool"),
        ({"strategy": "AVG"}, "it must be an AllocateMessageQueueStrategy"),
        ({"consume_threads": None}, "consume_threads is None, a NoneType"),
    ],
)
def test_a_setting_of_a_wrong_type_is_refused_where_it_is_set(settings, message):
    with pytest.raises(TypeError, match=message):
        ConsumerConfig(**settings)


# Queries


def test_a_query_that_fails_inside_the_engine_raises_its_own_error(
    rmq_cluster, rmq_topic
):
    with consumer(rmq_cluster, "g", rmq_topic, Seen()) as running:

        def question():
            raise ZeroDivisionError("its own")

        with pytest.raises(ZeroDivisionError, match="its own"):
            running._backend.ask(question)
        wait_until(lambda: len(running.queues()) == 5)
