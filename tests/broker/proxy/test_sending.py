"""SendMessage: what is stored, where, and what the answer says."""

from __future__ import annotations

import pytest

from rmqcli.broker.faults import Answer, DelayAnswer, Disconnect
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.message.decode import decode_messages
from tests.broker.wire_client import WireClient
from tests.kit.proxy.raw_client import code_of, message


def stored(cluster, topic, queue_id, offset=0):
    """The message at a place, as the broker has it."""

    def read():
        store = cluster.broker().store
        (unit,) = store.units(topic, queue_id, offset, 1)
        return decode_messages(store.message_at(unit.commit_log_offset))[0]

    return cluster.call(read)


def counts(cluster, topic, queues=4):
    def read():
        store = cluster.broker().store
        bounds = [store.queue_bounds(topic, n) for n in range(queues)]
        return [0 if each is None else each[1] for each in bounds]

    return cluster.call(read)


def test_a_message_is_stored_with_its_properties(cluster, client):
    cluster.create_topic("T", queues=1)
    sent = message(
        "T",
        b"body",
        tag="A",
        keys=["k1", "k2"],
        message_id="0123",
        trace_context="trace",
        user_properties={"colour": "blue"},
    )
    answer = client.send(sent)
    (entry,) = answer.entries
    assert (code_of(answer), entry.offset, entry.message_id) == ("OK", 0, "0123")
    found = stored(cluster, "T", 0)
    assert found.raw_body == b"body"
    wanted = {
        "TAGS": "A",
        "KEYS": "k1 k2",
        "UNIQ_KEY": "0123",
        "PGROUP": "T",
        "TRACE_CONTEXT": "trace",
        "RECONSUME_TIME": "0",
        "__BORNHOST": "here",
        "colour": "blue",
    }
    properties = found.properties
    assert {name: properties.get(name) for name in wanted} == wanted


def test_a_message_group_stays_in_its_queue(cluster, client):
    cluster.create_topic("F", attributes={"message.type": "FIFO"})
    for _ in range(5):
        client.send(message("F", message_group="zzzzzzzz"))
    assert counts(cluster, "F") == [0, 0, 5, 0]


def test_messages_without_a_group_take_turns(cluster, client):
    cluster.create_topic("T")
    for _ in range(8):
        client.send(message("T"))
    assert counts(cluster, "T") == [2, 2, 2, 2]


def test_a_batch_goes_to_one_queue_and_keeps_messages_apart(cluster, client):
    cluster.create_topic("T", queues=1)
    client.send(
        message("T", b"1", tag="A", message_id="01"),
        message("T", b"2", tag="B", message_id="02"),
    )
    found = [stored(cluster, "T", 0, n) for n in range(2)]
    assert [(each.raw_body, each.tags, each.msg_id) for each in found] == [
        (b"1", "A", "01"),
        (b"2", "B", "02"),
    ]


def test_a_topic_of_several_brokers_is_written_everywhere(start, connect):
    cluster = start(brokers=2)
    cluster.create_topic("T", queues=2)
    client = connect(cluster)
    brokers = [each.broker.name for each in client.route("T").message_queues]
    assert brokers == ["broker-a", "broker-a", "broker-b", "broker-b"]
    for _ in range(4):
        assert code_of(client.send(message("T"))) == "OK"
    ends = cluster.call(
        lambda: [
            broker.store.queue_bounds("T", queue)[1]
            for broker in cluster.brokers
            for queue in range(2)
        ]
    )
    assert ends == [1, 1, 1, 1]


def test_a_topic_that_was_deleted_is_made_again_with_4_queues(cluster, client):
    """While the proxy still has its route; by a broker that makes topics."""
    cluster.create_topic("T", queues=1)
    client.send(message("T"))
    with WireClient(cluster.broker().address) as wire:
        assert wire.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T").code == 0
    assert code_of(client.send(message("T"))) == "OK"
    config = cluster.call(lambda: cluster.broker().state.topics.get("T"))
    assert (config.read_queue_nums, config.write_queue_nums) == (4, 4)


def test_a_topic_that_cannot_be_written_is_forbidden(cluster, client):
    cluster.create_topic("R", perm=4)
    assert code_of(client.send(message("R"))) == "FORBIDDEN"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (2, "TOO_MANY_REQUESTS"),
        (1, "INTERNAL_SERVER_ERROR"),
        (14, "INTERNAL_SERVER_ERROR"),
        (10, "MASTER_PERSISTENCE_TIMEOUT"),
        (11, "HA_NOT_AVAILABLE"),
        (12, "SLAVE_PERSISTENCE_TIMEOUT"),
    ],
)
def test_what_a_broker_answers_becomes_a_status(cluster, client, code, expected):
    cluster.create_topic("T")
    cluster.faults.add(Answer(code=code), code=310)
    answer = client.send(message("T"))
    assert code_of(answer) == expected


def test_a_lost_connection_is_an_internal_error(cluster, client):
    cluster.create_topic("T")
    cluster.faults.add(Disconnect(is_handled=False), code=310, times=1)
    assert code_of(client.send(message("T"))) == "INTERNAL_SERVER_ERROR"
    assert code_of(client.send(message("T"))) == "OK"


@pytest.mark.slow
def test_a_slow_broker_times_out(cluster, client):
    cluster.create_topic("T")
    cluster.faults.add(DelayAnswer(60_000), code=310)
    assert code_of(client.send(message("T"))) == "PROXY_TIMEOUT"


def test_a_killed_broker_is_found_again_after_its_restart(cluster, client):
    cluster.create_topic("T")
    assert code_of(client.send(message("T"))) == "OK"
    cluster.broker().kill()
    assert code_of(client.send(message("T"))) != "OK"
    cluster.broker().restart()
    assert code_of(client.send(message("T"))) == "OK"
