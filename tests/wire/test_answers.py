"""Answers of real brokers agree with what Java's own client read of the same state."""

from __future__ import annotations

from typing import Any

import pytest

from rmqcli.model import MessageQueue
from rmqcli.wire.bodies.config import (
    KVTable,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
    parse_properties_text,
)
from rmqcli.wire.bodies.consumer import (
    ConsumerConnection,
    ConsumerRunningInfo,
    GetConsumerListByGroupResponseBody,
)
from rmqcli.wire.bodies.offset import GroupListBody, split_keys
from rmqcli.wire.bodies.route import (
    TopicListBody,
    parse_cluster_info,
    parse_topic_route,
)
from rmqcli.wire.bodies.stats import (
    ConsumeStats,
    QueryConsumeTimeSpanBody,
    TopicStatsTable,
)
from rmqcli.wire.body import decode_body
from rmqcli.wire.codes import LanguageCode
from rmqcli.wire.command import RemotingCommand, decode_command
from rmqcli.wire.frame import FrameBuffer
from rmqcli.wire.header import from_ext_fields
from rmqcli.wire.headers.offset import (
    GetMaxOffsetResponseHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetResponseHeader,
)
from rmqcli.wire.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from tests.golden_vectors import from_base64, load

VERSIONS = ["4.6.0", "5.5.0"]
ANSWERS = {version: load(f"answers/answers-{version}") for version in VERSIONS}
ORACLE = {version: load(f"answers/oracle-{version}") for version in VERSIONS}
each_version = pytest.mark.parametrize("version", VERSIONS)


def decode(data: str) -> RemotingCommand:
    (frame,) = FrameBuffer().feed(from_base64(data))
    return decode_command(frame)


def answers(version: str, start: str) -> list[RemotingCommand]:
    """Return the answers whose names begin with `start`, at least one."""
    found = [
        decode(case["response_b64"])
        for case in ANSWERS[version]
        if case["name"].startswith(start) and case["response_b64"] is not None
    ]
    assert found, start
    return found


def oracle(version: str, kind: str) -> list[dict[str, Any]]:
    return [case for case in ORACLE[version] if case["kind"] == kind]


def queue_of(case: dict[str, Any]) -> MessageQueue:
    return MessageQueue(case["topic"], case["broker_name"], case["queue_id"])


@each_version
def test_every_answer_is_read(version):
    """Code and extension fields are those that were recorded with the answer."""
    for case in ANSWERS[version]:
        if case["response_b64"] is not None:
            answer = decode(case["response_b64"])
            assert answer.code == case["code"]
            assert answer.ext_fields == (case["ext_fields"] or {})
            assert answer.is_response
            assert answer.opaque == decode(case["request_b64"]).opaque


def test_unknown_codes_are_answered_by_new_brokers_only():
    """4.6.0 does not answer at all, so a request times out."""
    unanswered = {c["name"] for c in ANSWERS["4.6.0"] if c["response_b64"] is None}

    assert "unknown code" in unanswered
    assert [a.code for a in answers("5.5.0", "unknown code")] == [3]


@each_version
def test_routes(version):
    """The legacy form and the strict form have the same content."""
    for answer in answers(version, "route GoldA"):
        route = parse_topic_route("GoldA", answer.body)
        assert route.read_queues() == [
            MessageQueue("GoldA", "broker-a", i) for i in range(3)
        ]
        assert route.write_queues() == route.read_queues()
        (broker,) = route.brokers
        assert broker.cluster == "DefaultCluster"
        assert str(broker.master_address).startswith("127.0.0.1:")
        assert [queue.perm for queue in route.queues] == [6]
    assert [a.code for a in answers(version, "route of a missing topic")] == [17]


@each_version
def test_cluster_and_topics(version):
    (cluster,) = answers(version, "cluster info")
    topics = answers(version, "topics")[0]

    info = parse_cluster_info(cluster.body)

    assert info.clusters == {"DefaultCluster": ["broker-a"]}
    assert info.brokers["broker-a"].addresses.keys() == {0}
    assert {"GoldA", "GoldB", "%RETRY%gold_live"} <= set(
        decode_body(TopicListBody, topics.body).topic_list
    )


@each_version
def test_consume_stats_agree_with_the_oracle(version):
    """The offsets and times agree for each group and queue."""
    for group in ("gold_live", "gold_offline"):
        expected = {
            queue_of(case): case
            for case in oracle(version, "consume_stats")
            if case["group"] == group
        }
        for answer in answers(version, f"consume stats {group}"):
            stats = decode_body(ConsumeStats, answer.body)
            assert stats.offsets.keys() == expected.keys()
            for queue, offset in stats.offsets.items():
                case = expected[queue]
                assert offset.broker_offset == case["broker_offset"]
                assert offset.consumer_offset == case["consumer_offset"]
                assert offset.last_timestamp == case["last_timestamp"]
                assert (offset.pull_offset is None) == (version == "4.6.0")


@each_version
def test_a_group_that_never_was_has_no_offsets(version):
    """This is not an error; the table is empty."""
    for answer in answers(version, "consume stats gold_never"):
        assert answer.code == 0
        assert decode_body(ConsumeStats, answer.body).offsets == {}


