"""Calls send what Java's client sends, and read what real brokers answered.

The recorded conversations with 4.6.0 and 5.5.0 are the authority; the oracle beside
them is what Java's own client read from the same state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rmqcli.api.calls import config as calls_config
from rmqcli.api.calls import consumer as calls_consumer
from rmqcli.api.calls import namesrv as calls_namesrv
from rmqcli.api.calls import offset as calls_offset
from rmqcli.api.calls import pull as calls_pull
from rmqcli.api.calls import stats as calls_stats
from rmqcli.api.calls import store as calls_store
from rmqcli.model import MessageQueue
from rmqcli.wire.command import decode_command
from rmqcli.wire.frame import FrameBuffer
from rmqcli.wire.pull_answer import PullStatus
from tests.golden_vectors import from_base64, load
from tests.kit.rows import each_row

if TYPE_CHECKING:
    from rmqcli.api.call import Call

VERSIONS = ["4.6.0", "5.5.0"]
QUEUE = MessageQueue("GoldA", "broker-a", 0)


def recorded(version):
    """Return the requests and answers of one broker's conversation, by name."""
    return {
        row["name"]: (
            decode(row["request_b64"]),
            decode(row["response_b64"]),
        )
        for row in load(f"answers/answers-{version}")
        if row["response_b64"]  # 4.6.0 never answers a code that it does not know
    }


def decode(text):
    (frame,) = FrameBuffer().feed(from_base64(text))
    return decode_command(frame)


CALLS: dict[str, Call[Any]] = {
    "route GoldA, standard JSON asked": calls_namesrv.get_route_info_by_topic("GoldA"),
    "cluster info": calls_namesrv.get_broker_cluster_info(),
    "topics": calls_namesrv.get_all_topic_list(),
    "consume stats gold_live, version 479": calls_stats.get_consume_stats("gold_live"),
    "topic stats, version 479": calls_stats.get_topic_stats_info("GoldA"),
    "consumer connection": calls_consumer.get_consumer_connection_list("gold_live"),
    "consumer connection, nobody": calls_consumer.get_consumer_connection_list(
        "gold_never"
    ),
    "consumer ids": calls_consumer.get_consumer_list_by_group("gold_live"),
    "consume time span": calls_stats.query_consume_time_span("GoldA", "gold_live"),
    "runtime info": calls_config.get_broker_runtime_info(),
    "broker config": calls_config.get_broker_config(),
    "all topic config": calls_config.get_all_topic_config(),
    "all groups": calls_config.get_all_subscription_group_config(),
    "topics of a group": calls_consumer.query_topics_by_consumer("gold_live"),
    "groups of a topic": calls_stats.query_topic_consume_by_who("GoldA"),
    "offset committed q0": calls_offset.query_consumer_offset("gold_live", "GoldA", 0),
    "max q0": calls_offset.get_max_offset("GoldA", 0),
    "min q0": calls_offset.get_min_offset("GoldA", 0),
    "by time 0 q0": calls_offset.search_offset_by_timestamp("GoldA", 0, 0),
    "pull q0@5": calls_pull.pull_message(QUEUE, 5),
    "by key": calls_store.query_message(
        "GoldA", "key7", end_ms=9223372036854775807, max_num=32
    ),
}
#: Fields that we send in addition to, or instead of, those of the recorded client.
OURS = {
    "offset committed q0": {"setZeroIfNotFound": "false"},
    "pull q0@5": {"consumerGroup": "TOOLS_CONSUMER"},
}


ASKED = [
    (name, version)
    for name, call in CALLS.items()
    for version in VERSIONS
    if not (version == "4.6.0" and call.needs_version)
]


def test_only_one_of_these_calls_needs_a_newer_broker():
    """Otherwise `ASKED` could leave out calls unnoticed."""
    assert len(ASKED) == 2 * len(CALLS) - 1


@each_row(("name", "version"), ASKED)
def test_call_asks_what_was_recorded(name, version):
    request, _ = recorded(version)[name]

    call = CALLS[name]

    assert call.code == request.code
    assert call.ext_fields == request.ext_fields | OURS.get(name, {})


@each_row(("name", "version"), ASKED)
def test_call_reads_the_recorded_answer(name, version):
    _, answer = recorded(version)[name]
    call = CALLS[name]

    assert answer.code in call.ok_codes
    call.parse(answer)


@pytest.mark.parametrize("version", VERSIONS)
def test_offsets_are_what_java_saw(version):
    conversation = recorded(version)
    for row in load(f"answers/oracle-{version}"):
        if row["kind"] == "queue" and row["topic"] == "GoldA":
            queue_id = row["queue_id"]
            _, low = conversation[f"min q{queue_id}"]
            _, high = conversation[f"max q{queue_id}"]

            assert CALLS["min q0"].parse(low) == row["min_offset"]
            assert CALLS["max q0"].parse(high) == row["max_offset"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("offset", "status"),
    [
        (0, PullStatus.FOUND),
        (30, PullStatus.NO_NEW_MSG),
        (100000, PullStatus.OFFSET_ILLEGAL),
        (-1, PullStatus.OFFSET_ILLEGAL),
    ],
)
def test_pull_says_what_it_found(version, offset, status):
    _, answer = recorded(version)[f"pull q0@{offset}"]

    pulled = calls_pull.pull_message(QUEUE, offset).parse(answer)

    assert pulled.status is status
    assert (pulled.min_offset, pulled.max_offset) == (0, 30)
    assert bool(pulled.body) is (status is PullStatus.FOUND)


def test_a_group_without_members_has_no_connection_list():
    _, answer = recorded("5.5.0")["consumer connection, nobody"]

    assert CALLS["consumer connection, nobody"].parse(answer) is None


def test_never_committed_is_zero_where_the_broker_guesses():
    """4.6.0 answers 0 for an unknown group: hence GET_ALL_CONSUMER_OFFSET (43)."""
    _, answer = recorded("4.6.0")["never committed"]

    assert calls_offset.query_consumer_offset("g", "GoldA", 0).parse(answer) == 0


def test_holding_pull_sets_the_suspend_flag_and_never_commits():
    fields = calls_pull.pull_message(QUEUE, 7, suspend_ms=15_000).ext_fields

    assert fields["sysFlag"] == "6"
    assert fields["commitOffset"] == "0"
    assert fields["suspendTimeoutMillis"] == "15000"


def test_a_topic_has_all_its_settings_and_attributes_as_changes():
    from rmqcli.wire.bodies.config import TopicConfig

    config = TopicConfig(
        topic_name="T",
        read_queue_nums=3,
        write_queue_nums=2,
        perm=4,
        topic_filter_type="MULTI_TAG",
        topic_sys_flag=1,
        order=True,
        attributes={"message.type": "FIFO"},
    )

    assert calls_config.update_and_create_topic(config).ext_fields == {
        "topic": "T",
        "defaultTopic": "TBW102",
        "readQueueNums": "3",
        "writeQueueNums": "2",
        "perm": "4",
        "topicFilterType": "MULTI_TAG",
        "topicSysFlag": "1",
        "order": "true",
        "attributes": "+message.type=FIFO",
    }


def test_deleting_a_group_says_so_in_both_spellings():
    """The flag is removeOffset in 4.9, and cleanOffset in 5.0."""
    fields = calls_config.delete_subscription_group("g").ext_fields

    assert fields == {"groupName": "g", "removeOffset": "true", "cleanOffset": "true"}
