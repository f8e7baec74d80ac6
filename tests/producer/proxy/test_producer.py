"""A producer with endpoints: what it sends to the proxy, and how it meets failures."""

from __future__ import annotations

import threading

import grpc
import pytest

from rmqcli import (
    BrokerError,
    BusyError,
    ClientConfig,
    ConfigError,
    ConnectError,
    DeniedError,
    LocalTransactionState,
    NotFoundError,
    Producer,
    ProducerConfig,
    ProducerMessage,
    SendUnknownError,
    UnsupportedError,
    UsageError,
)
from rmqcli.api.calls.send import SendStatus
from rmqcli.wire.protobuf import definition_pb2 as pb
from rmqcli.wire.protobuf import service_pb2 as service
from tests.kit.proxy.scripted import OK, ScriptedProxy, status
from tests.kit.waiting import PATIENCE_S, wait_until

COMMIT = LocalTransactionState.COMMIT_MESSAGE
ROLLBACK = LocalTransactionState.ROLLBACK_MESSAGE


@pytest.fixture
def proxy():
    with ScriptedProxy() as made:
        yield made


def producer_of(proxy, **options):
    client = ClientConfig(
        endpoints=(proxy.endpoints,), plaintext=True, timeout_ms=PATIENCE_S * 1_000
    )
    return Producer(client=client, **options)


@pytest.fixture
def producer(proxy):
    with producer_of(proxy) as made:
        yield made


def message(body=b"x", **options):
    return ProducerMessage("orders", body, **options)


def sent(proxy):
    """All messages that the proxy received, as protobuf."""
    return [each for request in proxy.asked("SendMessage") for each in request.messages]


def test_a_message_arrives_with_all_it_has(proxy, producer):
    result = producer.send(
        message(tags="Paid", keys=("a", "b"), properties={"colour": "red"})
    )
    (found,) = sent(proxy)
    system = found.system_properties
    assert (found.topic.name, found.body) == ("orders", b"x")
    assert (system.tag, list(system.keys)) == ("Paid", ["a", "b"])
    assert dict(found.user_properties) == {"colour": "red"}
    assert system.message_type == pb.MessageType.NORMAL
    assert system.message_id == result.msg_id
    assert len(result.msg_id) == 34
    assert result.msg_id.startswith("01")
    assert result.status is SendStatus.SEND_OK
    assert (result.queue, result.queue_offset, result.transaction_id) == (None, 0, None)


def test_a_future_ends_with_the_same(proxy, producer):
    futures = [producer.submit(message(b"%d" % n)) for n in range(5)]
    ids = [each.result().msg_id for each in futures]
    found = {each.system_properties.message_id: each.body for each in sent(proxy)}
    assert [found[each] for each in ids] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_batch_goes_with_one_call(proxy, producer):
    results = producer.send_batch([message(b"%d" % n) for n in range(3)])
    (request,) = proxy.asked("SendMessage")
    assert [each.body for each in request.messages] == [b"0", b"1", b"2"]
    assert [each.queue_offset for each in results] == [0, 1, 2]


def test_one_entry_for_a_batch_says_where_the_first_message_lies(proxy, producer):
    def answer(_request, _context):
        found = service.SendMessageResponse(status=OK)
        found.entries.add(status=OK, message_id="made up", offset=40)
        return found

    proxy.answers["SendMessage"] = answer
    results = producer.send_batch([message() for _ in range(3)])
    assert [each.queue_offset for each in results] == [40, 41, 42]
    assert len({each.msg_id for each in results}) == 3


def test_a_proxy_that_spoils_batches_is_sent_none(proxy, producer):
    proxy.answers["SyncLiteSubscription"] = lambda _request, context: context.abort(
        grpc.StatusCode.UNIMPLEMENTED, "Method not found"
    )
    for _ in range(2):
        with pytest.raises(UnsupportedError, match="too old for batches"):
            producer.send_batch([message(), message()])
    assert sent(proxy) == []
    assert len(proxy.asked("SyncLiteSubscription")) == 1


def test_a_message_group_makes_a_fifo_message(proxy, producer):
    producer.send(message(message_group="g"))
    (found,) = sent(proxy)
    assert found.system_properties.message_group == "g"
    assert found.system_properties.message_type == pb.MessageType.FIFO


