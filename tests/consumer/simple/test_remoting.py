"""What a `SimpleConsumer` over remoting decides itself, and how it meets refusals."""

from __future__ import annotations

import logging
import threading

import pytest

from rmqcli import ClientConfig, DeniedError, SimpleConsumer, sql, tasks
from rmqcli.api.client import Client
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.consumer.simple import remoting
from rmqcli.consumer.simple.received import MessageLease, ReceivedMessage
from rmqcli.consumer.simple.remoting import _sources
from rmqcli.errors import NotFoundError, TransportError, UnsupportedError
from rmqcli.model import BrokerData, MessageQueue, QueueData, TopicRoute
from rmqcli.testing import faults
from rmqcli.wire.bodies.pop import BatchAckMessageRequestBody
from rmqcli.wire.body import decode_body
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.message.encode import MessageFields, encode_message
from rmqcli.wire.message.record import StoredMessage
from rmqcli.wire.receipt_handle import decode_receipt_handle, encode_receipt_handle
from rmqcli.wire.version import V5_1_3
from tests.kit.ports import PortBlock
from tests.kit.waiting import PATIENCE_S, wait_until


@pytest.fixture
def topic(rmq_cluster):
    rmq_cluster.create_topic("orders", queues=1)
    return "orders"


def consumer_of(cluster, topics="orders", **options):
    return SimpleConsumer("billing", topics, namesrv=cluster.namesrv, **options)


def logged(caplog, text):
    """The levels of the records that have the text."""
    return [each.levelno for each in caplog.records if text in each.getMessage()]


def poison(cluster, topic):
    """Send a message to a group whose messages have one delivery, in one process."""
    cluster.create_group("billing", retry_max_times=0)
    return cluster.send(topic, ["poison"])


def again(consumer):
    """Receive messages, which come again after a second."""
    return consumer.receive(await_ms=100, invisible_duration_ms=1_000)


def test_a_broker_with_a_new_address_is_received_from_at_once(
    rmq_cluster_factory, monkeypatch
):
    """After a failover receives and acks failed for up to half a minute."""
    monkeypatch.setattr(remoting, "_ROUTES_MS", 3_600_000)
    ports = PortBlock()
    number = ports.first
    cluster = rmq_cluster_factory(namesrv_port=number, broker_ports=[number + 1])
    cluster.create_topic("orders")
    with consumer_of(cluster, consume_from="earliest") as consumer:
        assert consumer.receive(await_ms=0) == []
        cluster.close()
        cluster = rmq_cluster_factory(namesrv_port=number, broker_ports=[number + 2])
        cluster.create_topic("orders")
        cluster.send("orders", ["x"])

        def received():
            try:
                return [each.body for each in consumer.receive(await_ms=100)]
            except TransportError:
                return []

        wait_until(lambda: received() == [b"x"])
    ports.close()


# --- sources ---


def queues(broker, *, read=2, perm=6):
    return QueueData(
        broker_name=broker, read_queue_nums=read, write_queue_nums=2, perm=perm
    )


def broker(name, addresses):
    return BrokerData(cluster="c", broker_name=name, addresses=addresses)


def test_every_readable_broker_with_a_master_is_one_source():
    route = TopicRoute(
        topic="orders",
        brokers=(
            broker("b", {0: "h:1"}),
            broker("a", {0: "h:2", 1: "h:3"}),
            broker("only-a-slave", {1: "h:4"}),
            broker("write-only", {0: "h:5"}),
            broker("no-queues", {0: "h:6"}),
        ),
        queues=(
            queues("b"),
            queues("a", perm=4),
            queues("only-a-slave"),
            queues("write-only", perm=2),
            queues("no-queues", read=0),
            queues("unknown"),
        ),
    )
    assert _sources(route) == [
        MessageQueue("orders", "a", -1),
        MessageQueue("orders", "b", -1),
    ]


def test_a_topic_that_cannot_be_read_is_an_error_with_its_reason(rmq_cluster):
    rmq_cluster.create_topic("closed", perm=2)
    with (
        consumer_of(rmq_cluster, "closed") as consumer,
        pytest.raises(DeniedError, match="topic closed has no readable queue") as found,
    ):
        consumer.receive(await_ms=0)
    assert (found.value.code, found.value.name) == (16, "NO_PERMISSION")
    assert str(found.value.hint) == "read the topic's permissions with Admin.topic()"


