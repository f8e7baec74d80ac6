"""`Producer` on the embedded cluster: what is stored, retries, fail-over and errors."""

from __future__ import annotations

import itertools
import os
import pickle
import random
import re
import sys
import threading
import zlib
from pathlib import Path
from typing import Any

import pytest

from rmqcli.api.calls.send import SendStatus
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.errors import (
    BrokerError,
    BusyError,
    ConfigError,
    ConnectError,
    DeadlineError,
    DeniedError,
    NotFoundError,
    RmqError,
    SendUnknownError,
    UnsupportedError,
    UsageError,
)
from rmqcli.model import MessageQueue
from rmqcli.producer.config import ProducerConfig
from rmqcli.producer.message import ProducerMessage
from rmqcli.producer.producer import Producer, select_by_hash
from rmqcli.producer.proxy import publisher as proxy_publisher
from rmqcli.producer.remoting import publisher
from rmqcli.producer.transactions import LocalTransactionState
from rmqcli.proxy.status import error_of
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from tests.kit.ports import PortBlock
from tests.kit.proxy.scripted import status
from tests.kit.waiting import PATIENCE_S, wait_until
from tests.producer.stored import bodies, stored
from tests.transport.peer import free_port

SEND = RequestCode.SEND_MESSAGE_V2


@pytest.fixture
def producer(rmq_cluster):
    with Producer(namesrv=rmq_cluster.namesrv) as producer:
        yield producer


@pytest.fixture
def two(rmq_cluster_factory):
    """Two brokers, and the topic orders with two queues on each."""
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_topic("orders", queues=2)
    return cluster


def message(body=b"x", topic="orders", **fields):
    return ProducerMessage(topic, body, **fields)


@pytest.mark.parametrize("method", ["send", "submit", "send_oneway"])
def test_an_argument_without_its_selector_and_the_reverse_are_refused(
    rmq_cluster, rmq_topic, method
):
    """The messages of one order would lie in any queue, or those of all in one."""
    with Producer(namesrv=rmq_cluster.namesrv) as producer:
        send = getattr(producer, method)
        with pytest.raises(ConfigError, match="arg is given without a selector"):
            send(message(b"y"), arg="order-7")
        with pytest.raises(ConfigError, match="select_by_hash needs arg"):
            send(message(b"y"), selector=select_by_hash)


def test_a_message_is_stored_with_all_that_it_says(rmq_cluster, rmq_topic, producer):
    result = producer.send(
        ProducerMessage(
            rmq_topic,
            b"hello",
            tags="Paid",
            keys=("a", "b"),
            properties={"colour": "red"},
            flag=7,
        )
    )
    (found,) = stored(rmq_cluster, rmq_topic)
    assert (found.body, found.tags, found.keys, found.flag) == (
        b"hello",
        "Paid",
        "a b",
        7,
    )
    assert found.properties["colour"] == "red"
    assert found.msg_id == result.msg_id
    assert found.offset_msg_id == result.offset_msg_id
    assert result.status is SendStatus.SEND_OK
    assert result.queue_offset == 0
    assert result.queue == MessageQueue(rmq_topic, "broker-a", found.queue_id)


@pytest.mark.parametrize("group", [None, "shop"])
def test_a_request_has_the_fields_that_java_sends(rmq_cluster, rmq_topic, group):
    sends = rmq_cluster.faults.observe(code=SEND)
    batches = rmq_cluster.faults.observe(code=RequestCode.SEND_BATCH_MESSAGE)
    queue = MessageQueue(rmq_topic, "broker-a", 3)
    one = ProducerMessage(rmq_topic, b"x", flag=7)
    config = ProducerConfig(create_topic_key="TBW100", default_topic_queue_nums=5)
    with Producer(group, namesrv=rmq_cluster.namesrv, config=config) as producer:
        before_ms = SYSTEM_CLOCK.epoch_ms()
        msg_id = producer.send(one, queue=queue).msg_id
        producer.send_batch([one, one], queue=queue)
        after_ms = SYSTEM_CLOCK.epoch_ms()
    single, batch = (each.requests[0].command.ext_fields for each in (sends, batches))
    for fields in (single, batch):
        assert before_ms <= int(fields.pop("g")) <= after_ms
    expected = {
        "a": group or "CLIENT_INNER_PRODUCER",
        "b": rmq_topic,
        "c": "TBW100",
        "d": "5",
        "e": "3",
        "f": "0",
        "h": "7",
        "i": f"UNIQ_KEY\x01{msg_id}\x02",
        "j": "0",
        "k": "false",
        "m": "false",
        "n": "broker-a",
    }
    assert single == expected
    assert batch == expected | {"h": "0", "i": "", "m": "true"}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (BrokerError("no", code=1, name="SYSTEM_ERROR"), True),
        (BrokerError("no", code=13, name="MESSAGE_ILLEGAL"), True),
        (BrokerError("no", code=2, name="SYSTEM_BUSY"), False),
        (DeniedError("no", code=1, name="SYSTEM_ERROR"), False),
        (DeniedError("no", code=16, name="NO_PERMISSION"), False),
        (ConnectError("no", address="b:1"), False),
    ],
)
def test_one_message_may_be_why_a_broker_refused_a_batch(error, expected):
    assert publisher.may_be_one_message(error) is expected


