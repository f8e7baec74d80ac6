"""The requests of mqadmin: tables, statistics, settings, resets.

A request that the imitated version does not know is answered with 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.broker import (
    admin_broker,
    admin_consume,
    admin_groups,
    admin_reset,
    admin_topics,
)
from rmqcli.broker.request import Refusal
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.version import V4_9_4, V5_0_0, V5_3_0, V5_3_1

if TYPE_CHECKING:
    from rmqcli.broker.core import Broker
    from rmqcli.broker.processors import Processor
    from rmqcli.broker.request import Reply, Request


def _since(version: int, processor: Processor) -> Processor:
    """`processor` for brokers from `version` on."""

    def answer(broker: Broker, request: Request) -> Reply | None:
        if broker.manners.version < version:
            raise Refusal(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f" request type {request.command.code} not supported",
            )
        return processor(broker, request)

    return answer


ADMIN_PROCESSORS: Final[dict[int, Processor]] = {
    RequestCode.UPDATE_AND_CREATE_TOPIC: admin_topics.update_topic,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: _since(
        V5_3_0, admin_topics.update_topics
    ),
    RequestCode.GET_ALL_TOPIC_CONFIG: admin_topics.get_topics,
    RequestCode.UPDATE_BROKER_CONFIG: admin_broker.update_config,
    RequestCode.GET_BROKER_CONFIG: admin_broker.get_config,
    RequestCode.GET_BROKER_RUNTIME_INFO: admin_broker.get_runtime_info,
    RequestCode.GET_ALL_CONSUMER_OFFSET: admin_broker.get_all_offsets,
    RequestCode.GET_ALL_DELAY_OFFSET: admin_broker.get_delay_offsets,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: admin_groups.update_group,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: admin_groups.get_groups,
    RequestCode.GET_TOPIC_STATS_INFO: admin_topics.get_topic_stats,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: admin_groups.delete_group,
    RequestCode.GET_CONSUME_STATS: admin_consume.get_consume_stats,
    RequestCode.DELETE_TOPIC_IN_BROKER: admin_topics.delete_topic,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: admin_reset.reset_offset,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _since(
        V5_3_1, admin_groups.update_groups
    ),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: admin_consume.get_groups_of_topic,
    RequestCode.QUERY_CONSUME_TIME_SPAN: admin_consume.get_consume_time_span,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: admin_topics.get_system_topics,
    RequestCode.CLONE_GROUP_OFFSET: admin_consume.clone_offsets,
    RequestCode.VIEW_BROKER_STATS_DATA: admin_broker.view_stats,
    RequestCode.GET_BROKER_CONSUME_STATS: admin_consume.get_broker_consume_stats,
    RequestCode.QUERY_CONSUME_QUEUE: admin_broker.get_entries,
    RequestCode.GET_ALL_PRODUCER_INFO: _since(V4_9_4, admin_broker.get_producers),
    RequestCode.QUERY_TOPICS_BY_CONSUMER: _since(
        V5_0_0, admin_consume.get_topics_of_group
    ),
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: _since(
        V5_0_0, admin_consume.get_subscription
    ),
    RequestCode.GET_TOPIC_CONFIG: _since(V5_0_0, admin_topics.get_topic),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: _since(V5_0_0, admin_groups.get_group),
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: _since(
        V5_0_0, admin_groups.update_forbidden
    ),
}
