"""Groups of several members: client ids, subscriptions, restarts and retries."""

from __future__ import annotations

import logging

import pytest

from rmqcli.client_id import make_client_id
from rmqcli.engine.allocate import sort_client_ids
from tests.engine.world import (
    ME,
    OTHER,
    RETRY,
    START_MS,
    TOPIC,
    World,
    queue_of,
    refusal,
    started,
)


@pytest.mark.parametrize(
    ("code", "level"), [(23, "WARNING"), (24, "WARNING"), (25, "DEBUG")]
)
def test_a_subscription_that_a_broker_refuses_is_logged(code, level, caplog):
    """A broker refuses pulls of members whose subscriptions differ, and its reason is
    logged. Code 25 (SUBSCRIPTION_NOT_LATEST) is normal after a change."""
    caplog.set_level(logging.DEBUG)
    world = started()
    world.fail_pull(refusal(code, "the consumer's subscription not exist"))
    (record,) = [each for each in caplog.records if "pull failed" in each.message]
    assert record.levelname == level
    assert record.message == (
        "pull failed queue=orders@broker-a:0: the consumer's subscription not exist"
    )


def test_a_refusal_that_stays_is_logged_once_a_minute_for_each_broker(caplog):
    """While a group was paused, each queue logged a warning at every pull: 100 of them
    in half a minute, with four queues."""
    caplog.set_level(logging.WARNING)
    world = started(queues=2)

    def refuse_for(ms):
        limit_ms = world.elapsed_ms + ms
        while world.elapsed_ms < limit_ms:
            for call in world.pulls():
                world.fail_pull(refusal(16, "no permission"), call=call)
            world.run(1_000)
        return [each for each in caplog.messages if "pull failed" in each]

    first = "pull failed queue=orders@broker-a:0: no permission"
    assert refuse_for(50_000) == [first]
    assert len(refuse_for(60_000)) == 2
    world.fail_pull(refusal(24, "not exist"), call=world.pulls()[0])
    assert caplog.messages[-1].endswith(": not exist")


def test_two_consumers_of_one_process_are_two_members():
    """Their client ids differ, even in containers with the same address and process
    id."""
    ids = {
        make_client_id(
            ip="172.17.0.1",
            instance_name=None,
            pid=1,
            nanotime=nanotime,
            is_broadcasting=False,
        )
        for nanotime in (5, 6)
    }
    assert ids == {"172.17.0.1@1#5", "172.17.0.1@1#6"}


def test_a_client_id_that_is_listed_twice_is_one_member():
    """Brokers list a client id twice when it has two connections."""
    assert sort_client_ids([ME, OTHER, ME]) == [ME, ME, OTHER]
    world = World(queues=4)
    world.network.members = [ME, OTHER]
    world.start()
    assert len(world.member.process_queues) == 2


def test_each_message_sent_back_asks_the_broker_for_16_retries_at_most():
    world = started(act=lambda *_: False)
    world.found(range(20))
    limits = {
        call.args["message"].max_reconsume_times
        for call in world.network.of("send_back")
    }
    assert limits == {16}


def test_a_member_that_restarts_goes_on_at_its_committed_offset():
    """It knows only the offset that the broker has."""
    world = started(act=lambda messages, _: messages[0].queue_offset != 5)
    world.network.fail |= {"send_back": refusal(), "send_retry": refusal()}
    world.found(range(10))
    world.run(10_000)
    again = World()
    again.network.committed = world.network.committed
    again.start()
    assert again.pull().args["ask"].queue_offset == 5


def test_queues_of_all_topics_are_pulled():
    """No queue waits for another one, as each has its own pull at the broker."""
    world = started(queues=64, has_retry_route=True)
    assert len({call.args["ask"].queue for call in world.pulls()}) == 65
    world.found([0], call=world.pull(63))
    assert world.seen == [(queue_of(63), [0])]
    assert world.elapsed_ms == 0


def test_messages_that_a_member_did_not_commit_are_consumed_by_the_next_owner():
    """While members join and leave, two of them may own a queue, so messages may be
    consumed twice, but none is lost."""
    world = started()
    world.holds_work = True
    world.found([0, 1, 2])
    world.consume()
    world.network.members = [OTHER]
    world.engine.rebalances.soon()
    world.run(1_000)
    world.settle()
    second = World()
    second.network.committed = world.network.committed
    second.start()
    second.found([0, 1, 2])
    assert world.offsets_seen() == second.offsets_seen() == [0, 1, 2]
    assert second.offset() == 3


def test_pulls_of_the_retry_topic_use_its_own_subscription():
    """They have the expression and version of the retry topic's subscription."""
    world = started(has_retry_route=True, tags="A")
    (call,) = world.pulls(queue_of(topic=RETRY))
    ask = call.args["ask"]
    assert (ask.expression, ask.sub_version) == (None, START_MS)
    assert world.member.subscriptions[RETRY].sub_string == "*"
    assert world.member.subscriptions[TOPIC].sub_string == "A"
