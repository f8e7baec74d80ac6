"""Topics for mqadmin: 17, 18, 21, 202, 215, 305 and 351.

Imitated: name rules and system topics by version; attributes (5.x) with their rules,
where `+name=value` sets an attribute and `-name` removes it; lists that are read in
parts.
Not imitated: static topics (mappings are empty); ACL checks. The number of queues is
limited, which it is not in RocketMQ.

Source: `AdminBrokerProcessor`, `TopicConfigManager`, `AttributeParser` and
`AttributeUtil` in apache/rocketmq.
"""

from __future__ import annotations

import dataclasses
from itertools import islice
from typing import TYPE_CHECKING, Final

from rmqcli.broker.attributes import (
    MESSAGE_TYPE,
    TOPIC_ATTRIBUTES,
    attributes_of,
    changed_attributes,
)
from rmqcli.broker.dispatch import handles
from rmqcli.broker.request import BrokerRequest, Refusal, Reply, no_topic, system_error
from rmqcli.broker.state.topics import TOPICS_MAX
from rmqcli.broker.table_json import topics_json
from rmqcli.broker.topic_names import (
    NOT_ALLOWED_SEND_TOPICS,
    is_system_topic,
    topic_name_fault,
)
from rmqcli.errors import BodyError
from rmqcli.files import file_name_fault
from rmqcli.model import MessageQueue
from rmqcli.units import read_count
from rmqcli.wire.bodies.config import CreateTopicListRequestBody, TopicConfig
from rmqcli.wire.bodies.data_version import DataVersion
from rmqcli.wire.bodies.route import TopicListBody
from rmqcli.wire.bodies.stats import TopicOffset, TopicStatsTable
from rmqcli.wire.body import decode_body, encode_body
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.headers.admin import GetTopicStatsInfoRequestHeader
from rmqcli.wire.headers.config import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicConfigRequestHeader,
)
from rmqcli.wire.message.properties import lmq_name
from rmqcli.wire.receipt_handle import pop_retry_topic
from rmqcli.wire.version import V5_0_0, V5_3_0

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.broker.state.broker import BrokerState


QUEUE_NUMS_MAX: Final = 65_536
_TOPICS_MAX: Final = 10_000
_FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")


@handles(RequestCode.UPDATE_AND_CREATE_TOPIC)
def update_topic(broker: BrokerState, request: BrokerRequest) -> Reply:
    """UPDATE_AND_CREATE_TOPIC (17)."""
    header = request.header(CreateTopicRequestHeader)
    asked = TopicConfig(
        topic_name=header.topic,
        read_queue_nums=header.read_queue_nums,
        write_queue_nums=header.write_queue_nums,
        perm=header.perm,
        topic_filter_type=header.topic_filter_type,
        topic_sys_flag=header.topic_sys_flag or 0,
        order=header.order,
    )
    _put(broker, asked, header.attributes or "")
    # No code of 5.x sets a remark here, so the default of every answer remains.
    is_silent = not broker.profile.has_bodies_of_5
    return Reply(remark=None if is_silent else "not set any response code")


@handles(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, since=V5_3_0)
def update_topics(broker: BrokerState, request: BrokerRequest) -> Reply:
    """UPDATE_AND_CREATE_TOPIC_LIST (18): checks all topics before it stores any.

    Attributes are only checked when their topic is stored.
    """
    listed = request.body(CreateTopicListRequestBody).topic_config_list[:_TOPICS_MAX]
    configs = list({config.topic_name: config for config in listed}.values())
    for config in configs:
        _check_topic(broker, config)
        _check_mixed(broker, config.attributes)
    for config in configs:
        given = ",".join(f"{name}={value}" for name, value in config.attributes.items())
        _put(broker, dataclasses.replace(config, attributes={}), given)
    return Reply()


def _put(broker: BrokerState, config: TopicConfig, attributes: str) -> None:
    _check_topic(broker, config)
    _check_mixed(broker, attributes_of(attributes))
    known = broker.topics.get(config.topic_name)
    if broker.profile.has_bodies_of_5:
        kept = {} if known is None else known.attributes
        changed = changed_attributes(
            TOPIC_ATTRIBUTES, kept, attributes_of(attributes), is_new=known is None
        )
        config = dataclasses.replace(config, attributes=changed)
        if config == known:
            return
    broker.topics.put(config)


def _check_topic(broker: BrokerState, config: TopicConfig) -> None:
    topic, profile = config.topic_name, broker.profile
    code = profile.invalid_parameter_code
    if broker.topics.is_full and broker.topics.get(topic) is None:
        raise system_error(
            f"topic {topic} was not created: the broker already has {TOPICS_MAX} topics"
        )
    if profile.checks_topic_names:
        fault = topic_name_fault(topic)
        if fault is not None:
            raise Refusal(code, fault)
    _need_storable(broker, topic)
    if topic == broker.settings.cluster or (
        profile.protects_system_topics and is_system_topic(topic)
    ):
        raise Refusal(code, f"The topic[{topic}] is conflict with system topic.")
    for nums in (config.read_queue_nums, config.write_queue_nums):
        if not 0 <= nums <= QUEUE_NUMS_MAX:
            raise Refusal(
                code,
                f"topic {topic} has {nums} queues; the number must be between 0 and"
                f" {QUEUE_NUMS_MAX}",
            )
    if config.topic_filter_type not in _FILTER_TYPES:
        raise system_error(
            f"No enum constant TopicFilterType.{config.topic_filter_type}"
        )