@pytest.mark.parametrize(
    ("name", "remark", "expected"),
    [
        ("INTERNAL_SERVER_ERROR", "the message is illegal", True),
        ("INTERNAL_SERVER_ERROR", "send request to <b:1> failed", False),
        ("MESSAGE_BODY_TOO_LARGE", "", True),
        ("MESSAGE_PROPERTIES_TOO_LARGE", "", True),
        ("ILLEGAL_MESSAGE_TAG", "", True),
        ("MESSAGE_PROPERTY_CONFLICT_WITH_TYPE", "", True),
        ("TOO_MANY_REQUESTS", "", False),
        ("PROXY_TIMEOUT", "", False),
        ("UNAUTHORIZED", "", False),
        ("CLIENT_ID_REQUIRED", "", False),
    ],
)
def test_one_message_may_be_why_a_proxy_refused_a_batch(name, remark, expected):
    error = error_of(status(name, remark), what="send", address="p:1")
    assert proxy_publisher.may_be_one_message(error) is expected


def test_queues_take_turns(two):
    with Producer(namesrv=two.namesrv) as producer:
        queues = [producer.send(message()).queue for _ in range(8)]
        assert set(producer.queues("orders")) == set(queues)
    assert len(set(queues)) == 4
    assert queues[:4] == queues[4:]


def test_a_queue_may_be_given_or_chosen(two):
    seen = []

    def last(queues, chosen_for, arg):
        seen.append((len(queues), chosen_for.body, arg))
        return queues[-1]

    with Producer(namesrv=two.namesrv) as producer:
        queue = MessageQueue("orders", "broker-b", 0)
        assert producer.send(message(), queue=queue).queue == queue
        chosen = producer.send(message(b"y"), selector=last, arg=5).queue
    assert chosen == MessageQueue("orders", "broker-b", 1)
    assert seen == [(4, b"y", 5)]


def test_a_queue_may_be_given_for_each_way_to_send(two):
    queue = MessageQueue("orders", "broker-b", 1)

    def always(_queues, _message, chosen):
        return chosen

    by_selector: dict[str, Any] = {"selector": always, "arg": queue}
    with Producer(namesrv=two.namesrv) as producer:
        for _ in range(4):  # with turns, at least three of four would miss it
            batch = producer.send_batch([message(b"a"), message(b"b")], queue=queue)
            assert [each.queue for each in batch] == [queue, queue]
            assert producer.submit(message(b"c"), queue=queue).result().queue == (queue)
            producer.send_oneway(message(b"d"), queue=queue)
            assert producer.submit(message(b"f"), **by_selector).result().queue == queue
            producer.send_oneway(message(b"g"), **by_selector)
        producer.send(message(b"e"), queue=queue)  # after what was not answered
    where = {(each.store_host, each.queue_id) for each in stored(two, "orders")}
    assert where == {(two.broker("broker-b").address, 1)}
    assert len(stored(two, "orders")) == 25


def test_a_batch_for_a_queue_of_another_topic_is_refused(rmq_topic, producer):
    with pytest.raises(UsageError, match=r"queue other@b:0 does not belong to topic"):
        producer.send_batch(
            [ProducerMessage(rmq_topic, b"x")], queue=MessageQueue("other", "b", 0)
        )


@pytest.mark.parametrize(("queue_id", "error"), [(-1, ConfigError), ("0", TypeError)])
def test_a_queue_with_an_id_that_none_has_is_refused(
    rmq_topic, producer, queue_id, error
):
    """For the id -1, that of all queues through a proxy, the broker chose a queue."""
    queue, some = (
        MessageQueue(rmq_topic, "broker-a", queue_id),
        message(topic=rmq_topic),
    )
    refused = pytest.raises(error, match=f"queue_id is {queue_id!r}")
    for send in (producer.send, producer.submit, producer.send_oneway):
        with refused:
            send(some, queue=queue)
        with refused:
            send(some, selector=lambda *_: queue)
    with refused:
        producer.send_batch([some], queue=queue)


def test_the_queues_of_a_topic_without_a_name_are_not_asked_for(producer):
    """They were those with which brokers would create the topic."""
    with pytest.raises(ConfigError, match="topic"):
        producer.queues("")


@pytest.mark.parametrize(
    ("key", "queue_id"),
    # "a".hashCode() is 97; that of "polygenelubricants" is Integer.MIN_VALUE.
    [("a", 1), ("b", 2), ("polygenelubricants", 0)],
)
def test_a_key_chooses_the_queue_that_java_chooses(rmq_topic, producer, key, queue_id):
    sent = ProducerMessage(rmq_topic, b"x")
    result = producer.send(sent, selector=select_by_hash, arg=key)
    assert result.queue.queue_id == queue_id


def test_a_selector_that_chooses_another_topic_s_queue_is_refused(rmq_topic, producer):
    with pytest.raises(UsageError, match=r"queue other@b:0 does not belong to topic"):
        producer.send(
            ProducerMessage(rmq_topic, b"x"),
            selector=lambda *_: MessageQueue("other", "b", 0),
        )


def test_a_large_body_is_compressed_and_a_small_one_is_not(
    rmq_cluster, rmq_topic, producer
):
    producer.send(ProducerMessage(rmq_topic, b"a" * 4_095))
    producer.send(ProducerMessage(rmq_topic, b"b" * 4_096))
    found = {each.body[:1]: each for each in stored(rmq_cluster, rmq_topic)}
    assert found[b"a"].raw_body == b"a" * 4_095
    assert found[b"b"].body == b"b" * 4_096
    assert found[b"b"].raw_body == zlib.compress(b"b" * 4_096, 5)


