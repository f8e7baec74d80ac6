"""A consumer on the embedded cluster, as its user sees it."""

from __future__ import annotations

import re
import sys
import threading
from typing import Any

import pytest

from rmqcli import Consumer
from rmqcli.consumer.subscriptions import sql
from rmqcli.engine.config import ConsumeFromWhere, MessageModel
from rmqcli.engine.listener import ConsumeConcurrentlyStatus, ConsumeOrderlyStatus
from rmqcli.errors import BrokerError, ConfigError, UsageError
from rmqcli.model import MessageQueue
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.version import V5_5_0
from tests.consumer.collecting import Seen, committed, consumer
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.engine_threads("plain", "leasing")


def names(count, prefix="m"):
    return [f"{prefix}{n:04}" for n in range(count)]


def test_every_message_is_consumed_once_and_committed(rmq_cluster, rmq_topic):
    rmq_cluster.send(rmq_topic, names(500))
    seen = Seen()
    with consumer(rmq_cluster, "g", rmq_topic, seen):
        assert seen.wait_for(500) == names(500)
    assert len(seen.bodies) == 500
    assert committed(rmq_cluster, "g", rmq_topic) == dict.fromkeys(range(4), 125)


def test_a_consumer_that_starts_again_gets_only_messages_sent_since(
    rmq_cluster, rmq_topic
):
    """`close` commits, and leaves no thread behind."""
    before = set(threading.enumerate())
    seen = Seen()
    for start in range(0, 300, 100):
        rmq_cluster.send(rmq_topic, names(300)[start : start + 100])
        with consumer(rmq_cluster, "g", rmq_topic, seen):
            seen.wait_for(start + 100)
    assert sorted(seen.bodies) == names(300)
    assert set(threading.enumerate()) == before


def test_a_message_is_consumed_as_soon_as_it_is_sent(rmq_cluster, rmq_topic):
    seen = Seen()
    with consumer(rmq_cluster, "g", rmq_topic, seen) as running:
        wait_until(lambda: len(running.queues()) == 5)
        for name in names(20):
            rmq_cluster.send(rmq_topic, [name])
            seen.wait_for(int(name[1:]) + 1, timeout_s=2)


def test_a_message_says_which_queue_and_broker_it_came_from(rmq_cluster, rmq_topic):
    rmq_cluster.send(rmq_topic, ["x"], tags="A", queue_id=2)
    seen = Seen()
    with consumer(rmq_cluster, "g", rmq_topic, seen):
        seen.wait_for(1)
    message = seen.messages[0]
    assert (message.topic, message.broker_name) == (rmq_topic, "broker-a")
    assert (message.queue_id, message.queue_offset, message.tags) == (2, 0, "A")
    assert message.reconsume_times == 0
    assert message.origin.max_offset == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("act", "times"),
    [
        (lambda *_: None, 1),
        (lambda *_: True, 1),
        (lambda *_: ConsumeConcurrentlyStatus.CONSUME_SUCCESS, 1),
        (lambda _, times: times > 1, 2),
        (lambda _, times: None if times > 1 else 1 / 0, 2),
        (lambda _, times: None if times > 1 else sys.exit(3), 2),
        (
            lambda _, times: (
                None if times > 1 else ConsumeConcurrentlyStatus.RECONSUME_LATER
            ),
            2,
        ),
        (lambda _, times: None if times > 1 else "what?", 2),
    ],
    ids=["None", "True", "status", "False", "raises", "exits", "later", "nonsense"],
)
def test_the_listener_s_result_decides_whether_a_message_comes_again(
    rmq_cluster_factory, act, times
):
    """A failed message returns through the retry topic with its original topic."""
    cluster = rmq_cluster_factory(settings={"message_delay_level": "1s 1s 1s 1s 1s 1s"})
    topic = cluster.create_topic("orders")
    cluster.send(topic, ["x"])
    seen = Seen(act)
    with consumer(cluster, "g", topic, seen) as running:
        wait_until(lambda: len(seen.bodies) == times)
        wait_until(lambda: all(committed_now(running)))
    assert [m.reconsume_times for m in seen.messages] == list(range(times))
    assert {m.topic for m in seen.messages} == {topic}
    assert len(seen.bodies) == times


def committed_now(running):
    return [
        info.cached_msg_count == 0
        for info in running.running_info().process_queues.values()
    ]


