"""Each request of the engine's network, and its answer, with real brokers."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from rmqcli.engine.interfaces import RetryMessage, SendBack
from rmqcli.errors import BrokerError, NotFoundError
from rmqcli.model import MessageQueue
from rmqcli.position import Ago, AtTime
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.pull_answer import PullStatus
from rmqcli.wire.subscription import SubscriptionData
from tests.consumer.asking import Asking, heartbeat_of, pull_of


@pytest.fixture
def member(real_cluster, new_topic):
    """A member c1 of a new group that subscribes to a new topic with one queue."""
    topic, group = new_topic(queues=1), f"G-{uuid.uuid4().hex[:12]}"
    with Asking(real_cluster.namesrv) as network:
        queues = network.fetch_queues(topic)
        outcomes = network.heartbeat_all(heartbeat_of(topic, group=group))
        assert outcomes == {real_cluster.broker_name(): None}
        assert queues == [MessageQueue(topic, real_cluster.broker_name(), 0)]
        yield network, group, queues[0]


def send(network, group, topic, body):
    """Send one message in the same way as a message to a retry topic."""
    message = RetryMessage(
        group=group,
        topic=topic,
        body=body,
        flag=0,
        properties={"TAGS": "A", "RECONSUME_TIME": "1", "MAX_RECONSUME_TIMES": "16"},
        reconsume_times=1,
        max_reconsume_times=16,
    )
    assert network.send_retry(message) is None


def messages_of(answer) -> list[Any]:
    """Return the messages of a pull answer, all of which must be decodable."""
    return decode_messages(answer.body)


def test_a_member_registers_and_unregisters(member):
    network, group, queue = member
    assert network.consumer_ids(group, queue.broker_name) == ["c1"]
    assert network.unregister("c1", group, queue.broker_name) is None
    assert isinstance(network.consumer_ids(group, queue.broker_name), BrokerError)


def test_a_queue_is_locked_by_one_member(member):
    network, group, queue = member
    assert network.lock(group, "c1", [queue]) == {queue}
    assert network.lock(group, "c2", [queue]) == set()
    assert network.unlock(group, "c1", [queue]) is None
    assert network.lock(group, "c2", [queue]) == {queue}
    network.network.unlock_oneway(group, "c2", [queue])
    network.poll_until(lambda: network.lock(group, "c1", [queue]) == {queue})


def test_messages_are_pulled_and_offsets_committed(member):
    network, group, queue = member
    for body in (b"x", b"y"):
        send(network, group, queue.topic, body)
    network.poll_until(lambda: network.max_offset(queue) == 2)
    answer = network.pull(pull_of(queue, group=group, commit_offset=1))
    assert (answer.status, answer.next_begin_offset) == (PullStatus.FOUND, 2)
    assert [each.body for each in messages_of(answer)] == [b"x", b"y"]
    assert network.query_offset(group, queue) == 1
    assert network.update_offset(group, queue, 2) is None
    assert network.query_offset(group, queue) == 2
    network.network.update_offset_oneway(group, queue, 1)
    network.poll_until(lambda: network.query_offset(group, queue) == 1)
    assert network.resolve(queue, AtTime(0, "")) == 0
    assert network.resolve(queue, Ago(60_000)) == 0
    assert network.resolve(queue, AtTime(10**14, "")) == 2


def test_a_pull_without_an_expression_uses_the_subscription_of_the_heartbeat(member):
    network, group, queue = member
    send(network, group, queue.topic, b"x")
    network.poll_until(lambda: network.max_offset(queue) == 1)
    answer = network.pull(pull_of(queue, group=group, expression=None))
    assert answer.status is PullStatus.FOUND
    stranger = network.pull(pull_of(queue, group=f"{group}-x", expression=None))
    assert isinstance(stranger, BrokerError)


@pytest.mark.parametrize("body", [b"x", b""])
def test_a_message_sent_back_gets_into_the_dead_letters(member, body):
    network, group, queue = member
    send(network, group, queue.topic, body)
    network.poll_until(lambda: network.max_offset(queue) == 1)
    (message,) = messages_of(network.pull(pull_of(queue, group=group)))
    assert message.body == body
    back = SendBack(
        group=group,
        origin_topic=queue.topic,
        broker_name=queue.broker_name,
        commit_log_offset=message.commit_log_offset,
        origin_msg_id=message.offset_msg_id,
        delay_level=-1,
        max_reconsume_times=16,
    )
    assert network.send_back(back) is None
    dead = MessageQueue(f"%DLQ%{group}", queue.broker_name, 0)
    network.poll_until(lambda: network.max_offset(dead) == 1)


def test_a_broker_checks_an_expression(member):
    network, group, queue = member
    wanted = SubscriptionData(
        topic=queue.topic, sub_string="a >", expression_type="SQL92"
    )
    outcome = network.check_subscription("c1", group, wanted, queue.broker_name)
    assert isinstance(outcome, BrokerError)


def test_an_unknown_topic_is_an_error(member):
    network, *_ = member
    assert isinstance(network.fetch_queues("nobody_made_it"), NotFoundError)