def test_a_topic_that_does_not_exist_is_an_error_of_the_receive(rmq_cluster):
    with (
        consumer_of(rmq_cluster, "nowhere") as consumer,
        pytest.raises(NotFoundError) as found,
    ):
        consumer.receive(await_ms=0)
    assert str(found.value.hint) == "check the topics argument, or create the topic"


def test_a_topic_that_is_created_later_is_received(rmq_cluster):
    with consumer_of(rmq_cluster, "later") as consumer:
        with pytest.raises(NotFoundError):
            consumer.receive(await_ms=0)
        rmq_cluster.create_topic("later", queues=1)
        rmq_cluster.send("later", ["a"])
        (message,) = wait_until(consumer.receive)
        assert message.body == b"a"


def test_a_known_route_outlives_the_restart_of_its_broker(
    rmq_cluster, topic, monkeypatch
):
    """Meanwhile the name server knows the topic without a broker, or not at all."""
    monkeypatch.setattr(remoting, "_ROUTES_MS", 20)
    rmq_cluster.send(topic, ["a"])
    with consumer_of(rmq_cluster) as consumer:
        consumer.ack(consumer.receive())
        refused = rmq_cluster.faults.add(
            faults.answer(17, "no such topic"), code=RequestCode.GET_ROUTEINFO_BY_TOPIC
        )
        wait_until(lambda: refused.hits >= 3)
        rmq_cluster.faults.remove(refused)
        empty = rmq_cluster.faults.add(
            faults.answer(0, body=b'{"brokerDatas":[],"queueDatas":[]}'),
            code=RequestCode.GET_ROUTEINFO_BY_TOPIC,
        )
        wait_until(lambda: empty.hits >= 3)
        rmq_cluster.send(topic, ["b"])
        (message,) = wait_until(consumer.receive)
        assert message.body == b"b"


def test_the_routes_of_topics_that_are_no_longer_subscribed_are_not_asked_for(
    rmq_cluster, topic, monkeypatch
):
    monkeypatch.setattr(remoting, "_ROUTES_MS", 20)
    rmq_cluster.create_topic("payments", queues=1)
    with consumer_of(rmq_cluster, ["orders", "payments"]) as consumer:
        code = RequestCode.GET_ROUTEINFO_BY_TOPIC
        dropped = rmq_cluster.faults.observe(code=code, topic="payments")
        kept = rmq_cluster.faults.observe(code=code, topic="orders")
        consumer.receive(await_ms=0)
        wait_until(lambda: kept.seen >= 2 and dropped.seen >= 2)
        consumer.unsubscribe("payments")
        seen = kept.seen
        wait_until(lambda: kept.seen >= seen + 3)
        before, seen = dropped.seen, kept.seen
        wait_until(lambda: kept.seen >= seen + 3)
        assert dropped.seen == before


# --- receives ---


@pytest.mark.parametrize(
    ("options", "wanted", "stated"),
    [
        (
            {"topics": {"orders": "A || B"}},
            {"max_messages": 7, "invisible_duration_ms": 15_000, "await_ms": 0},
            {
                "maxMsgNums": "7",
                "invisibleTime": "15000",
                "initMode": "1",
                "expType": "TAG",
                "exp": "A || B",
                "order": "false",
            },
        ),
        (
            {
                "topics": {"orders": sql("orders", "a > 1")},
                "consume_from": "earliest",
                "orderly": True,
            },
            {"await_ms": 0},
            {
                "maxMsgNums": "32",
                "invisibleTime": "30000",
                "initMode": "0",
                "expType": "SQL92",
                "exp": "a > 1",
                "order": "true",
            },
        ),
    ],
)
def test_a_receive_states_what_the_member_wants(
    rmq_cluster, topic, options, wanted, stated
):
    nothing = faults.answer(ResponseCode.POLLING_TIMEOUT)
    pops = rmq_cluster.faults.add(nothing, code=RequestCode.POP_MESSAGE)
    with consumer_of(rmq_cluster, **options) as consumer:
        consumer.receive(**wanted)
    fields = pops.requests[0].command.ext_fields
    assert {name: fields[name] for name in stated} == stated
    assert (fields["consumerGroup"], fields["topic"]) == ("billing", "orders")
    assert (fields["queueId"], fields["bornTime"]) == ("-1", "0")