def _check_mixed(broker: BrokerState, attributes: Mapping[str, str]) -> None:
    """Refuse topics for messages of all kinds unless a setting allows them (29)."""
    if (
        broker.profile.has_bodies_of_5
        and not broker.settings.enable_mixed_message_type
        and attributes.get(f"+{MESSAGE_TYPE}") == "MIXED"
    ):
        raise Refusal(
            ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported."
        )


def _need_storable(broker: BrokerState, topic: str) -> None:
    """Refuse a name that no folder can have; old versions of RocketMQ accept some."""
    fault = file_name_fault(topic)
    if fault is not None:
        code = broker.profile.invalid_parameter_code
        raise Refusal(code, f"The specified topic's name {fault}.")


@handles(RequestCode.DELETE_TOPIC_IN_BROKER)
def delete_topic(broker: BrokerState, request: BrokerRequest) -> Reply:
    """DELETE_TOPIC_IN_BROKER (215): succeeds for an unknown topic, too."""
    topic = request.header(DeleteTopicRequestHeader).topic
    if broker.profile.protects_system_topics:
        if not topic.strip():
            raise system_error("The specified topic is blank.")
        if is_system_topic(topic):
            raise Refusal(
                broker.profile.invalid_parameter_code,
                f"The topic[{topic}] is conflict with system topic.",
            )
    _need_storable(broker, topic)
    names = [topic]
    if broker.profile.version >= V5_0_0:
        # The topic's POP retry topics and lite topics are deleted, too.
        retries = (
            pop_retry_topic(topic, group, v2=is_v2)
            for group in sorted(broker.offsets.groups_of(topic))
            for is_v2 in (True, False)
        )
        names += [name for name in retries if broker.topics.get(name) is not None]
        lite = lmq_name(topic, "")
        for name in [n for n, _ in broker.store.queues() if n.startswith(lite)]:
            broker.lite.delete(name)
    for name in names:
        broker.topics.delete(name)
        broker.store.delete_topic(name)
        if broker.profile.deletes_offsets_of_topics:
            broker.offsets.delete_topic(name)
    return Reply()


@handles(RequestCode.GET_TOPIC_CONFIG, since=V5_0_0)
def get_topic(broker: BrokerState, request: BrokerRequest) -> Reply:
    """GET_TOPIC_CONFIG (351)."""
    topic = request.header(GetTopicConfigRequestHeader).topic
    config = broker.topics.get(topic)
    if config is None:
        raise no_topic(f"No topic in this broker. topic: {topic}")
    return Reply(body=encode_body(config))


@handles(RequestCode.GET_ALL_TOPIC_CONFIG)
def get_topics(broker: BrokerState, request: BrokerRequest) -> Reply:
    """GET_ALL_TOPIC_CONFIG (21), from 5.3 on in parts if requested."""
    if not broker.profile.has_bodies_of_5:
        return Reply(body=encode_body(topics_json(broker)))
    topics = broker.topics.all()
    first, count = part(request, "topicSeq", "maxTopicNum", broker.topics.data_version)
    configs = list(islice(topics.values(), first, first + count))
    mapping_version = dataclasses.replace(broker.topics.data_version, counter=0)
    return Reply(
        body=encode_body(topics_json(broker, configs, mapping_version=mapping_version)),
        ext_fields={"totalTopicNum": str(len(topics))},
    )


def part(
    request: BrokerRequest, first_name: str, count_name: str, version: DataVersion
) -> tuple[int, int]:
    """Return the index of the first requested entry of a table, and their number.

    The default is all entries. If the table has changed since the client received its
    first part, the index is 0 again.
    """
    fields = request.command.ext_fields
    first = _number(fields.get(first_name), 0)
    count = _number(fields.get(count_name), 2**31)
    seen = fields.get("dataVersion")
    if first and seen and not _is_same(seen, version):
        first = 0
    return first, count


def _is_same(text: str, version: DataVersion) -> bool:
    try:
        return decode_body(DataVersion, text) == version
    except BodyError:
        return False


def _number(text: str | None, default: int) -> int:
    number = read_count(text, digits_max=10)
    return default if number is None else number


@handles(RequestCode.GET_TOPIC_STATS_INFO)
def get_topic_stats(broker: BrokerState, request: BrokerRequest) -> Reply:
    """GET_TOPIC_STATS_INFO (202)."""
    topic = request.header(GetTopicStatsInfoRequestHeader).topic
    config = broker.topics.get(topic)
    if config is None:
        raise no_topic(f"topic[{topic}] not exist")
    queues = config.write_queue_nums
    if broker.profile.has_bodies_of_5:
        queues = max(queues, config.read_queue_nums)
    table: dict[MessageQueue, TopicOffset] = {}
    for queue_id in range(queues):
        low, high = broker.store.queue_bounds(topic, queue_id) or (0, 0)
        time_ms = broker.store.store_time_ms(topic, queue_id, high - 1) if high else 0
        queue = MessageQueue(topic, broker.settings.broker_name, queue_id)
        table[queue] = TopicOffset(
            min_offset=low, max_offset=high, last_update_timestamp=time_ms or 0
        )
    tps = None
    if broker.profile.has_bodies_of_5:
        tps = broker.stats.topic_put_nums.recent(topic, request.now).tps
    return Reply(
        body=encode_body(TopicStatsTable(offset_table=table, topic_put_tps=tps))
    )


@handles(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
def get_system_topics(broker: BrokerState, _: BrokerRequest) -> Reply:
    """GET_SYSTEM_TOPIC_LIST_FROM_BROKER (305)."""
    own = {broker.settings.cluster, broker.settings.broker_name}
    named = {topic for topic in broker.topics.all() if is_system_topic(topic)}
    topics = sorted(own | named | NOT_ALLOWED_SEND_TOPICS)
    return Reply(body=encode_body(TopicListBody(topic_list=topics)))
