"""Typed bodies against the objects that four releases of RocketMQ made of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rmqcli.errors import BodyError
from rmqcli.model import MessageQueue
from rmqcli.wire.bodies import config as bodies_config
from rmqcli.wire.bodies import consumer as bodies_consumer
from rmqcli.wire.bodies import heartbeat as bodies_heartbeat
from rmqcli.wire.bodies import offset as bodies_offset
from rmqcli.wire.bodies import route as bodies_route
from rmqcli.wire.bodies import stats as bodies_stats
from rmqcli.wire.subscription import SubscriptionData
from tests.golden_vectors import load

BODIES = load("bodies")


def cases(name: str) -> list[Any]:
    found = [case for case in BODIES if case["class"] == name]
    assert len(found) >= 4
    return [pytest.param(case["text"].encode(), case["expected"]) for case in found]


def golden(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("body", "expected"), cases(name))


def queue(data: dict[str, Any]) -> MessageQueue:
    return MessageQueue(data["topic"], data["brokerName"], data["queueId"])


def table(data: Any) -> list[tuple[MessageQueue, Any]]:
    """A table by queue: a list of pairs, or an empty map."""
    return [(queue(key), value) for key, value in data or []]


def is_queue(data: dict[str, Any]) -> bool:
    return "topic" in data and "brokerName" in data


def subscription(data: dict[str, Any]) -> SubscriptionData:
    return SubscriptionData(
        topic=data["topic"],
        sub_string=data["subString"],
        tags_set=frozenset(data["tagsSet"]),
        code_set=frozenset(data["codeSet"]),
        sub_version=data["subVersion"],
        expression_type=data.get("expressionType"),
        class_filter_mode=data["classFilterMode"],
    )


@golden("TopicRouteData")
def test_topic_route(body, expected):
    """What reflection put in is mostly absurd: negative counts are refused."""
    queues = expected.get("queueDatas", [])
    if any(
        not 0 <= q[n] <= 65535 or "brokerName" not in q
        for q in queues
        for n in ("readQueueNums", "writeQueueNums")
    ) or any("brokerName" not in b for b in expected.get("brokerDatas", [])):
        with pytest.raises(BodyError):
            bodies_route.parse_topic_route("T", body)
        return

    route = bodies_route.parse_topic_route("T", body)

    assert {q.broker_name for q in route.queues} == {q["brokerName"] for q in queues}
    for item in queues:
        flag = item.get("topicSysFlag", item.get("topicSynFlag"))
        same_name = [q for q in queues if q["brokerName"] == item["brokerName"]]
        (data,) = [q for q in route.queues if q.broker_name == item["brokerName"]]
        if len(same_name) == 1:
            assert data.read_queue_nums == item["readQueueNums"]
            assert data.write_queue_nums == item["writeQueueNums"]
            assert data.perm == item["perm"]
            assert data.topic_sys_flag == flag
    for item in expected.get("brokerDatas", []):
        broker = route.broker(item["brokerName"])
        assert broker is not None
        assert broker.cluster == item.get("cluster", "")
        wanted = {int(k): v for k, v in item.get("brokerAddrs", {}).items()}
        assert wanted.items() <= broker.addresses.items()
    assert route.order_topic_conf == expected.get("orderTopicConf")
    again = bodies_route.encode_topic_route(route)
    assert bodies_route.parse_topic_route("T", again) == route
    json.loads(again)


@golden("ClusterInfo")
def test_cluster_info(body, expected):
    info = bodies_route.parse_cluster_info(body)

    clusters = expected.get("clusterAddrTable", {})
    assert info.clusters == {name: sorted(names) for name, names in clusters.items()}
    brokers = expected.get("brokerAddrTable", {})
    assert info.brokers.keys() == brokers.keys()
    for name, item in brokers.items():
        addresses = {int(k): v for k, v in item.get("brokerAddrs", {}).items()}
        assert info.brokers[name].addresses == addresses
        assert info.brokers[name].broker_name == item.get("brokerName", name)
    again = bodies_route.parse_cluster_info(bodies_route.encode_cluster_info(info))
    assert again == info


@golden("TopicList")
def test_topic_list(body, expected):
    topics = bodies_route.parse_topic_list(body)

    assert sorted(topics) == sorted(expected.get("topicList", []))
    again = bodies_route.encode_topic_list(topics, broker_addr="127.0.0.1:1")
    assert bodies_route.parse_topic_list(again) == topics


@golden("TopicStatsTable")
def test_topic_stats(body, expected):
    stats = bodies_stats.parse_topic_stats(body)

    assert {
        key: (value.min_offset, value.max_offset, value.last_update_timestamp)
        for key, value in stats.items()
    } == {
        key: (value["minOffset"], value["maxOffset"], value["lastUpdateTimestamp"])
        for key, value in table(expected.get("offsetTable"))
    }
    again = bodies_stats.encode_topic_stats(stats)
    assert bodies_stats.parse_topic_stats(again) == stats


@golden("ConsumeStats")
def test_consume_stats(body, expected):
    """pullOffset came with 5.1.0: before that it is unknown, not 0."""
    stats = bodies_stats.parse_consume_stats(body)

    assert stats.consume_tps == expected.get("consumeTps")
    assert {
        key: (
            value.broker_offset,
            value.consumer_offset,
            value.pull_offset,
            value.last_timestamp,
        )
        for key, value in stats.offsets.items()
    } == {
        key: (
            value["brokerOffset"],
            value["consumerOffset"],
            value.get("pullOffset"),
            value["lastTimestamp"],
        )
        for key, value in table(expected.get("offsetTable"))
    }
    again = bodies_stats.parse_consume_stats(bodies_stats.encode_consume_stats(stats))
    assert again.offsets == stats.offsets


@golden("QueryConsumeTimeSpanBody")
def test_consume_time_spans(body, expected):
    if any("messageQueue" not in s for s in expected.get("consumeTimeSpanSet", [])):
        with pytest.raises(BodyError):
            bodies_stats.parse_consume_time_spans(body)
        return

    spans = bodies_stats.parse_consume_time_spans(body)

    assert {
        (
            span.queue,
            span.min_time_stamp,
            span.max_time_stamp,
            span.consume_time_stamp,
            span.delay_time,
        )
        for span in spans
    } == {
        (
            queue(item["messageQueue"]),
            item["minTimeStamp"],
            item["maxTimeStamp"],
            item["consumeTimeStamp"],
            item["delayTime"],
        )
        for item in expected.get("consumeTimeSpanSet", [])
    }


@golden("ConsumerConnection")
def test_consumer_connection(body, expected):
    connection = bodies_consumer.parse_consumer_connection(body)

    assert connection.subscriptions == {
        topic: subscription({"topic": topic, **item})
        for topic, item in expected.get("subscriptionTable", {}).items()
    }
    assert sorted(
        (item.client_id, item.client_addr, item.version)
        for item in connection.connections
    ) == sorted(
        (item.get("clientId", ""), item.get("clientAddr", ""), item["version"])
        for item in expected.get("connectionSet", [])
    )
    assert connection.consume_type == expected.get("consumeType")
    assert connection.message_model == expected.get("messageModel")
    assert connection.consume_from_where == expected.get("consumeFromWhere")
    again = bodies_consumer.encode_consumer_connection(connection)
    assert bodies_consumer.parse_consumer_connection(again) == connection


@golden("ProducerConnection")
def test_producer_connection(body, expected):
    connections = bodies_consumer.parse_producer_connection(body)

    assert len(connections) == len(expected.get("connectionSet", []))


@golden("ConsumerRunningInfo")
def test_consumer_running_info(body, expected):
    info = bodies_consumer.parse_consumer_running_info(body)

    assert info.jstack == expected.get("jstack")
    assert info.properties == expected.get("properties", {})
    assert set(info.subscriptions) == {
        subscription(item) for item in expected.get("subscriptionSet", [])
    }
    wanted = dict(table(expected.get("mqTable")))
    assert info.process_queues.keys() == wanted.keys()
    for key, item in info.process_queues.items():
        assert item.commit_offset == wanted[key]["commitOffset"]
        assert item.cached_msg_min_offset == wanted[key]["cachedMsgMinOffset"]
        assert item.cached_msg_max_offset == wanted[key]["cachedMsgMaxOffset"]
        assert item.cached_msg_count == wanted[key]["cachedMsgCount"]
        assert item.cached_msg_size_in_mib == wanted[key]["cachedMsgSizeInMiB"]
        assert item.transaction_msg_min_offset == wanted[key]["transactionMsgMinOffset"]
        assert item.transaction_msg_max_offset == wanted[key]["transactionMsgMaxOffset"]
        assert item.transaction_msg_count == wanted[key]["transactionMsgCount"]
        assert item.locked == wanted[key]["locked"]
        assert item.try_unlock_times == wanted[key]["tryUnlockTimes"]
        assert item.last_lock_timestamp == wanted[key]["lastLockTimestamp"]
        assert item.droped == wanted[key]["droped"]
        assert item.last_pull_timestamp == wanted[key]["lastPullTimestamp"]
        assert item.last_consume_timestamp == wanted[key]["lastConsumeTimestamp"]
    assert {
        key: (item.wait_ack_count, item.droped, item.last_pop_timestamp)
        for key, item in info.pop_process_queues.items()
    } == {
        key: (item["waitAckCount"], item["droped"], item["lastPopTimestamp"])
        for key, item in table(expected.get("mqPopTable"))
    }
    assert info.statuses.keys() == expected.get("statusTable", {}).keys()
    for topic, status in expected.get("statusTable", {}).items():
        assert info.statuses[topic].consume_ok_tps == status["consumeOKTPS"]
        assert info.statuses[topic].consume_failed_msgs == status["consumeFailedMsgs"]
        assert info.statuses[topic].pull_rt == status["pullRT"]
    again = bodies_consumer.encode_consumer_running_info(info)
    assert bodies_consumer.parse_consumer_running_info(again) == info


@golden("HeartbeatData")
def test_heartbeat(body, expected):
    """A heartbeat without a client id, or of a group without a name, is refused."""
    consumers = expected.get("consumerDataSet", [])
    producers = expected.get("producerDataSet", [])
    if "clientID" not in expected or any(
        "groupName" not in item for item in [*consumers, *producers]
    ):
        with pytest.raises(BodyError):
            bodies_heartbeat.parse_heartbeat(body)
        return

    heartbeat = bodies_heartbeat.parse_heartbeat(body)

    assert heartbeat.client_id == expected["clientID"]
    assert set(heartbeat.producer_groups) == {p["groupName"] for p in producers}
    found = {item.group_name: item for item in heartbeat.consumers}
    for item in consumers:
        consumer = found[item["groupName"]]
        assert set(consumer.subscriptions) == {
            subscription(s) for s in item["subscriptionDataSet"]
        }
        assert consumer.unit_mode == item["unitMode"]
        assert consumer.consume_from_where == item.get("consumeFromWhere")
        model = item.get("messageModel")
        assert consumer.message_model == (None if model == "LITE_SELECTIVE" else model)
    again = bodies_heartbeat.encode_heartbeat(heartbeat)
    assert bodies_heartbeat.parse_heartbeat(again) == heartbeat


@golden("LockBatchRequestBody")
def test_lock_request(body, expected):
    if "clientId" not in expected or "consumerGroup" not in expected:
        with pytest.raises(BodyError):
            bodies_heartbeat.parse_lock_request(body)
        return

    group, client_id, queues = bodies_heartbeat.parse_lock_request(body)

    assert (group, client_id) == (expected["consumerGroup"], expected["clientId"])
    assert set(queues) == set(map(queue, expected.get("mqSet", [])))
    again = bodies_heartbeat.encode_lock_request(group, client_id, queues)
    assert bodies_heartbeat.parse_lock_request(again) == (group, client_id, queues)


@golden("LockBatchResponseBody")
def test_lock_answer(body, expected):
    queues = bodies_heartbeat.parse_lock_answer(body)

    assert set(queues) == set(map(queue, expected.get("lockOKMQSet", [])))
    again = bodies_heartbeat.encode_lock_answer(queues)
    assert bodies_heartbeat.parse_lock_answer(again) == queues


@golden("ConsumeMessageDirectlyResult")
def test_consume_directly_result(body, expected):
    result = bodies_heartbeat.parse_consume_directly_result(body)

    assert result.consume_result == expected.get("consumeResult")
    assert result.order == expected["order"]
    assert result.auto_commit == expected["autoCommit"]
    assert result.remark == expected.get("remark")
    assert result.spent_time_mills == expected["spentTimeMills"]
    again = bodies_heartbeat.encode_consume_directly_result(result)
    assert bodies_heartbeat.parse_consume_directly_result(again) == result


@golden("ConsumerOffsetSerializeWrapper")
def test_all_consumer_offset(body, expected):
    """Keys that are not topic@group are left out, as in the broker's listings."""
    offsets = bodies_offset.parse_all_consumer_offset(body)

    assert {f"{topic}@{group}": table for (group, topic), table in offsets.items()} == {
        key: {int(k): v for k, v in item.items()}
        for key, item in expected.get("offsetTable", {}).items()
        if key.count("@") == 1
    }


