"""`Producer.submit`: what shares a request, in which order, and whose error it is."""

from __future__ import annotations

import pytest

from rmqcli.errors import (
    BrokerError,
    DeadlineError,
    NotFoundError,
    SendUnknownError,
    UsageError,
)
from rmqcli.model import MessageQueue
from rmqcli.producer.config import ProducerConfig
from rmqcli.producer.message import ProducerMessage
from rmqcli.producer.producer import Producer
from rmqcli.testing import ManualClock, faults
from rmqcli.wire.codes import RequestCode
from tests.kit.waiting import PATIENCE_S, wait_until
from tests.producer.stored import bodies, stored

SEND = RequestCode.SEND_MESSAGE_V2
BATCH = RequestCode.SEND_BATCH_MESSAGE
PATIENT = ProducerConfig(send_msg_timeout_ms=PATIENCE_S * 1_000)
LINGERING = ProducerConfig(send_msg_timeout_ms=PATIENCE_S * 1_000, linger_ms=60_000)


@pytest.fixture
def one_queue(rmq_cluster):
    """A cluster, and its topic orders with a single queue."""
    rmq_cluster.create_topic("orders", queues=1)
    return rmq_cluster


def message(body=b"x", **fields):
    return ProducerMessage("orders", body, **fields)


def held(cluster, producer, body=b"0", *, delay_ms=1_000):
    """Submit a message whose answer is held back, so that further ones gather."""
    held_back = cluster.faults.next(
        faults.delay(delay_ms), broker="broker-a", topic="orders"
    )
    future = producer.submit(message(body))
    wait_until(lambda: held_back.seen)
    return future


def test_messages_of_one_thread_are_in_order_in_every_queue(rmq_cluster):
    rmq_cluster.create_topic("orders", queues=3)
    requests = rmq_cluster.faults.observe(topic="orders", code=BATCH)
    with Producer(namesrv=rmq_cluster.namesrv, config=PATIENT) as producer:
        futures = [producer.submit(message(b"%d" % n)) for n in range(1_500)]
        results = [each.result() for each in futures]
    placed = [
        (each.queue.queue_id, each.queue_offset) for each in results if each.queue
    ]
    found = {
        (m.queue_id, m.queue_offset): int(m.body) for m in stored(rmq_cluster, "orders")
    }
    assert [found[place] for place in placed] == list(range(1_500))
    for queue_id in range(3):
        bodies_there = [found[p] for p in sorted(found) if p[0] == queue_id]
        assert bodies_there
        assert bodies_there == sorted(bodies_there)
    assert 0 < requests.seen < 750


def test_what_waits_for_a_request_shares_the_next_one(one_queue):
    batches = one_queue.faults.observe(code=BATCH)
    with Producer(namesrv=one_queue.namesrv, config=PATIENT) as producer:
        first = held(one_queue, producer)
        futures = [
            producer.submit(message(b"%d" % n, keys=f"k{n}")) for n in range(1, 9)
        ]
        results = [each.result() for each in (first, *futures)]
    assert [each.queue_offset for each in results] == list(range(9))
    assert batches.seen == 1
    assert [(m.body, m.keys, m.msg_id) for m in stored(one_queue, "orders")[1:]] == [
        (b"%d" % n, f"k{n}", results[n].msg_id) for n in range(1, 9)
    ]


def test_messages_of_different_topics_and_chosen_queues_are_kept_apart(rmq_cluster):
    rmq_cluster.create_topic("orders", queues=2)
    rmq_cluster.create_topic("bills", queues=1)
    last = MessageQueue("orders", "broker-a", 1)
    with Producer(namesrv=rmq_cluster.namesrv, config=PATIENT) as producer:
        chosen = [producer.submit(message(b"c%d" % n), queue=last) for n in range(50)]
        bills = [
            producer.submit(ProducerMessage("bills", b"b%d" % n)) for n in range(50)
        ]
        assert {each.result().queue for each in chosen} == {last}
        assert {each.result().queue for each in bills} == {
            MessageQueue("bills", "broker-a", 0)
        }
    assert [m.body for m in stored(rmq_cluster, "orders")] == [
        b"c%d" % n for n in range(50)
    ]
    assert [m.body for m in stored(rmq_cluster, "bills")] == [
        b"b%d" % n for n in range(50)
    ]


