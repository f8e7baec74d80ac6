"""Sending to scripted brokers: retries, refusals, order, and no silent failures."""

from __future__ import annotations

import random

import pytest

from rmqcli.api.client import Client
from rmqcli.config import ClientConfig
from rmqcli.errors import (
    BusyError,
    DeniedError,
    DisconnectedError,
    UsageError,
)
from rmqcli.model import MessageQueue
from rmqcli.producer.message import OutgoingMessage
from rmqcli.producer.remoting.send import RemotingSend
from rmqcli.producer.remoting.target import PublishTarget
from rmqcli.producer.send import Sender
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.message.properties import parse_properties
from tests.kit.batch import decode_batch
from tests.transport.peer import Peer, free_port, silent


class Broker:
    """A broker that stores what it receives; `answer_code(bodies)` may refuse it."""

    def __init__(self, answer_code=lambda _bodies: 0):
        self.requests = []
        self._answer_code = answer_code
        self._offset = 0

    def __call__(self, connection):
        for request in connection.requests():
            bodies = [request.body]
            if request.code == RequestCode.SEND_BATCH_MESSAGE:
                bodies = [item.body for item in decode_batch(request.body)]
            code = self._answer_code(bodies)
            self.requests.append((request.ext_fields["e"], bodies, code, request))
            start = self._offset
            if code in (0, 10, 11, 12):
                self._offset += len(bodies)
            ids = ",".join(f"ID{start + n}" for n in range(len(bodies)))
            connection.answer(
                request,
                code=code,
                remark=None if code == 0 else "no\x1b[2J",
                body=b"",
                ext_fields={
                    "msgId": ids,
                    "queueId": request.ext_fields["e"],
                    "queueOffset": str(start),
                },
            )


def target_of(*addresses, queues=1):
    names = [f"broker-{chr(97 + index)}" for index in range(len(addresses))]
    return PublishTarget(
        topic="T",
        queues=tuple(MessageQueue("T", n, q) for n in names for q in range(queues)),
        addresses=dict(zip(names, addresses, strict=True)),
    )


def sending(target, bodies, *, timeout_ms=60_000, **options):
    """Send `bodies`; return the outcomes, and the sender."""
    with Client(ClientConfig(timeout_ms=timeout_ms)) as client:
        rng = random.Random(0)
        network = RemotingSend(
            client,
            target,
            rng=rng,
            **options,
        )
        sender = Sender(network)
        messages = (
            body
            if body is None or isinstance(body, OutgoingMessage)
            else OutgoingMessage(body)
            for body in bodies
        )
        outcomes = [each for some in sender.send(messages) for each in some]
    return outcomes, sender


def test_messages_share_batches_and_each_has_its_outcome():
    broker = Broker()
    with Peer(broker) as peer:
        outcomes, _ = sending(target_of(peer.address), [b"a", b"b", b"c"])
    assert [len(bodies) for _, bodies, _, _ in broker.requests] == [3]
    assert [o.offset_msg_id for o in outcomes] == ["ID0", "ID1", "ID2"]
    assert [o.queue_offset for o in outcomes] == [0, 1, 2]
    assert {o.status for o in outcomes} == {"SEND_OK"}
    sent = decode_batch(broker.requests[0][3].body)
    assert [item.properties["UNIQ_KEY"] for item in sent] == [
        o.msg_id for o in outcomes
    ]


def test_a_single_message_is_no_batch_and_keeps_its_flag():
    broker = Broker()
    with Peer(broker) as peer:
        message = OutgoingMessage(b"a", {"TAGS": "A", "p": "1"}, flag=5)
        sending(target_of(peer.address), [message])
    ((_, _, _, request),) = broker.requests
    assert request.code == RequestCode.SEND_MESSAGE_V2
    assert request.body == b"a"
    assert (request.ext_fields["h"], request.ext_fields["m"]) == ("5", "false")
    properties = parse_properties(request.ext_fields["i"])
    assert (properties["TAGS"], properties["p"]) == ("A", "1")


def test_an_empty_body_travels_in_a_batch():
    """5.3.3 and 5.5.0 fail on a request without a body."""
    broker = Broker()
    with Peer(broker) as peer:
        outcomes, _ = sending(target_of(peer.address), [b"", None, b"a", b""])
    assert [some for _, some, _, _ in broker.requests] == [[b""], [b"a", b""]]
    assert all(r.code == RequestCode.SEND_BATCH_MESSAGE for *_, r in broker.requests)
    assert [o.queue_offset for o in outcomes] == [0, 1, 2]


