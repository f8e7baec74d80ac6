"""Typed bodies agree with the objects that four releases of RocketMQ decode."""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from rmqcli.errors import BodyError, StaticTopicError
from rmqcli.model import MessageQueue
from rmqcli.wire import fastjson
from rmqcli.wire.bodies.config import (
    KVTable,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rmqcli.wire.bodies.consumer import (
    ConsumerConnection,
    ConsumerRunningInfo,
    ProducerConnection,
)
from rmqcli.wire.bodies.heartbeat import (
    ConsumeMessageDirectlyResult,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
)
from rmqcli.wire.bodies.offset import (
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
    GetConsumerStatusBody,
    GroupListBody,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from rmqcli.wire.bodies.pop import (
    BatchAck,
    MessageRequestModeSerializeWrapper,
    QueryAssignmentRequestBody,
    SetMessageRequestModeRequestBody,
)
from rmqcli.wire.bodies.route import (
    ClusterInfoData,
    TopicListBody,
    TopicRouteData,
    parse_cluster_info,
    parse_topic_route,
)
from rmqcli.wire.bodies.stats import (
    ConsumeStats,
    QueryConsumeTimeSpanBody,
    TopicStatsTable,
)
from rmqcli.wire.body import decode_body, encode_body, json_object
from rmqcli.wire.fields import wire_name
from rmqcli.wire.subscription import SubscriptionData
from tests.golden_vectors import load
from tests.kit.rows import EachRow, each_row

if TYPE_CHECKING:
    from collections.abc import Callable

BODIES = load("bodies")


def cases(name: str) -> list[Any]:
    found = [case for case in BODIES if case["class"] == name]
    assert len(found) >= 4
    return [pytest.param(case["text"].encode(), case["expected"]) for case in found]


def golden(name: str) -> EachRow:
    return each_row(("body", "expected"), cases(name))


def queue(data: dict[str, Any]) -> MessageQueue:
    return MessageQueue(data["topic"], data["brokerName"], data["queueId"])


def table(data: Any) -> list[tuple[MessageQueue, Any]]:
    """Return pairs of queue and value from a list of pairs or an empty map."""
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
    """The values that reflection filled in are mostly absurd, and then refused."""
    queues = expected.get("queueDatas", [])
    if any(
        not 0 <= q[n] <= 65535 or "brokerName" not in q
        for q in queues
        for n in ("readQueueNums", "writeQueueNums")
    ) or any("brokerName" not in b for b in expected.get("brokerDatas", [])):
        with pytest.raises(BodyError):
            parse_topic_route("T", body)
        return
    if expected.get("topicQueueMappingByBroker"):
        with pytest.raises(StaticTopicError):
            parse_topic_route("T", body)
        return

    route = parse_topic_route("T", body)

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
    again = encode_body(decode_body(TopicRouteData, body))
    assert parse_topic_route("T", again) == route
    json.loads(again)


@golden("ClusterInfo")
def test_cluster_info(body, expected):
    info = parse_cluster_info(body)

    clusters = expected.get("clusterAddrTable", {})
    assert info.clusters == {name: sorted(names) for name, names in clusters.items()}
    brokers = expected.get("brokerAddrTable", {})
    assert info.brokers.keys() == brokers.keys()
    for name, item in brokers.items():
        addresses = {int(k): v for k, v in item.get("brokerAddrs", {}).items()}
        assert info.brokers[name].addresses == addresses
        assert info.brokers[name].broker_name == item.get("brokerName", name)
    again = encode_body(decode_body(ClusterInfoData, body))
    assert parse_cluster_info(again) == info


@golden("TopicList")
def test_topic_list(body, expected):
    topics = decode_body(TopicListBody, body).topic_list

    assert sorted(topics) == sorted(expected.get("topicList", []))
    again = encode_body(TopicListBody(topic_list=topics, broker_addr="127.0.0.1:1"))
    assert decode_body(TopicListBody, again).topic_list == topics


@golden("TopicStatsTable")
def test_topic_stats(body, expected):
    stats = decode_body(TopicStatsTable, body).offset_table

    assert {
        key: (value.min_offset, value.max_offset, value.last_update_timestamp)
        for key, value in stats.items()
    } == {
        key: (value["minOffset"], value["maxOffset"], value["lastUpdateTimestamp"])
        for key, value in table(expected.get("offsetTable"))
    }
    again = encode_body(TopicStatsTable(offset_table=stats))
    assert decode_body(TopicStatsTable, again).offset_table == stats


@golden("ConsumeStats")
def test_consume_stats(body, expected):
    """pullOffset was added in 5.1.0; before that it is unknown, not 0."""
    stats = decode_body(ConsumeStats, body)

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
    again = decode_body(ConsumeStats, encode_body(stats))
    assert again.offsets == stats.offsets


@golden("QueryConsumeTimeSpanBody")
def test_consume_time_spans(body, expected):
    if any("messageQueue" not in s for s in expected.get("consumeTimeSpanSet", [])):
        with pytest.raises(BodyError):
            decode_body(QueryConsumeTimeSpanBody, body)
        return

    spans = decode_body(QueryConsumeTimeSpanBody, body).consume_time_span_set

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
    connection = decode_body(ConsumerConnection, body)

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
    again = encode_body(connection)
    assert decode_body(ConsumerConnection, again) == connection


@golden("ProducerConnection")
def test_producer_connection(body, expected):
    connections = decode_body(ProducerConnection, body).connections

    assert len(connections) == len(expected.get("connectionSet", []))


@golden("ConsumerRunningInfo")
def test_consumer_running_info(body, expected):
    info = decode_body(ConsumerRunningInfo, body)

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
    again = encode_body(info)
    assert decode_body(ConsumerRunningInfo, again) == info


@golden("HeartbeatData")
def test_heartbeat(body, expected):
    """A heartbeat without a client id, or of a group without a name, is refused."""
    consumers = expected.get("consumerDataSet", [])
    producers = expected.get("producerDataSet", [])
    if "clientID" not in expected or any(
        "groupName" not in item for item in [*consumers, *producers]
    ):
        with pytest.raises(BodyError):
            decode_body(HeartbeatData, body)
        return

    heartbeat = decode_body(HeartbeatData, body)

    assert heartbeat.client_id == expected["clientID"]
    assert {p.group_name for p in heartbeat.producers} == {
        p["groupName"] for p in producers
    }
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
    again = encode_body(heartbeat)
    assert decode_body(HeartbeatData, again) == heartbeat


@golden("LockBatchRequestBody")
def test_lock_request(body, expected):
    if "clientId" not in expected or "consumerGroup" not in expected:
        with pytest.raises(BodyError):
            decode_body(LockBatchRequestBody, body)
        return

    request = decode_body(LockBatchRequestBody, body)

    assert request.consumer_group == expected["consumerGroup"]
    assert request.client_id == expected["clientId"]
    assert set(request.mq_set) == set(map(queue, expected.get("mqSet", [])))
    again = encode_body(request)
    assert decode_body(LockBatchRequestBody, again) == request


@golden("LockBatchResponseBody")
def test_lock_answer(body, expected):
    queues = decode_body(LockBatchResponseBody, body).lock_ok_mq_set

    assert set(queues) == set(map(queue, expected.get("lockOKMQSet", [])))
    again = encode_body(LockBatchResponseBody(lock_ok_mq_set=queues))
    assert decode_body(LockBatchResponseBody, again).lock_ok_mq_set == queues


@golden("ConsumeMessageDirectlyResult")
def test_consume_directly_result(body, expected):
    result = decode_body(ConsumeMessageDirectlyResult, body)

    assert result.consume_result == expected.get("consumeResult")
    assert result.order == expected["order"]
    assert result.auto_commit == expected["autoCommit"]
    assert result.remark == expected.get("remark")
    assert result.spent_time_mills == expected["spentTimeMills"]
    again = encode_body(result)
    assert decode_body(ConsumeMessageDirectlyResult, again) == result


@golden("ConsumerOffsetSerializeWrapper")
def test_all_consumer_offset(body, expected):
    """Keys that are not topic@group are ignored, as in the broker's listings."""
    offsets = decode_body(ConsumerOffsetSerializeWrapper, body).by_group_and_topic()

    assert {f"{topic}@{group}": table for (group, topic), table in offsets.items()} == {
        key: {int(k): v for k, v in item.items()}
        for key, item in expected.get("offsetTable", {}).items()
        if key.count("@") == 1
    }


@golden("DelayOffsetSerializeWrapper")
def test_delay_offset(body, expected):
    assert decode_body(DelayOffsetSerializeWrapper, body).offset_table == {
        int(k): v for k, v in expected.get("offsetTable", {}).items()
    }


@golden("ResetOffsetBody")
def test_reset_offset(body, expected):
    offsets = decode_body(ResetOffsetBody, body).offset_table

    assert offsets == dict(table(expected.get("offsetTable")))
    again = encode_body(ResetOffsetBody(offset_table=offsets))
    assert decode_body(ResetOffsetBody, again).offset_table == offsets


@golden("ResetOffsetBodyForC")
def test_reset_offset_for_c(body, expected):
    items = expected.get("offsetTable", [])
    if any(not is_queue(item) for item in items):
        with pytest.raises(BodyError):
            decode_body(ResetOffsetBody, body)
        return

    assert decode_body(ResetOffsetBody, body).offset_table == {
        queue(item): item["offset"] for item in items
    }


@golden("GetConsumerStatusBody")
def test_consumer_status(body, expected):
    status = decode_body(GetConsumerStatusBody, body)

    assert status.message_queue_table == dict(table(expected.get("messageQueueTable")))
    assert status.consumer_table == {
        client: dict(table(item))
        for client, item in expected.get("consumerTable", {}).items()
    }
    assert decode_body(GetConsumerStatusBody, encode_body(status)) == status


@golden("GroupList")
def test_group_list(body, expected):
    groups = decode_body(GroupListBody, body).group_list

    assert sorted(groups) == sorted(expected.get("groupList", []))
    again = encode_body(GroupListBody(group_list=groups))
    assert decode_body(GroupListBody, again).group_list == groups


def same_topic(config: TopicConfig, item: dict[str, Any]) -> bool:
    return json_object(config) == {
        "attributes": {},
        "topicFilterType": "SINGLE_TAG",
        **item,
    }


@golden("TopicConfig")
def test_topic_config(body, expected):
    if "topicName" not in expected:
        with pytest.raises(BodyError):
            decode_body(TopicConfig, body)
        return

    config = decode_body(TopicConfig, body)

    assert same_topic(config, expected)
    again = encode_body(config)
    assert decode_body(TopicConfig, again) == config


@golden("TopicConfigSerializeWrapper")
def test_all_topic_config(body, expected):
    configs = decode_body(TopicConfigSerializeWrapper, body).topic_config_table

    wanted = expected.get("topicConfigTable", {})
    assert configs.keys() == wanted.keys()
    for name, item in wanted.items():
        assert same_topic(configs[name], {"topicName": name, **item})


@golden("SubscriptionGroupConfig")
def test_subscription_group(body, expected):
    """Every field is written back unchanged, including unknown ones."""
    config = decode_body(SubscriptionGroupConfig, body)

    assert config.group_name == expected["groupName"]
    assert config.consume_enable == expected["consumeEnable"]
    assert config.retry_max_times == expected["retryMaxTimes"]
    assert config.broker_id == expected["brokerId"]
    written = json_object(config)
    assert {k: v for k, v in written.items() if v is not None}.keys() == expected.keys()
    assert written["retryQueueNums"] == expected["retryQueueNums"]
    again = encode_body(config)
    assert decode_body(SubscriptionGroupConfig, again) == config


@golden("SubscriptionGroupWrapper")
def test_all_subscription_group(body, expected):
    groups = decode_body(SubscriptionGroupWrapper, body).subscription_group_table

    assert groups.keys() == expected.get("subscriptionGroupTable", {}).keys()


@golden("KVTable")
def test_kv_table(body, expected):
    values = decode_body(KVTable, body).table

    assert values == expected.get("table", {})
    again = encode_body(KVTable(table=values))
    assert decode_body(KVTable, again).table == values


#: The declared bodies whose golden bodies a peer could send, by their names in Java.
DECLARED: dict[str, type[object]] = {
    "BatchAck": BatchAck,
    "ClusterInfo": ClusterInfoData,
    "ConsumeMessageDirectlyResult": ConsumeMessageDirectlyResult,
    "ConsumeStats": ConsumeStats,
    "ConsumerConnection": ConsumerConnection,
    "ConsumerOffsetSerializeWrapper": ConsumerOffsetSerializeWrapper,
    "ConsumerRunningInfo": ConsumerRunningInfo,
    "DelayOffsetSerializeWrapper": DelayOffsetSerializeWrapper,
    "GetConsumerStatusBody": GetConsumerStatusBody,
    "GroupList": GroupListBody,
    "HeartbeatData": HeartbeatData,
    "KVTable": KVTable,
    "LockBatchRequestBody": LockBatchRequestBody,
    "LockBatchResponseBody": LockBatchResponseBody,
    "MessageRequestModeSerializeWrapper": MessageRequestModeSerializeWrapper,
    "ProducerConnection": ProducerConnection,
    "QueryAssignmentRequestBody": QueryAssignmentRequestBody,
    "QueryConsumeTimeSpanBody": QueryConsumeTimeSpanBody,
    "ResetOffsetBody": ResetOffsetBody,
    "ResetOffsetBodyForC": ResetOffsetBodyForC,
    "SetMessageRequestModeRequestBody": SetMessageRequestModeRequestBody,
    "SubscriptionGroupConfig": SubscriptionGroupConfig,
    "SubscriptionGroupWrapper": SubscriptionGroupWrapper,
    "TopicConfig": TopicConfig,
    "TopicConfigSerializeWrapper": TopicConfigSerializeWrapper,
    "TopicList": TopicListBody,
    "TopicRouteData": TopicRouteData,
    "TopicStatsTable": TopicStatsTable,
}


def same_where_both_are(ours: Any, java: Any) -> bool:
    """Whether the fields that both have are equal, in any order of Java's sets."""
    if isinstance(ours, dict) and isinstance(java, dict):
        both = ours.keys() & java.keys()
        return all(same_where_both_are(ours[key], java[key]) for key in both)
    if isinstance(ours, list) and isinstance(java, list):
        if all(isinstance(item, dict) for item in ours):
            return len(ours) == len(java) and all(map(same_where_both_are, ours, java))
        return sorted(ours) == sorted(java)
    return bool(ours == java)


#: Fields of 5.x that are in classes with other names; `raw`, which is not on the wire;
#: and `b`, a bit set that Java's reflection could not fill.
NEVER_IN_VECTORS = {
    "b",
    "groupTopicMap",
    "mappingDataVersion",
    "pullOffsetTable",
    "raw",
    "topicQueueMappingDetailMap",
}


@each_row("name", DECLARED)
def test_a_body_is_written_back_as_java_wrote_it(name):
    """Every declared field has the name, values and position of Java's field."""
    written = set()
    for case in BODIES:
        if case["class"] != name:
            continue
        try:
            value = decode_body(DECLARED[name], case["text"])
        except BodyError:
            continue  # reflection filled in values that no peer would send
        ours = fastjson.loads(encode_body(value, bare_numbers=True))
        java = fastjson.loads(case["text"])
        assert isinstance(ours, dict)
        assert isinstance(java, dict)
        assert same_where_both_are(ours, java)
        assert [key for key in ours if key in java] == [k for k in java if k in ours]
        written |= ours.keys() & java.keys()
    names = {wire_name(item) for item in dataclasses.fields(DECLARED[name])}  # type: ignore[arg-type]
    assert written >= names - NEVER_IN_VECTORS


PARSERS: dict[str, Callable[[bytes], object]] = {
    "TopicRouteData": lambda body: parse_topic_route("T", body),
    "ClusterInfo": parse_cluster_info,
    "TopicStatsTable": partial(decode_body, TopicStatsTable),
    "ConsumeStats": partial(decode_body, ConsumeStats),
    "ConsumerRunningInfo": partial(decode_body, ConsumerRunningInfo),
    "HeartbeatData": partial(decode_body, HeartbeatData),
    "ResetOffsetBody": partial(decode_body, ResetOffsetBody),
    "GetConsumerStatusBody": partial(decode_body, GetConsumerStatusBody),
    "ConsumerOffsetSerializeWrapper": partial(
        decode_body, ConsumerOffsetSerializeWrapper
    ),
    "SubscriptionGroupConfig": partial(decode_body, SubscriptionGroupConfig),
    "LockBatchRequestBody": partial(decode_body, LockBatchRequestBody),
}
#: Cases that lack a field which a lock request needs, although Java accepts them.
INCOMPLETE = {"LockBatchRequestBody"}


@each_row("case", load("bodies-accepted"), ids=lambda c: c["name"])
def test_sloppy_bodies_that_a_version_accepts_are_parsed(case):
    """They are parsed by the typed parser of their class."""
    if case["accepted"] and case["class"] not in INCOMPLETE:
        PARSERS[case["class"]](case["text"].encode())
