"""Java's producers and consumers work with the embedded cluster."""

from __future__ import annotations

import base64
import time

import pytest

from tests.kit.java_program import JavaConsumer, java_producer

pytestmark = pytest.mark.rmq_versions("4.6.0", "4.9.7", "5.5.0")


def encoded(text):
    return base64.b64encode(text.encode()).decode()


def bodies(messages):
    return sorted(base64.b64decode(m["bodyB64"]).decode() for m in messages)


def names(prefix, count):
    return sorted(f"{prefix}-{number}" for number in range(count))


def send(embedded, topic, count, **fields):
    specs = [
        {"topic": topic, "bodyB64": encoded(f"m-{n}"), "tags": "TagA", **fields}
        for n in range(count)
    ]
    sent = java_producer(embedded, specs)
    assert {each.get("sendStatus") for each in sent} == {"SEND_OK"}, sent
    return sent


def test_sends_of_every_kind_are_pulled_by_every_kind(embedded, scenarios):
    topic = embedded.create_topic(queues=2)
    sent = scenarios.ask(do="async", topic=topic, count=20)
    assert (sent["sent"], sent["all"]) == (20, True), sent
    assert scenarios.ask(do="oneway", topic=topic, count=5) == {"sent": 5}
    chosen = scenarios.ask(do="selected", topic=topic, count=8, keys=4)
    queues = dict(each.split(":") for each in chosen["queues"].split(","))
    assert len(queues) == 4
    everything = ",".join(
        sorted([*names("async", 20), *names("oneway", 5), *names("selected", 8)])
    )
    assigned = scenarios.ask(do="lite-assign", topic=topic, group="lite-a", expect=33)
    assert assigned.get("bodies") == everything, assigned
    subscribed = scenarios.ask(
        do="lite-subscribe", topic=topic, group=f"lite-{topic}", expect=33
    )
    assert subscribed.get("bodies") == everything, subscribed
    pulled = scenarios.ask(do="pull", topic=topic, group=f"pull-{topic}")
    assert pulled.get("bodies") == everything, pulled
    assert pulled["beyond"].split() == ["OFFSET_ILLEGAL"] * 4


def test_batches_and_lookups(embedded, scenarios):
    topic = embedded.create_topic(queues=1)
    batch = [
        {"topic": topic, "bodyB64": encoded(f"b-{n}"), "keys": f"key-{n % 2}"}
        for n in range(4)
    ]
    (sent,) = java_producer(embedded, [{"batch": batch}])
    assert sent["sendStatus"] == "SEND_OK", sent
    found = scenarios.ask(do="query", topic=topic, key="key-1")
    assert found.get("bodies") == "b-1,b-3", found
    first = sent["offsetMsgId"].split(",")[0]
    viewed = scenarios.ask(do="view", topic=topic, msgId=first)
    assert viewed == {"body": "b-0", "queueOffset": 0}
    by_unique_id = scenarios.ask(
        do="view", topic=topic, msgId=sent["msgId"].split(",")[1]
    )
    assert by_unique_id == {"body": "b-1", "queueOffset": 1}


def test_offsets_by_time(embedded, scenarios):
    topic = embedded.create_topic(queues=1)
    send(embedded, topic, 3, brokerName="broker-a", queueId=0)
    found = scenarios.ask(do="offsets", topic=topic, time=0)
    assert set(found["bodies"].split(",")) == {"0:0:3:0", "0:0:0:0"}
    later = scenarios.ask(do="offsets", topic=topic, time=4_000_000_000_000)
    assert set(later["bodies"].split(",")) == {"0:0:3:3", "0:0:0:0"}


def test_a_push_consumer_gets_everything_and_commits(embedded):
    topic = embedded.create_topic(queues=4)
    send(embedded, topic, 40)
    with JavaConsumer(embedded, f"g-{topic}", topic) as consumer:
        messages = consumer.wait_for(40)
    assert bodies(messages) == names("m", 40)
    offsets = embedded.cluster.call(
        lambda: [
            sum(
                (broker.state.offsets.query(f"g-{topic}", topic, queue) or 0)
                for queue in range(4)
            )
            for broker in embedded.cluster.brokers
        ]
    )
    assert sum(offsets) == 40


