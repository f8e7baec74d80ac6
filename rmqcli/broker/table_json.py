"""The objects of topics, groups and offsets, in bodies and in config files alike.

Source: the `encode` methods of `TopicConfigManager`, `SubscriptionGroupManager`,
`ConsumerOffsetManager` and `ScheduleMessageService` in apache/rocketmq.

JSON as fastjson writes a broker's config files: numeric keys bare, tabs.

Java reads strict JSON as well; this is for whoever compares files, and for programs
that read those of real brokers only. Source: `RemotingSerializable.toJson`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.wire import fastjson
from rmqcli.wire.bodies.config import subscription_group_json, topic_config_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rmqcli.broker.state.broker import BrokerState
    from rmqcli.broker.state.data_version import DataVersion
    from rmqcli.wire.bodies.config import SubscriptionGroupConfig, TopicConfig


def dumps(value: object, *, pretty: bool = False) -> str:
    """Text of `value`; keys that are int are not quoted."""
    out: list[str] = []
    _write(value, out.append, "\n" if pretty else "")
    return "".join(out)


def _write(value: object, put: Callable[[str], object], line: str) -> None:
    inner = line + "\t" if line else ""
    if isinstance(value, dict) and value:
        mark = "{"
        for key, item in value.items():
            shown = str(key) if isinstance(key, int) else fastjson.dumps(key)
            put(f"{mark}{inner}{shown}:")
            _write(item, put, inner)
            mark = ","
        put(line + "}")
    elif isinstance(value, list) and value:
        mark = "["
        for item in value:
            put(mark + inner)
            _write(item, put, inner)
            mark = ","
        put(line + "]")
    else:
        put(fastjson.dumps(value))


_ATTRIBUTES_OF_5 = (
    "attributes",
    "consumeMessageOrderly",
    "consumeTimeoutMinute",
    "groupRetryPolicy",
    "groupSysFlag",
)


def topic_json(broker: BrokerState, config: TopicConfig) -> dict[str, object]:
    """One topic's settings, as the broker's version writes them."""
    data = topic_config_json(config)
    if not broker.profile.has_bodies_of_5:
        del data["attributes"]
    return data


def group_json(
    broker: BrokerState, config: SubscriptionGroupConfig
) -> dict[str, object]:
    """One group's settings, every field that the broker's version has."""
    data: dict[str, object] = {
        "attributes": config.attributes,
        "brokerId": config.broker_id,
        "consumeBroadcastEnable": config.consume_broadcast_enable,
        "consumeEnable": config.consume_enable,
        "consumeFromMinEnable": config.consume_from_min_enable,
        "consumeMessageOrderly": config.consume_message_orderly,
        "consumeTimeoutMinute": config.consume_timeout_minute,
        "groupName": config.group_name,
        "groupRetryPolicy": {"type": "CUSTOMIZED"},
        "groupSysFlag": config.group_sys_flag,
        "notifyConsumerIdsChangedEnable": config.notify_consumer_ids_changed_enable,
        "retryMaxTimes": config.retry_max_times,
        "retryQueueNums": config.retry_queue_nums,
        "whichBrokerWhenConsumeSlowly": config.which_broker_when_consume_slowly,
    }
    data |= subscription_group_json(config)
    if not broker.profile.has_bodies_of_5:
        for name in _ATTRIBUTES_OF_5:
            del data[name]
    return data


def version_json(broker: BrokerState, version: DataVersion) -> dict[str, object]:
    """A data version; 4.x has no stateVersion."""
    data = version.to_json()
    if not broker.profile.has_bodies_of_5:
        del data["stateVersion"]
    return data


def topics_json(
    broker: BrokerState, configs: Iterable[TopicConfig] | None = None
) -> dict[str, object]:
    """topics.json; `configs`: only these."""
    shown = broker.topics.all().values() if configs is None else configs
    return {
        "dataVersion": version_json(broker, broker.topics.data_version),
        "topicConfigTable": {
            each.topic_name: topic_json(broker, each) for each in shown
        },
    }


def groups_json(
    broker: BrokerState, configs: Iterable[SubscriptionGroupConfig] | None = None
) -> dict[str, object]:
    """subscriptionGroup.json; `configs`: only these."""
    shown = broker.groups.all().values() if configs is None else configs
    data: dict[str, object] = {
        "dataVersion": version_json(broker, broker.groups.data_version),
    }
    if broker.profile.has_bodies_of_5:
        data["forbiddenTable"] = broker.groups.forbidden
    data["subscriptionGroupTable"] = {
        each.group_name: group_json(broker, each) for each in shown
    }
    return data


def offsets_json(broker: BrokerState) -> dict[str, object]:
    """consumerOffset.json. Queue ids are int: their keys are written bare."""
    table = broker.offsets.table()
    if not broker.profile.has_bodies_of_5:
        return {"offsetTable": _by_topic_at_group(table)}
    topics_of: dict[str, list[str]] = {}
    for topic, group in table:
        topics_of.setdefault(group, []).append(topic)
    return {
        "dataVersion": _counted(broker, broker.offsets.version),
        "groupTopicMap": topics_of,
        "offsetTable": _by_topic_at_group(table),
        "pullOffsetTable": _by_topic_at_group(broker.offsets.pull_table()),
    }


def delays_json(broker: BrokerState) -> dict[str, object]:
    """delayOffset.json: by level, keys bare."""
    offsets = dict(sorted(broker.schedule.offsets.items()))
    if not broker.profile.has_bodies_of_5:
        return {"offsetTable": offsets}
    return {"dataVersion": _counted(broker, 0), "offsetTable": offsets}


def _by_topic_at_group(
    table: Mapping[tuple[str, str], Mapping[int, int]],
) -> dict[str, dict[int, int]]:
    return {
        f"{topic}@{group}": dict(sorted(queues.items()))
        for (topic, group), queues in table.items()
    }


def _counted(broker: BrokerState, counter: int) -> dict[str, object]:
    started_ms = broker.started.epoch_ms
    return {"counter": counter, "stateVersion": 0, "timestamp": started_ms}
