"""Messages in order become full batches, and the sender waits for an absent broker."""

from __future__ import annotations

import pytest

from rmqcli import Producer, ProducerConfig, ProducerMessage
from rmqcli.broker import faults
from rmqcli.errors import (
    BrokerError,
    BusyError,
    DeniedError,
    NotFoundError,
    SendUnknownError,
)
from rmqcli.model import MessageQueue
from rmqcli.producer.batches import BatchSender, Gathered, SentCounts
from rmqcli.producer.lane import ALONE_BYTES
from rmqcli.wire.codes import RequestCode
from tests.kit.waiting import wait_until
from tests.producer.stored import bodies, stored

SEND = RequestCode.SEND_MESSAGE_V2
BATCH = RequestCode.SEND_BATCH_MESSAGE


def message(body=b"x", **fields):
    return ProducerMessage("orders", body, **fields)


def gathered(messages, *, has_queue=False):
    """Gather messages, check that their order is kept, and return the batch lengths."""
    gather: Gathered[ProducerMessage] = Gathered(has_queue=has_queue)
    batches = [batch for each in messages for batch in gather.add(each)]
    batches += gather.rest()
    assert [each for batch in batches for each in batch] == messages
    return [len(batch) for batch in batches]


def test_a_batch_holds_512_messages():
    assert gathered([message(b"%d" % n) for n in range(1_100)]) == [512, 512, 76]
    assert gathered([]) == []


def test_a_batch_holds_a_mebibyte():
    assert gathered([message(b"x" * 200_000)] * 12) == [5, 5, 2]
    long = {"p": "v" * 10_000}
    assert gathered([message(properties=long)] * 110) == [102, 8]


@pytest.mark.parametrize(("last_bytes", "batches"), [(261_888, [4]), (261_889, [3, 1])])
def test_a_batch_is_full_to_the_last_byte(last_bytes, batches):
    """Each message counts 256 bytes beside its body: four times 262,144 is a MiB."""
    full = [message(b"x" * 261_888)] * 4
    assert gathered([*full, *full[:3], message(b"x" * last_bytes)]) == [4, *batches]


def test_what_a_batch_cannot_hold_goes_alone_and_in_order():
    large, delayed = message(b"x" * ALONE_BYTES), message(delay_level=1)
    small = message()
    assert gathered([small, small, large, small, delayed, delayed]) == [2, 1, 1, 1, 1]
    assert gathered([ProducerMessage("%RETRY%g", b"x")] * 2) == [1, 1]
    urgent = message(properties={"_SYS_MSG_PRIORITY_": "1"})
    assert gathered([small, small, urgent, urgent, small]) == [2, 1, 1, 1]
    assert gathered([small, small, urgent, urgent, small], has_queue=True) == [5]
    lite = message(properties={"__LITE_TOPIC": "a"})
    assert gathered([small, small, lite, small]) == [2, 1, 1]
    assert gathered([small, small, lite, small], has_queue=True) == [2, 1, 1]


@pytest.fixture
def cluster(rmq_cluster_factory):
    cluster = rmq_cluster_factory()
    cluster.create_topic("orders", queues=2)
    return cluster


@pytest.fixture
def producer(cluster):
    config = ProducerConfig(send_msg_timeout_ms=500, create_topic_key=None)
    with Producer(namesrv=cluster.namesrv, config=config) as producer:
        yield producer


def test_a_priority_decides_the_queue_of_a_message_unless_the_caller_does(
    cluster, producer
):
    """Any queue got it: brokers do not look at the priorities of a batch."""
    sender = BatchSender(producer)
    urgent = message(b"1", properties={"_SYS_MSG_PRIORITY_": "1"})
    for _ in range(3):
        sender.send([urgent])
    assert [each.queue_id for each in stored(cluster, "orders")] == [1, 1, 1]
    large = message(b"x" * ALONE_BYTES, properties={"_SYS_MSG_PRIORITY_": "1"})
    for each in (urgent, large):
        sender.send([each], queue=MessageQueue("orders", "broker-a", 0))
    assert [each.queue_id for each in stored(cluster, "orders")] == [0, 0, 1, 1, 1]


@pytest.mark.parametrize("fault", [faults.answer(2, "busy"), faults.disconnect()])
def test_a_batch_that_was_refused_is_sent_again(cluster, producer, fault):
    queue = MessageQueue("orders", "broker-a", 1)
    cluster.faults.add(fault, code=BATCH, times=2)
    sender = BatchSender(producer, retry_for_ms=30_000)
    sender.send([message(b"a"), message(b"b")], queue=queue)
    assert sender.counts.stored == 2
    assert sorted(bodies(cluster, "orders")) == [b"a", b"b"]
    assert {each.queue_id for each in stored(cluster, "orders")} == {1}


def test_a_batch_without_an_answer_is_counted_as_unsure(cluster, producer):
    cluster.faults.next(faults.drop_answer(), code=BATCH)
    sender = BatchSender(producer, retry_for_ms=30_000)
    sender.send([message(b"a"), message(b"b")])
    assert sender.counts == SentCounts(stored=2, unsure=2, weak=0)
    assert sorted(bodies(cluster, "orders")) == [b"a", b"a", b"b", b"b"]


def test_messages_with_another_status_than_send_ok_are_counted(cluster, producer):
    answer = faults.answer(10, ext_fields={"msgId": "0" * 32, "queueId": "0",
                                           "queueOffset": "0"})  # fmt: skip
    cluster.faults.next(answer, code=BATCH)
    sender = BatchSender(producer)
    sender.send([message()])
    assert sender.counts == SentCounts(stored=1, unsure=0, weak=1)