def test_a_delay_becomes_a_time(proxy, producer):
    result = producer.send(message(deliver_at_ms=1_800_000_000_123))
    (found,) = sent(proxy)
    system = found.system_properties
    assert system.message_type == pb.MessageType.DELAY
    assert system.delivery_timestamp.seconds == 1_800_000_000
    assert result.queue_offset is None


def test_a_delayed_message_is_recalled_by_the_handle_of_its_result(rmq_cluster_factory):
    cluster = rmq_cluster_factory(proxy=True, settings={"recall_message_enable": True})
    cluster.create_topic("later", attributes={"message.type": "DELAY"})
    with producer_of(cluster) as producer:
        result = producer.send(ProducerMessage("later", b"x", delay_ms=3_600_000))
        assert producer.recall("later", result.recall_handle) == result.msg_id


def test_a_recall_gives_the_id_of_the_message(proxy, producer):
    assert producer.recall("orders", "handle") == "recalled"
    (asked,) = proxy.asked("RecallMessage")
    assert (asked.topic.name, asked.recall_handle) == ("orders", "handle")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("MASTER_PERSISTENCE_TIMEOUT", SendStatus.FLUSH_DISK_TIMEOUT),
        ("SLAVE_PERSISTENCE_TIMEOUT", SendStatus.FLUSH_SLAVE_TIMEOUT),
        ("HA_NOT_AVAILABLE", SendStatus.SLAVE_NOT_AVAILABLE),
    ],
)
def test_stored_but_not_replicated_is_a_result(proxy, producer, code, expected):
    def answer(_request, _context):
        found = service.SendMessageResponse(status=status(code))
        found.entries.add(status=status(code), message_id="x")
        return found

    proxy.answers["SendMessage"] = answer
    assert producer.send(message()).status is expected


# --- failures ---


def refuse(code):
    return lambda _request, _context: service.SendMessageResponse(status=status(code))


def test_a_busy_proxy_is_tried_again_as_often_as_it_wants(proxy, producer):
    wait_until(lambda: proxy.telemetry)
    proxy.answers["SendMessage"] = refuse("TOO_MANY_REQUESTS")
    with pytest.raises(BusyError):
        producer.send(message())
    assert len(proxy.asked("SendMessage")) == 3
    assert len({each.system_properties.message_id for each in sent(proxy)}) == 1


def test_grpc_s_own_word_for_busy_is_tried_again_too(proxy, producer):
    calls = []

    def answer(_request, context):
        calls.append(1)
        if len(calls) < 3:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "slow down")
        found = service.SendMessageResponse(status=OK)
        found.entries.add(status=OK)
        return found

    proxy.answers["SendMessage"] = answer
    assert producer.send(message()).status is SendStatus.SEND_OK
    assert len(calls) == 3


@pytest.mark.parametrize("code", ["INTERNAL_SERVER_ERROR", "ILLEGAL_MESSAGE_TAG"])
def test_a_refusal_is_not_tried_again(proxy, producer, code):
    proxy.answers["SendMessage"] = refuse(code)
    with pytest.raises(BrokerError, match=code):
        producer.send(message())
    assert len(proxy.asked("SendMessage")) == 1


@pytest.mark.parametrize("is_async", [False, True])
def test_what_may_be_stored_is_not_sent_again(proxy, producer, is_async):
    proxy.answers["SendMessage"] = lambda _request, context: context.abort(
        grpc.StatusCode.UNAVAILABLE, "going down"
    )
    send = producer.send
    if is_async:
        send = producer.submit(message()).result
    arguments = () if is_async else (message(),)
    with pytest.raises(SendUnknownError, match="may or may not be stored") as failure:
        send(*arguments)
    (asked,) = sent(proxy)
    assert failure.value.msg_ids == (asked.system_properties.message_id,)


def test_a_proxy_that_timed_out_may_have_stored_the_message(proxy, producer):
    proxy.answers["SendMessage"] = refuse("PROXY_TIMEOUT")
    with pytest.raises(SendUnknownError, match="PROXY_TIMEOUT"):
        producer.send(message())