def test_queues_take_turns_and_results_keep_the_order_of_the_input():
    broker = Broker()
    with Peer(broker) as peer:
        outcomes, _ = sending(
            target_of(peer.address, queues=3), [b"%d" % n for n in range(9)]
        )
    assert len(outcomes) == 9
    assert sorted(o.queue.queue_id for o in outcomes) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_a_queue_keeps_its_order_over_many_requests():
    broker = Broker()
    bodies = [b"%d" % n for n in range(5000)]
    with Peer(broker) as peer:
        outcomes, _ = sending(target_of(peer.address), bodies)
    assert [b for _, some, _, _ in broker.requests for b in some] == bodies
    assert [o.queue_offset for o in outcomes] == list(range(5000))


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (10, "FLUSH_DISK_TIMEOUT"),
        (11, "SLAVE_NOT_AVAILABLE"),
        (12, "FLUSH_SLAVE_TIMEOUT"),
    ],
)
def test_stored_but_not_safe_has_a_status_of_its_own(code, status):
    with Peer(Broker(lambda _: code)) as peer:
        outcomes, _ = sending(target_of(peer.address), [b"a"])
    assert [(o.status, o.queue_offset, o.error) for o in outcomes] == [
        (status, 0, None)
    ]


def test_a_busy_broker_s_messages_go_to_another_broker():
    busy, fine = Broker(lambda _: 2), Broker()
    with Peer(busy) as first, Peer(fine) as second:
        outcomes, _ = sending(
            target_of(first.address, second.address), [b"a", b"b", b"c", b"d"]
        )
    assert {o.status for o in outcomes} == {"SEND_OK"}
    assert {o.queue.broker_name for o in outcomes} == {"broker-b"}
    assert len(outcomes) == 4
    assert len(busy.requests) == 1


def test_a_retry_without_another_broker_keeps_the_order_of_every_queue():
    """It did not: it took the next queue, behind later messages."""
    seen = set()

    def busy_at_first(bodies):
        """Refuse the first attempt of each request for one of the queues."""
        is_refused = int(bodies[0]) % 3 == 0 and bodies[0] not in seen
        seen.add(bodies[0])
        return 2 if is_refused else 0

    broker = Broker(busy_at_first)
    with Peer(broker) as peer:
        outcomes, _ = sending(
            target_of(peer.address, queues=3), [b"%d" % n for n in range(5_000)]
        )
    assert {o.status for o in outcomes} == {"SEND_OK"}
    for queue_id in ("0", "1", "2"):
        numbers = [
            int(body)
            for queue, bodies, code, _ in broker.requests
            for body in bodies
            if queue == queue_id and code == 0
        ]
        assert len(numbers) > 1_000
        assert numbers == sorted(numbers)


def test_it_is_tried_three_times_and_then_reported():
    broker = Broker(lambda _: 2)
    with Peer(broker) as peer:
        (outcome,), _ = sending(target_of(peer.address, queues=2), [b"a"])
    assert len(broker.requests) == 3
    assert (outcome.status, outcome.queue_offset) == ("SYSTEM_BUSY", None)
    assert isinstance(outcome.error, BusyError)


@pytest.mark.parametrize("options", [{"is_fixed": True}, {"shard_by": "k"}])
def test_a_chosen_queue_is_not_left(options):
    broker = Broker(lambda _: 2)
    message = OutgoingMessage(b"a", {"k": "v"})
    with Peer(broker) as peer:
        outcomes, _ = sending(target_of(peer.address, queues=2), [message], **options)
    assert len(broker.requests) == 1
    assert outcomes[0].status == "SYSTEM_BUSY"


def test_the_queue_of_a_message_group_is_not_left():
    broker = Broker(lambda _: 2)
    message = OutgoingMessage(b"a", {"__SHARDINGKEY": "zzzzzzzz"})
    with Peer(broker) as peer:
        outcomes, _ = sending(target_of(peer.address, queues=4), [message])
    assert [queue for queue, *_ in broker.requests] == ["2"]
    assert outcomes[0].status == "SYSTEM_BUSY"


def test_denied_is_not_tried_again():
    broker = Broker(lambda _: 16)
    with Peer(broker) as peer:
        (outcome,), _ = sending(target_of(peer.address), [b"a"])
    assert len(broker.requests) == 1
    assert outcome.status == "NO_PERMISSION"
    assert isinstance(outcome.error, DeniedError)


