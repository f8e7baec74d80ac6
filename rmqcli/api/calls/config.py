"""Requests that read and change a broker's topics, groups and settings.

Source: AdminBrokerProcessor of the broker.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rmqcli.api.call import make_call, nothing
from rmqcli.errors import StaticTopicError
from rmqcli.units import counted
from rmqcli.wire.bodies.config import (
    CreateTopicListRequestBody,
    KVTable,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupNames,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigAndQueueMapping,
    TopicConfigSerializeWrapper,
    parse_properties_text,
)
from rmqcli.wire.body import decode_body, encode_body
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.headers import config as headers
from rmqcli.wire.version import V5_0_0, V5_3_0, V5_3_1

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from rmqcli.api.call import Call
    from rmqcli.wire.bodies.ha import HARuntimeInfo
    from rmqcli.wire.command import RemotingCommand

#: The topic whose route and permissions a new topic copies.
AUTO_CREATE_TOPIC_KEY_TOPIC = "TBW102"  # TopicValidator.AUTO_CREATE_TOPIC_KEY_TOPIC


def get_all_topic_config() -> Call[dict[str, TopicConfig]]:
    """Every topic's settings on this broker."""
    return get_topic_tables().then(lambda tables: tables.topic_config_table)


def get_topic_tables() -> Call[TopicConfigSerializeWrapper]:
    """Every topic's settings on this broker, and which of them are static topics."""
    return make_call(
        RequestCode.GET_ALL_TOPIC_CONFIG,
        lambda answer: decode_body(TopicConfigSerializeWrapper, answer.body),
        what="settings of all topics",
    )


def get_topic_config(topic: str) -> Call[TopicConfig]:
    """One topic's settings on this broker (5.0 and later).

    The error is StaticTopicError for a static topic.
    """

    def parse(answer: RemotingCommand) -> TopicConfig:
        mapping = decode_body(TopicConfigAndQueueMapping, answer.body)
        if mapping.mapping_detail:
            raise StaticTopicError.of(topic)
        return decode_body(TopicConfig, answer.body)

    return make_call(
        RequestCode.GET_TOPIC_CONFIG,
        parse,
        what=f"settings of topic {topic}",
        header=headers.GetTopicConfigRequestHeader(topic=topic, lo=True),
        needs_version=V5_0_0,
    )


def update_and_create_topic(
    config: TopicConfig, *, removed: Collection[str] = ()
) -> Call[None]:
    """Create a topic on this master, or change its settings.

    Attributes are written as changes, `+k=v`, and `-k` for those in `removed`; a broker
    before 5.0 ignores them.
    """
    attributes = {f"+{name}": value for name, value in config.attributes.items()}
    attributes |= {f"-{name}": "" for name in removed}
    return put_topic(replace(config, attributes=attributes))


def put_topic(config: TopicConfig) -> Call[None]:
    """As `update_and_create_topic`, with attributes that are changes already.

    `+name` sets one to its value, and `-name` removes one; its value is empty.
    """
    attributes = ",".join(f"{k}={v}" if v else k for k, v in config.attributes.items())
    return make_call(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        nothing,
        what=f"settings of topic {config.topic_name}",
        header=headers.CreateTopicRequestHeader(
            topic=config.topic_name,
            default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_filter_type=config.topic_filter_type,
            topic_sys_flag=config.topic_sys_flag,
            order=config.order,
            attributes=attributes or None,
        ),
    )


def create_topics(configs: Sequence[TopicConfig]) -> Call[None]:
    """Create topics on this master, or change them (5.3); attributes as in `put_topic`.

    A broker stores none of them if it refuses a name, and may have stored those before
    one whose attributes it refuses.
    """
    return make_call(
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        nothing,
        what=f"settings of {counted(len(configs), 'topic')}",
        body=encode_body(CreateTopicListRequestBody(topic_config_list=list(configs))),
        needs_version=V5_3_0,
    )


def delete_topic_in_broker(topic: str) -> Call[None]:
    """Delete the topic and its queues on this master."""
    return make_call(
        RequestCode.DELETE_TOPIC_IN_BROKER,
        nothing,
        what=f"deletion of topic {topic}",
        header=headers.DeleteTopicRequestHeader(topic=topic),
    )