def test_a_refused_batch_is_halved_until_one_message_is_left(one_queue):
    """Only the message that is at fault fails."""
    with Producer(namesrv=one_queue.namesrv, config=PATIENT) as producer:
        first = held(one_queue, producer)
        one_queue.faults.add(faults.answer(13, "illegal"), code=BATCH, times=2)
        one_queue.faults.add(faults.answer(13, "illegal"), code=SEND, nth=2, times=1)
        futures = [producer.submit(message(b"%d" % n)) for n in range(1, 5)]
        errors = [each.exception() for each in (first, *futures)]
    assert isinstance(errors[2], BrokerError)
    assert [errors[n] for n in (0, 1, 3, 4)] == [None] * 4
    assert bodies(one_queue, "orders") == [b"0", b"1", b"3", b"4"]


@pytest.mark.slow
def test_each_message_of_an_unanswered_batch_has_an_error_with_its_own_id(one_queue):
    one_queue.faults.add(faults.drop_answer(), code=BATCH)
    with Producer(namesrv=one_queue.namesrv, config=PATIENT) as producer:
        first = held(one_queue, producer)
        futures = [
            producer.submit(message(b"%d" % n), timeout_ms=5_000) for n in range(1, 4)
        ]
        others = [each.exception() for each in futures]
        assert first.exception() is None
    ids = [m.msg_id for m in stored(one_queue, "orders")]
    lost = [each for each in others if isinstance(each, SendUnknownError)]
    assert [each.msg_ids for each in lost] == [(each,) for each in ids[1:]]
    assert lost[0].message.startswith(f"message {ids[1]} to topic orders may or may")


def test_messages_wait_for_others_as_long_as_the_setting_says(one_queue):
    one_queue.create_topic("others", queues=1)
    batches = one_queue.faults.observe(code=BATCH)
    with Producer(namesrv=one_queue.namesrv, config=LINGERING) as producer:
        for body in (b"a", b"b", b"c"):
            producer.submit(message(body))
            producer.send(ProducerMessage("others", b"x"))
        assert batches.seen == 0
        assert bodies(one_queue, "orders") == []
    assert batches.seen == 1
    assert bodies(one_queue, "orders") == [b"a", b"b", b"c"]


def test_a_submitted_message_cannot_be_cancelled(one_queue):
    with Producer(namesrv=one_queue.namesrv, config=LINGERING) as producer:
        future = producer.submit(message(b"kept"))
        assert (future.cancel(), future.running(), future.done()) == (
            False,
            True,
            False,
        )
    assert (future.cancel(), future.running(), future.done()) == (False, False, True)
    assert future.result().queue_offset == 0
    assert bodies(one_queue, "orders") == [b"kept"]


def test_a_message_whose_time_is_over_before_it_is_sent_is_not_sent(one_queue):
    with Producer(namesrv=one_queue.namesrv, config=PATIENT) as producer:
        first = held(one_queue, producer, b"held")
        late = producer.submit(message(b"late"), timeout_ms=1)
        after = producer.submit(message(b"after"))
        with pytest.raises(DeadlineError, match="was not sent within 1 ms"):
            late.result()
        assert first.result().queue_offset == 0
        assert after.result().queue_offset == 1
    assert bodies(one_queue, "orders") == [b"after", b"held"]


def test_a_large_message_goes_alone_and_keeps_its_place(one_queue):
    sizes = [1, 1, 300_000, 5_000, 1, 1]
    with Producer(namesrv=one_queue.namesrv, config=PATIENT) as producer:
        for each in [producer.submit(message(b"x" * size)) for size in sizes]:
            each.result()
    assert [len(m.body) for m in stored(one_queue, "orders")] == sizes


def test_messages_with_a_priority_are_stored_in_the_queue_of_their_priority(
    rmq_cluster,
):
    """A broker stores a batch in the queue of the request, whatever the priorities."""
    rmq_cluster.create_topic("urgent", queues=4)
    config = ProducerConfig(linger_ms=300)
    with Producer(namesrv=rmq_cluster.namesrv, config=config) as producer:
        futures = [
            producer.submit(
                ProducerMessage(
                    "urgent", b"x", properties={"_SYS_MSG_PRIORITY_": str(n % 4)}
                )
            )
            for n in range(40)
        ]
        for each in futures:
            each.result()
    for found in stored(rmq_cluster, "urgent"):
        assert found.properties["_SYS_MSG_PRIORITY_"] == str(found.queue_id)


