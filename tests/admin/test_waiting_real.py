"""Delayed messages and open transactions on real brokers, and what became of them."""

from __future__ import annotations

import uuid

import pytest

from rmqcli import Admin, LocalTransactionState, Producer, ProducerMessage
from rmqcli.api.client import Client
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.config import ClientConfig
from rmqcli.errors import UnsupportedError
from tests.kit.half_messages import roll_back, send_half
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.rmq_versions("4.6.0", "5.5.0")]

COMMIT = LocalTransactionState.COMMIT_MESSAGE
ROLLBACK = LocalTransactionState.ROLLBACK_MESSAGE
UNKNOWN = LocalTransactionState.UNKNOW


def does_not_show(found):
    """Whether the broker said that it has messages which it does not show."""
    (error,) = found.errors.values()
    assert isinstance(error, UnsupportedError)
    return "broker-a does not show the " in error.message


def test_only_transactions_without_an_end_are_open(
    real_cluster, new_topic, rmq_version
):
    topic = new_topic(queues=1)
    group = f"p-{topic}"
    state = [UNKNOWN]
    with (
        Producer(
            group, namesrv=real_cluster.namesrv, on_check=lambda _: state[0]
        ) as producer,
        Admin(namesrv=real_cluster.namesrv) as admin,
    ):
        for key, end in [("a", COMMIT), ("open", UNKNOWN), ("b", ROLLBACK)]:
            message = ProducerMessage(topic, b"x", keys=key)
            producer.send_in_transaction(message, lambda *_, end=end: end)

        if rmq_version == "4.6.0":
            hidden = admin.open_transactions(topic)
            assert hidden.transactions == []
            assert does_not_show(hidden)
            return

        def open_keys():
            found = admin.open_transactions(topic)
            assert found.errors == {}
            return [each.keys for each in found.transactions]

        # 5.x collects the ends of transactions for three seconds.
        wait_until(lambda: open_keys() == ["open"])
        (found,) = admin.open_transactions(topic).transactions
        assert found.producer_group == group
        assert found.checks_max == 15
        assert found.producers is not None
        assert len(found.producers) == 1
        state[0] = COMMIT
        wait_until(lambda: open_keys() == [], timeout_s=240)  # the broker has asked
        bodies = [str(each.keys) for each in admin.read(topic)]
        assert sorted(bodies) == ["a", "open"]


@pytest.mark.rmq_versions("5.5.0")
def test_the_half_message_of_a_retry_hides_no_other_and_checks_keep_the_born_time(
    real_cluster, new_topic
):
    topic, address = new_topic(queues=1), real_cluster.broker_address()
    key, born_ms = uuid.uuid4().hex.upper(), SYSTEM_CLOCK.epoch_ms()
    # The broker asks any producer of the group, and those of other tests would answer.
    group = f"p-{topic}"
    with (
        Client(ClientConfig(namesrv=(real_cluster.namesrv,))) as client,
        Admin(namesrv=real_cluster.namesrv) as admin,
    ):

        def send(born_ms):
            return send_half(
                client, address, topic, key=key, born_ms=born_ms, group=group
            )

        for _ in range(2):
            send(born_ms)
        roll_back(client, address, send(born_ms + 3), group=group)

        def checked(times):
            found = admin.open_transactions(topic).transactions
            assert len(found) >= 2
            return len(found) == 2 and [each.checks for each in found] == [times] * 2

        for times in range(3):
            wait_until(lambda times=times: checked(times), timeout_s=240)
        found = admin.open_transactions(topic).transactions
    assert [(each.msg_id, each.born_ms) for each in found] == [(key, born_ms)] * 2


def test_delayed_messages_wait_until_they_are_due(real_cluster, new_topic, rmq_version):
    topic = new_topic(queues=1)
    is_5 = rmq_version != "4.6.0"
    with (
        Producer(namesrv=real_cluster.namesrv) as producer,
        Admin(namesrv=real_cluster.namesrv) as admin,
    ):
        sent = [ProducerMessage(topic, b"x", keys="level", delay_level=14)]
        if is_5:
            sent.append(ProducerMessage(topic, b"x", keys="soon", delay_ms=4_000))
            sent.append(ProducerMessage(topic, b"x", keys="later", delay_ms=300_000))
        for message in sent:
            producer.send(message)
        if not is_5:
            # What a broker has stored is in a queue a moment later.
            wait_until(lambda: admin.delayed(topic).errors)
            found = admin.delayed(topic)
            assert found.messages == []
            assert does_not_show(found)
            return
        waiting = [each.keys for each in admin.delayed(topic).messages]
        assert waiting in (["soon", "later", "level"], ["later", "level"])
        wait_until(lambda: [each.keys for each in admin.read(topic)] == ["soon"])
        wait_until(lambda: admin.delayed(topic).count == 2)
        found = admin.delayed(topic)
        assert [each.keys for each in found.messages] == ["later", "level"]
        assert (found.overdue, found.errors) == (0, {})