def test_the_largest_body_is_stored_plain_if_it_cannot_be_compressed(
    rmq_cluster, rmq_topic, producer
):
    body = random.Random(0).randbytes(4 << 20)
    producer.send(ProducerMessage(rmq_topic, body))
    (found,) = stored(rmq_cluster, rmq_topic)
    assert found.raw_body == body
    assert found.sys_flag == 0


def test_a_batch_lies_in_one_queue_in_its_order(rmq_cluster, rmq_topic, producer):
    results = producer.send_batch(
        [ProducerMessage(rmq_topic, b"%d" % n, keys=f"k{n}") for n in range(5)]
    )
    found = stored(rmq_cluster, rmq_topic)
    assert [each.body for each in found] == [b"0", b"1", b"2", b"3", b"4"]
    assert [each.keys for each in found] == ["k0", "k1", "k2", "k3", "k4"]
    assert [each.queue_offset for each in results] == [0, 1, 2, 3, 4]
    assert [each.msg_id for each in results] == [each.msg_id for each in found]
    assert len({each.queue for each in results}) == 1


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([], "messages of one topic; these are of 0"),
        ([message(), message(topic="other")], "messages of one topic; these are of 2"),
        ([message(delay_level=1)], "cannot be in a batch"),
        ([message(b"x" * 3_000_000)] * 2, "larger than max_message_size_bytes"),
    ],
)
def test_what_cannot_be_a_batch_is_refused(producer, messages, why):
    with pytest.raises(UsageError, match=why):
        producer.send_batch(messages)


def test_messages_with_a_priority_are_refused_in_a_batch_without_a_queue(
    rmq_cluster, producer
):
    """A broker stored them in the queue of the request, whatever their priorities."""
    rmq_cluster.create_topic("urgent", queues=4)
    urgent = ProducerMessage("urgent", b"x", properties={"_SYS_MSG_PRIORITY_": "3"})
    for batch in ([ProducerMessage("urgent", b"x"), urgent], [urgent]):
        with pytest.raises(UnsupportedError) as caught:
            producer.send_batch(batch)
        assert caught.value.message == (
            "messages with a priority cannot be in a batch without a queue, because"
            " brokers do not look at the priorities of a batch"
        )
        assert caught.value.hint == "send them one by one, with submit"
    assert stored(rmq_cluster, "urgent") == []
    producer.send_batch([urgent], queue=MessageQueue("urgent", "broker-a", 1))
    assert [each.queue_id for each in stored(rmq_cluster, "urgent")] == [1]


def test_messages_of_a_lite_topic_are_refused_in_a_batch(rmq_cluster, producer):
    """Their consumers got none of them: a broker notes those of single messages."""
    rmq_cluster.create_topic("chats", queues=4)
    lite = ProducerMessage("chats", b"x", properties={"__LITE_TOPIC": "a"})
    for queue in (None, MessageQueue("chats", "broker-a", 1)):
        with pytest.raises(UnsupportedError, match="a lite topic cannot be in a batch"):
            producer.send_batch([lite], queue=queue)
    assert stored(rmq_cluster, "chats") == []


def test_a_message_without_an_answer_is_stored_all_the_same(
    rmq_cluster, rmq_topic, producer
):
    rule = rmq_cluster.faults.observe(code=SEND)
    producer.send_oneway(ProducerMessage(rmq_topic, b"one way"))
    producer.send(ProducerMessage(rmq_topic, b"after it"))
    assert bodies(rmq_cluster, rmq_topic) == [b"after it", b"one way"]
    assert rule.requests[0].command.is_oneway


def test_futures_end_in_any_thread_and_keep_the_order_of_a_queue(
    rmq_cluster, rmq_topic, producer
):
    queue = MessageQueue(rmq_topic, "broker-a", 2)
    called: list[object] = []
    futures = [
        producer.submit(
            ProducerMessage(rmq_topic, b"%d" % n), queue=queue, timeout_ms=60_000
        )
        for n in range(3_000)
    ]
    futures[-1].add_done_callback(called.append)
    assert [each.result().queue_offset for each in futures] == list(range(3_000))
    assert called == [futures[-1]]


def test_a_callback_may_send_but_not_wait(rmq_cluster, rmq_topic, producer):
    errors = []
    ended = threading.Event()

    def then(_):
        try:
            producer.send(ProducerMessage(rmq_topic, b"waits"))
        except UsageError as error:
            errors.append(error.hint)
        sent = producer.submit(ProducerMessage(rmq_topic, b"second"))
        sent.add_done_callback(lambda _: ended.set())

    broker = rmq_cluster.broker()
    broker.hang()  # once answered, the callback would run in this thread
    sent = producer.submit(ProducerMessage(rmq_topic, b"first"), timeout_ms=60_000)
    sent.add_done_callback(then)
    broker.resume()
    assert ended.wait(60)
    assert errors == ["use submit in callbacks"]
    assert bodies(rmq_cluster, rmq_topic) == [b"first", b"second"]


def test_many_threads_send_at_once(rmq_cluster, rmq_topic, producer):
    ids = []

    def run(number):
        for n in range(50):
            sent = producer.send(ProducerMessage(rmq_topic, b"%d-%d" % (number, n)))
            ids.append(sent.msg_id)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(set(ids)) == 300
    assert len(bodies(rmq_cluster, rmq_topic)) == 300