def test_messages_of_a_lite_topic_can_be_consumed_by_it(rmq_cluster):
    """Of a batch a broker does not note the lite topics."""
    rmq_cluster.create_topic("chats", queues=1)
    lite = ProducerMessage("chats", b"x", properties={"__LITE_TOPIC": "a"})
    config = ProducerConfig(linger_ms=300)
    with Producer(namesrv=rmq_cluster.namesrv, config=config) as producer:
        for each in [producer.submit(lite) for _ in range(3)]:
            each.result()
    assert [
        each.properties["INNER_MULTI_DISPATCH"] for each in stored(rmq_cluster, "chats")
    ] == ["%LMQ%$chats$a"] * 3


def test_delayed_messages_do_not_wait_for_each_other(one_queue):
    one_queue.faults.next(faults.delay(1_000), code=SEND)
    with Producer(namesrv=one_queue.namesrv, config=PATIENT) as producer:
        first, *others = [producer.submit(message(delay_level=1)) for _ in range(5)]
        for each in others:
            assert each.result().queue_offset is None
        assert not first.done()


@pytest.mark.parametrize("delay_level", [None, 1])
def test_submits_that_ended_leave_no_more_room_than_there_was(one_queue, delay_level):
    config = ProducerConfig(
        send_msg_timeout_ms=PATIENCE_S * 1_000, async_messages_max=1
    )
    with Producer(namesrv=one_queue.namesrv, config=config) as producer:
        for _ in range(3):
            producer.submit(message(delay_level=delay_level)).result()
            with pytest.raises(UsageError, match="belong to topic"):
                producer.submit(message(), queue=MessageQueue("other", "b", 0))
        one_queue.faults.next(faults.delay(1_000), topic="orders")
        first = producer.submit(message(delay_level=delay_level))
        second = producer.submit(message(delay_level=delay_level))
        assert first.done()
        second.result()


def test_a_missing_topic_fails_every_message_and_a_later_one_may_succeed(rmq_cluster):
    config = ProducerConfig(create_topic_key=None)
    with Producer(namesrv=rmq_cluster.namesrv, config=config) as producer:
        for future in [producer.submit(message()) for _ in range(3)]:
            with pytest.raises(NotFoundError):
                future.result()
        rmq_cluster.create_topic("orders")
        assert producer.submit(message()).result().queue_offset == 0


def test_lingering_messages_share_a_request_although_the_queue_is_free(one_queue):
    config = ProducerConfig(linger_ms=300)
    batches = one_queue.faults.observe(code=BATCH)
    with Producer(namesrv=one_queue.namesrv, config=config) as producer:
        futures = [producer.submit(message(b"%d" % n)) for n in range(4)]
        assert [each.result().queue_offset for each in futures] == [0, 1, 2, 3]
    assert batches.seen == 1


def test_a_full_batch_does_not_linger(one_queue):
    with Producer(namesrv=one_queue.namesrv, config=LINGERING) as producer:
        futures = [producer.submit(message()) for _ in range(512)]
        assert [each.result(PATIENCE_S).queue_offset for each in futures][-1] == 511


def test_closing_sends_what_lingers(one_queue):
    producer = Producer(namesrv=one_queue.namesrv, config=LINGERING)
    producer.start()
    future = producer.submit(message(b"waits"))
    producer.close()
    assert future.result(PATIENCE_S).queue_offset == 0
    assert bodies(one_queue, "orders") == [b"waits"]


def test_closing_ends_all_that_a_hung_broker_holds_back(one_queue):
    sent = one_queue.faults.add(faults.drop_answer(), broker="broker-a", topic="orders")
    producer = Producer(namesrv=one_queue.namesrv, config=PATIENT)
    producer.start()
    futures = [producer.submit(message()) for _ in range(900)]
    wait_until(lambda: sent.seen)
    producer.close(timeout_ms=100)
    errors = [each.exception(PATIENCE_S) for each in futures]
    assert None not in errors
    assert isinstance(errors[0], SendUnknownError)


@pytest.mark.parametrize("count", [1, 3])
def test_messages_that_waited_for_others_were_born_when_they_were_submitted(
    one_queue, count
):
    clock = ManualClock(1_700_000_000_000)
    producer = Producer(namesrv=one_queue.namesrv, config=LINGERING, clock=clock)
    with producer:
        futures = [producer.submit(message()) for _ in range(count)]
        clock.advance(250)
    assert [future.done() for future in futures] == [True] * count
    born = [each.born_timestamp_ms for each in stored(one_queue, "orders")]
    assert born == [1_700_000_000_000] * count