def test_an_answer_without_a_result_may_be_that_of_a_stored_message(proxy, producer):
    proxy.answers["SendMessage"] = lambda _request, _context: (
        service.SendMessageResponse(status=OK)
    )
    with pytest.raises(SendUnknownError, match="answered OK without a result"):
        producer.send(message())
    assert len(proxy.asked("SendMessage")) == 1


def test_no_answer_at_all_ends_with_the_time(proxy, producer):
    over = threading.Event()
    proxy.answers["SendMessage"] = lambda _request, _context: over.wait()
    with pytest.raises(SendUnknownError, match="no answer from"):
        producer.send(message(), timeout_ms=300)
    over.set()
    assert len(proxy.asked("SendMessage")) == 1


def test_a_proxy_that_is_not_there_is_said_so(proxy):
    proxy.stop()
    with producer_of(proxy) as producer, pytest.raises(ConnectError, match="refused"):
        producer.send(message())


def test_a_proxy_that_is_back_is_used_again(proxy, producer):
    producer.send(message())
    proxy.stop()
    with pytest.raises((ConnectError, SendUnknownError)):
        producer.send(message())
    proxy.start()
    assert producer.send(message()).status is SendStatus.SEND_OK


@pytest.mark.parametrize(
    ("send", "name"),
    [
        (lambda producer: producer.send(message()), "message {}"),
        (
            lambda producer: producer.send_batch([message(), message()]),
            "batch of 2 messages",
        ),
    ],
    ids=["message", "batch"],
)
def test_a_refusal_names_the_message_or_the_batch_and_the_topic(
    proxy, producer, send, name
):
    proxy.answers["SendMessage"] = lambda *_: service.SendMessageResponse(
        status=status("INTERNAL_ERROR", "no")
    )
    with pytest.raises(BrokerError) as raised:
        send(producer)
    msg_id = sent(proxy)[0].system_properties.message_id
    assert f"{name.format(msg_id)} to topic orders" in raised.value.message


def test_a_topic_that_cannot_be_written_is_denied(proxy, producer):
    def route(request, _context):
        answer = proxy.route(request.topic.name)
        for each in answer.message_queues:
            each.permission = pb.Permission.READ
        return answer

    proxy.answers["QueryRoute"] = route
    with pytest.raises(
        DeniedError, match="topic orders has no writable queue"
    ) as found:
        producer.send(message())
    assert (found.value.code, found.value.name) == (40300, "FORBIDDEN")
    assert sent(proxy) == []


def test_queues_are_those_that_can_be_written_sorted(proxy, producer):
    def route(request, _context):
        answer = proxy.route(request.topic.name)
        queues = list(answer.message_queues)
        queues[1].permission = pb.Permission.READ
        del answer.message_queues[:]
        answer.message_queues.extend(reversed(queues))
        return answer

    proxy.answers["QueryRoute"] = route
    assert [each.queue_id for each in producer.queues("orders")] == [0, 2, 3]


def test_a_topic_that_does_not_exist_is_an_error_of_its_own(proxy, producer):
    proxy.missing = {"orders"}
    with pytest.raises(NotFoundError) as failure:
        producer.send(message())
    assert "a proxy creates no topics" in failure.value.hint


def test_what_a_proxy_cannot_do_is_refused_before_it_is_asked(proxy, producer):
    queue = producer.queues("orders")[0]
    with pytest.raises(UnsupportedError, match="send_oneway"):
        producer.send_oneway(message())
    with pytest.raises(UnsupportedError, match="no delay levels"):
        producer.send(message(delay_level=3))
    with pytest.raises(UsageError, match="chooses the queue itself"):
        producer.send(message(), queue=queue)
    with pytest.raises(UsageError, match="flag"):
        producer.send(message(flag=1))
    with pytest.raises(UsageError, match="cannot be delayed"):
        producer.send(message(message_group="g", delay_ms=1))
    group = [message(message_group="g"), message(message_group="g")]
    with pytest.raises(UnsupportedError, match="stores a batch in any queue"):
        producer.send_batch(group)
    sharded = [message(properties={"__SHARDINGKEY": "g"}), message()]
    with pytest.raises(UnsupportedError, match="stores a batch in any queue"):
        producer.send_batch(sharded)
    urgent = [message(properties={"_SYS_MSG_PRIORITY_": "0"}), message()]
    with pytest.raises(UnsupportedError, match="message_group or a priority"):
        producer.send_batch(urgent)
    with pytest.raises(UsageError, match="group and on_check"):
        producer.send_in_transaction(message(), lambda _message, _half: COMMIT)
    assert sent(proxy) == []