def test_a_broker_that_refuses_is_not_asked_again_while_there_is_another(two):
    two.faults.add(faults.answer(2, "busy"), code=SEND, broker="broker-a")
    config = ProducerConfig(retry_times_when_send_failed=1)
    with Producer(namesrv=two.namesrv, config=config) as producer:
        results = [producer.send(message(b"%d" % n)) for n in range(4)]
    assert {each.queue and each.queue.broker_name for each in results} == {"broker-b"}


def test_it_is_tried_three_times_and_then_the_last_refusal_is_raised(
    rmq_cluster, rmq_topic, producer
):
    rmq_cluster.faults.add(faults.answer(2, "busy"), code=SEND)
    tried = rmq_cluster.faults.observe(code=SEND)
    with pytest.raises(BusyError, match="answered SYSTEM_BUSY: busy"):
        producer.send(ProducerMessage(rmq_topic, b"x"))
    assert len(tried.requests) == 3
    ids = {each.command.ext_fields["i"] for each in tried.requests}
    assert len(ids) == 1  # one message, not three


@pytest.mark.parametrize(
    ("code", "send", "attempts"),
    [
        (SEND, lambda producer, each: producer.send(each), 2),
        (SEND, lambda producer, each: producer.submit(each).result(), 4),
        (
            SEND,
            lambda producer, each: producer.submit(
                ProducerMessage(each.topic, b"x", delay_level=1)
            ).result(),
            4,
        ),
        (
            RequestCode.SEND_BATCH_MESSAGE,
            lambda producer, each: producer.send_batch([each, each]),
            2,
        ),
    ],
    ids=["send", "submit", "submit delayed", "send_batch"],
)
def test_retries_come_after_the_first_attempt_and_are_a_setting(
    rmq_cluster, rmq_topic, code, send, attempts
):
    rmq_cluster.faults.add(faults.answer(2, "busy"), code=code)
    tried = rmq_cluster.faults.observe(code=code)
    config = ProducerConfig(
        retry_times_when_send_failed=1, retry_times_when_send_async_failed=3
    )
    with (
        Producer(namesrv=rmq_cluster.namesrv, config=config) as producer,
        pytest.raises(BusyError),
    ):
        send(producer, ProducerMessage(rmq_topic, b"x"))
    assert len(tried.requests) == attempts


def test_a_retry_without_another_broker_stays_in_its_queue(rmq_cluster_factory):
    cluster = rmq_cluster_factory()
    cluster.create_topic("orders", queues=4)
    cluster.faults.add(faults.answer(2, "busy"), code=SEND, times=2)
    tried = cluster.faults.observe(code=SEND)
    with Producer(namesrv=cluster.namesrv) as producer:
        result = producer.send(message(), timeout_ms=60_000)
    queues = [each.command.ext_fields["e"] for each in tried.requests]
    assert len(queues) == 3
    assert result.queue is not None
    assert {str(result.queue.queue_id)} == set(queues)


def test_an_illegal_message_is_not_tried_again(rmq_cluster, rmq_topic, producer):
    rmq_cluster.faults.add(faults.answer(13, "illegal"), code=SEND)
    tried = rmq_cluster.faults.observe(code=SEND)
    with pytest.raises(Exception, match="answered MESSAGE_ILLEGAL"):
        producer.send(ProducerMessage(rmq_topic, b"x"))
    assert len(tried.requests) == 1


def test_a_chosen_queue_is_tried_once(two):
    two.faults.add(faults.answer(2), code=SEND)
    tried = two.faults.observe(code=SEND)
    with Producer(namesrv=two.namesrv) as producer, pytest.raises(BusyError):
        producer.send(message(), queue=MessageQueue("orders", "broker-a", 0))
    assert len(tried.requests) == 1


def test_no_answer_in_time_is_unknown_and_not_sent_again(two):
    two.faults.add(faults.drop_answer(), code=SEND)
    tried = two.faults.observe(code=SEND)
    with (
        Producer(namesrv=two.namesrv) as producer,
        pytest.raises(SendUnknownError, match="may or may not be stored") as caught,
    ):
        producer.send(message(b"perhaps"), timeout_ms=300)
    assert len(tried.requests) == 1
    (found,) = stored(two, "orders")
    assert caught.value.msg_ids == (found.msg_id,)
    assert isinstance(caught.value.__cause__, DeadlineError)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.msg_ids, copy.address) == (caught.value.msg_ids, caught.value.address)


@pytest.mark.parametrize(
    "send",
    [
        lambda producer: producer.send(message(), timeout_ms=100),
        lambda producer: producer.send_batch([message()] * 2, timeout_ms=100),
        lambda producer: producer.submit(message(), timeout_ms=100).result(),
        lambda producer: producer.send_in_transaction(
            message(), lambda *_: None, timeout_ms=100
        ),
    ],
    ids=["send", "batch", "submit", "transaction"],
)
def test_a_call_s_own_timeout_goes_before_that_of_the_settings(two, send):
    two.faults.add(faults.drop_answer())
    config = ProducerConfig(send_msg_timeout_ms=24 * 60 * 60 * 1_000)
    with (
        Producer(
            "shop", namesrv=two.namesrv, config=config, on_check=lambda _: None
        ) as producer,
        pytest.raises((SendUnknownError, DeadlineError)),
    ):
        send(producer)


def test_with_a_limit_for_each_attempt_a_hung_broker_is_followed_by_another(two):
    two.faults.add(faults.drop_request(), code=SEND, broker="broker-a")
    config = ProducerConfig(send_msg_max_timeout_per_request_ms=200)
    with Producer(namesrv=two.namesrv, config=config) as producer:
        results = [producer.send(message(), timeout_ms=60_000) for _ in range(2)]
    assert {each.queue and each.queue.broker_name for each in results} == {"broker-b"}


