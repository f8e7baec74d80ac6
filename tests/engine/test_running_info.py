"""The running info of a member, and messages that a broker makes it consume
directly."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmqcli.engine.allocate import AllocateMessageQueueAveragelyByCircle
from rmqcli.engine.consume.request import run_at_once
from rmqcli.engine.listener import ConsumeConcurrentlyStatus, ConsumeOrderlyStatus
from rmqcli.engine.message import Origin, PulledRecord
from rmqcli.engine.running_info import (
    consume_directly,
    consumer_status,
    running_info,
)
from rmqcli.wire.bodies.consumer import ProcessQueueInfo
from rmqcli.wire.bodies.heartbeat import ConsumeMessageDirectlyResult
from rmqcli.wire.message.decode import decode_messages
from tests.engine.world import (
    BROADCASTING,
    RETRY,
    TOPIC,
    World,
    queue_of,
    started,
    stored,
)
from tests.kit.rows import each_row


def info_of(world, **more):
    return running_info(
        world.member,
        namesrv="127.0.0.1:9876",
        version_name="V5_3_2",
        started_epoch_ms=5,
        **more,
    )


def test_running_info_has_every_setting_under_java_s_name():
    world = started(max_reconsume_times=3)
    assert info_of(world).properties == {
        "PROP_CLIENT_VERSION": "V5_3_2",
        "PROP_CONSUMEORDERLY": "false",
        "PROP_CONSUMER_START_TIMESTAMP": "5",
        "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
        "PROP_NAMESERVER_ADDR": "127.0.0.1:9876",
        "PROP_THREADPOOL_CORE_SIZE": "20",
        "awaitTermination": "10000",
        "cachedBytesMax": "67108864",
        "clientIp": "-1",
        "consumeConcurrentlyMaxSpan": "2000",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "consumeMessageBatchMaxSize": "1",
        "consumeThreads": "20",
        "consumeTimeout": "900000",
        "consumeTimestamp": "-1",
        "consumerGroup": "g",
        "heartbeatBrokerInterval": "30000",
        "instanceName": "-1",
        "like46OffsetIllegal": "false",
        "maxReconsumeTimes": "3",
        "messageModel": "CLUSTERING",
        "persistConsumerOffsetInterval": "5000",
        "pollNamesrvInterval": "30000",
        "postSubscriptionWhenPull": "false",
        "probeBrokerInterval": "-1",
        "pullBatchSize": "32",
        "pullInterval": "0",
        "pullThresholdForQueue": "1000",
        "pullThresholdForTopic": "-1",
        "pullThresholdSizeForQueue": "100",
        "pullThresholdSizeForTopic": "-1",
        "pullTimeDelayWhenException": "1000",
        "rebalanceInterval": "20000",
        "consumeAgo": "1800000",
        "strategy": "AVG",
        "suspendCurrentQueueTime": "1000",
        "unitMode": "false",
        "unitName": "-1",
    }


def test_running_info_has_the_settings_of_the_member():
    properties = info_of(
        started(
            orderly=True,
            message_model=BROADCASTING,
            consume_threads=7,
            instance_name="i1",
            strategy=AllocateMessageQueueAveragelyByCircle(),
            queues=2,
            pull_threshold_size_for_topic_mib=64,
        )
    ).properties
    assert properties["PROP_CONSUMEORDERLY"] == "true"
    assert properties["PROP_THREADPOOL_CORE_SIZE"] == "7"
    assert properties["messageModel"] == "BROADCASTING"
    assert properties["instanceName"] == "i1"
    assert properties["strategy"] == "AVG_BY_CIRCLE"
    assert properties["pullThresholdSizeForTopic"] == "64"
    assert properties["pullThresholdSizeForQueue"] == "32"


def test_running_info_has_the_cached_and_committed_offsets_of_each_queue():
    world = started(queues=2)
    world.run(2_000)
    world.found([0, 1, 2], call=world.pull(0))
    world.holds_work = True
    world.found([5, 6], call=world.pull(1), size=600_000)
    untouched = ProcessQueueInfo(
        cached_msg_size_in_mib=0,
        locked=False,
        last_lock_timestamp=1_000_000,
        last_pull_timestamp=1_002_000,
        last_consume_timestamp=1_002_000,
    )
    assert info_of(world).process_queues == {
        queue_of(0): replace(untouched, commit_offset=3),
        queue_of(1): replace(
            untouched,
            cached_msg_min_offset=5,
            cached_msg_max_offset=6,
            cached_msg_count=2,
            cached_msg_size_in_mib=1,
            last_consume_timestamp=1_000_000,
        ),
    }


def test_running_info_has_each_subscription_with_its_rates():
    world = started(tags="A || B")
    world.found([0], tags="A")
    world.run(10_000)
    world.found(range(1, 21), tags="A")
    world.run(10_000)
    info = info_of(world)
    assert [(each.topic, each.sub_string) for each in info.subscriptions] == [
        (TOPIC, "A || B"),
        (RETRY, "*"),
    ]
    # 21 messages in the 20 s since the first one, and the 10 s before it
    rates = {topic: each.consume_ok_tps for topic, each in info.statuses.items()}
    assert rates == {TOPIC: 0.7, RETRY: 0.0}


def test_running_info_has_the_stacks_of_threads_only_when_they_were_asked_for():
    world = started()
    assert info_of(world).jstack is None
    assert info_of(world, jstack="main: at work").jstack == "main: at work"


def test_status_is_the_offsets_of_one_topic():
    world = started(queues=2)
    world.found([0, 1], call=world.pull(1))
    world.member.offsets.table.put(queue_of(topic="other"), 9)
    assert consumer_status(world.member, TOPIC) == {queue_of(1): 2}
    assert consumer_status(world.member, "other") == {queue_of(topic="other"): 9}


# One message on request


def a_message():
    (message,) = decode_messages(stored(queue_of(), 3), record_type=PulledRecord)
    assert isinstance(message, PulledRecord)
    message.origin = Origin(queue_of(), 0, 0)
    return message


def shown(world, message=None):
    return run_at_once(
        consume_directly(
            message or a_message(), world.member.listener, queue_of(), world.clock
        )
    )


@pytest.mark.parametrize("orderly", [False, True])
def test_a_message_shown_directly_is_answered_with_result_and_time(orderly):
    def act(messages, context):
        assert messages[0].consume_start_ms == 1_000_000
        assert context.message_queue == queue_of()
        world.clock.advance(40)

    world = World(orderly=orderly, act=act)
    message = a_message()
    assert shown(world, message) == ConsumeMessageDirectlyResult(
        order=orderly,
        auto_commit=True,
        consume_result="CR_SUCCESS",
        remark=None,
        spent_time_mills=40,
    )


@pytest.mark.parametrize("orderly", [False, True])
def test_a_message_shown_directly_tells_what_its_listener_raised(orderly):
    def act(*_):
        world.clock.advance(3)
        raise ValueError("no")

    world = World(orderly=orderly, act=act)
    assert shown(world) == ConsumeMessageDirectlyResult(
        order=orderly,
        auto_commit=True,
        consume_result="CR_THROW_EXCEPTION",
        remark="ValueError: no",
        spent_time_mills=3,
    )


@each_row(
    ("orderly", "result", "expected"),
    [
        (True, ConsumeOrderlyStatus.SUCCESS, "CR_SUCCESS"),
        (True, ConsumeOrderlyStatus.COMMIT, "CR_COMMIT"),
        (True, ConsumeOrderlyStatus.ROLLBACK, "CR_ROLLBACK"),
        (True, ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT, "CR_LATER"),
        (True, True, "CR_SUCCESS"),
        (True, False, "CR_LATER"),
        (True, None, "CR_SUCCESS"),
        (False, ConsumeConcurrentlyStatus.CONSUME_SUCCESS, "CR_SUCCESS"),
        (False, ConsumeConcurrentlyStatus.RECONSUME_LATER, "CR_LATER"),
        (False, True, "CR_SUCCESS"),
        (False, False, "CR_LATER"),
        (False, None, "CR_SUCCESS"),
    ],
)
def test_the_answer_to_a_message_shown_directly_has_the_listener_s_status(
    orderly, result, expected
):
    world = World(orderly=orderly, act=lambda *_: result)
    assert shown(world).consume_result == expected


def test_a_listener_of_one_message_is_shown_one_directly():
    world = World(one_message=True)
    assert shown(world).consume_result == "CR_SUCCESS"
    assert world.offsets_seen() == [3]