def test_failures_go_through_the_retry_topic(embedded):
    topic = embedded.create_topic(queues=1)
    options = {"failTimes": 2}
    with JavaConsumer(embedded, f"g-{topic}", topic, **options) as consumer:
        send(embedded, topic, 2)
        messages = consumer.wait_for(6)
    assert sorted(m["reconsumeTimes"] for m in messages) == [0, 0, 1, 1, 2, 2]
    assert {m["topic"] for m in messages} == {topic}


def test_given_up_messages_are_in_the_dead_letter_queue(embedded):
    topic = embedded.create_topic(queues=1)
    group = f"g-{topic}"
    options = {"failTimes": 99, "maxReconsumeTimes": 1}
    with JavaConsumer(embedded, group, topic, **options) as consumer:
        send(embedded, topic, 1)
        consumer.wait_for(2)

        def is_dead():
            return embedded.cluster.call(
                lambda: any(
                    broker.state.store.queue_bounds(f"%DLQ%{group}", 0) == (0, 1)
                    for broker in embedded.cluster.brokers
                )
            )

        consumer.wait_until(is_dead, what="message in the dead letter queue")


def test_an_orderly_consumer_keeps_each_queue_in_order(embedded):
    topic = embedded.create_topic(queues=2)
    for queue_id in (0, 1):
        send(embedded, topic, 20, brokerName="broker-a", queueId=queue_id)
    with JavaConsumer(embedded, f"g-{topic}", topic, orderly=True) as consumer:
        messages = consumer.wait_for(40)
    for queue_id in (0, 1):
        mine = [m["queueOffset"] for m in messages if m["queueId"] == queue_id]
        assert mine == list(range(20))


def test_an_orderly_consumer_tries_again_in_place(embedded):
    topic = embedded.create_topic(queues=1)
    options = {"orderly": True, "failTimes": 1}
    with JavaConsumer(embedded, f"g-{topic}", topic, **options) as consumer:
        send(embedded, topic, 1)
        messages = consumer.wait_for(2)
    assert [m["reconsumeTimes"] for m in messages] == [0, 1]
    assert {m["queueOffset"] for m in messages} == {0}


def test_every_broadcast_consumer_gets_everything(embedded):
    topic = embedded.create_topic(queues=2)
    group = f"g-{topic}"
    send(embedded, topic, 8)
    options = {"broadcast": True}
    with (
        JavaConsumer(embedded, group, topic, **options) as one,
        JavaConsumer(embedded, group, topic, **options) as other,
    ):
        assert bodies(one.wait_for(8)) == names("m", 8)
        assert bodies(other.wait_for(8)) == names("m", 8)


def test_two_consumers_share_and_one_leaves(embedded):
    topic = embedded.create_topic(queues=2)
    group = f"g-{topic}"
    with JavaConsumer(embedded, group, topic) as stays:
        with JavaConsumer(embedded, group, topic) as leaves:
            sent = 0
            limit = time.monotonic() + 60
            while not (stays.messages and leaves.messages):
                assert time.monotonic() < limit, "only one of the two gets messages"
                send(embedded, topic, 8)
                sent += 8
                _wait_for_both(stays, leaves, sent)
        before = len(stays.messages) + len(leaves.messages)
        send(embedded, topic, 8)
        stays.wait_until(
            lambda: len(stays.messages) + len(leaves.messages) >= before + 8,
            what="all messages at the one that stayed",
        )


def _wait_for_both(one, other, count):
    one.wait_until(
        lambda: len(one.messages) + _seen(other) >= count,
        what=f"{count} messages between the two",
    )


def _seen(consumer):
    consumer.wait_until(lambda: True, what="events")
    return len(consumer.messages)


@pytest.mark.parametrize(("where", "expected"), [("FIRST", 3), ("LAST", 3)])
def test_where_a_new_group_begins_in_a_young_queue(embedded, where, expected):
    """A broker answers 0 for a queue whose first message is still in memory."""
    topic = embedded.create_topic(queues=1)
    send(embedded, topic, 3)
    options = {"from": where}
    with JavaConsumer(embedded, f"g-{topic}", topic, **options) as consumer:
        assert len(consumer.wait_for(expected)) == expected


