"""Settings of topics, groups and brokers, and a broker's counters.

Numbers here are what someone configured: they are not checked for sense.

Source: TopicConfig, SubscriptionGroupConfig, KVTable in apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmqcli.wire import fastjson
from rmqcli.wire.bodies.read import (
    get_bool,
    get_int,
    get_object,
    get_table,
    get_text,
    load_object,
    need_text,
    to_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmqcli.wire.fastjson import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """One topic's settings on one broker. Defaults are Java's.

    `attributes` are there from 5.0 on, such as `message.type`.
    """

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionGroupConfig:
    """One group's settings on one broker. Defaults are Java's.

    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200) replaces all of them, so change a parsed
    one with `dataclasses.replace`: what `raw` holds beyond these fields is sent back.
    """

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False  # 5.0
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0  # 5.0
    consume_timeout_minute: int = 15  # 5.0
    attributes: dict[str, str] = field(default_factory=dict, hash=False)  # 5.1.3
    raw: JsonObject = field(default_factory=dict, hash=False, repr=False)


_DEFAULT_GROUP = SubscriptionGroupConfig(group_name="")
_GROUP_FLAGS = (
    ("consume_enable", "consumeEnable"),
    ("consume_from_min_enable", "consumeFromMinEnable"),
    ("consume_broadcast_enable", "consumeBroadcastEnable"),
    ("consume_message_orderly", "consumeMessageOrderly"),
    ("notify_consumer_ids_changed_enable", "notifyConsumerIdsChangedEnable"),
)
_GROUP_NUMBERS = (
    ("retry_queue_nums", "retryQueueNums"),
    ("retry_max_times", "retryMaxTimes"),
    ("broker_id", "brokerId"),
    ("which_broker_when_consume_slowly", "whichBrokerWhenConsumeSlowly"),
    ("group_sys_flag", "groupSysFlag"),
    ("consume_timeout_minute", "consumeTimeoutMinute"),
)


def parse_topic_config(body: bytes) -> TopicConfig:
    """The answer to GET_TOPIC_CONFIG (351, from 5.0 on)."""
    return _topic_config(load_object(body, "topic config"))


def parse_all_topic_config(body: bytes) -> dict[str, TopicConfig]:
    """The answer to GET_ALL_TOPIC_CONFIG (21), by topic."""
    data = load_object(body, "topic configs")
    return {
        name: _topic_config({"topicName": name, **item})
        for name, item in get_table(data, "topicConfigTable")
    }


def topic_config_json(config: TopicConfig) -> dict[str, object]:
    """The object to write for a topic's settings."""
    return {
        "attributes": config.attributes,
        "order": config.order,
        "perm": config.perm,
        "readQueueNums": config.read_queue_nums,
        "topicFilterType": config.topic_filter_type,
        "topicName": config.topic_name,
        "topicSysFlag": config.topic_sys_flag,
        "writeQueueNums": config.write_queue_nums,
    }


def encode_topic_config(config: TopicConfig) -> bytes:
    """The body of an answer to GET_TOPIC_CONFIG."""
    return fastjson.dumps(topic_config_json(config)).encode()


def encode_all_topic_config(configs: Iterable[TopicConfig]) -> bytes:
    """The body of an answer to GET_ALL_TOPIC_CONFIG."""
    table = {config.topic_name: topic_config_json(config) for config in configs}
    return fastjson.dumps({"topicConfigTable": table}).encode()


def parse_subscription_group(body: bytes) -> SubscriptionGroupConfig:
    """The answer to GET_SUBSCRIPTIONGROUP_CONFIG (352, from 5.0 on)."""
    return _group_config(load_object(body, "subscription group"))


def parse_all_subscription_group(body: bytes) -> dict[str, SubscriptionGroupConfig]:
    """The answer to GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201), by group."""
    data = load_object(body, "subscription groups")
    return {
        name: _group_config({"groupName": name, **item})
        for name, item in get_table(data, "subscriptionGroupTable")
    }


def encode_subscription_group(config: SubscriptionGroupConfig) -> bytes:
    """The body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200).

    A field at Java's default is only written where the broker had written it.
    """
    return fastjson.dumps(subscription_group_json(config)).encode()


def subscription_group_json(config: SubscriptionGroupConfig) -> dict[str, object]:
    """The object to write for a group's settings."""
    data: dict[str, object] = {**config.raw, "groupName": config.group_name}
    for attribute, name in (
        *_GROUP_FLAGS,
        *_GROUP_NUMBERS,
        ("attributes", "attributes"),
    ):
        value = getattr(config, attribute)
        if name in data or value != getattr(_DEFAULT_GROUP, attribute):
            data[name] = value
    return data


def parse_kv_table(body: bytes) -> dict[str, str]:
    """The answer to GET_BROKER_RUNTIME_INFO (28) and GET_KVLIST_BY_NAMESPACE (219)."""
    return _texts(load_object(body, "table"), "table")


def encode_kv_table(table: Mapping[str, str]) -> bytes:
    """The body of an answer to GET_BROKER_RUNTIME_INFO."""
    return fastjson.dumps({"table": dict(table)}).encode()


def parse_properties_text(body: bytes) -> dict[str, str]:
    """The answer to GET_BROKER_CONFIG (26): `key=value` lines, nothing escaped.

    A line without `=` goes on with the value before it. Source:
    MixAll.properties2String.
    """
    properties: dict[str, str] = {}
    last = ""
    for line in body.decode("utf-8", "replace").split("\n"):
        name, equals, value = line.partition("=")
        if equals:
            last = name.strip()
            properties[last] = value.removesuffix("\r")
        elif line.strip() and last:
            properties[last] += "\n" + line.removesuffix("\r")
    return properties


def _topic_config(data: JsonObject) -> TopicConfig:
    return TopicConfig(
        topic_name=need_text(data, "topicName"),
        read_queue_nums=get_int(data, "readQueueNums", 16),
        write_queue_nums=get_int(data, "writeQueueNums", 16),
        perm=get_int(data, "perm", 6),
        topic_filter_type=get_text(data, "topicFilterType") or "SINGLE_TAG",
        topic_sys_flag=get_int(data, "topicSysFlag", 0),
        order=get_bool(data, "order"),
        attributes=_texts(data, "attributes"),
    )


def _group_config(data: JsonObject) -> SubscriptionGroupConfig:
    flags = {
        attribute: get_bool(data, name, default=getattr(_DEFAULT_GROUP, attribute))
        for attribute, name in _GROUP_FLAGS
    }
    numbers: dict[str, int] = {
        attribute: get_int(data, name, getattr(_DEFAULT_GROUP, attribute))
        for attribute, name in _GROUP_NUMBERS
    }
    return SubscriptionGroupConfig(
        group_name=need_text(data, "groupName"),
        attributes=_texts(data, "attributes"),
        raw=data,
        **flags,
        **numbers,  # type: ignore[arg-type]  # names are taken from the class
    )


def _texts(data: JsonObject, name: str) -> dict[str, str]:
    values = get_object(data, name)
    return {k: to_text(v, k) for k, v in values.items() if v is not None}
