"""A broker's tables of topics, groups and offsets, as its RocketMQ version writes them.

The same JSON objects are the answers to requests and the contents of the config files.
The classes in `wire.bodies` have the fields of 5.x; for 4.x, this module removes the
fields that were added later.

Source: the `encode` methods of `TopicConfigManager`, `SubscriptionGroupManager`,
`ConsumerOffsetManager` and `ScheduleMessageService` in apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rmqcli.wire.bodies.config import (
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)
from rmqcli.wire.bodies.data_version import DataVersion
from rmqcli.wire.bodies.offset import (
    TOPIC_GROUP_SEPARATOR,
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
)
from rmqcli.wire.body import json_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmqcli.broker.state.broker import BrokerState
    from rmqcli.wire.bodies.config import SubscriptionGroupConfig, TopicConfig

_GROUP_FIELDS_OF_5 = (
    "attributes",
    "consumeMessageOrderly",
    "consumeTimeoutMinute",
    "groupRetryPolicy",
    "groupSysFlag",
)


def topic_json(broker: BrokerState, config: TopicConfig) -> dict[str, object]:
    """Return one topic's settings."""
    data = json_object(config)
    if not broker.profile.has_bodies_of_5:
        del data["attributes"]
    return data


def group_json(
    broker: BrokerState, config: SubscriptionGroupConfig
) -> dict[str, object]:
    """Return one group's settings, with every field that the broker's version has."""
    data: dict[str, object] = {"groupRetryPolicy": {"type": "CUSTOMIZED"}}
    data |= json_object(config, with_defaults=True)
    if not broker.profile.has_bodies_of_5:
        for name in _GROUP_FIELDS_OF_5:
            del data[name]
    return dict(sorted(data.items()))


def version_json(broker: BrokerState, version: DataVersion) -> dict[str, object]:
    """Return the data version of a table."""
    return json_object(_of_broker(broker, version))


def topics_json(
    broker: BrokerState,
    configs: Iterable[TopicConfig] | None = None,
    *,
    mapping_version: DataVersion | None = None,
) -> dict[str, object]:
    """Return the contents of topics.json, also the answer to GET_ALL_TOPIC_CONFIG.

    With `configs`, only these topics are included.
    """
    shown = broker.topics.all().values() if configs is None else configs
    wrapper = TopicConfigSerializeWrapper(
        data_version=_of_broker(broker, broker.topics.data_version),
        mapping_data_version=mapping_version,
    )
    table = {config.topic_name: topic_json(broker, config) for config in shown}
    return json_object(wrapper) | {"topicConfigTable": table}


def groups_json(
    broker: BrokerState, configs: Iterable[SubscriptionGroupConfig] | None = None
) -> dict[str, object]:
    """Return the contents of subscriptionGroup.json, also the answer to request 201.

    With `configs`, only these groups are included.
    """
    shown = broker.groups.all().values() if configs is None else configs
    wrapper = SubscriptionGroupWrapper(
        data_version=_of_broker(broker, broker.groups.data_version),
        forbidden_table=(
            broker.groups.forbidden if broker.profile.has_bodies_of_5 else None
        ),
    )
    table = {config.group_name: group_json(broker, config) for config in shown}
    return json_object(wrapper) | {"subscriptionGroupTable": table}


def offsets_json(broker: BrokerState) -> dict[str, object]:
    """Return the contents of consumerOffset.json.

    They are also the answer to GET_ALL_CONSUMER_OFFSET.
    """
    table = broker.offsets.table()
    wrapper = ConsumerOffsetSerializeWrapper(offset_table=_by_topic_at_group(table))
    if broker.profile.has_bodies_of_5:
        topics_of: dict[str, list[str]] = {}
        for topic, group in table:
            topics_of.setdefault(group, []).append(topic)
        wrapper = replace(
            wrapper,
            data_version=_since_start(broker, broker.offsets.version),
            group_topic_map=topics_of,
            pull_offset_table=_by_topic_at_group(broker.offsets.pull_table()),
        )
    return json_object(wrapper)


def delays_json(broker: BrokerState) -> dict[str, object]:
    """Return the contents of delayOffset.json: offsets by delay level.

    They are also the answer to GET_ALL_DELAY_OFFSET.
    """
    wrapper = DelayOffsetSerializeWrapper(
        offset_table=dict(sorted(broker.schedule.offsets.items()))
    )
    if broker.profile.has_bodies_of_5:
        wrapper = replace(wrapper, data_version=_since_start(broker, 0))
    return json_object(wrapper)


def modes_json(broker: BrokerState) -> dict[str, object]:
    """Return the contents of messageRequestMode.json."""
    return json_object(broker.request_modes.body())


def order_json(broker: BrokerState) -> dict[str, object]:
    """Return the contents of consumerOrderInfo.json."""
    return json_object(broker.order_infos.body())


def _by_topic_at_group(
    table: Mapping[tuple[str, str], Mapping[int, int]],
) -> dict[str, dict[int, int]]:
    return {
        f"{topic}{TOPIC_GROUP_SEPARATOR}{group}": dict(sorted(queues.items()))
        for (topic, group), queues in table.items()
    }


def _since_start(broker: BrokerState, counter: int) -> DataVersion:
    return DataVersion(counter=counter, timestamp=broker.started.epoch_ms)


def _of_broker(broker: BrokerState, version: DataVersion) -> DataVersion:
    is_5 = broker.profile.has_bodies_of_5
    return version if is_5 else replace(version, state_version=None)