@pytest.mark.slow
@pytest.mark.parametrize("body", ["bad", ""])
def test_a_message_is_a_dead_letter_after_its_last_retry(rmq_cluster_factory, body):
    """Brokers from 5.0 on send no message with an empty body back."""
    cluster = rmq_cluster_factory(settings={"message_delay_level": "1s 1s 1s 1s"})
    topic = cluster.create_topic("orders")
    cluster.send(topic, [body])
    seen = Seen(lambda *_: False)
    with consumer(cluster, "g", topic, seen, max_reconsume_times=1):
        wait_until(lambda: stored(cluster, "%DLQ%g") == 1)
    assert seen.bodies == [body, body]
    assert [m.reconsume_times for m in seen.messages] == [0, 1]


def stored(cluster, topic):
    store = cluster.brokers[0].store
    bounds = cluster.call(lambda: store.queue_bounds(topic, 0))
    return 0 if bounds is None else bounds[1]


def test_a_batch_may_succeed_in_part(rmq_cluster_factory):
    """The messages after ack_index are consumed again."""
    cluster = rmq_cluster_factory(settings={"message_delay_level": "1s 1s 1s 1s"})
    topic = cluster.create_topic("orders", queues=1)
    cluster.send(topic, names(8))
    batches = []

    def take(messages, context):
        batches.append([m.body.decode() for m in messages])
        if messages[0].reconsume_times == 0:
            context.ack_index = 4

    with consumer(
        cluster,
        "g",
        topic,
        take,
        batch=True,
        consume_message_batch_max_size=32,
        consume_threads=1,
    ):
        wait_until(lambda: sum(map(len, batches)) >= 11)
    assert batches[0] == names(8)
    assert sorted(each for batch in batches[1:] for each in batch) == names(8)[5:]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value"),
    [("ack_index", 1.0), ("ack_index", "1"), ("delay_level_when_next_consume", "3")],
)
def test_a_batch_whose_listener_sets_a_wrong_type_is_retried(
    rmq_cluster_factory, name, value
):
    cluster = rmq_cluster_factory(settings={"message_delay_level": "1s 1s 1s 1s"})
    topic = cluster.create_topic("orders", queues=1)
    cluster.send(topic, names(4))
    bodies: list[str] = []

    def take(messages, context):
        bodies.extend(m.body.decode() for m in messages)
        if messages[0].reconsume_times == 0:
            setattr(context, name, value)
            if name != "ack_index":  # the level counts after a failure
                raise ValueError

    with consumer(
        cluster, "g", topic, take, batch=True, consume_message_batch_max_size=8
    ):
        wait_until(lambda: len(bodies) == 8)
    assert sorted(bodies) == sorted(names(4) * 2)
    assert committed(cluster, "g", topic) == {0: 4}


@pytest.mark.parametrize("value", ["3", 150.5])
def test_an_orderly_queue_whose_listener_sets_a_wrong_type_goes_on(rmq_cluster, value):
    topic = rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send(topic, names(2))
    bodies: list[str] = []

    def take(messages, context):
        bodies.append(messages[0].body.decode())
        if len(bodies) == 1:
            context.suspend_current_queue_time_ms = value
            raise ValueError

    with consumer(
        rmq_cluster,
        "g",
        topic,
        take,
        batch=True,
        orderly=True,
        suspend_current_queue_time_ms=10,
    ):
        wait_until(lambda: len(bodies) == 3)
    assert bodies == ["m0000", "m0000", "m0001"]
    assert committed(rmq_cluster, "g", topic) == {0: 2}


def test_orderly_consumption_keeps_the_order_and_waits_for_a_failed_message(
    rmq_cluster,
):
    topic = rmq_cluster.create_topic("orders", queues=2)
    for queue_id in range(2):
        rmq_cluster.send(topic, names(60, f"q{queue_id}-"), queue_id=queue_id)
    failed = []

    def fail_once(message, times):
        if message.queue_offset in (3, 40) and times == 1:
            failed.append(message.queue_offset)
            return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
        return None

    seen = Seen(fail_once)
    settings = {"orderly": True, "suspend_current_queue_time_ms": 20}
    with consumer(rmq_cluster, "g", topic, seen, **settings):
        seen.wait_for(120)
    assert len(failed) == 4
    for queue_id in range(2):
        offsets = [m.queue_offset for m in seen.messages if m.queue_id == queue_id]
        expected = [*range(4), 3, *range(4, 41), 40, *range(41, 60)]
        assert offsets == expected
    assert committed(rmq_cluster, "g", topic) == {0: 60, 1: 60}


