"""Topics and groups for mqadmin, by version."""

from __future__ import annotations

import dataclasses

import pytest

from rmqcli.broker.profiles import (
    PROFILE_4_6_0,
    PROFILE_4_9_7,
    PROFILE_5_5_0,
    VersionProfile,
)
from rmqcli.broker.settings import BrokerSettings
from rmqcli.model import MessageQueue
from rmqcli.wire.bodies.config import (
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rmqcli.wire.bodies.stats import TopicOffset, TopicStatsTable
from rmqcli.wire.body import decode_body, encode_body
from rmqcli.wire.command import RemotingCommand
from rmqcli.wire.headers.admin import GetTopicStatsInfoRequestHeader
from rmqcli.wire.headers.config import (
    CreateTopicRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    GetTopicConfigRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)
from tests.broker.driving import Driver


def like(profile: VersionProfile) -> Driver:
    return Driver(BrokerSettings(profile=profile))


def create(
    driver: Driver, topic: str, *, queues: int = 4, attributes: str = ""
) -> RemotingCommand:
    header = CreateTopicRequestHeader(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        attributes=attributes,
    )
    answer = driver.ask(17, header)
    assert answer is not None
    return answer


def shown(driver: Driver, topic: str) -> TopicConfig:
    answer = driver.ask(351, GetTopicConfigRequestHeader(topic=topic))
    assert answer is not None
    return decode_body(TopicConfig, bytes(answer.body))


def test_a_topic_is_created_shown_and_listed() -> None:
    driver = Driver()
    answer = create(driver, "T", attributes="+message.type=FIFO")
    assert (answer.code, answer.remark) == (0, "not set any response code")
    expected = TopicConfig(
        topic_name="T",
        read_queue_nums=4,
        write_queue_nums=4,
        attributes={"message.type": "FIFO"},
    )
    assert shown(driver, "T") == expected
    listed = driver.ask(21)
    assert listed is not None
    topics = decode_body(
        TopicConfigSerializeWrapper, bytes(listed.body)
    ).topic_config_table
    assert topics["T"] == expected
    assert listed.ext_fields == {"totalTopicNum": str(len(topics))}


def test_topics_come_in_parts() -> None:
    driver = Driver()
    whole = driver.ask(21)
    assert whole is not None
    names: list[str] = []
    for first in (0, 5, 10, 15, 20):
        request = RemotingCommand(
            code=21,
            language=0,
            version=513,
            opaque=100 + first,
            flag=0,
            ext_fields={"topicSeq": str(first), "maxTopicNum": "5"},
        )
        answer = driver.send(request)
        assert answer is not None
        names += decode_body(
            TopicConfigSerializeWrapper, bytes(answer.body)
        ).topic_config_table
    assert names == list(
        decode_body(TopicConfigSerializeWrapper, bytes(whole.body)).topic_config_table
    )


@pytest.mark.parametrize(
    ("profile", "topic", "code"),
    [
        (PROFILE_4_6_0, "a b", 0),
        (PROFILE_4_6_0, "TBW102", 0),
        (PROFILE_4_9_7, "a b", 1),
        (PROFILE_4_9_7, "TBW102", 1),
        (PROFILE_5_5_0, "a b", 29),
        (PROFILE_5_5_0, "TBW102", 29),
        (PROFILE_5_5_0, "t" * 128, 29),
    ],
)
def test_topics_with_illegal_names_are_refused(
    profile: VersionProfile, topic: str, code: int
) -> None:
    assert create(like(profile), topic).code == code


@pytest.mark.parametrize("queues", [-1, 65_537, 2**31 - 1])
def test_queue_numbers_are_bounded(queues: int) -> None:
    assert create(Driver(), "T", queues=queues).code == 29


@pytest.mark.parametrize(
    ("attributes", "remark"),
    [
        ("+colour=red", "unsupported key: colour"),
        ("-message.type", "only add attribute is supported while creating topic."),
        ("+message.type=RED", "value is not in set: RED"),
        ("+reserve.time=soon", 'For input string: "soon"'),
        ("+reserve.time=-2", "value is not in range(-1, 9223372036854775807)"),
        ("message.type=FIFO", "wrong format key: message.type"),
    ],
)
def test_illegal_attributes_are_refused(attributes: str, remark: str) -> None:
    answer = create(Driver(), "T", attributes=attributes)
    assert answer.code == 1
    assert (answer.remark or "").startswith(remark)


def test_an_attribute_is_kept_until_it_is_removed() -> None:
    driver = Driver()
    create(driver, "T", attributes="+cleanup.policy=DELETE,+message.type=DELAY")
    create(driver, "T", queues=8)
    assert shown(driver, "T").attributes == {
        "cleanup.policy": "DELETE",
        "message.type": "DELAY",
    }
    create(driver, "T", attributes="-message.type")
    assert shown(driver, "T").attributes == {"cleanup.policy": "DELETE"}
    assert create(driver, "T", attributes="+cleanup.policy=COMPACTION").code == 1


def test_deleting_a_topic_deletes_its_offsets() -> None:
    driver = Driver()
    create(driver, "T")
    driver.broker.offsets.commit("g", "T", 0, 5)
    answer = driver.ask(215, DeleteTopicRequestHeader(topic="T"))
    assert answer is not None
    assert answer.code == 0
    assert driver.broker.topics.get("T") is None
    assert driver.broker.offsets.query("g", "T", 0) is None
    missing = driver.ask(351, GetTopicConfigRequestHeader(topic="T"))
    assert missing is not None
    assert missing.code == 17
    assert missing.remark == "No topic in this broker. topic: T"


def test_4_x_keeps_the_offsets_of_a_deleted_topic() -> None:
    driver = like(PROFILE_4_9_7)
    create(driver, "T")
    driver.broker.offsets.commit("g", "T", 0, 5)
    driver.ask(215, DeleteTopicRequestHeader(topic="T"))
    assert driver.broker.offsets.query("g", "T", 0) == 5


def test_a_system_topic_is_not_deleted() -> None:
    driver = Driver()
    answer = driver.ask(215, DeleteTopicRequestHeader(topic="TBW102"))
    assert answer is not None
    assert answer.code == 29
    assert driver.broker.topics.get("TBW102") is not None


def test_topic_stats_of_an_empty_topic() -> None:
    driver = Driver()
    create(driver, "T", queues=2)
    answer = driver.ask(202, GetTopicStatsInfoRequestHeader(topic="T"))
    assert answer is not None
    assert decode_body(TopicStatsTable, bytes(answer.body)).offset_table == {
        MessageQueue("T", "broker-a", 0): TopicOffset(min_offset=0, max_offset=0),
        MessageQueue("T", "broker-a", 1): TopicOffset(min_offset=0, max_offset=0),
    }
    missing = driver.ask(202, GetTopicStatsInfoRequestHeader(topic="U"))
    assert missing is not None
    assert (missing.code, missing.remark) == (17, "topic[U] not exist")


@pytest.mark.parametrize("code", [18, 225, 328, 343, 345, 351, 352, 353])
def test_4_6_0_does_not_know_newer_requests(code: int) -> None:
    answer = like(PROFILE_4_6_0).ask(code)
    assert answer is not None
    assert (answer.code, answer.remark) == (3, f" request type {code} not supported")


def test_a_group_is_replaced_except_for_its_attributes() -> None:
    """The attributes of a request are changes."""
    driver = Driver()
    config = SubscriptionGroupConfig(
        group_name="g",
        retry_max_times=3,
        attributes={"+priority.factor": "7", "+lite.sub.model": "Shared"},
    )
    changed = dataclasses.replace(
        config, retry_max_times=16, attributes={"-lite.sub.model": ""}
    )
    for each in (config, changed):
        answer = driver.ask(200, body=encode_body(each))
        assert answer is not None
        assert answer.code == 0
    listed = driver.ask(201)
    assert listed is not None
    groups = decode_body(
        SubscriptionGroupWrapper, bytes(listed.body)
    ).subscription_group_table
    assert groups["g"].retry_max_times == 16
    assert groups["g"].attributes == {"priority.factor": "7"}
    assert groups["g"].raw["groupRetryPolicy"] == {"type": "CUSTOMIZED"}
    assert listed.ext_fields == {"totalGroupNum": "9"}


@pytest.mark.parametrize(
    ("attributes", "remark"),
    [
        ({"+colour": "red"}, "unsupported key: colour"),
        ({"+priority.factor": "101"}, "value is not in range(0, 100)"),
        ({"+lite.sub.model": "Other"}, "value is not in set: Other"),
        ({"priority.factor": "1"}, "wrong format key: priority.factor"),
    ],
)
def test_illegal_attributes_of_groups_are_refused(
    attributes: dict[str, str], remark: str
) -> None:
    driver = Driver()
    config = SubscriptionGroupConfig(group_name="g", attributes=attributes)

    answer = driver.ask(200, body=encode_body(config))

    assert answer is not None
    assert (answer.code, answer.remark) == (1, remark)


def test_a_requested_group_is_created_if_that_is_allowed() -> None:
    header = GetSubscriptionGroupConfigRequestHeader(group="g")
    answer = Driver().ask(352, header)
    assert answer is not None
    assert decode_body(SubscriptionGroupConfig, bytes(answer.body)).group_name == "g"
    closed = Driver(BrokerSettings(auto_create_subscription_group=False))
    refused = closed.ask(352, header)
    assert refused is not None
    assert refused.code == 26


@pytest.mark.parametrize(
    ("profile", "cleans", "is_there", "offset"),
    [
        (PROFILE_4_6_0, True, False, 5),
        (PROFILE_4_9_7, False, False, 5),
        (PROFILE_4_9_7, True, False, None),
        (PROFILE_5_5_0, False, True, 5),
        (PROFILE_5_5_0, True, False, None),
    ],
)
def test_deleting_a_group(
    profile: VersionProfile, *, cleans: bool, is_there: bool, offset: int | None
) -> None:
    driver = like(profile)
    driver.broker.groups.put(SubscriptionGroupConfig(group_name="g", retry_max_times=3))
    driver.broker.offsets.commit("g", "T", 0, 5)
    header = DeleteSubscriptionGroupRequestHeader(
        group_name="g", remove_offset=cleans, clean_offset=cleans
    )
    answer = driver.ask(207, header)
    assert answer is not None
    assert answer.code == 0
    found = driver.broker.groups.get("g")
    assert (found is not None) is is_there
    assert found is None or found.retry_max_times == 16
    assert driver.broker.offsets.query("g", "T", 0) == offset


def test_a_group_can_be_forbidden_to_read_a_topic() -> None:
    driver = Driver()
    create(driver, "T")
    driver.broker.groups.find_or_create("g")
    for readable in (False, True):
        header = UpdateGroupForbiddenRequestHeader(
            group="g", topic="T", readable=readable
        )
        answer = driver.ask(353, header)
        assert answer is not None
        assert f'"readable":{str(readable).lower()}'.encode() in bytes(answer.body)
        assert driver.broker.groups.is_read_forbidden("g", "T") is not readable
