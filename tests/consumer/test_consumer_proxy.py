"""`Consumer` through the embedded proxy and through one whose answers are scripted."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import grpc
import pytest

from rmqcli import (
    ClientConfig,
    ConnectError,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    ConsumeOrderlyStatus,
    Consumer,
    ConsumerConfig,
    FilterError,
    MessageModel,
    NotFoundError,
    SimpleConsumer,
    UnsupportedError,
    connect,
    sql,
)
from rmqcli.broker.cluster.seeding import Seed
from rmqcli.broker.proxy.options import ProxyOptions
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.engine.reports import FailedDelivery, Fate
from rmqcli.testing import ManualClock
from rmqcli.wire.protobuf import definition_pb2 as pb
from rmqcli.wire.protobuf import service_pb2 as service
from tests.consumer.collecting import Seen
from tests.kit.ports import PortBlock
from tests.kit.proxy.inbox import PART, Inbox
from tests.kit.proxy.scripted import OK, ScriptedProxy, status
from tests.kit.waiting import PATIENCE_S, wait_until


@pytest.fixture
def cluster(rmq_cluster_factory):
    made = rmq_cluster_factory(proxy=True)
    made.create_topic("orders")
    return made


@pytest.fixture
def proxy():
    with ScriptedProxy() as made:
        made.answers["QueryAssignment"] = assignment
        yield made


@pytest.fixture
def inbox(proxy):
    made = Inbox(proxy)
    yield made
    made.end()


def assignment(request, _context):
    """Answer as a proxy does for a non-FIFO group: all queues of the only broker."""
    answer = service.QueryAssignmentResponse(status=OK)
    queue = answer.assignments.add().message_queue
    queue.topic.name = request.topic.name
    queue.id = -1
    queue.permission = pb.Permission.READ_WRITE
    queue.broker.name = "broker-a"
    queue.broker.endpoints.CopyFrom(request.endpoints)
    return answer


def refused(_request, _context):
    return service.QueryAssignmentResponse(status=status("INTERNAL_SERVER_ERROR"))


def with_another_broker(request, context):
    answer = assignment(request, context)
    answer.assignments.add().CopyFrom(answer.assignments[0])
    answer.assignments[1].message_queue.broker.name = "broker-b"
    return answer


def consumer(server, listener=None, *, group="g", topics="orders", **options):
    """Create a consumer.

    `options` are fields of ConsumerConfig or arguments of Consumer.
    """
    settings = {
        name: options.pop(name)
        for name in list(options)
        if name in ConsumerConfig.__dataclass_fields__
    }
    if options.pop("batch", False):
        options["on_batch"], listener = listener, None
    return Consumer(
        group,
        topics,
        listener,
        client=ClientConfig(
            endpoints=(server.endpoints,),
            plaintext=True,
            timeout_ms=PATIENCE_S * 1_000,
        ),
        config=ConsumerConfig(**settings),
        **options,
    )


def stored(cluster, topic):
    store = cluster.brokers[0].store
    bounds = cluster.call(lambda: store.queue_bounds(topic, 0))
    return 0 if bounds is None else bounds[1]


def left_over(cluster, least=0, group="g", topic="orders"):
    """Receive the messages that the group has not acknowledged; return their bodies.

    Waits for at least `least` messages, and also returns further ones that are there.
    """
    config = ClientConfig(endpoints=(cluster.endpoints,), plaintext=True)
    found: list[bytes] = []
    with SimpleConsumer(group, topic, client=config) as other:
        while True:
            await_ms = 60_000 if len(found) < least else 1
            if not (messages := other.receive(await_ms=await_ms)):
                return sorted(found)
            found += [each.body for each in messages]
            other.ack(messages)


def test_messages_are_consumed_and_acknowledged(cluster):
    cluster.send("orders", [f"m{n}" for n in range(100)], tags="A")
    seen = Seen()
    with consumer(cluster, seen) as running:
        assert seen.wait_for(100) == sorted(f"m{n}" for n in range(100))
        assert running.client_id is not None
        (queue,) = running.queues()
        assert (queue.topic, queue.broker_name, queue.queue_id) == (
            "orders",
            "broker-a",
            -1,
        )
    assert len(seen.bodies) == 100
    message = seen.messages[0]
    assert (message.topic, message.tags, message.reconsume_times) == ("orders", "A", 0)
    assert running.wait(0)
    assert running._backend.is_confirmed is True
    assert left_over(cluster) == []


def test_messages_of_a_topic_in_a_namespace_are_acknowledged(cluster):
    """Their acks were for a topic without the namespace, and they came again."""
    cluster.create_topic("NS1%orders")
    cluster.send("NS1%orders", ["x"])
    seen = Seen()
    with consumer(cluster, seen, topics="NS1%orders"):
        seen.wait_for(1)
    assert [each.topic for each in seen.messages] == ["NS1%orders"]
    assert left_over(cluster, topic="NS1%orders") == []


def test_tags_select_messages(cluster):
    cluster.send("orders", ["a"], tags="A")
    cluster.send("orders", ["b"], tags="B")
    seen = Seen()
    with consumer(cluster, seen, topics={"orders": "B"}):
        assert seen.wait_for(1) == ["b"]


def test_batches_have_messages_of_one_queue(cluster):
    cluster.send("orders", [f"m{n}" for n in range(20)])
    found = []

    def handle(messages, context):
        found.append((context.message_queue, [each.message_queue for each in messages]))
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    with consumer(cluster, handle, batch=True, consume_message_batch_max_size=4):
        wait_until(lambda: sum(len(queues) for _, queues in found) == 20)
    assert all(set(queues) == {queue} for queue, queues in found)
    assert max(len(queues) for _, queues in found) <= 4


@pytest.mark.slow
@pytest.mark.parametrize(
    "first",
    [
        lambda: False,
        lambda: 1 / 0,
        lambda: ConsumeConcurrentlyStatus.RECONSUME_LATER,
    ],
    ids=["False", "raises", "later"],
)
def test_a_failed_message_is_delivered_again(cluster, first):
    cluster.send("orders", ["x"])
    seen = Seen(lambda _, times: None if times > 1 else first())
    failures: list[Any] = []
    with consumer(cluster, seen, on_failed=failures.append):
        wait_until(lambda: len(seen.bodies) == 2)
    assert [each.reconsume_times for each in seen.messages] == [0, 1]
    (failed,) = failures
    told = (failed.fate.name, failed.retry, failed.retries_max)
    assert told == ("DELIVERED_AGAIN", 1, 16)


@pytest.mark.slow
def test_a_message_is_a_dead_letter_after_its_last_attempt(cluster):
    cluster.create_group("g", retry_max_times=1)
    cluster.send("orders", ["bad"])
    seen = Seen(lambda *_: False)
    failures: list[Any] = []
    with consumer(cluster, seen, on_failed=failures.append):
        wait_until(lambda: stored(cluster, "%DLQ%g") == 1)
        wait_until(lambda: len(failures) == 2)
    assert [each.reconsume_times for each in seen.messages] == [0, 1]
    assert [each.fate.name for each in failures] == ["DELIVERED_AGAIN", "DEAD_LETTER"]
    assert left_over(cluster) == []


@pytest.mark.slow
def test_a_fifo_group_is_consumed_in_order_with_retries_in_place(cluster):
    cluster.create_group("g", consume_message_orderly=True, retry_max_times=1)
    for number in range(4):
        for name in "ab":
            body = f"{name}{number}".encode()
            seed = Seed(body=body, properties={"__SHARDINGKEY": name})
            cluster.send("orders", [seed], queue_id=0)
    seen = Seen(lambda message, _: message.body not in (b"a1", b"b2"))
    with consumer(cluster, seen, orderly=True):
        seen.wait_for(8)
        wait_until(lambda: stored(cluster, "%DLQ%g") == 2)
    by_group = {
        name: [each for each in seen.bodies if each[0] == name] for name in "ab"
    }
    assert by_group == {
        "a": ["a0", "a1", "a1", "a2", "a3"],
        "b": ["b0", "b1", "b2", "b2", "b3"],
    }
    times = [m.reconsume_times for m in seen.messages if m.body == b"a1"]
    # Both deliveries have the same object, which counts its attempts.
    assert times == [1, 1]
    assert left_over(cluster) == []


def test_an_orderly_listener_may_suspend_its_message(cluster):
    an_hour = {"customizedRetryPolicy": {"next": [3_600_000]}}
    cluster.create_group(
        "g", consume_message_orderly=True, raw={"groupRetryPolicy": an_hour}
    )
    cluster.send("orders", ["x", "y"], queue_id=0)
    bodies = []

    def handle(messages, context):
        (message,) = messages
        bodies.append(message.body)
        if len(bodies) < 3:
            context.suspend_current_queue_time_ms = 20
            return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
        return ConsumeOrderlyStatus.SUCCESS

    with consumer(cluster, handle, batch=True, orderly=True):
        wait_until(lambda: len(bodies) == 4)
    assert bodies == [b"x", b"x", b"x", b"y"]


def test_orderly_needs_a_fifo_group(cluster):
    with pytest.raises(UnsupportedError, match="group g is not a FIFO group") as raised:
        consumer(cluster, Seen(), orderly=True).start()
    assert raised.value.hint == (
        "make it one: Admin.update_group('g') with consume_message_orderly=True; or"
        " consume without the orderly argument"
    )


@pytest.mark.slow
def test_a_consumer_is_iterated(cluster):
    cluster.send("orders", ["x", "y", "z"], queue_id=0)
    with consumer(cluster) as running:
        loop = iter(running)
        first, second = next(loop), next(loop)
        assert {first.body, second.body} <= {b"x", b"y", b"z"}
    (third,) = {b"x", b"y", b"z"} - {first.body} - {second.body}
    # The message at which the loop was left does not count as consumed.
    assert left_over(cluster, 2) == sorted([second.body, third])


@pytest.mark.slow
def test_a_close_waits_for_listeners_and_gives_the_rest_back(cluster):
    cluster.send("orders", [f"m{n}" for n in range(10)], queue_id=0)
    begun, go_on = threading.Event(), threading.Event()
    bodies = []

    def handle(message):
        begun.set()
        assert go_on.wait(400)
        bodies.append(message.body)

    running = consumer(cluster, handle, consume_threads=1)
    running.start()
    assert begun.wait(400)
    closer = threading.Thread(target=running.close)
    closer.start()
    wait_until(lambda: running._is_close_asked)
    go_on.set()
    closer.join(400)
    assert running.wait(0)
    (consumed,) = bodies
    everything = sorted(b"m%d" % n for n in range(10))
    everything.remove(consumed)
    assert left_over(cluster, 9) == everything


@pytest.mark.slow
def test_a_close_waits_until_a_message_that_was_to_be_retried_is_given_back(
    cluster, caplog
):
    """It did not wait, so its request could be lost with the connection."""
    cluster.create_topic("one", queues=1)
    an_hour = {"customizedRetryPolicy": {"next": [3_600_000]}}
    cluster.create_group(
        "g", consume_message_orderly=True, raw={"groupRetryPolicy": an_hour}
    )
    cluster.send("one", ["x"])
    failures: list[FailedDelivery] = []
    running = consumer(
        cluster,
        lambda _: False,
        topics="one",
        orderly=True,
        pull_threshold_for_queue=1,
        on_failed=failures.append,
    )
    with running:
        wait_until(lambda: failures)
    assert "close ends with requests unanswered" not in caplog.text
    assert left_over(cluster, 1, topic="one") == [b"x"]


def test_a_close_ends_its_receives_before_it_gives_messages_back(proxy, inbox):
    """Otherwise the proxy would answer a receive that it still holds with those
    messages, and with the connection closed they would be invisible for their whole
    invisible time."""
    contexts, empty = [], []
    answer = proxy.answers["ReceiveMessage"]

    def receive(request, context):
        contexts.append(context)
        for part in answer(request, context):
            if part.status.code == pb.Code.MESSAGE_NOT_FOUND:
                empty.append(part)
            yield part

    proxy.answers["ReceiveMessage"] = receive
    begun, go_on = threading.Event(), threading.Event()

    def handle(_):
        begun.set()
        assert go_on.wait(PATIENCE_S)

    running = consumer(proxy, handle, consume_threads=1)
    running.start()
    inbox.put(1, 2)
    assert begun.wait(PATIENCE_S)
    wait_until(lambda: inbox.waiting)
    assert any(each.is_active() for each in contexts)
    closer = threading.Thread(
        target=running.close, kwargs={"timeout_ms": 10 * PATIENCE_S * 1_000}
    )
    closer.start()
    wait_until(lambda: not any(each.is_active() for each in contexts))
    assert not empty
    assert not proxy.asked("ChangeInvisibleDuration")
    go_on.set()
    closer.join(PATIENCE_S)
    (given_back,) = proxy.asked("ChangeInvisibleDuration")
    assert given_back.receipt_handle == "handle 2"
    (acknowledged,) = proxy.asked("AckMessage")
    assert [each.receipt_handle for each in acknowledged.entries] == ["handle 1"]


def test_a_message_on_its_way_at_a_close_is_given_back(proxy, inbox):
    """It stayed hidden from the group for the whole invisible time of 60 s."""
    running = consumer(proxy, lambda _: None)
    running.start()
    wait_until(lambda: inbox.waiting)
    with inbox.unread(1):
        running.begin_close()
    running.close()
    (given_back,) = proxy.asked("ChangeInvisibleDuration")
    assert given_back.receipt_handle == "handle 1"
    assert not proxy.asked("AckMessage")


def test_a_listener_may_close_its_consumer(cluster):
    cluster.send("orders", ["x"])
    made: list[Any] = []
    with consumer(cluster, lambda _: made[0].close()) as running:
        made.append(running)
        assert running.wait(400_000)
    assert left_over(cluster) == []


@pytest.mark.slow
def test_nothing_is_lost_when_the_proxy_is_killed_and_started_again(
    rmq_cluster_factory,
):
    ports = PortBlock()
    options = ProxyOptions(port=ports.first)
    cluster = rmq_cluster_factory(proxy=options)
    cluster.create_topic("orders")
    cluster.send("orders", [f"a{n}" for n in range(50)])
    seen = Seen()
    with consumer(cluster, seen, pull_time_delay_when_exception_ms=50):
        seen.wait_for(10)
        cluster.proxy.close()
        cluster.send("orders", [f"b{n}" for n in range(50)])
        cluster._proxy = cluster._start_proxy()
        seen.wait_for(100)
    assert left_over(cluster) == []
    ports.close()


def test_consuming_pauses_and_goes_on(cluster):
    seen = Seen()
    with consumer(cluster, seen) as running:
        cluster.send("orders", ["a"])
        seen.wait_for(1)
        running.pause()
        running.resume()
        cluster.send("orders", ["b"])
        assert seen.wait_for(2) == ["a", "b"]


def test_queues_come_and_go_with_reports(cluster):
    told = []
    with consumer(
        cluster,
        Seen(),
        on_assigned=lambda queues: told.append(("assigned", len(queues))),
        on_revoked=lambda queues: told.append(("revoked", len(queues))),
    ):
        pass
    assert told == [("assigned", 1), ("revoked", 1)]


@pytest.mark.slow
def test_assignments_are_fetched_again_after_no_topic_s_could_be(proxy, caplog):
    """A member that stopped to ask would never see a broker that is added, nor leave
    its messages to a member that joins."""
    answers = [assignment, refused, with_another_broker]

    def answer(request, context):
        current = answers.pop(0) if len(answers) > 1 else answers[0]
        return current(request, context)

    proxy.answers["QueryAssignment"] = answer
    told: list[Any] = []
    with consumer(proxy, Seen(), on_assigned=told.append) as running:
        wait_until(lambda: len(told) == 2)
        assert [queue.broker_name for queue in running.queues()] == [
            "broker-a",
            "broker-b",
        ]
    assert [[queue.broker_name for queue in queues] for queues in told] == [
        ["broker-a"],
        ["broker-b"],
    ]
    (warning,) = [each for each in caplog.messages if "assignment" in each]
    assert warning.startswith("assignment not refreshed topic=orders error=")


def test_a_lease_is_renewed_while_a_listener_runs(proxy, inbox):
    clock = ManualClock()
    begun, go_on = threading.Event(), threading.Event()

    def handle(_):
        begun.set()
        assert go_on.wait(400)

    with consumer(proxy, handle, clock=clock) as running:
        inbox.put(1)
        assert begun.wait(400)
        clock.advance(31_000)
        running.resume()  # this makes the member check its timers
        (change,) = wait_until(lambda: proxy.asked("ChangeInvisibleDuration"))
        assert (change.receipt_handle, change.invisible_duration.seconds) == (
            "handle 1",
            60,
        )
        assert (change.topic.name, change.group.name) == ("orders", "g")
        assert change.message_id == "id 1"
        go_on.set()
        (ack,) = wait_until(lambda: proxy.asked("AckMessage"))
        assert [each.receipt_handle for each in ack.entries] == ["new handle"]
        (receive, *_) = proxy.asked("ReceiveMessage")
        assert receive.invisible_duration.seconds == 60
        assert not receive.auto_renew
        assert receive.attempt_id


def test_there_are_more_receives_while_they_come_back_full(proxy, inbox):
    seen = Seen()
    with consumer(proxy, seen, pull_batch_size=2):
        inbox.put(1, 2)
        wait_until(lambda: inbox.waiting == 2)
        inbox.put(3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
        wait_until(lambda: inbox.waiting == 4)
        inbox.put(13)
        seen.wait_for(13)
        inbox.put(14)
        seen.wait_for(14)
        wait_until(lambda: inbox.waiting == 2)
    attempts = [each.attempt_id for each in proxy.asked("ReceiveMessage")]
    assert len(set(attempts)) == len(attempts)


def test_a_queue_of_a_fifo_group_has_one_receive(proxy, inbox):
    def fifo(asked):
        answer = settings_of(asked)
        answer.subscription.fifo = True
        return answer

    settings_of = proxy.settings
    proxy.settings = fifo
    seen = Seen()
    with consumer(proxy, seen, pull_batch_size=1, orderly=True):
        for number in range(5):
            inbox.put(number)
            seen.wait_for(number + 1)
        wait_until(lambda: inbox.waiting)
        assert inbox.waiting == 1
    assert proxy.telemetry[0].settings.subscription.fifo


def test_a_failed_ack_is_repeated(proxy, inbox):
    failures = [status("INTERNAL_SERVER_ERROR", "not now")]

    def answer(request, _context):
        found = service.AckMessageResponse(status=OK)
        for entry in request.entries:
            code = failures.pop() if failures else OK
            found.entries.add(receipt_handle=entry.receipt_handle, status=code)
        return found

    proxy.answers["AckMessage"] = answer
    seen = Seen()
    with consumer(proxy, seen):
        inbox.put(1)
        wait_until(lambda: len(proxy.asked("AckMessage")) == 2)
    assert seen.bodies == ["1"]
    assert proxy.asked("NotifyClientTermination")


@pytest.mark.slow
def test_a_close_tells_of_acks_that_got_no_answer(proxy, inbox, caplog):
    def refuse(_request, context):
        context.abort(grpc.StatusCode.UNAVAILABLE, "going down")

    proxy.answers["AckMessage"] = refuse
    seen = Seen()
    with consumer(proxy, seen) as running:
        inbox.put(1)
        wait_until(lambda: proxy.asked("AckMessage"))
    assert running._backend.is_confirmed is False
    assert (
        "close ends with requests unanswered group=g messages=1; each that was not"
        " acknowledged will be delivered again"
    ) in caplog.messages


def test_receives_that_keep_failing_are_not_told_each_time(proxy, caplog):
    def refuse(_request, context):
        context.abort(grpc.StatusCode.INTERNAL, "broken")
        yield

    proxy.answers["ReceiveMessage"] = refuse
    with consumer(proxy, Seen(), pull_time_delay_when_exception_ms=10):
        wait_until(lambda: len(proxy.asked("ReceiveMessage")) >= 20)
    told = [each for each in caplog.messages if each.startswith("receive failed")]
    assert told[0].startswith("receive failed topic=orders broker=broker-a failures=1 ")
    assert len(told) <= 10


def no_message(_request, _context):
    yield PART(status=status("MESSAGE_NOT_FOUND"))


def one_message(_request, _context):
    yield PART(status=OK)
    part = PART()
    part.message.topic.name = "orders"
    part.message.body = b"1"
    part.message.system_properties.receipt_handle = "handle"
    part.message.system_properties.message_id = "id"
    part.message.system_properties.delivery_attempt = 1
    yield part


def broken(_request, context):
    context.abort(grpc.StatusCode.INTERNAL, "broken")
    yield


def broken_after_a_message(request, context):
    yield from one_message(request, context)
    yield PART(status=status("INTERNAL_SERVER_ERROR", "broken"))


@pytest.mark.parametrize(
    ("answer", "options", "pauses_ms"),
    [
        (broken, {"pull_time_delay_when_exception_ms": 200}, [200, 200]),
        (broken_after_a_message, {"pull_time_delay_when_exception_ms": 200}, [200] * 2),
        (no_message, {}, [50, 100, 200, 400]),
        (one_message, {"pull_interval_ms": 200}, [200, 200]),
    ],
)
def test_a_source_rests_after_a_receive_that_failed_or_ended_early(
    proxy, answer, options, pauses_ms
):
    asked_ms: list[int] = []

    def noted(request, context):
        asked_ms.append(SYSTEM_CLOCK.monotonic_ms())
        yield from answer(request, context)

    proxy.answers["ReceiveMessage"] = noted
    seen = Seen()
    with consumer(proxy, seen, **options):
        wait_until(lambda: len(asked_ms) > len(pauses_ms))
        if answer in (one_message, broken_after_a_message):
            seen.wait_for(1)
    for earlier, later, pause_ms in zip(
        asked_ms, asked_ms[1:], pauses_ms, strict=False
    ):
        assert later - earlier >= pause_ms - 1


def test_a_proxy_that_is_too_busy_is_soon_asked_again(proxy):
    def busy(_request, _context):
        yield PART(status=status("TOO_MANY_REQUESTS"))

    proxy.answers["ReceiveMessage"] = busy
    with consumer(proxy, Seen(), pull_time_delay_when_exception_ms=60_000):
        wait_until(lambda: len(proxy.asked("ReceiveMessage")) >= 10)


def test_a_fifo_receive_without_an_answer_is_repeated_under_its_id(proxy):
    """Then the broker goes on with the queue; after an answer, an id is of no use."""

    def fifo(asked):
        answer = settings_of(asked)
        answer.subscription.fifo = True
        return answer

    def answer(request, context):
        attempts.append(request.attempt_id)
        current = {1: broken, 2: broken, 3: one_message}.get(len(attempts), no_message)
        yield from current(request, context)

    settings_of = proxy.settings
    proxy.settings = fifo
    attempts: list[str] = []
    proxy.answers["ReceiveMessage"] = answer
    with consumer(proxy, Seen(), orderly=True, pull_time_delay_when_exception_ms=10):
        wait_until(lambda: len(attempts) >= 5)
    assert attempts[0] == attempts[1] == attempts[2]
    assert len(set(attempts[2:5])) == 3


def test_up_to_256_acks_that_fall_due_together_go_out_together(proxy, inbox):
    asked, answer = threading.Event(), threading.Event()

    def slowly(request, _context):
        asked.set()
        assert answer.wait(400)
        found = service.AckMessageResponse(status=OK)
        for entry in request.entries:
            found.entries.add(receipt_handle=entry.receipt_handle, status=OK)
        return found

    proxy.answers["AckMessage"] = slowly
    seen = Seen()
    with consumer(proxy, seen):
        inbox.put(1)
        assert asked.wait(400)
        inbox.put(*range(2, 401))
        seen.wait_for(400)
        answer.set()
        wait_until(
            lambda: sum(len(each.entries) for each in proxy.asked("AckMessage")) == 400
        )
    sizes = [len(each.entries) for each in proxy.asked("AckMessage")]
    assert sizes[:2] == [1, 256]


def test_a_failed_message_is_hidden_for_the_server_s_delay(proxy, inbox):
    seen = Seen(lambda *_: False)
    with consumer(proxy, seen):
        inbox.put(1)  # the second of 3 deliveries
        (change,) = wait_until(lambda: proxy.asked("ChangeInvisibleDuration"))
        assert change.invisible_duration.ToMilliseconds() == 2
        assert change.message_id == "id 1"


@pytest.mark.parametrize(
    ("level", "method"),
    [(3, "ChangeInvisibleDuration"), (-1, "ForwardMessageToDeadLetterQueue")],
)
def test_a_listener_chooses_the_delay_of_a_failed_message(proxy, inbox, level, method):
    def handle(_messages, context):
        context.delay_level_when_next_consume = level
        return ConsumeConcurrentlyStatus.RECONSUME_LATER

    with consumer(proxy, handle, batch=True):
        inbox.put(1)
        (asked,) = wait_until(lambda: proxy.asked(method))
    assert asked.message_id == "id 1"
    if level == 3:
        assert asked.invisible_duration.seconds == 10


def test_each_request_names_the_group_the_topic_and_the_message(proxy, inbox):
    def with_two_attempts(asked):
        answer = settings_of(asked)
        answer.backoff_policy.max_attempts = 2
        return answer

    def handle(message):
        return message.body != b"2"

    settings_of = proxy.settings
    proxy.settings = with_two_attempts
    failed: list[FailedDelivery] = []
    with consumer(
        proxy, handle, group="billing", topics="orders", on_failed=failed.append
    ):
        inbox.put(1)
        (ack,) = wait_until(lambda: proxy.asked("AckMessage"))
        inbox.put(2)  # the second of 2 deliveries
        (letter,) = wait_until(lambda: proxy.asked("ForwardMessageToDeadLetterQueue"))
    (asked, *_) = proxy.asked("QueryAssignment")
    (received, *_) = proxy.asked("ReceiveMessage")
    assert received.message_queue.topic.name == asked.topic.name == "orders"
    for each in (asked, received, ack, letter):
        assert each.group.name == "billing"
    for each in (ack, letter):
        assert each.topic.name == "orders"
    assert [(each.message_id, each.receipt_handle) for each in ack.entries] == [
        ("id 1", "handle 1")
    ]
    assert (letter.message_id, letter.receipt_handle) == ("id 2", "handle 2")
    assert (letter.delivery_attempt, letter.max_delivery_attempts) == (2, 2)
    (told,) = failed
    assert (told.fate, told.retry, told.retries_max) == (Fate.DEAD_LETTER, None, None)


@pytest.mark.parametrize(
    ("method", "is_forwarded"),
    [("ForwardMessageToDeadLetterQueue", True), ("ChangeInvisibleDuration", False)],
)
def test_what_is_done_with_a_failed_message_is_tried_again_if_that_may_help(
    proxy, inbox, caplog, method, is_forwarded
):
    """A handle that is not valid any more stays so; nothing else is final."""

    def answer(request, _context):
        kind = getattr(service, f"{method}Response")
        number = int(request.message_id.removeprefix("id "))
        tries[number] += 1
        if number == 1:
            return kind(status=status("INVALID_RECEIPT_HANDLE", "expired"))
        if tries[2] == 1:
            return kind(status=status("INTERNAL_SERVER_ERROR"))
        more = {} if is_forwarded else {"receipt_handle": "new handle"}
        return kind(status=OK, **more)

    def settings(asked):
        found = settings_of(asked)
        found.backoff_policy.max_attempts = 2 if is_forwarded else 4
        return found

    settings_of, tries = proxy.settings, {1: 0, 2: 0}
    proxy.settings = settings
    proxy.answers[method] = answer
    failed: list[FailedDelivery] = []
    with consumer(proxy, lambda _: False, on_failed=failed.append):
        inbox.put(1)
        wait_until(lambda: any("expired" in each for each in caplog.messages))
        inbox.put(2)
        wait_until(lambda: tries[2] == 2)
        if is_forwarded:
            wait_until(lambda: len(failed) == 2)
    assert tries == {1: 1, 2: 2}
    fates = [(each.fate, each.retry, each.retries_max) for each in failed]
    if is_forwarded:
        assert fates == [(Fate.QUEUE_LOST, None, None), (Fate.DEAD_LETTER, None, None)]
    else:
        assert fates == [(Fate.DELIVERED_AGAIN, 2, 3)] * 2


def test_in_order_nothing_overtakes_a_dead_letter_that_failed(proxy, inbox):
    def settings(asked):
        found = settings_of(asked)
        found.subscription.fifo = True
        found.backoff_policy.max_attempts = 2  # each delivery of the inbox is the 2nd
        return found

    def fail(_message, _times):
        wait_until(lambda: inbox.waiting)  # all three are received
        return False

    settings_of, proxy.settings = proxy.settings, settings
    proxy.answers["ForwardMessageToDeadLetterQueue"] = lambda *_: (
        service.ForwardMessageToDeadLetterQueueResponse(
            status=status("INVALID_RECEIPT_HANDLE", "expired")
        )
    )
    seen = Seen(fail)
    with consumer(proxy, seen, orderly=True):
        inbox.put(1, 2, 3)
        wait_until(
            lambda: (
                len(seen.bodies) > 1 or len(proxy.asked("ChangeInvisibleDuration")) == 2
            )
        )
        changes = proxy.asked("ChangeInvisibleDuration")
        assert {each.message_id for each in changes} == {"id 2", "id 3"}
        assert {each.invisible_duration.seconds for each in changes} == {1}
        assert seen.bodies == ["1"]


def lost_broker(_request, _context):
    """What a proxy answers when it loses its broker during the change."""
    return service.ChangeInvisibleDurationResponse(
        status=status("INTERNAL_SERVER_ERROR", "send request to <b:1> failed")
    )


def test_a_change_that_may_be_done_is_not_repeated(proxy, inbox, caplog):
    """The broker makes a handle for each change, and delivers the message for each."""
    proxy.answers["ChangeInvisibleDuration"] = lost_broker
    with consumer(proxy, lambda _: False) as running:
        inbox.put(1)
        wait_until(lambda: any("send request to" in each for each in caplog.messages))
        running.close()
    assert len(proxy.asked("ChangeInvisibleDuration")) == 1


def test_after_a_renewal_that_may_be_done_its_message_is_not_changed(
    proxy, inbox, caplog
):
    clock = ManualClock()
    begun, go_on = threading.Event(), threading.Event()

    def handle(_):
        begun.set()
        assert go_on.wait(PATIENCE_S)
        return False

    proxy.answers["ChangeInvisibleDuration"] = lost_broker
    with consumer(proxy, handle, clock=clock) as running:
        inbox.put(1)
        assert begun.wait(PATIENCE_S)
        clock.advance(31_000)
        running.resume()  # this makes the member check its timers
        wait_until(lambda: any("lease not renewed" in each for each in caplog.messages))
        go_on.set()
        wait_until(
            lambda: any("lease of a message" in each for each in caplog.messages)
        )
    assert len(proxy.asked("ChangeInvisibleDuration")) == 1


def test_sql_and_several_topics_are_subscribed(proxy, inbox):
    topics = {"orders": "A || B", "payments": sql("payments", "amount > 5")}
    inbox.put(1, 2, 3)  # because a start waits for the answer to an SQL expression
    with consumer(proxy, Seen(), topics=topics, pull_batch_size=1):
        wait_until(lambda: len(proxy.asked("ReceiveMessage")) >= 2)
    tag, by_sql = pb.FilterType.TAG, pb.FilterType.SQL
    wanted = {"orders": (tag, "A || B"), "payments": (by_sql, "amount > 5")}
    asked = {
        each.message_queue.topic.name: each.filter_expression
        for each in proxy.asked("ReceiveMessage")
    }
    assert {name: (f.type, f.expression) for name, f in asked.items()} == wanted
    settings = proxy.telemetry[0].settings
    assert settings.client_type == pb.ClientType.PUSH_CONSUMER
    assert settings.subscription.group.name == "g"
    assert not settings.subscription.fifo
    stated = {
        each.topic.name: (each.expression.type, each.expression.expression)
        for each in settings.subscription.subscriptions
    }
    assert stated == wanted


def test_sql_that_cannot_be_read_is_an_error_of_the_start(cluster):
    cluster.create_topic("payments")
    topics = {"orders": "*", "payments": sql("payments", "amount >")}
    with pytest.raises(FilterError, match="receive from payments@broker-a") as raised:
        consumer(cluster, Seen(), topics=topics).start()
    assert raised.value.remark == "parse the consumer's subscription failed"
    assert raised.value.hint == "check the filter expression"
    assert not cluster.proxy.client_ids()


def test_what_came_before_a_filter_was_refused_is_given_back(proxy, inbox):
    begun, go_on = threading.Event(), threading.Event()
    of_orders = proxy.answers["ReceiveMessage"]

    def answer(request, context):
        if request.message_queue.topic.name == "orders":
            yield from of_orders(request, context)
        else:
            assert begun.wait(400)
            yield PART(status=status("ILLEGAL_FILTER_EXPRESSION", "no"))

    def handle(_message):
        begun.set()
        assert go_on.wait(400)

    proxy.answers["ReceiveMessage"] = answer
    inbox.put(1, 2)
    topics = {"orders": "*", "payments": sql("payments", "amount > 5")}
    with pytest.raises(FilterError):
        consumer(proxy, handle, topics=topics, consume_threads=1).start()
    go_on.set()
    (change,) = proxy.asked("ChangeInvisibleDuration")
    assert change.message_id in ("id 1", "id 2")


def test_a_refused_filter_is_an_error_too_and_later_ones_are_tried_again(proxy, caplog):
    refusals = [PART(status=status("ILLEGAL_FILTER_EXPRESSION", "no"))]
    answers = [PART(status=status("MESSAGE_NOT_FOUND")), *refusals]

    def answer(_request, _context):
        yield answers.pop(0) if len(answers) > 1 else answers[0]

    proxy.answers["ReceiveMessage"] = answer
    topics = {"payments": sql("payments", "amount > 5")}
    with consumer(proxy, Seen(), topics=topics, pull_time_delay_when_exception_ms=10):
        wait_until(lambda: len(proxy.asked("ReceiveMessage")) >= 5)
    assert any("receive failed topic=payments" in each for each in caplog.messages)
    answers[:] = refusals
    with pytest.raises(FilterError, match="ILLEGAL_FILTER_EXPRESSION: no"):
        consumer(proxy, Seen(), topics=topics).start()
    wait_until(lambda: len(proxy.asked("NotifyClientTermination")) == 2)


def test_a_topic_or_a_proxy_that_is_not_there_is_an_error(cluster):
    with pytest.raises(NotFoundError):
        consumer(cluster, Seen(), topics="nowhere").start()
    config = ClientConfig(endpoints=("127.0.0.1:1",), plaintext=True)
    with pytest.raises(ConnectError):
        Consumer("g", "orders", Seen(), client=config).start()


def test_a_topic_that_is_not_there_may_be_waited_for(cluster):
    running = consumer(cluster, Seen(), topics="later")
    starter = threading.Thread(target=lambda: running.start(wait_for_cluster=True))
    starter.start()
    cluster.create_topic("later")
    starter.join(400)
    assert [each.topic for each in running.queues()] == ["later"]
    running.close()


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("message_model", MessageModel.BROADCASTING),
        ("consume_from_where", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET),
        ("consume_timestamp_ms", 1),
        ("max_reconsume_times", 3),
    ],
)
def test_settings_without_a_meaning_are_refused(setting, value):
    config = ConsumerConfig(**{setting: value})
    with pytest.raises(UnsupportedError, match=f"{setting} cannot be set") as raised:
        Consumer("g", "orders", print, endpoints="127.0.0.1:1", config=config)
    assert "namesrv" in raised.value.hint


def test_where_a_group_begins_cannot_be_chosen_through_a_proxy():
    with pytest.raises(UnsupportedError, match="consume_from or consume_from_where"):
        Consumer("g", "T", print, endpoints="127.0.0.1:1", consume_from="earliest")
    Consumer("g", "T", print, endpoints="127.0.0.1:1", consume_from="latest")


def test_what_needs_offsets_is_refused(proxy):
    with consumer(proxy, Seen()) as running:
        (queue,) = running.queues()
        for call in (
            running.commit,
            running.lag,
            running.offsets,
            running.running_info,
            lambda: running.seek(queue, 1),
        ):
            with pytest.raises(UnsupportedError, match="through a proxy"):
                call()


def test_connect_makes_consumers_by_its_proxy(proxy, inbox, monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    inbox.put(1)
    with (
        connect(endpoints=proxy.endpoints, plaintext=True) as cluster,
        cluster.consumer("billing", "orders") as running,
    ):
        assert next(iter(running)).body == b"1"


def test_endpoints_may_come_from_the_environment(monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.setenv("ROCKETMQ_ENDPOINTS", "127.0.0.1:1")
    running = Consumer("g", "orders", print)
    with pytest.raises(ConnectError):
        running.start()


#: A program whose listener consumes one message; then it runs the code in `{end}`.
PROGRAM = """
import os, signal, sys, threading
from rmqcli import ClientConfig, Consumer

