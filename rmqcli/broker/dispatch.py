"""The requests of mqadmin: tables, statistics, settings, resets.

A request that the imitated version does not know is answered with 3.

Who answers requests about clients: membership, locks, connections, relays.

Source: `BrokerController.registerProcessor`.

Who answers the requests that read: pulls, offsets, messages.

Source: `BrokerController.registerProcessor`.

Who answers the requests of producers, and of consumers that send back.

Source: `BrokerController.registerProcessor`.

Which function answers which request code.

A processor takes the broker and the request and returns a `Reply`; None when it will be
answered later. It raises `Refusal` for every other code than success. Each area keeps
its own table.

Source: `BrokerController.registerProcessor`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from rmqcli.broker.request import Refusal, Reply
from rmqcli.broker.requests import broker_info as admin_broker
from rmqcli.broker.requests import consume_stats as admin_consume
from rmqcli.broker.requests import groups as admin_groups
from rmqcli.broker.requests import reset_offset as admin_reset
from rmqcli.broker.requests import topics as admin_topics
from rmqcli.broker.requests.connections import (
    check_client_config,
    get_consumer_connections,
    get_producer_connections,
)
from rmqcli.broker.requests.end_transaction import end_transaction
from rmqcli.broker.requests.heartbeat import (
    get_consumer_list,
    heart_beat,
    unregister_client,
)
from rmqcli.broker.requests.lock import lock_batch, unlock_batch
from rmqcli.broker.requests.offsets import (
    query_consumer_offset,
    update_consumer_offset,
)
from rmqcli.broker.requests.pull_message import pull_message
from rmqcli.broker.requests.queues import (
    get_earliest_store_time,
    get_max_offset,
    get_min_offset,
    search_offset,
)
from rmqcli.broker.requests.relay import (
    consume_directly,
    get_consumer_status,
    get_running_info,
)
from rmqcli.broker.requests.reply_message import send_reply
from rmqcli.broker.requests.send_back import send_back
from rmqcli.broker.requests.send_batch import send_batch
from rmqcli.broker.requests.send_message import ANSWER_FIELDS, send_message
from rmqcli.broker.requests.view_message import query_message, view_message
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.headers.send import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from rmqcli.wire.version import V4_9_4, V5_0_0, V5_3_0, V5_3_1

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.broker.core import Broker
    from rmqcli.broker.request import Request
    from rmqcli.broker.requests.send_check import SendHeader

    Processor: TypeAlias = Callable[[Broker, Request], Reply | None]


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


CLIENT_PROCESSORS: dict[int, Processor] = {
    RequestCode.HEART_BEAT: heart_beat,
    RequestCode.UNREGISTER_CLIENT: unregister_client,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: get_consumer_list,
    RequestCode.LOCK_BATCH_MQ: lock_batch,
    RequestCode.UNLOCK_BATCH_MQ: unlock_batch,
    RequestCode.CHECK_CLIENT_CONFIG: check_client_config,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: get_consumer_connections,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: get_producer_connections,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: get_consumer_status,
    RequestCode.GET_CONSUMER_RUNNING_INFO: get_running_info,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: consume_directly,
}


READ_PROCESSORS: dict[int, Processor] = {
    RequestCode.PULL_MESSAGE: pull_message,
    RequestCode.LITE_PULL_MESSAGE: pull_message,
    RequestCode.QUERY_CONSUMER_OFFSET: query_consumer_offset,
    RequestCode.UPDATE_CONSUMER_OFFSET: update_consumer_offset,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: search_offset,
    RequestCode.GET_MAX_OFFSET: get_max_offset,
    RequestCode.GET_MIN_OFFSET: get_min_offset,
    RequestCode.GET_EARLIEST_MSG_STORETIME: get_earliest_store_time,
    RequestCode.VIEW_MESSAGE_BY_ID: view_message,
    RequestCode.QUERY_MESSAGE: query_message,
}


def send(broker: Broker, request: Request) -> Reply:
    """Store a message or a batch. Refusals say the region too, as RocketMQ's do."""
    header: SendHeader
    try:
        if request.command.code == RequestCode.SEND_MESSAGE:
            header = request.header(SendMessageRequestHeader)
        else:
            header = request.header(SendMessageRequestHeaderV2)
        if header.batch:
            return send_batch(broker, request, header)
        return send_message(broker, request, header)
    except Refusal as refusal:
        refusal.ext_fields = {**ANSWER_FIELDS, **refusal.ext_fields}
        raise


def recall(broker: Broker, _request: Request) -> Reply:
    """Not imitated: 5.x refuses it too unless recallMessageEnable is set."""
    if not broker.manners.has_timer:
        return Reply(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            f" request type {int(RequestCode.RECALL_MESSAGE)} not supported",
        )
    raise Refusal(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")


SEND_PROCESSORS: dict[int, Processor] = {
    RequestCode.SEND_MESSAGE: send,
    RequestCode.SEND_MESSAGE_V2: send,
    RequestCode.SEND_BATCH_MESSAGE: send,
    RequestCode.SEND_REPLY_MESSAGE: send_reply,
    RequestCode.SEND_REPLY_MESSAGE_V2: send_reply,
    RequestCode.CONSUMER_SEND_MSG_BACK: send_back,
    RequestCode.END_TRANSACTION: end_transaction,
    RequestCode.RECALL_MESSAGE: recall,
}


PROCESSORS: dict[int, Processor] = {
    **READ_PROCESSORS,
    **SEND_PROCESSORS,
    **CLIENT_PROCESSORS,
    **ADMIN_PROCESSORS,
}