def test_two_members_share_the_queues_and_one_takes_over_when_the_other_leaves(
    rmq_cluster, rmq_topic
):
    first, second = Seen(), Seen()
    one = consumer(rmq_cluster, "g", rmq_topic, first)
    two = consumer(rmq_cluster, "g", rmq_topic, second)
    one.start()
    two.start()
    wait_until(
        lambda: (orders(one), orders(two)) in (([0, 1], [2, 3]), ([2, 3], [0, 1]))
    )
    rmq_cluster.send(rmq_topic, names(40))
    wait_until(lambda: len(first.bodies) == len(second.bodies) == 20)
    one.close()
    wait_until(lambda: orders(two) == [0, 1, 2, 3])
    rmq_cluster.send(rmq_topic, names(40, "n"))
    second.wait_for(60)
    two.close()
    assert sorted(first.bodies + second.bodies) == names(40) + names(40, "n")


def orders(running):
    return [q.queue_id for q in running.queues() if not q.topic.startswith("%")]


def test_every_broadcasting_member_gets_every_message_and_remembers_how_far_it_came(
    rmq_cluster, rmq_topic, tmp_path, monkeypatch
):
    """The name of its file has its client id, which is the same at each start."""
    monkeypatch.setenv("HOME", str(tmp_path))

    def consumed(instance, wanted):
        seen = Seen()
        with consumer(
            rmq_cluster,
            "g",
            rmq_topic,
            seen,
            message_model=MessageModel.BROADCASTING,
            instance_name=instance,
        ) as running:
            wait_until(lambda: len(running.queues()) == 4)
            assert seen.wait_for(len(wanted)) == wanted
            return running.client_id

    rmq_cluster.send(rmq_topic, names(40))
    for instance in ("a", "b", None):
        consumed(instance, names(40))
    rmq_cluster.send(rmq_topic, ["new"])
    assert consumed("a", ["new"]) == "127.0.0.1@a"
    assert consumed(None, ["new"]) == "127.0.0.1@DEFAULT"
    assert committed(rmq_cluster, "g", rmq_topic) == {}


def test_a_listener_gets_only_messages_with_its_tags(rmq_cluster, rmq_topic):
    """The broker compares only hashes, which are equal for "Aa" and "BB"; the consumer
    compares the texts."""
    for tag in ("Aa", "BB", "C"):
        rmq_cluster.send(rmq_topic, [tag], tags=tag, queue_id=0)
    seen = Seen()
    with consumer(rmq_cluster, "g", {rmq_topic: "Aa || C"}, seen):
        assert seen.wait_for(2) == ["Aa", "C"]
        wait_until(lambda: len(seen.bodies) >= 2)
    assert committed(rmq_cluster, "g", rmq_topic)[0] == 3


def test_a_listener_gets_only_messages_that_match_its_sql(rmq_cluster_factory):
    cluster = rmq_cluster_factory(settings={"enable_property_filter": True})
    topic = cluster.create_topic("orders")
    from rmqcli.testing import Seed

    cluster.send(
        topic, [Seed(body=str(n).encode(), properties={"n": str(n)}) for n in range(9)]
    )
    seen = Seen()
    with consumer(cluster, "g", {topic: sql(topic, "n BETWEEN 3 AND 5")}, seen):
        assert seen.wait_for(3) == ["3", "4", "5"]


def test_sql_that_a_broker_refuses_ends_the_start(rmq_cluster_factory):
    cluster = rmq_cluster_factory(settings={"enable_property_filter": False})
    cluster.create_topic("T")
    running = consumer(cluster, "g", {"T": sql("T", "n > 1")}, Seen())
    with pytest.raises(BrokerError, match="does not support"):
        running.start()
    assert not [t for t in threading.enumerate() if t.name == "rmq-engine"]


def test_consume_from_last_offset_begins_at_the_end(rmq_cluster, rmq_topic):
    rmq_cluster.send(rmq_topic, names(40))
    store = rmq_cluster.brokers[0]
    store.trim(rmq_topic, 5)  # a queue without its first message is not a new one
    seen = Seen()
    last = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    with consumer(
        rmq_cluster, "g", rmq_topic, seen, consume_from_where=last
    ) as running:
        wait_until(lambda: len(running.queues()) == 5)
        rmq_cluster.send(rmq_topic, ["new"])
        assert seen.wait_for(1) == ["new"]


def test_a_trimmed_queue_is_consumed_from_its_lowest_offset(rmq_cluster):
    topic = rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send(topic, names(50))
    rmq_cluster.brokers[0].trim(topic, 20)
    seen = Seen()
    with consumer(rmq_cluster, "g", topic, seen):
        assert seen.wait_for(30) == names(50)[20:]


