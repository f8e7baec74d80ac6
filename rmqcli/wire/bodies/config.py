"""Settings of topics, groups and brokers, and a broker's counters.

The same objects are in a broker's config files. The numbers are those that an operator
configured; they are not checked.

Source: TopicConfig, TopicConfigSerializeWrapper, RegisterBrokerBody,
SubscriptionGroupConfig, SubscriptionGroupWrapper, KVTable in apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import field
from typing import Final

from rmqcli.wire.bodies.data_version import DataVersion
from rmqcli.wire.body import Body
from rmqcli.wire.fields import declared, wire_field

#: The key of a group's retry policy in its JSON.
RETRY_POLICY: Final = "groupRetryPolicy"


@declared
class TopicConfig(Body):
    """One topic's settings on one broker; also the answer to GET_TOPIC_CONFIG (351).

    Defaults are Java's. `attributes`, such as `message.type`, came with 5.0.
    """

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = field(default_factory=dict, hash=False)


@declared
class TopicConfigAndQueueMapping(Body):
    """The part of the answer to 351 that says whether the topic is a static topic."""

    mapping_detail: dict[str, object] | None = None


@declared
class TopicConfigSerializeWrapper(Body):
    """The answer to GET_ALL_TOPIC_CONFIG (21), and topics.json."""

    data_version: DataVersion | None = None
    mapping_data_version: DataVersion | None = None  # 5.0
    topic_config_table: dict[str, TopicConfig] = wire_field(
        default_factory=dict, key="topicName"
    )
    #: of static topics; not in topics.json
    topic_queue_mapping_detail_map: dict[str, object] = wire_field(
        default_factory=dict, is_sent_at_default=False
    )


@declared
class RegisterBrokerBody(Body):
    """The body of REGISTER_BROKER (103) when it is not compressed."""

    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = field(
        default_factory=TopicConfigSerializeWrapper
    )


@declared
class CreateTopicListRequestBody(Body):
    """The body of UPDATE_AND_CREATE_TOPIC_LIST (18)."""

    topic_config_list: list[TopicConfig] = field(default_factory=list)


@declared
class SubscriptionGroupConfig(Body):
    """One group's settings on one broker; also the answer to 352. Defaults are Java's.

    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200) replaces all settings. So read them, and
    change them with `dataclasses.replace`: then settings that only `raw` holds are sent
    back, too. A field at its default is sent only if the broker had sent it.
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
    raw: dict[str, object] = wire_field(default_factory=dict, holds_the_rest=True)

    @property
    def retry_policy(self) -> object:
        """When failed messages of POP and gRPC come again; None before 5.0."""
        return self.raw.get(RETRY_POLICY)


@declared
class SubscriptionGroupWrapper(Body):
    """The answer to 201, and subscriptionGroup.json.

    `forbidden_table`: group -> topic -> bits of what the group must not do there.
    """

    data_version: DataVersion | None = None
    forbidden_table: dict[str, dict[str, int]] | None = None  # 5.0
    subscription_group_table: dict[str, SubscriptionGroupConfig] = wire_field(
        default_factory=dict, key="groupName"
    )


@declared
class SubscriptionGroupNames(Body):
    """SubscriptionGroupWrapper for callers that need only the names of the groups."""

    subscription_group_table: dict[str, object] = field(default_factory=dict)


@declared
class SubscriptionGroupList(Body):
    """The body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225)."""

    group_config_list: list[SubscriptionGroupConfig] = field(default_factory=list)


@declared
class GroupForbidden(Body):
    """The answer to UPDATE_AND_GET_GROUP_FORBIDDEN (353)."""

    group: str
    topic: str
    readable: bool


@declared
class KVTable(Body):
    """The answer to GET_BROKER_RUNTIME_INFO (28) and GET_KVLIST_BY_NAMESPACE (219)."""

    table: dict[str, str] = field(default_factory=dict)


def parse_properties_text(body: bytes) -> dict[str, str]:
    """Read the answer to GET_BROKER_CONFIG (26): `key=value` lines without escapes.

    A line without `=` continues the value before it. Source: MixAll.properties2String.
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