@golden("DelayOffsetSerializeWrapper")
def test_delay_offset(body, expected):
    assert bodies_offset.parse_delay_offset(body) == {
        int(k): v for k, v in expected.get("offsetTable", {}).items()
    }


@golden("ResetOffsetBody")
def test_reset_offset(body, expected):
    offsets = bodies_offset.parse_reset_offset(body)

    assert offsets == dict(table(expected.get("offsetTable")))
    for encode in (
        bodies_offset.encode_reset_offset,
        bodies_offset.encode_reset_offset_for_c,
    ):
        assert bodies_offset.parse_reset_offset(encode(offsets)) == offsets


@golden("ResetOffsetBodyForC")
def test_reset_offset_for_c(body, expected):
    items = expected.get("offsetTable", [])
    if any(not is_queue(item) for item in items):
        with pytest.raises(BodyError):
            bodies_offset.parse_reset_offset(body)
        return

    assert bodies_offset.parse_reset_offset(body) == {
        queue(item): item["offset"] for item in items
    }


@golden("GetConsumerStatusBody")
def test_consumer_status(body, expected):
    status = bodies_offset.parse_consumer_status(body)

    own = status.pop("", {})
    assert own == dict(table(expected.get("messageQueueTable")))
    assert status == {
        client: dict(table(item))
        for client, item in expected.get("consumerTable", {}).items()
    }
    again = bodies_offset.encode_consumer_status(own)
    assert bodies_offset.parse_consumer_status(again).get("", {}) == own