consumed = threading.Event()

def handle(message):
    {handle}
    print(message.body, flush=True)
    consumed.set()

config = ClientConfig(endpoints=(sys.argv[1],), plaintext=True)
consumer = Consumer("g", "orders", handle, client=config)
consumer.start()
assert consumed.wait(400)
{end}
"""
FORKS = """
    child = os.fork()
    if child == 0:
        return
    assert os.waitpid(child, 0)[1] == 0
"""
SIGNAL = """
signal.signal(signal.SIGTERM, lambda *_: consumer.close())
os.kill(os.getpid(), signal.SIGTERM)
assert consumer.wait(400_000)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("handle", "end"),
    [("", ""), (FORKS, "consumer.close()"), ("", SIGNAL)],
    ids=["no close", "fork", "signal"],
)
def test_a_process_may_end_fork_or_be_told_to_end(cluster, handle, end):
    """In each case the consumer is closed, and consumed messages are acknowledged."""
    cluster.send("orders", ["x"])
    program = PROGRAM.format(handle=handle, end=end)
    ended = subprocess.run(
        [sys.executable, "-c", program, cluster.endpoints],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert (ended.returncode, ended.stdout) == (0, "b'x'\n"), ended.stderr
    wait_until(lambda: not cluster.proxy.client_ids())
    assert left_over(cluster) == []


def test_a_close_does_not_wait_for_a_listener_for_ever(cluster):
    """The listener's message is not acknowledged, but other messages are."""
    cluster.send("orders", ["fine", "stuck"], queue_id=0)
    go_on = threading.Event()
    bodies = []

    def handle(message):
        if message.body == b"stuck":
            assert go_on.wait(400)
        bodies.append(message.body)

    running = consumer(cluster, handle)
    with running:
        wait_until(lambda: bodies == [b"fine"])
        running.close(timeout_ms=1)
        assert running.wait(0)
    go_on.set()
    wait_until(lambda: len(bodies) == 2)