def test_a_lost_connection_is_tried_again_under_the_same_id(rmq_cluster, rmq_topic):
    """As with Java's producer, the message can be stored twice, under the same id."""
    rmq_cluster.faults.next(faults.disconnect(is_handled=True), code=SEND)
    with Producer(namesrv=rmq_cluster.namesrv) as producer:
        result = producer.send(ProducerMessage(rmq_topic, b"x"), timeout_ms=60_000)
    found = stored(rmq_cluster, rmq_topic)
    assert [each.msg_id for each in found] == [result.msg_id] * 2


def test_connections_that_are_always_lost_leave_it_unknown(rmq_cluster, rmq_topic):
    rmq_cluster.faults.add(faults.disconnect(), code=SEND)
    with (
        Producer(namesrv=rmq_cluster.namesrv) as producer,
        pytest.raises(SendUnknownError),
    ):
        producer.send(ProducerMessage(rmq_topic, b"x"))


def test_a_dead_broker_s_messages_go_to_the_living(two):
    with Producer(namesrv=two.namesrv) as producer:
        producer.send(message(b"before"))
        two.broker("broker-a").kill()
        results = [
            producer.send(message(b"%d" % n), timeout_ms=60_000) for n in range(4)
        ]
    assert {each.queue and each.queue.broker_name for each in results} == {"broker-b"}


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (10, SendStatus.FLUSH_DISK_TIMEOUT),
        (11, SendStatus.SLAVE_NOT_AVAILABLE),
        (12, SendStatus.FLUSH_SLAVE_TIMEOUT),
    ],
)
def test_a_message_that_is_stored_but_not_safe_has_a_status(
    rmq_cluster, rmq_topic, producer, code, status
):
    place = {"msgId": "7F00000100002A9F0000000000000000", "queueId": "0"}
    answer = faults.answer(code, ext_fields={**place, "queueOffset": "3"})
    rmq_cluster.faults.add(answer, code=SEND)
    tried = rmq_cluster.faults.observe(code=SEND)
    assert producer.send(ProducerMessage(rmq_topic, b"x")).status is status
    assert len(tried.requests) == 1


def test_another_broker_is_tried_after_such_a_status_only_when_that_is_set(two):
    place = {"msgId": "7F00000100002A9F0000000000000000", "queueId": "0"}
    answer = faults.answer(10, ext_fields={**place, "queueOffset": "3"})
    two.faults.add(answer, code=SEND, broker="broker-a")
    config = ProducerConfig(retry_another_broker_when_not_store_ok=True)
    with Producer(namesrv=two.namesrv, config=config) as producer:
        results = [producer.send(message()) for _ in range(2)]
    assert {each.queue and each.queue.broker_name for each in results} == {"broker-b"}


def test_a_level_that_only_some_brokers_have_is_for_these(rmq_cluster_factory):
    """18 was the last level, which is only the default of messageDelayLevel."""
    levels = {"message_delay_level": "1s " * 19 + "1h"}
    cluster = rmq_cluster_factory(settings=levels)
    topic = cluster.create_topic("T", queues=1)
    asked = cluster.faults.observe(code=RequestCode.GET_BROKER_CONFIG)
    with Producer(namesrv=cluster.namesrv) as producer:
        for _ in range(2):
            producer.send(ProducerMessage(topic, b"x", delay_level=20))
        producer.send_oneway(ProducerMessage(topic, b"x", delay_level=20))
        assert len(asked.requests) == 1
        late = ProducerMessage(topic, b"late", delay_level=21)
        for send in (producer.send, producer.send_oneway):
            with pytest.raises(
                UnsupportedError,
                match=r"^delay level 21 does not exist: the broker has the levels 1s 1s"
                r" .* 1s 1h$",
            ):
                send(late)
    assert bodies(cluster, topic) == []


def test_a_level_is_not_checked_where_the_broker_does_not_show_its_levels(
    rmq_cluster, rmq_topic, producer
):
    code = RequestCode.GET_BROKER_CONFIG
    refused = rmq_cluster.faults.add(faults.answer(16, "no"), code=code)
    for level in (19, 20):
        sent = producer.send(ProducerMessage(rmq_topic, b"x", delay_level=level))
        assert sent.status is SendStatus.SEND_OK
    assert len(refused.requests) == 1


def test_a_level_that_a_broker_with_few_levels_lacks_is_refused(rmq_cluster_factory):
    """Up to 18, the number of the default ones, the broker delivered by its last."""
    cluster = rmq_cluster_factory(settings={"message_delay_level": "1s 5s"})
    topic = cluster.create_topic("T", queues=1)
    asked = cluster.faults.observe(code=RequestCode.GET_BROKER_CONFIG)
    with Producer(namesrv=cluster.namesrv) as producer:
        for level in (2, 3):
            sent = [
                producer.submit(ProducerMessage(topic, b"x", delay_level=level))
                for _ in range(10)
            ]
            if level == 2:
                assert {each.result(10).status for each in sent} == {SendStatus.SEND_OK}
                assert len(asked.requests) == 1
                continue
            for each in sent:
                with pytest.raises(
                    UnsupportedError, match=r"^delay level 3 does not exist: .* 1s 5s$"
                ):
                    each.result(10)