@golden("GroupList")
def test_group_list(body, expected):
    groups = bodies_offset.parse_group_list(body)

    assert groups == sorted(expected.get("groupList", []))
    again = bodies_offset.encode_group_list(groups)
    assert bodies_offset.parse_group_list(again) == groups


def same_topic(config: bodies_config.TopicConfig, item: dict[str, Any]) -> bool:
    return bodies_config.topic_config_json(config) == {
        "attributes": {},
        "topicFilterType": "SINGLE_TAG",
        **item,
    }


@golden("TopicConfig")
def test_topic_config(body, expected):
    if "topicName" not in expected:
        with pytest.raises(BodyError):
            bodies_config.parse_topic_config(body)
        return

    config = bodies_config.parse_topic_config(body)

    assert same_topic(config, expected)
    again = bodies_config.encode_topic_config(config)
    assert bodies_config.parse_topic_config(again) == config


@golden("TopicConfigSerializeWrapper")
def test_all_topic_config(body, expected):
    configs = bodies_config.parse_all_topic_config(body)

    wanted = expected.get("topicConfigTable", {})
    assert configs.keys() == wanted.keys()
    for name, item in wanted.items():
        assert same_topic(configs[name], {"topicName": name, **item})


@golden("SubscriptionGroupConfig")
def test_subscription_group(body, expected):
    """Every field goes back as it came, those we have no name for included."""
    config = bodies_config.parse_subscription_group(body)

    assert config.group_name == expected["groupName"]
    assert config.consume_enable == expected["consumeEnable"]
    assert config.retry_max_times == expected["retryMaxTimes"]
    assert config.broker_id == expected["brokerId"]
    written = bodies_config.subscription_group_json(config)
    assert {k: v for k, v in written.items() if v is not None}.keys() == expected.keys()
    assert written["retryQueueNums"] == expected["retryQueueNums"]
    again = bodies_config.encode_subscription_group(config)
    assert bodies_config.parse_subscription_group(again) == config