def test_a_body_larger_than_the_proxy_takes_is_refused(proxy, producer):
    wait_until(lambda: proxy.telemetry)
    with pytest.raises(UsageError, match="4194304 that the proxy and max_"):
        producer.send(message(bytes((4 << 20) + 1)))
    small = ProducerConfig(max_message_size_bytes=10)
    with (
        producer_of(proxy, config=small) as other,
        pytest.raises(UsageError, match="larger than the 10 "),
    ):
        other.send(message(bytes(11)))


def test_name_servers_and_endpoints_exclude_each_other():
    with pytest.raises(ConfigError, match="cannot be used together"):
        Producer(namesrv="127.0.0.1:9876", endpoints="127.0.0.1:8081")
    with pytest.raises(ConfigError, match="no proxy in it"):
        Producer(endpoints=";")


def test_message_groups_and_recalls_need_endpoints(rmq_cluster):
    with Producer(namesrv=rmq_cluster.namesrv) as producer:
        with pytest.raises(UsageError, match="needs a producer with endpoints"):
            producer.send(message(message_group="g"))
        with pytest.raises(UnsupportedError, match="through a proxy only"):
            producer.recall("orders", "handle")


@pytest.mark.parametrize(
    "wait",
    [
        lambda producer: producer.send(message()),
        lambda producer: producer.send_batch([message()]),
        lambda producer: producer.queues("orders"),
        lambda producer: producer.recall("orders", "handle"),
        lambda producer: producer.send_in_transaction(message(), lambda *_: COMMIT),
    ],
    ids=["send", "send_batch", "queues", "recall", "send_in_transaction"],
)
def test_a_callback_may_send_but_not_wait(proxy, wait):
    answered, called = threading.Event(), threading.Event()
    hints = []

    def answer_later(request, _context):
        answered.wait(PATIENCE_S)
        entries = [service.SendResultEntry(status=OK) for _ in request.messages]
        return service.SendMessageResponse(status=OK, entries=entries)

    def then(_):
        try:
            wait(producer)
        except UsageError as error:
            hints.append(error.hint)
        finally:
            called.set()

    with producer_of(proxy, on_check=lambda _: COMMIT) as producer:
        proxy.answers["SendMessage"] = answer_later
        sent = producer.submit(message())
        sent.add_done_callback(then)  # before the answer, so it runs in rmq-proxy
        answered.set()
        assert called.wait(PATIENCE_S)
    assert hints == ["use submit in callbacks"]


def test_submit_waits_while_the_most_messages_are_in_flight(proxy):
    """The proxy holds each answer for 0.2 s."""
    never = threading.Event()

    def answer_late(_request, _context):
        never.wait(0.2)
        return service.SendMessageResponse(
            status=OK, entries=[service.SendResultEntry(status=OK)]
        )

    config = ProducerConfig(async_messages_max=2)
    with producer_of(proxy, config=config) as producer:
        for _ in range(3):  # these are not asynchronous, and do not count
            producer.send(message())
        proxy.answers["SendMessage"] = answer_late
        futures = []
        for _ in range(6):
            futures.append(producer.submit(message()))
            # Two, and one that has ended and whose result is just being set.
            assert sum(not future.done() for future in futures) <= 3
        assert [each.result().status for each in futures] == [SendStatus.SEND_OK] * 6


def test_closing_ends_the_wait_for_room(proxy):
    """A submit that waits for other answers is refused before they come."""
    answered, refused = threading.Event(), threading.Event()

    def answer_later(_request, _context):
        answered.wait(PATIENCE_S)
        return service.SendMessageResponse(
            status=OK, entries=[service.SendResultEntry(status=OK)]
        )

    def send_second():
        try:
            closed.submit(message(b"second"))
        except UsageError:
            refused.set()

    proxy.answers["SendMessage"] = answer_later
    config = ProducerConfig(
        async_messages_max=1, await_termination_ms=PATIENCE_S * 1_000
    )
    with producer_of(proxy, config=config) as closed:
        first = closed.submit(message(b"first"), timeout_ms=PATIENCE_S * 1_000)
        second = threading.Thread(target=send_second)
        second.start()
        closing = threading.Thread(target=closed.close)
        closing.start()
        assert refused.wait(PATIENCE_S)
        assert not first.done()
        answered.set()
        second.join()
        closing.join()
    assert first.result().status is SendStatus.SEND_OK
    assert [each.body for each in sent(proxy)] == [b"first"]