def test_a_level_and_a_time_delay_a_message(rmq_cluster, rmq_topic, producer):
    by_level = producer.send(ProducerMessage(rmq_topic, b"level", delay_level=3))
    by_time = producer.send(ProducerMessage(rmq_topic, b"time", delay_ms=60_000))
    at_time = producer.send(
        ProducerMessage(
            rmq_topic, b"at", deliver_at_ms=SYSTEM_CLOCK.epoch_ms() + 60_000
        )
    )
    assert bodies(rmq_cluster, rmq_topic) == []
    assert (by_level.queue_offset, by_time.queue_offset) == (None, None)
    assert at_time.queue_offset is None
    assert bodies(rmq_cluster, "SCHEDULE_TOPIC_XXXX") == [b"level"]
    assert bodies(rmq_cluster, "rmq_sys_wheel_timer") == [b"at", b"time"]


def test_the_broker_decides_which_delay_is_too_long(rmq_topic, producer):
    """Its timerMaxDelaySec may be other than the default of three days."""
    with pytest.raises(BrokerError, match="bigger than the max delay 259200000ms"):
        producer.send(ProducerMessage(rmq_topic, b"x", delay_ms=259_260_000))


@pytest.mark.parametrize("how", ["send", "send_oneway"])
def test_a_time_is_refused_by_a_broker_that_would_deliver_at_once(
    rmq_cluster_factory, how
):
    cluster = rmq_cluster_factory(like="4.9.7")
    cluster.create_topic("orders")
    with (
        Producer(namesrv=cluster.namesrv) as producer,
        pytest.raises(
            UnsupportedError, match=r"4\.9\.7, which cannot deliver"
        ) as caught,
    ):
        getattr(producer, how)(message(delay_ms=1_000))
    assert caught.value.hint == "give a level, such as delay_level=3"
    assert stored(cluster, "orders") == []


def test_a_time_is_accepted_by_a_broker_that_was_upgraded(rmq_cluster_factory):
    """The producer went on to refuse it until the program was started again."""
    ports = PortBlock()
    at = {"namesrv_port": ports.first, "broker_ports": [ports.first + 1]}
    old = rmq_cluster_factory(like="4.9.7", **at)
    old.create_topic("orders")
    with Producer(namesrv=old.namesrv) as producer:
        with pytest.raises(UnsupportedError):
            producer.send(message(delay_ms=60_000))
        old.close()
        new = rmq_cluster_factory(like="5.5.0", **at)
        new.create_topic("orders")
        producer.send(message(delay_ms=60_000))
    assert bodies(new, "rmq_sys_wheel_timer") == [b"x"]
    ports.close()


def test_the_question_for_the_version_has_what_is_left_of_the_time(two):
    """Without an answer nothing was sent: no message of unknown fate."""
    sent = two.faults.observe(code=SEND)
    two.faults.add(faults.drop_request(), code=RequestCode.GET_BROKER_RUNTIME_INFO)
    with (
        Producer(namesrv=two.namesrv) as producer,
        pytest.raises(ConnectError, match="GET_BROKER_RUNTIME_INFO") as caught,
    ):
        producer.send(message(delay_ms=1_000), timeout_ms=200)
    asked_ms = re.search(r"in (\d+) ms", caught.value.message)
    assert asked_ms
    assert 1 <= int(asked_ms[1]) <= 200
    assert sent.seen == 0


def test_an_unknown_topic_is_created_by_the_broker_or_an_error(rmq_cluster_factory):
    cluster = rmq_cluster_factory()
    with Producer(namesrv=cluster.namesrv) as producer:
        queue = producer.send(message(topic="brand-new")).queue
        assert queue is not None
        assert queue.topic == "brand-new"
    assert bodies(cluster, "brand-new") == [b"x"]
    config = ProducerConfig(create_topic_key=None)
    with (
        Producer(namesrv=cluster.namesrv, config=config) as producer,
        pytest.raises(NotFoundError) as caught,
    ):
        producer.send(message(topic="other"))
    assert caught.value.hint == (
        "check the message's topic, or create it with Admin.create_topic()"
    )


def test_a_topic_that_is_created_later_is_sent_to(rmq_cluster):
    config = ProducerConfig(create_topic_key=None)
    with Producer(namesrv=rmq_cluster.namesrv, config=config) as producer:
        for send in (producer.send, lambda each: producer.submit(each).result()):
            with pytest.raises(NotFoundError):
                send(message(topic="later"))
        rmq_cluster.create_topic("later")
        producer.send(message(topic="later"))
        producer.submit(message(topic="later")).result()
    assert len(bodies(rmq_cluster, "later")) == 2


def test_a_new_topic_gets_as_many_queues_as_the_settings_say(rmq_cluster_factory):
    cluster = rmq_cluster_factory()
    config = ProducerConfig(default_topic_queue_nums=3)
    with Producer(namesrv=cluster.namesrv, config=config) as producer:
        queues = {producer.send(message(topic="brand-new")).queue for _ in range(9)}
        assert len(queues) == 3
        assert len(producer.queues("brand-new")) == 3


def test_a_topic_that_may_not_be_written_is_denied(rmq_cluster, producer):
    rmq_cluster.create_topic("read-only", perm=4)
    with pytest.raises(DeniedError, match="has no writable queue") as caught:
        producer.send(message(topic="read-only"))
    assert str(caught.value.hint) == (
        "read the topic's permissions with Admin.topic('read-only')"
    )


def test_no_name_server_is_a_connect_error_with_the_argument_s_name():
    with (
        Producer(namesrv=f"127.0.0.1:{free_port()}") as producer,
        pytest.raises(ConnectError) as caught,
    ):
        producer.send(message())
    assert caught.value.hint == "check the namesrv argument or NAMESRV_ADDR"