@golden("SubscriptionGroupWrapper")
def test_all_subscription_group(body, expected):
    groups = bodies_config.parse_all_subscription_group(body)

    assert groups.keys() == expected.get("subscriptionGroupTable", {}).keys()


@golden("KVTable")
def test_kv_table(body, expected):
    values = bodies_config.parse_kv_table(body)

    assert values == expected.get("table", {})
    again = bodies_config.encode_kv_table(values)
    assert bodies_config.parse_kv_table(again) == values


PARSERS = {
    "TopicRouteData": lambda body: bodies_route.parse_topic_route("T", body),
    "ClusterInfo": bodies_route.parse_cluster_info,
    "TopicStatsTable": bodies_stats.parse_topic_stats,
    "ConsumeStats": bodies_stats.parse_consume_stats,
    "ConsumerRunningInfo": bodies_consumer.parse_consumer_running_info,
    "HeartbeatData": bodies_heartbeat.parse_heartbeat,
    "ResetOffsetBody": bodies_offset.parse_reset_offset,
    "GetConsumerStatusBody": bodies_offset.parse_consumer_status,
    "ConsumerOffsetSerializeWrapper": bodies_offset.parse_all_consumer_offset,
    "SubscriptionGroupConfig": bodies_config.parse_subscription_group,
    "LockBatchRequestBody": bodies_heartbeat.parse_lock_request,
}
#: Without what a lock request cannot do without, whatever Java makes of it.
INCOMPLETE = {"LockBatchRequestBody"}


@pytest.mark.parametrize("case", load("bodies-accepted"), ids=lambda c: c["name"])
def test_sloppy_bodies_that_a_version_accepts_are_parsed(case):
    """By the typed parser of their class."""
    if case["accepted"] and case["class"] not in INCOMPLETE:
        PARSERS[case["class"]](case["text"].encode())