def test_a_queue_that_is_added_to_a_topic_is_consumed(rmq_cluster):
    topic = rmq_cluster.create_topic("orders", queues=1)
    seen = Seen()
    fast = {"poll_namesrv_interval_ms": 100}
    with consumer(rmq_cluster, "g", topic, seen, **fast) as running:
        wait_until(lambda: orders(running) == [0])
        rmq_cluster.brokers[0].set_queues(topic, read=3, write=3)
        rmq_cluster.send(topic, names(9))
        assert seen.wait_for(9) == names(9)


def test_nothing_is_pulled_between_pause_and_resume(rmq_cluster, rmq_topic):
    seen = Seen()
    pulls = rmq_cluster.faults.observe(code=RequestCode.PULL_MESSAGE, topic=rmq_topic)
    with consumer(rmq_cluster, "g", rmq_topic, seen) as running:
        wait_until(lambda: pulls.seen >= 4)
        running.pause()
        running.queues()  # the engine has seen the pause
        held = pulls.seen
        for queue_id in range(4):  # pulls that were under way are still answered
            rmq_cluster.send(rmq_topic, [f"early {queue_id}"], queue_id=queue_id)
        seen.wait_for(4)
        running.commit()  # later pulls would have come before these requests
        assert pulls.seen == held
        rmq_cluster.send(rmq_topic, ["late"])
        running.resume()
        seen.wait_for(5)
    assert seen.bodies[-1] == "late"


def test_seek_consumes_from_the_given_offset(rmq_cluster):
    topic = rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send(topic, names(30))
    seen = Seen()
    with consumer(rmq_cluster, "g", topic, seen) as running:
        seen.wait_for(30)
        queue = next(q for q in running.queues() if q.topic == topic)
        running.seek(queue, 25)
        wait_until(lambda: len(seen.bodies) == 35)
        with pytest.raises(UsageError, match="offset is -1; it must be 0"):
            running.seek(queue, -1)
    assert seen.bodies[30:] == names(30)[25:]
    assert committed(rmq_cluster, "g", topic) == {0: 30}


def test_a_close_does_not_wait_for_ever_for_a_listener(rmq_cluster, rmq_topic):
    """The listener's message is not committed, and another member gets it."""
    rmq_cluster.send(rmq_topic, ["stuck"], queue_id=0)
    gate = threading.Event()
    seen = Seen(lambda *_: gate.wait(60))
    running = consumer(rmq_cluster, "g", rmq_topic, seen)
    running.start()
    seen.wait_for(1)
    running.close(timeout_ms=100)
    assert committed(rmq_cluster, "g", rmq_topic).get(0, 0) == 0
    gate.set()
    again = Seen()
    with consumer(rmq_cluster, "g", rmq_topic, again):
        assert again.wait_for(1) == ["stuck"]


def test_a_close_waits_for_the_listener_and_commits_its_message(rmq_cluster, rmq_topic):
    """Source: testGracefulShutdown."""
    rmq_cluster.send(rmq_topic, ["slow"], queue_id=0)
    gate = threading.Event()
    seen = Seen(lambda *_: gate.wait(60))
    running = consumer(rmq_cluster, "g", rmq_topic, seen)
    running.start()
    seen.wait_for(1)
    closing = threading.Thread(target=running.close)
    closing.start()
    gate.set()
    closing.join(10)
    assert committed(rmq_cluster, "g", rmq_topic) == {0: 1}


def test_a_consumer_can_be_closed_twice_and_not_started_again(rmq_cluster, rmq_topic):
    running = consumer(rmq_cluster, "g", rmq_topic, Seen())
    running.start()
    running.close()
    running.close()
    assert running.wait(0)
    with pytest.raises(UsageError, match="can be started only once"):
        running.start()


@pytest.mark.parametrize("method", ["pause", "resume", "seek"])
def test_a_change_of_a_closed_consumer_is_refused(rmq_cluster, rmq_topic, method):
    """It returned as if it had an effect."""
    running = consumer(rmq_cluster, "g", rmq_topic, Seen())
    running.start()
    running.close()
    arguments = [MessageQueue(rmq_topic, "broker-a", 0), 0] if method == "seek" else []
    with pytest.raises(UsageError, match="the consumer is closed"):
        getattr(running, method)(*arguments)
    assert running.queues() == []