@pytest.mark.parametrize(
    ("make", "error", "why"),
    [
        (lambda: message("text"), TypeError, "body is a str; it must be bytes"),
        (lambda: message(topic="a b"), UsageError, "topic 'a b' has characters"),
        (lambda: message(keys="a b"), UsageError, "key 'a b' is empty or contains"),
        (lambda: message(delay_level=0), UsageError, "delay_level is 0"),
        (
            lambda: message(delay_level=1, delay_ms=5),
            UsageError,
            "cannot be used together",
        ),
        (
            lambda: message(properties={"KEYS": "k"}),
            UsageError,
            "RocketMQ's own",
        ),
        (lambda: message(flag=1 << 31), ConfigError, "flag is 2147483648; it must"),
        (
            lambda: ProducerConfig(compress_level=10),
            ConfigError,
            "compress_level is 10",
        ),
        (lambda: Producer("DEFAULT_PRODUCER"), ConfigError, "is reserved"),
        (
            lambda: Producer(on_check=lambda _: None),
            UsageError,
            "on_check needs a group",
        ),
    ],
)
def test_what_rocketmq_would_not_take_is_refused_where_it_is_written(make, error, why):
    with pytest.raises(error, match=why):
        make()


def test_the_hint_names_the_argument_that_sets_a_property():
    with pytest.raises(UsageError) as caught:
        message(properties={"DELAY": "3"})
    assert caught.value.hint == "use delay_level"


@pytest.mark.parametrize("body", [b"", b"x" * ((4 << 20) + 1)])
def test_a_body_that_brokers_refuse_is_not_sent(rmq_cluster, producer, body):
    tried = rmq_cluster.faults.observe(code=SEND)
    with pytest.raises(UsageError, match="body"):
        producer.send(message(body))
    assert not tried.requests


def test_a_closed_producer_refuses_and_waits_for_what_was_sent(rmq_cluster, rmq_topic):
    rmq_cluster.faults.next(faults.delay(200), code=SEND)
    producer = Producer("g", namesrv=rmq_cluster.namesrv)
    with pytest.raises(UsageError, match="is not started"):
        producer.send(message())
    producer.start()
    future = producer.submit(ProducerMessage(rmq_topic, b"x"))
    producer.close()
    producer.close()
    assert future.result(0).status is SendStatus.SEND_OK
    with pytest.raises(UsageError, match="the producer is closed"):
        producer.send(message())
    with pytest.raises(UsageError, match="can be started only once"):
        producer.start()
    assert not [t for t in threading.enumerate() if t.name.startswith("rmq-producer")]


def close_at_line(producer, number, send):
    """Call `send`, and close before it runs line `number` of the producer's modules.

    The close runs in the same thread, like that of a signal handler. Returns whether
    there are so many lines.
    """
    lines = itertools.count(1)
    source = str(Path(sys.modules[Producer.__module__].__file__ or "").parent)
    is_closed = False

    def trace(frame, event, _):
        nonlocal is_closed
        if not frame.f_code.co_filename.startswith(source):
            return None
        if event == "line" and next(lines) == number:
            sys.settrace(None)
            producer.close(timeout_ms=1)
            is_closed = True
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        send()
    except RmqError:
        assert is_closed
    finally:
        sys.settrace(before)
    return is_closed


def test_a_producer_leaves_once_and_is_not_started_again(rmq_cluster, rmq_topic):
    left = rmq_cluster.faults.observe(code=RequestCode.UNREGISTER_CLIENT)
    producer = Producer("shop", namesrv=rmq_cluster.namesrv)
    with producer:
        producer.send(ProducerMessage(rmq_topic, b"x"))
    producer.close()
    assert len(left.requests) == 1
    assert (
        repr(producer)
        == f"Producer(group='shop', namesrv='{rmq_cluster.namesrv}', closed)"
    )
    with pytest.raises(UsageError, match="can be started only once"):
        producer.start()
    never_opened = Producer("shop", namesrv=rmq_cluster.namesrv)
    never_opened.close()
    with pytest.raises(UsageError, match="can be started only once"):
        never_opened.start()


def test_a_signal_handler_may_close_at_any_line_of_a_send(rmq_cluster, rmq_topic):
    """It ends, with a result or an error, also where the send holds a lock."""
    one = ProducerMessage(rmq_topic, b"x")
    for number in itertools.count(1):
        producer = Producer(namesrv=rmq_cluster.namesrv)
        producer.start()
        is_closed = close_at_line(producer, number, lambda it=producer: it.send(one))
        producer.close()
        if not is_closed:
            break
    assert number > 30


def test_a_close_that_does_not_wait_fails_what_is_under_way(rmq_cluster, rmq_topic):
    rmq_cluster.faults.add(faults.drop_answer(), code=SEND)
    producer = Producer(namesrv=rmq_cluster.namesrv)
    producer.start()
    future = producer.submit(ProducerMessage(rmq_topic, b"x"), timeout_ms=60_000)
    sent = rmq_cluster.faults.observe(code=SEND)
    assert sent is not None
    producer.close(timeout_ms=100)
    with pytest.raises(SendUnknownError):
        future.result(60)