def test_a_received_message_is_hidden_for_the_time_of_the_receive(rmq_cluster, topic):
    rmq_cluster.send(topic, ["a"])
    with consumer_of(rmq_cluster) as consumer:
        before_ms = SYSTEM_CLOCK.epoch_ms()
        (message,) = consumer.receive(invisible_duration_ms=15_000)
        after_ms = SYSTEM_CLOCK.epoch_ms()
    assert before_ms + 15_000 <= message.invisible_until_ms <= after_ms + 15_000


def test_a_message_whose_tag_only_has_the_same_hash_is_acknowledged(rmq_cluster, topic):
    rmq_cluster.send(topic, ["other"], tags="BB")
    acks = rmq_cluster.faults.observe(code=RequestCode.ACK_MESSAGE)
    with consumer_of(rmq_cluster, {topic: "Aa"}) as consumer:
        assert consumer.receive(await_ms=100) == []
        wait_until(lambda: acks.seen)
    (ack,) = acks.requests
    fields = ack.command.ext_fields
    assert (fields["consumerGroup"], fields["topic"]) == ("billing", "orders")
    assert fields["offset"] == "0"


# --- deliveries ---


@pytest.mark.slow
def test_a_message_that_is_no_dead_letter_yet_stays_where_it_was(
    rmq_cluster, topic, caplog
):
    """The copy is refused, so the message is not acknowledged, and comes again."""
    rmq_cluster.send("elsewhere", ["the first in the log"])
    (sent,) = poison(rmq_cluster, topic)
    code = RequestCode.CONSUMER_SEND_MSG_BACK
    refused = rmq_cluster.faults.next(faults.answer(1, "the disk is full"), code=code)
    acks = rmq_cluster.faults.observe(code=RequestCode.ACK_MESSAGE)
    with consumer_of(rmq_cluster) as consumer:
        consumer.receive(invisible_duration_ms=1_000)
        wait_until(lambda: again(consumer) == [] and refused.hits)
        wait_until(lambda: logged(caplog, "message not moved to the dead-letter queue"))
        assert acks.seen == 0
        (asked,) = refused.requests
        fields = asked.command.ext_fields
        assert fields["delayLevel"] == "-1"
        assert fields["group"] == "billing"
        assert fields["maxReconsumeTimes"] == "0"
        assert fields["originTopic"] == "%RETRY%billing_orders"
        assert fields["originMsgId"] == sent.msg_id
        assert int(fields["offset"]) > 0
        wait_until(lambda: again(consumer) == [] and acks.seen)
    levels = logged(caplog, "message moved to the dead-letter queue group=billing")
    assert levels == [logging.WARNING]


@pytest.mark.parametrize(
    ("retry_max_times", "times", "is_wanted"),
    [
        (0, 0, True),
        (0, 1, False),
        (3, 3, True),
        (3, 4, False),
        (None, 16, True),  # the broker does not say how many
        (None, 17, False),
    ],
)
def test_a_message_is_delivered_once_more_than_its_group_retries(
    rmq_cluster, topic, retry_max_times, times, is_wanted
):
    if retry_max_times is None:
        rmq_cluster.faults.add(
            faults.answer(1, "no"), code=RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
        )
    else:
        rmq_cluster.create_group("billing", retry_max_times=retry_max_times)
    fields = MessageFields(topic=topic, body=b"x", reconsume_times=times)
    lease = dict.fromkeys(("popTime", "invisibleTime", "reviveQid", "restNum"), "0")
    rmq_cluster.faults.next(
        faults.answer(0, body=encode_message(fields), ext_fields=lease),
        code=RequestCode.POP_MESSAGE,
    )
    copied = rmq_cluster.faults.observe(code=RequestCode.CONSUMER_SEND_MSG_BACK)
    with consumer_of(rmq_cluster) as consumer:
        found = consumer.receive(await_ms=0)
        wait_until(lambda: found or copied.seen)
    assert [each.delivery_attempt for each in found] == [times + 1] * is_wanted
    assert copied.seen == (not is_wanted)