def get_all_subscription_group_config() -> Call[dict[str, SubscriptionGroupConfig]]:
    """Every consumer group's settings on this broker."""
    return get_subscription_groups().then(lambda all_: all_.subscription_group_table)


def get_subscription_groups() -> Call[SubscriptionGroupWrapper]:
    """Every consumer group's settings, and which groups may not read which topics."""
    return make_call(
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        lambda answer: decode_body(SubscriptionGroupWrapper, answer.body),
        what="settings of all groups",
    )


def get_subscription_group_config(group: str) -> Call[SubscriptionGroupConfig]:
    """One consumer group's settings on this broker (5.0 and later).

    A broker that does not know the group creates it, if the broker's settings allow
    that.
    """
    call = make_call(
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
        lambda answer: decode_body(SubscriptionGroupConfig, answer.body),
        what=f"settings of group {group}",
        needs_version=V5_0_0,
    )
    call.ext_fields["group"] = group
    return call


def get_subscription_group_names() -> Call[list[str]]:
    """The names of the groups with settings on the broker, without reading these."""
    return make_call(
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        lambda answer: list(
            decode_body(SubscriptionGroupNames, answer.body).subscription_group_table
        ),
        what="settings of all groups",
    )


def update_and_create_subscription_group(
    config: SubscriptionGroupConfig,
) -> Call[None]:
    """Create a group on this master, or replace its settings.

    Attributes are changes: `+name` sets one, and `-name` removes one.
    """
    return make_call(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        nothing,
        what=f"settings of group {config.group_name}",
        body=encode_body(config),
    )


def create_subscription_groups(
    configs: Sequence[SubscriptionGroupConfig],
) -> Call[None]:
    """Create groups on this master, or replace their settings (5.3.1).

    Attributes are changes, as in `put_subscription_group`.
    """
    return make_call(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        nothing,
        what=f"settings of {counted(len(configs), 'group')}",
        body=encode_body(SubscriptionGroupList(group_config_list=list(configs))),
        needs_version=V5_3_1,
    )


def delete_subscription_group(group: str, *, clean_offset: bool = True) -> Call[None]:
    """Delete the group on this master.

    With `clean_offset`, its offsets are deleted, too, if the broker's version can do
    that.
    """
    return make_call(
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        nothing,
        what=f"deletion of group {group}",
        header=headers.DeleteSubscriptionGroupRequestHeader(
            group_name=group, remove_offset=clean_offset, clean_offset=clean_offset
        ),
    )


def get_broker_runtime_info() -> Call[dict[str, str]]:
    """The broker's counters and versions, all as text."""
    return make_call(
        RequestCode.GET_BROKER_RUNTIME_INFO,
        lambda answer: decode_body(KVTable, answer.body).table,
        what="runtime info",
    )


def get_broker_config() -> Call[dict[str, str]]:
    """The broker's settings, all as text."""
    return make_call(
        RequestCode.GET_BROKER_CONFIG,
        lambda answer: parse_properties_text(answer.body),
        what="broker settings",
    )


def update_broker_config(settings: Mapping[str, str]) -> Call[None]:
    """Change settings of the broker.

    A broker answers that it has done so even if it has no such setting, or does not
    accept the value. It writes all its settings into its file.
    """
    from rmqcli.wire.bodies.properties import encode_properties  # for few commands

    return make_call(
        RequestCode.UPDATE_BROKER_CONFIG,
        nothing,
        what="change of broker settings",
        body=encode_properties(settings),
    )


def clean_expired_consume_queue() -> Call[None]:
    """Remove the queues of which the broker's log has no message any more."""
    return make_call(
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, nothing, what="clean-up of queues"
    )


def clean_unused_topic() -> Call[None]:
    """Remove the queues of topics that the broker has no settings for."""
    return make_call(RequestCode.CLEAN_UNUSED_TOPIC, nothing, what="clean-up of topics")


def get_broker_ha_status() -> Call[HARuntimeInfo]:
    """The slaves of a master, or what a slave has copied (5.0 and later)."""
    from rmqcli.wire.bodies.ha import HARuntimeInfo  # needed by few commands

    return make_call(
        RequestCode.GET_BROKER_HA_STATUS,
        lambda answer: decode_body(HARuntimeInfo, answer.body),
        what="replication status",
        needs_version=V5_0_0,
    )