def test_the_group_is_registered_at_brokers_and_leaves(rmq_cluster, rmq_topic):
    state = rmq_cluster.broker().state
    with Producer("shop", namesrv=rmq_cluster.namesrv) as producer:
        producer.send(ProducerMessage(rmq_topic, b"x"))
        producer.send(ProducerMessage(rmq_topic, b"y"))
        members = rmq_cluster.call(lambda: state.clients.producers("shop"))
        assert [each.client_id for each in members] == [producer.client_id]
    assert rmq_cluster.call(lambda: state.clients.producers("shop")) == []


def test_a_group_stays_registered_by_heartbeats(rmq_cluster, rmq_topic):
    beats = rmq_cluster.faults.add(faults.delay(0), code=RequestCode.HEART_BEAT)
    config = ProducerConfig(heartbeat_broker_interval_ms=100)
    with Producer("shop", namesrv=rmq_cluster.namesrv, config=config) as producer:
        producer.send(ProducerMessage(rmq_topic, b"x"))
        wait_until(lambda: beats.hits >= 3)


def test_queues_that_a_topic_gets_later_are_used(rmq_cluster_factory):
    cluster = rmq_cluster_factory()
    cluster.create_topic("orders", queues=1)
    config = ProducerConfig(poll_namesrv_interval_ms=100)
    with Producer(namesrv=cluster.namesrv, config=config) as producer:
        first, third = (MessageQueue("orders", "broker-a", n) for n in (0, 2))
        assert producer.send(message()).queue == first
        cluster.broker().set_queues("orders", read=3, write=3)
        wait_until(lambda: producer.send(message()).queue == third)


def test_submit_waits_while_the_most_messages_are_in_flight(rmq_cluster, rmq_topic):
    config = ProducerConfig(async_messages_max=2)
    with Producer(namesrv=rmq_cluster.namesrv, config=config) as producer:
        for _ in range(5):  # these are not asynchronous, and do not count
            producer.send(ProducerMessage(rmq_topic, b"x"))
        rmq_cluster.faults.add(faults.delay(300), code=SEND, topic=rmq_topic)
        futures = []
        for number in range(6):
            futures.append(producer.submit(ProducerMessage(rmq_topic, b"%d" % number)))
            # Two, and one that has ended and whose result is just being set.
            assert sum(not future.done() for future in futures) <= 3
        assert [future.result().status for future in futures] == [
            SendStatus.SEND_OK
        ] * 6


def test_a_forked_child_cannot_send_with_its_parent_s_producer(
    rmq_cluster, rmq_topic, producer
):
    producer.send(ProducerMessage(rmq_topic, b"x"))
    pid = os.fork()
    if not pid:
        code = 1
        try:
            producer.send(ProducerMessage(rmq_topic, b"child"))
        except UsageError as error:
            producer.close()
            code = int(error.hint != "create a Producer in each process")
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    producer.send(ProducerMessage(rmq_topic, b"parent"))
    assert bodies(rmq_cluster, rmq_topic) == [b"parent", b"x"]


def test_a_callback_may_close_the_producer_which_returns_at_once(rmq_cluster):
    """The sends in flight still end, and the process waits for the close."""
    topic = rmq_cluster.create_topic("orders")
    producer = Producer(namesrv=rmq_cluster.namesrv)
    producer.start()
    closed = threading.Event()
    futures = []

    def close(_done):
        futures.append(producer.submit(ProducerMessage(topic, b"b")))
        producer.close(timeout_ms=PATIENCE_S * 1_000)
        closed.set()

    producer.submit(ProducerMessage(topic, b"a")).add_done_callback(close)
    assert closed.wait(PATIENCE_S)
    assert futures[0].result(PATIENCE_S).msg_id
    wait_until(lambda: "rmq-producer" not in {t.name for t in threading.enumerate()})
    with pytest.raises(UsageError, match="the producer is closed"):
        producer.send(ProducerMessage(topic, b"c"))


def test_each_way_to_send_stores_all_that_a_message_says(rmq_cluster, rmq_topic):
    sent = ProducerMessage(
        rmq_topic,
        b"hello",
        tags="größe",
        keys=("a", "b"),
        properties={"colour": "red"},
        flag=7,
    )
    ways = {
        "send": lambda made: made.send(sent),
        "submit": lambda made: made.submit(sent).result(),
        "batch": lambda made: made.send_batch([sent])[0],
        "half": lambda made: made.send_in_transaction(sent, decided),
    }

    def decided(*_):
        return LocalTransactionState.COMMIT_MESSAGE

    with Producer("shop", namesrv=rmq_cluster.namesrv, on_check=decided) as producer:
        ids = {way: call(producer).msg_id for way, call in ways.items()}
        producer.send_oneway(sent)
        wait_until(lambda: len(stored(rmq_cluster, rmq_topic)) == 5)
    found = stored(rmq_cluster, rmq_topic)
    assert {
        (each.body, each.tags, each.keys, each.properties["colour"], each.flag)
        for each in found
    } == {(b"hello", "größe", "a b", "red", 7)}
    assert {each.msg_id for each in found} > set(ids.values())


def test_a_message_whose_route_does_not_come_in_time_is_not_sent(rmq_cluster):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.faults.add(
        faults.drop_answer(), code=RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders"
    )
    with Producer(namesrv=rmq_cluster.namesrv) as producer:
        with pytest.raises(DeadlineError) as caught:
            producer.send(ProducerMessage("orders", b"late"), timeout_ms=50)
        msg_id = caught.value.message.split(" ")[1]
        assert caught.value.message == (
            f"message {msg_id} to topic orders was not sent within 50 ms"
        )
        assert len(msg_id) == 32
    assert bodies(rmq_cluster, "orders") == []