def test_a_message_has_one_delivery_whatever_its_group_says(rmq_cluster, topic):
    """The broker answers the group's retries only where a message has come before."""
    rmq_cluster.create_group("billing", retry_max_times=-1)
    records = [
        encode_message(MessageFields(topic=topic, body=body, reconsume_times=times))
        for body, times in ((b"second", 1), (b"first", 0))
    ]
    lease = dict.fromkeys(("popTime", "invisibleTime", "reviveQid", "restNum"), "0")
    rmq_cluster.faults.next(
        faults.answer(0, body=b"".join(records), ext_fields=lease),
        code=RequestCode.POP_MESSAGE,
    )
    copied = rmq_cluster.faults.observe(code=RequestCode.CONSUMER_SEND_MSG_BACK)
    with consumer_of(rmq_cluster) as consumer:
        assert [each.body for each in consumer.receive(await_ms=0)] == [b"first"]
        wait_until(lambda: copied.seen)
    assert copied.seen == 1


def test_the_group_s_limit_is_asked_for_once_and_again_after_a_heartbeat(
    rmq_cluster, topic, monkeypatch
):
    rmq_cluster.create_group("billing")
    record = encode_message(MessageFields(topic=topic, body=b"x", reconsume_times=1))
    lease = dict.fromkeys(("popTime", "invisibleTime", "reviveQid", "restNum"), "0")
    rmq_cluster.faults.add(
        faults.answer(0, body=record, ext_fields=lease), code=RequestCode.POP_MESSAGE
    )
    asked = rmq_cluster.faults.observe(code=RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG)
    with consumer_of(rmq_cluster) as consumer:
        for _ in range(3):
            consumer.receive(await_ms=0)
        assert asked.seen == 1
    monkeypatch.setattr(remoting, "_HEARTBEAT_MS", 20)
    with consumer_of(rmq_cluster) as consumer:
        wait_until(lambda: consumer.receive(await_ms=0) and asked.seen >= 3)


@pytest.mark.slow
def test_the_group_s_limit_is_read_again_after_a_failure(rmq_cluster, topic, caplog):
    """Meanwhile messages have the deliveries of a group with RocketMQ's defaults."""
    poison(rmq_cluster, topic)
    code = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
    refused = rmq_cluster.faults.next(faults.answer(1, "not now"), code=code)
    with consumer_of(rmq_cluster) as consumer:
        consumer.receive(invisible_duration_ms=1_000)
        (second,) = wait_until(lambda: again(consumer))
        assert (second.body, second.delivery_attempt) == (b"poison", 2)
        assert refused.hits == 1
        assert logged(caplog, "retryMaxTimes of group billing not read, 16 is") == [30]
        text = "message moved to the dead-letter queue"
        wait_until(lambda: again(consumer) == [] and logged(caplog, text))


class OfVersion(Client):
    """A client that knows the version of every broker."""

    def __init__(self, version: int | None) -> None:
        super().__init__(ClientConfig(namesrv=("127.0.0.1:1",)))
        self.version = version

    def known_version(self, address: str) -> int | None:
        """See Client."""
        return self.version


@pytest.mark.parametrize(
    ("version", "count", "codes", "sizes"),
    [
        (V5_1_3, 2, [RequestCode.BATCH_ACK_MESSAGE], [2]),
        (V5_1_3 - 1, 2, [RequestCode.ACK_MESSAGE] * 2, []),
        (None, 2, [RequestCode.ACK_MESSAGE] * 2, []),
        (V5_1_3, 1, [RequestCode.ACK_MESSAGE], []),
        (V5_1_3, 256, [RequestCode.BATCH_ACK_MESSAGE], [256]),
        (V5_1_3, 257, [RequestCode.BATCH_ACK_MESSAGE] * 2, [256, 1]),
    ],
)
def test_brokers_from_5_1_3_on_take_256_acks_in_a_request(version, count, codes, sizes):
    broker_a = broker("broker-a", {0: "127.0.0.1:2"})
    route = TopicRoute(topic="orders", brokers=(broker_a,), queues=())
    messages = []
    for offset in range(count):
        handle = encode_receipt_handle(
            decode_receipt_handle(f"0 1000 60000 0 0 broker-a 0 {offset}")
        )
        lease = MessageLease(
            topic="orders",
            group="billing",
            queue=MessageQueue("orders", "broker-a", 0),
            receipt_handle=handle,
            delivery_attempt=1,
            since_ms=0,
            invisible_ms=60_000,
            invisible_until_epoch_ms=60_000,
        )
        messages.append(ReceivedMessage(StoredMessage(), lease))
    with OfVersion(version) as client:
        client.remember("orders", route)
        pop = remoting.RemotingPop(
            client,
            group="billing",
            client_id="c1",
            subscriptions={},
            from_min=False,
            is_order=False,
        )
        requests = next(pop.ack(messages))
    assert isinstance(requests, tasks.All)
    calls = [each.call for each in requests.parts]  # type: ignore[union-attr]
    assert [each.code for each in calls] == codes
    found = []
    for each in calls:
        if each.code == RequestCode.BATCH_ACK_MESSAGE:
            body = decode_body(BatchAckMessageRequestBody, each.body)
            found.append(sum(len(acks.bit_set or ()) for acks in body.acks or ()))
    assert found == sizes