def test_a_new_group_begins_at_the_end_of_a_trimmed_queue(embedded):
    topic = embedded.create_topic(queues=1)
    send(embedded, topic, 6)
    embedded.cluster.call(
        lambda: [b.state.store.trim(topic, 1) for b in embedded.cluster.brokers]
    )
    options = {"from": "LAST"}
    with JavaConsumer(embedded, f"g-{topic}", topic, **options) as consumer:
        sent = {"bodyB64": encoded("new"), "topic": topic}
        consumer.wait_until(
            lambda: bool(java_producer(embedded, [sent])) and bool(consumer.messages),
            what="new message",
        )
        assert set(bodies(consumer.messages)) == {"new"}


def test_tag_filters(embedded):
    topic = embedded.create_topic(queues=1)
    send(embedded, topic, 3, tags="TagA")
    send(embedded, topic, 2, tags="TagB")
    send(embedded, topic, 2, tags="TagC")
    options = {"subExpression": "TagB || TagC"}
    with JavaConsumer(embedded, f"g-{topic}", topic, **options) as consumer:
        messages = consumer.wait_for(4)
    assert sorted(m["tags"] for m in messages) == ["TagB", "TagB", "TagC", "TagC"]


def test_sql_filters(embedded, scenarios):
    topic = embedded.create_topic(queues=1)
    specs = [
        {"topic": topic, "bodyB64": encoded(f"p-{n}"), "properties": {"price": str(n)}}
        for n in range(6)
    ]
    java_producer(embedded, specs)
    sql = "price BETWEEN 2 AND 3 OR price > 4"
    found = scenarios.ask(
        do="filtered", topic=topic, group=f"g-{topic}", sql=sql, expect=3
    )
    assert found.get("bodies") == "p-2,p-3,p-5", found


def test_delayed_messages_come_late(embedded):
    topic = embedded.create_topic(queues=1)
    with JavaConsumer(embedded, f"g-{topic}", topic) as consumer:
        (sent,) = send(embedded, topic, 1, delayLevel=1)
        (message,) = consumer.wait_for(1)
    assert sent["sendStatus"] == "SEND_OK"
    assert message["storeTimestamp"] - message["bornTimestamp"] >= 990


def test_transactions_commit_roll_back_and_are_checked(embedded, scenarios):
    topic = embedded.create_topic(queues=1)
    done = scenarios.ask(
        do="transaction",
        topic=topic,
        group=f"tx-{topic}",
        states="COMMIT,ROLLBACK,UNKNOW",
        check="COMMIT",
        waitMs=20_000,
    )
    assert done.get("checked") is True, done
    with JavaConsumer(embedded, f"g-{topic}", topic) as consumer:
        messages = consumer.wait_for(2)
    assert bodies(messages) == ["half-COMMIT", "half-UNKNOW"]


def test_requests_get_their_replies(embedded, scenarios):
    topic = embedded.create_topic(queues=2)
    done = scenarios.ask(
        do="request", topic=topic, group=f"rr-{topic}", count=5, timeoutMs=20_000
    )
    assert done == {
        "bodies": "re:ask-0,re:ask-1,re:ask-2,re:ask-3,re:ask-4",
        "errors": "",
    }


def test_a_request_without_a_reply_times_out(embedded, scenarios):
    topic = embedded.create_topic(queues=1)
    done = scenarios.ask(
        do="request",
        topic=topic,
        group=f"rr-{topic}",
        count=1,
        timeoutMs=2_000,
        silent=True,
    )
    assert done == {"bodies": "", "errors": "request: timeout"}


def test_a_reply_to_a_requester_that_is_gone_fails(embedded, scenarios):
    topic = embedded.create_topic(queues=1)
    done = scenarios.ask(
        do="request",
        topic=topic,
        group=f"rr-{topic}",
        count=1,
        timeoutMs=15_000,
        gone=True,
    )
    assert done.get("bodies") == "", done
    assert "push reply message fail, channel of <" in done["errors"], done
    assert "not found" in done["errors"], done