def test_a_wait_for_a_consumer_that_was_not_started_is_refused(rmq_cluster, rmq_topic):
    """It had no end, as nothing was consumed that could end."""
    new = consumer(rmq_cluster, "g", rmq_topic, Seen())
    with pytest.raises(UsageError, match="not started: use `with`, or call start"):
        new.wait(0)
    new.close()
    assert new.wait()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("", "t", print), ConfigError),
        (("DEFAULT_CONSUMER", "t", print), ConfigError),
        (("g", "a/b", print), ConfigError),
        (("g", {"t": "||"}, print), UsageError),
    ],
)
def test_settings_that_are_not_possible_raise_before_anything_is_sent(arguments, error):
    with pytest.raises(error):
        Consumer(*arguments)


def test_a_consumer_goes_on_after_its_broker_restarted(rmq_cluster, rmq_topic):
    seen = Seen()
    fast: dict[str, Any] = {
        "pull_time_delay_when_exception_ms": 50,
        "heartbeat_broker_interval_ms": 200,
        "rebalance_interval_ms": 200,
    }
    with consumer(rmq_cluster, "g", rmq_topic, seen, **fast):
        rmq_cluster.send(rmq_topic, names(40))
        seen.wait_for(40)
        rmq_cluster.brokers[0].restart()
        rmq_cluster.send(rmq_topic, names(40, "n"))
        seen.wait_for(80)


def test_a_slow_message_does_not_hold_up_those_behind_it(rmq_cluster):
    """Several threads share the messages of a pull; the committed offset does not pass
    the slow message."""
    topic = rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send(topic, names(30))
    gate = threading.Event()
    seen = Seen(lambda m, _: gate.wait(60) if m.queue_offset == 3 else None)
    with consumer(rmq_cluster, "g", topic, seen, consume_threads=4) as running:
        # Messages of the same pull wait only until this one is known to be slow.
        wait_until(lambda: len(set(seen.bodies)) == 30)
        rmq_cluster.send(topic, names(30, "n"))
        seen.wait_for(60)
        queue = next(q for q in running.queues() if q.topic == topic)
        assert running.offsets().get(queue, 0) <= 3
        gate.set()
        seen.wait_for(60)
    assert committed(rmq_cluster, "g", topic) == {0: 60}


def test_running_info_is_what_a_broker_gets_that_asks_for_it(rmq_cluster, rmq_topic):
    from rmqcli.api.calls.consumer import get_consumer_running_info
    from rmqcli.api.client import Client
    from rmqcli.config import ClientConfig

    with (
        consumer(rmq_cluster, "g", rmq_topic, Seen()) as running,
        Client(ClientConfig(namesrv=(rmq_cluster.namesrv,))) as client,
    ):
        assert running.client_id is not None
        broker = client.master_of(client.route(rmq_topic), "broker-a")
        assert client.broker_version(broker) == V5_5_0
        told = client.invoke(broker, get_consumer_running_info("g", running.client_id))
        # The answer has the version of the member, 4.9.8.
        assert client.known_version(broker) == V5_5_0
        ours = running.running_info()
    assert ours.properties == told.properties
    assert told.properties["PROP_NAMESERVER_ADDR"] == rmq_cluster.namesrv
    assert int(told.properties["PROP_CONSUMER_START_TIMESTAMP"]) > 1_700_000_000_000


def test_a_thread_dump_for_a_broker_has_no_source_text(rmq_cluster, rmq_topic):
    from rmqcli.api.calls.consumer import get_consumer_running_info
    from rmqcli.api.client import Client
    from rmqcli.config import ClientConfig

    secret = "ses" + "ame"  # the word is only on the line that waits for the answer
    with (
        consumer(rmq_cluster, "g", rmq_topic, Seen()) as running,
        Client(ClientConfig(namesrv=(rmq_cluster.namesrv,))) as client,
    ):
        assert running.client_id is not None
        broker = client.master_of(client.route(rmq_topic), "broker-a")
        ask = get_consumer_running_info("g", running.client_id, jstack=True)
        dump = client.invoke(broker, ask).jstack or ""  # sesame
    assert re.search(
        r"\n\tat tests\.consumer\.test_consumer"
        r"\.test_a_thread_dump_for_a_broker_has_no_source_text"
        r"\(test_consumer\.py:\d+\)\n",
        dump,
    )
    assert secret not in dump
    assert "/" not in dump
    for line in dump.splitlines():
        assert re.fullmatch(r'"[^"]+"|\tat [\w.<>]+\([^():]+:\d+\)|', line), line