@each_version
def test_topic_stats_agree_with_the_oracle(version):
    expected = {
        queue_of(case): (case["min_offset"], case["max_offset"])
        for case in oracle(version, "queue")
        if case["topic"] == "GoldA"
    }
    for answer in answers(version, "topic stats"):
        stats = decode_body(TopicStatsTable, answer.body).offset_table
        assert {q: (o.min_offset, o.max_offset) for q, o in stats.items()} == expected


@each_version
def test_offsets_and_pulls_agree_with_the_oracle(version):
    """This compares min, max and committed offsets, and the header of every pull."""
    ends = {
        case["queue_id"]: case
        for case in oracle(version, "queue")
        if case["topic"] == "GoldA"
    }
    for queue_id, end in ends.items():
        (max_offset,) = answers(version, f"max q{queue_id}")
        (min_offset,) = answers(version, f"min q{queue_id}")
        (committed,) = answers(version, f"offset committed q{queue_id}")
        read_max = from_ext_fields(GetMaxOffsetResponseHeader, max_offset.ext_fields)
        read_min = from_ext_fields(GetMinOffsetResponseHeader, min_offset.ext_fields)
        read = from_ext_fields(QueryConsumerOffsetResponseHeader, committed.ext_fields)
        assert read_max.offset == end["max_offset"]
        assert read_min.offset == end["min_offset"]
        assert read.offset == 30

    pulls = [case for case in ANSWERS[version] if case["name"].startswith("pull q")]
    assert len(pulls) == 15
    for case in pulls:
        request, answer = decode(case["request_b64"]), decode(case["response_b64"])
        asked = from_ext_fields(PullMessageRequestHeader, request.ext_fields)
        header = from_ext_fields(PullMessageResponseHeader, answer.ext_fields)
        assert header.min_offset == ends[asked.queue_id]["min_offset"]
        assert header.max_offset == ends[asked.queue_id]["max_offset"]
        assert header.suggest_which_broker_id == 0
        assert answer.code in (0, 19, 21)
        assert bool(answer.body) == (answer.code == 0)
        assert (header.topic_sys_flag is None) == (version == "4.6.0")


@each_version
def test_consumers(version):
    """The group gold_live has one Java client, which reports its state."""
    connection, offline = answers(version, "consumer connection")
    (ids,) = answers(version, "consumer ids")
    (info,) = answers(version, "running info")

    group = decode_body(ConsumerConnection, connection.body)
    running = decode_body(ConsumerRunningInfo, info.body)

    (member,) = group.connections
    assert decode_body(
        GetConsumerListByGroupResponseBody, ids.body
    ).consumer_id_list == [member.client_id]
    assert member.language == LanguageCode.JAVA
    assert member.version == {"4.6.0": 333, "5.5.0": 513}[version]
    assert group.consume_type == "CONSUME_PASSIVELY"
    assert group.message_model == "CLUSTERING"
    assert group.subscriptions.keys() == {"GoldA", "%RETRY%gold_live"}
    assert group.subscriptions["GoldA"].sub_string == "TagA || TagB || *"
    assert offline.code == 206
    assert {q.queue_id for q in running.process_queues if q.topic == "GoldA"} == {
        0,
        1,
        2,
    }
    assert {
        info.commit_offset
        for queue, info in running.process_queues.items()
        if queue.topic == "GoldA"
    } == {30}
    assert not any(info.droped for info in running.process_queues.values())
    assert running.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"


@each_version
def test_time_spans_and_groups(version):
    (spans,) = answers(version, "consume time span")
    (groups,) = answers(version, "groups of a topic")

    read = decode_body(QueryConsumeTimeSpanBody, spans.body).consume_time_span_set

    assert {span.queue.queue_id for span in read} == {0, 1, 2}
    assert all(span.min_time_stamp <= span.max_time_stamp for span in read)
    assert all(span.delay_time == 0 for span in read)
    assert "gold_live" in decode_body(GroupListBody, groups.body).group_list


@each_version
def test_settings_and_counters(version):
    (runtime,) = answers(version, "runtime info")
    (config,) = answers(version, "broker config")
    (topics,) = answers(version, "all topic config")
    (groups,) = answers(version, "all groups")

    table = decode_body(KVTable, runtime.body).table
    settings = parse_properties_text(config.body)

    assert table["brokerVersionDesc"] == {"4.6.0": "V4_6_0", "5.5.0": "V5_5_0"}[version]
    assert settings["brokerName"] == "broker-a"
    assert len(settings) > 100
    topic = decode_body(TopicConfigSerializeWrapper, topics.body).topic_config_table[
        "GoldA"
    ]
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (3, 3, 6)
    group = decode_body(SubscriptionGroupWrapper, groups.body).subscription_group_table[
        "gold_offline"
    ]
    assert group.retry_max_times == 16
    assert group.consume_enable


def test_topics_of_a_group():
    """Brokers answer request 343 from 5.0 on."""
    (answer,) = answers("5.5.0", "topics of a group")

    assert decode_body(TopicListBody, answer.body).topic_list == [
        "GoldA",
        "%RETRY%gold_live",
    ]


def test_keys_of_offsets_are_a_topic_and_a_group():
    table = {"T@g": 1, "T": 2, "T@g@h": 3, "@": 4, "%RETRY%g@g": 5}
    assert list(split_keys(table)) == [
        ("T@g", "T", "g"),
        ("@", "", ""),
        ("%RETRY%g@g", "%RETRY%g", "g"),
    ]