# --- membership ---


def test_a_broker_that_refused_a_heartbeat_is_asked_with_the_next_receive(
    rmq_cluster, topic, caplog
):
    refused = rmq_cluster.faults.next(
        faults.answer(1, "not now"), code=RequestCode.HEART_BEAT
    )
    beats = rmq_cluster.faults.observe(code=RequestCode.HEART_BEAT)
    with consumer_of(rmq_cluster) as consumer:
        consumer.receive(await_ms=0)
        wait_until(lambda: logged(caplog, "heartbeat failed broker="))
        assert (refused.hits, beats.seen) == (1, 1)
        wait_until(lambda: consumer.receive(await_ms=0) == [] and beats.seen == 2)
        consumer.receive(await_ms=0)
        consumer.receive(await_ms=0)
        assert beats.seen == 2


def test_a_broker_before_5_0_gets_no_heartbeat(rmq_cluster_factory):
    """It would take the member for one that consumes by pulls."""
    cluster = rmq_cluster_factory(like="4.9.7")
    cluster.create_topic("orders")
    beats = cluster.faults.observe(code=RequestCode.HEART_BEAT)
    left = cluster.faults.observe(code=RequestCode.UNREGISTER_CLIENT)
    with consumer_of(cluster) as consumer, pytest.raises(UnsupportedError):
        consumer.receive(await_ms=0)
    assert (beats.seen, left.seen) == (0, 0)


def test_topics_of_different_brokers_are_received_together(rmq_cluster_factory):
    cluster = rmq_cluster_factory(brokers=2)
    for topic, name in (("orders", "broker-a"), ("bills", "broker-b")):
        cluster.send(topic, [topic], broker=name)
    with consumer_of(cluster, ["orders", "bills"]) as consumer:
        found: set[bytes] = set()
        while len(found) < 2:
            messages = consumer.receive()
            found |= {each.body for each in messages}
            consumer.ack(messages)
    assert found == {b"orders", b"bills"}


def test_a_member_that_has_left_sends_no_heartbeat(rmq_cluster, topic, monkeypatch):
    """A broker that got one would list the member again, for two minutes."""
    monkeypatch.setattr(remoting, "_HEARTBEAT_MS", 1)
    monkeypatch.setattr(remoting, "_LEAVE_MS", 300)
    beats = rmq_cluster.faults.observe(code=RequestCode.HEART_BEAT)
    beaten = []
    with consumer_of(rmq_cluster) as consumer:
        consumer.receive(await_ms=0)
        wait_until(lambda: beats.seen >= 3)
        left = rmq_cluster.faults.next(
            faults.drop_answer(), code=RequestCode.UNREGISTER_CLIENT
        )
        closing = threading.Thread(target=consumer.close)
        closing.start()
        wait_until(lambda: left.hits)
        beaten.append(beats.seen)
        closing.join(PATIENCE_S)
        beaten.append(beats.seen)
    assert beaten[0] == beaten[1]


def test_only_brokers_that_know_the_member_are_told_that_it_leaves(rmq_cluster, topic):
    left = rmq_cluster.faults.observe(code=RequestCode.UNREGISTER_CLIENT)
    with consumer_of(rmq_cluster):
        pass
    assert left.seen == 0
    with consumer_of(rmq_cluster) as consumer:
        consumer.receive(await_ms=0)
    (asked,) = left.requests
    assert asked.command.ext_fields["consumerGroup"] == "billing"
    assert asked.command.ext_fields["clientID"] == consumer.client_id
