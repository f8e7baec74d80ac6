"""Subscription groups for mqadmin: 200, 201, 207, 225, 352 and 353.

Imitated: what each version deletes together with a group; lists that are read in parts
(5.3); topics that a group may not read.
Not imitated: that subscriptions to lite topics end with their group.

Source: `AdminBrokerProcessor` and `SubscriptionGroupManager` in apache/rocketmq.
"""

from __future__ import annotations

import dataclasses
from itertools import islice
from typing import TYPE_CHECKING, Final

from rmqcli.broker.attributes import GROUP_ATTRIBUTES, changed_attributes
from rmqcli.broker.dispatch import handles
from rmqcli.broker.request import BrokerRequest, Reply, no_group, no_topic, system_error
from rmqcli.broker.requests.topics import part
from rmqcli.broker.state.groups import GROUPS_MAX, group_name_fault
from rmqcli.broker.table_json import group_json, groups_json
from rmqcli.wire.bodies.config import (
    GroupForbidden,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
)
from rmqcli.wire.body import encode_body
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.headers.config import (
    DeleteSubscriptionGroupRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)
from rmqcli.wire.version import V4_9_0, V5_0_0, V5_3_1

if TYPE_CHECKING:
    from rmqcli.broker.state.broker import BrokerState

_GROUPS_MAX: Final = 10_000


@handles(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
def update_group(broker: BrokerState, request: BrokerRequest) -> Reply:
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200): the body replaces all settings."""
    config = request.body(SubscriptionGroupConfig)
    _check(broker, config)
    _put(broker, config)
    return Reply()


@handles(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, since=V5_3_1)
def update_groups(broker: BrokerState, request: BrokerRequest) -> Reply:
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225)."""
    configs = request.body(SubscriptionGroupList).group_config_list[:_GROUPS_MAX]
    for config in configs:
        _check(broker, config)
    for config in configs:
        _put(broker, config)
    return Reply()


def _put(broker: BrokerState, config: SubscriptionGroupConfig) -> None:
    """Store a group; its attributes are changes to those that it has (5.x)."""
    if broker.profile.has_bodies_of_5:
        known = broker.groups.get(config.group_name)
        changed = changed_attributes(
            GROUP_ATTRIBUTES,
            {} if known is None else known.attributes,
            config.attributes,
            is_new=known is None,
        )
        config = dataclasses.replace(config, attributes=changed)
    broker.groups.put(config)


def _check(broker: BrokerState, config: SubscriptionGroupConfig) -> None:
    if broker.groups.is_full and broker.groups.get(config.group_name) is None:
        raise system_error(
            f"group {config.group_name} was not created: the broker already has"
            f" {GROUPS_MAX} groups"
        )
    fault = group_name_fault(config.group_name)
    if fault is not None:
        raise system_error(f"the group name {fault}")


@handles(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
def get_groups(broker: BrokerState, request: BrokerRequest) -> Reply:
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201), from 5.3 on in parts if requested."""
    if not broker.profile.has_bodies_of_5:
        return Reply(body=encode_body(groups_json(broker)))
    groups = broker.groups.all()
    first, count = part(request, "groupSeq", "maxGroupNum", broker.groups.data_version)
    data = groups_json(broker, list(islice(groups.values(), first, first + count)))
    return Reply(
        body=encode_body(data),
        ext_fields={"totalGroupNum": str(len(groups))},
    )


@handles(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, since=V5_0_0)
def get_group(broker: BrokerState, request: BrokerRequest) -> Reply:
    """GET_SUBSCRIPTIONGROUP_CONFIG (352): creates the group if that is allowed."""
    group = request.header(GetSubscriptionGroupConfigRequestHeader).group
    config = broker.groups.find_or_create(group)
    if config is None:
        raise no_group(f"No group in this broker. group: {group}")
    return Reply(body=encode_body(group_json(broker, config)))


@handles(RequestCode.DELETE_SUBSCRIPTIONGROUP)
def delete_group(broker: BrokerState, request: BrokerRequest) -> Reply:
    """DELETE_SUBSCRIPTIONGROUP (207): succeeds for an unknown group, too."""
    header = request.header(DeleteSubscriptionGroupRequestHeader)
    profile = broker.profile
    cleans = header.clean_offset if profile.has_bodies_of_5 else header.remove_offset
    if profile.version < V4_9_0:
        cleans = False  # 4.6.0 has neither field
    is_known = broker.groups.delete(header.group_name)
    if cleans:
        broker.offsets.delete_group(header.group_name)
    elif is_known and profile.recreates_deleted_group:
        broker.groups.find_or_create(header.group_name)
    return Reply()


@handles(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, since=V5_0_0)
def update_forbidden(broker: BrokerState, request: BrokerRequest) -> Reply:
    """UPDATE_AND_GET_GROUP_FORBIDDEN (353): sets `readable` if given; returns it."""
    header = request.header(UpdateGroupForbiddenRequestHeader)
    group, topic = header.group, header.topic
    if header.readable is not None:
        if broker.groups.get(group) is None:
            raise no_group(f"No group in this broker. group: {group}")
        if broker.topics.get(topic) is None:
            raise no_topic(f"the topic is not exist {topic}")
        broker.groups.set_readable(group, topic, readable=header.readable)
    readable = not broker.groups.is_read_forbidden(group, topic)
    body = GroupForbidden(group=group, topic=topic, readable=readable)
    return Reply(body=encode_body(body))