def test_one_message_that_is_refused_does_not_take_its_batch_with_it():
    broker = Broker(lambda bodies: 13 if b"bad" in bodies else 0)
    with Peer(broker) as peer:
        outcomes, _ = sending(target_of(peer.address), [b"a", b"bad", b"c"])
    assert [o.status for o in outcomes] == ["SEND_OK", "MESSAGE_ILLEGAL", "SEND_OK"]
    assert [bodies for _, bodies, code, _ in broker.requests if code == 0] == [
        [b"a"],
        [b"c"],
    ]


@pytest.mark.slow
def test_no_answer_is_unknown_and_not_sent_twice():
    with Peer(silent) as hung, Peer(Broker()) as fine:
        outcomes, _ = sending(
            target_of(hung.address, fine.address), [b"a", b"b"], timeout_ms=300
        )
    assert sorted(o.status for o in outcomes) == ["SEND_OK", "UNKNOWN"]


def test_an_answer_that_cannot_be_read_is_unknown_and_not_sent_twice():
    asked = []

    def answer(connection):
        for request in connection.requests():
            asked.append(request)
            connection.answer(request, ext_fields={"msgId": "ID0", "queueId": "0"})

    with Peer(answer) as peer:
        (outcome,), _ = sending(target_of(peer.address, queues=2), [b"a"])
    assert outcome.status == "UNKNOWN"
    assert isinstance(outcome.error, DisconnectedError)
    assert outcome.error.message.startswith("an answer to a send cannot be read: ")
    assert len(asked) == 1


def test_a_dead_broker_s_messages_go_to_the_living():
    dead = f"127.0.0.1:{free_port()}"
    with Peer(Broker()) as fine:
        outcomes, sender = sending(target_of(dead, fine.address), [b"a", b"b"])
    assert [o.status for o in outcomes] == ["SEND_OK", "SEND_OK"]
    assert sender.given_up is None


def test_it_gives_up_reading_when_nobody_can_be_reached():
    """An endless input must not be read when nothing of it can be sent."""
    dead = f"127.0.0.1:{free_port()}"
    read = []

    def endless():
        while True:
            read.append(1)
            yield b"x"
            yield None

    outcomes, sender = sending(target_of(dead), endless(), timeout_ms=200)
    assert sender.given_up is not None
    assert {o.status for o in outcomes} == {"NOT_SENT"}
    assert len(read) == len(outcomes) == 1


def test_results_before_a_bad_message_are_given_out():
    broker = Broker()

    def messages():
        yield b"a"
        raise UsageError("line 2: not JSON")

    with Peer(broker) as peer, Client(ClientConfig()) as client:
        network = RemotingSend(
            client,
            target_of(peer.address),
            rng=random.Random(0),
        )
        sender = Sender(network)
        found = []

        def run():
            for outcomes in sender.send(map(OutgoingMessage, messages())):
                found.extend(outcomes)

        with pytest.raises(UsageError, match="line 2"):
            run()
    assert [o.status for o in found] == ["SEND_OK"]


def test_a_pause_sends_and_answers_what_is_before_it():
    broker = Broker()
    with Peer(broker) as peer:

        def messages():
            yield b"a"
            yield None
            assert [bodies for _, bodies, _, _ in broker.requests] == [[b"a"]]
            yield b"b"

        outcomes, _ = sending(target_of(peer.address), messages())
    assert len(outcomes) == 2


def test_a_delayed_message_goes_alone_and_has_no_offset_yet():
    broker = Broker()
    with Peer(broker) as peer:
        outcomes, _ = sending(
            target_of(peer.address), [b"a", b"b"], extra_properties={"DELAY": "3"}
        )
    assert [bodies for _, bodies, _, _ in broker.requests] == [[b"a"], [b"b"]]
    assert [(o.status, o.queue_offset) for o in outcomes] == [("SEND_OK", None)] * 2
    properties = parse_properties(broker.requests[0][3].ext_fields["i"])
    assert properties["DELAY"] == "3"


def test_an_interrupt_leaves_no_message_without_an_outcome():
    """Ctrl-C while a broker hangs: one request is under way, more wait behind it."""
    with Peer(silent) as hung, Client(ClientConfig()) as client:
        rng = random.Random(0)
        network = RemotingSend(
            client,
            target_of(hung.address),
            extra_properties={"DELAY": "1"},
            rng=rng,
        )
        sender = Sender(network)

        def messages():
            yield from (OutgoingMessage(b"x" * 65_536) for _ in range(3))
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            list(sender.send(messages()))
        outcomes = sender.abandon()
    assert [o.status for o in outcomes] == ["UNKNOWN", "NOT_SENT", "NOT_SENT"]