def test_a_closed_producer_sends_nothing(proxy):
    producer = producer_of(proxy)
    with producer:
        producer.send(message())
    with pytest.raises(UsageError, match="closed"):
        producer.send(message())
    assert len(proxy.asked("NotifyClientTermination")) == 1


# --- transactions ---


def ends(proxy):
    return [
        (each.message_id, each.transaction_id, each.resolution, each.source)
        for each in proxy.asked("EndTransaction")
    ]


@pytest.mark.parametrize(
    ("state", "resolution"),
    [
        (COMMIT, pb.TransactionResolution.COMMIT),
        (ROLLBACK, pb.TransactionResolution.ROLLBACK),
    ],
)
def test_a_transaction_ends_as_it_was_decided(proxy, state, resolution):
    with producer_of(proxy, on_check=lambda _message: None) as producer:
        result = producer.send_in_transaction(message(), lambda _message, _half: state)
    (half,) = sent(proxy)
    assert half.system_properties.message_type == pb.MessageType.TRANSACTION
    assert result.local_transaction_state is state
    assert result.transaction_id == f"T-{result.msg_id}"
    assert ends(proxy) == [
        (
            result.msg_id,
            f"T-{result.msg_id}",
            resolution,
            pb.TransactionSource.SOURCE_CLIENT,
        )
    ]


def test_an_undecided_transaction_is_left_to_the_check(proxy):
    asked = []

    def check(half):
        asked.append((half.msg_id, half.body))
        return COMMIT

    with producer_of(proxy, on_check=check) as producer:
        result = producer.send_in_transaction(message(), lambda _message, _half: None)
        assert ends(proxy) == []
        # The proxy knew the topic before it had the half message.
        (topic,) = proxy.telemetry[-1].settings.publishing.topics
        assert topic.name == "orders"
        command = service.TelemetryCommand()
        recover = command.recover_orphaned_transaction_command
        recover.transaction_id = "T9"
        recover.message.CopyFrom(sent(proxy)[0])
        proxy.push(command)
        wait_until(lambda: ends(proxy))
    assert asked == [(result.msg_id, b"x")]
    assert ends(proxy) == [
        (
            result.msg_id,
            "T9",
            pb.TransactionResolution.COMMIT,
            pb.TransactionSource.SOURCE_SERVER_CHECK,
        )
    ]


def test_a_half_message_that_was_not_stored_runs_nothing(proxy):
    proxy.answers["SendMessage"] = refuse("INTERNAL_SERVER_ERROR")
    ran = []
    with (
        producer_of(proxy, on_check=lambda _message: None) as producer,
        pytest.raises(BrokerError),
    ):
        producer.send_in_transaction(message(), lambda *_: ran.append(1))
    assert (ran, ends(proxy)) == ([], [])


@pytest.mark.injects_exceptions
def test_a_check_that_fails_decides_nothing_and_the_next_one_does(proxy, caplog):
    """A rollback instead would lose the message."""
    asked = []

    def check(half):
        asked.append(half.msg_id)
        if len(asked) == 1:
            raise ValueError("the database is away")
        return ROLLBACK

    with producer_of(proxy, on_check=check) as producer:
        producer.send_in_transaction(message(), lambda _message, _half: None)
        command = service.TelemetryCommand()
        recover = command.recover_orphaned_transaction_command
        recover.transaction_id = "T9"
        recover.message.CopyFrom(sent(proxy)[0])
        proxy.push(command)
        wait_until(lambda: asked)
        proxy.push(command)
        wait_until(lambda: ends(proxy))
    assert [(end[1], end[2]) for end in ends(proxy)] == [
        ("T9", pb.TransactionResolution.ROLLBACK)
    ]
    assert len(asked) == 2
    assert "on_check failed" in caplog.text