def test_it_ends_after_its_time(cluster, producer):
    cluster.faults.add(faults.drop_request(), code=BATCH)
    with pytest.raises(SendUnknownError):
        BatchSender(producer, retry_for_ms=0).send([message()])
    cluster.faults.add(faults.answer(2, "busy"), code=SEND)
    with pytest.raises(BusyError):
        BatchSender(producer, retry_for_ms=0).send([message(b"x" * ALONE_BYTES)])


def test_what_cannot_help_is_not_tried_again(cluster, producer):
    tried = cluster.faults.add(faults.answer(13, "illegal"), code=BATCH)
    with pytest.raises(BrokerError, match="MESSAGE_ILLEGAL"):
        BatchSender(producer).send([message()])
    assert tried.hits == 1


@pytest.mark.parametrize("apart", [False, True])
def test_a_topic_that_is_gone_is_waited_for_if_it_was_there_before(
    cluster, producer, apart
):
    """A broker that restarts knows no topic for a moment; each send tries 3 times."""
    code = SEND if apart else BATCH
    late = cluster.create_topic("bills", queues=1)
    gone = cluster.faults.add(faults.answer(17, "not here"), code=code)
    sender = BatchSender(producer, retry_for_ms=30_000)
    send = sender.send_apart if apart else sender.send
    with pytest.raises(NotFoundError):
        send([message(b"a", delay_ms=1) if apart else message(b"a")])
    assert gone.hits == 3
    cluster.faults.remove(gone)
    sender.send([message(b"b")])
    cluster.faults.add(faults.answer(17, "not here"), code=code, times=6)
    with pytest.raises(NotFoundError):
        send([ProducerMessage(late, b"c", delay_ms=1 if apart else None)])
    send([message(b"d", delay_ms=1) if apart else message(b"d")])
    assert sender.counts == SentCounts(stored=2, unsure=0, weak=0)
    wait_until(lambda: set(bodies(cluster, "orders")) == {b"b", b"d"})
    assert bodies(cluster, late) == []


def test_a_topic_to_which_only_messages_apart_were_sent_is_waited_for(
    cluster, producer
):
    sender = BatchSender(producer, retry_for_ms=30_000)
    sender.send_apart([message(b"a", delay_ms=1)])
    gone = faults.answer(17, "not here")
    cluster.faults.add(gone, code=SEND, times=6)
    sender.send_apart([message(b"b", delay_ms=1)])
    assert sender.counts == SentCounts(stored=2, unsure=0, weak=0)


@pytest.mark.parametrize("is_known", [False, True])
def test_a_broker_that_denies_a_topic_is_not_asked_again(cluster, producer, is_known):
    """A route without a master may come back; the permission of a broker does not."""
    sender = BatchSender(producer, retry_for_ms=30_000)
    if is_known:
        sender.send([message()])
    tried = cluster.faults.add(faults.answer(16, "not permitted"), code=BATCH)
    with pytest.raises(DeniedError, match="not permitted"):
        sender.send([message()])
    assert tried.hits == 1


def test_messages_apart_are_stored_each_by_itself(cluster, producer):
    cluster.faults.next(faults.answer(2, "busy"), code=SEND)
    cluster.faults.next(faults.drop_answer(), code=SEND)
    sender = BatchSender(producer, retry_for_ms=30_000)
    sender.send_apart([message(b"%d" % n, delay_ms=1) for n in range(5)])
    assert sender.counts == SentCounts(stored=5, unsure=1, weak=0)
    all_five = {b"0", b"1", b"2", b"3", b"4"}
    wait_until(lambda: set(bodies(cluster, "orders")) == all_five)
    cluster.faults.add(faults.answer(13, "illegal"), code=SEND)
    with pytest.raises(BrokerError, match="MESSAGE_ILLEGAL"):
        sender.send_apart([message()])


def test_a_message_with_a_priority_is_also_sent_again_by_itself(cluster, producer):
    """In a batch it would be in a queue whose number is not its priority."""
    urgent = cluster.create_topic("urgent", queues=4)
    busy = cluster.faults.add(faults.answer(2, "busy"), code=SEND, times=6)
    batches = cluster.faults.observe(code=BATCH)
    sender = BatchSender(producer, retry_for_ms=30_000)
    properties = {"_SYS_MSG_PRIORITY_": "3"}
    sender.send_apart([ProducerMessage(urgent, b"a", properties=properties)])
    assert sender.counts == SentCounts(stored=1, unsure=0, weak=0)
    assert (busy.hits, batches.seen) == (6, 0)


def test_a_large_message_with_a_priority_goes_to_the_queue_that_is_asked_for(
    cluster, producer
):
    """By itself it would go to the queue of its priority, and an import loses it."""
    urgent = cluster.create_topic("urgent", queues=4)
    gathered: Gathered[ProducerMessage] = Gathered(has_queue=True)
    sender = BatchSender(producer)
    large = ProducerMessage(
        urgent, bytes(ALONE_BYTES), properties={"_SYS_MSG_PRIORITY_": "3"}
    )
    chosen = MessageQueue(urgent, "broker-a", 1)
    for batch in [*gathered.add(large), *gathered.rest()]:
        assert sender.send(batch, queue=chosen).queue == chosen
    assert sender.counts == SentCounts(stored=1, unsure=0, weak=0)
