"""Which requests the embedded broker and name server answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmqcli.broker.dispatch import HandlerTable
from rmqcli.broker.handlers import BROKER_REQUESTS
from rmqcli.broker.namesrv.handlers import NAMESRV_REQUESTS
from rmqcli.wire.codes import RequestCode

if TYPE_CHECKING:
    from rmqcli.broker.state.broker import BrokerState

BROKER = {
    10: "SEND_MESSAGE",
    11: "PULL_MESSAGE",
    12: "QUERY_MESSAGE",
    14: "QUERY_CONSUMER_OFFSET",
    15: "UPDATE_CONSUMER_OFFSET",
    17: "UPDATE_AND_CREATE_TOPIC",
    18: "UPDATE_AND_CREATE_TOPIC_LIST",
    21: "GET_ALL_TOPIC_CONFIG",
    25: "UPDATE_BROKER_CONFIG",
    26: "GET_BROKER_CONFIG",
    28: "GET_BROKER_RUNTIME_INFO",
    29: "SEARCH_OFFSET_BY_TIMESTAMP",
    30: "GET_MAX_OFFSET",
    31: "GET_MIN_OFFSET",
    32: "GET_EARLIEST_MSG_STORETIME",
    33: "VIEW_MESSAGE_BY_ID",
    34: "HEART_BEAT",
    35: "UNREGISTER_CLIENT",
    36: "CONSUMER_SEND_MSG_BACK",
    37: "END_TRANSACTION",
    38: "GET_CONSUMER_LIST_BY_GROUP",
    41: "LOCK_BATCH_MQ",
    42: "UNLOCK_BATCH_MQ",
    43: "GET_ALL_CONSUMER_OFFSET",
    45: "GET_ALL_DELAY_OFFSET",
    46: "CHECK_CLIENT_CONFIG",
    200: "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP",
    201: "GET_ALL_SUBSCRIPTIONGROUP_CONFIG",
    202: "GET_TOPIC_STATS_INFO",
    203: "GET_CONSUMER_CONNECTION_LIST",
    204: "GET_PRODUCER_CONNECTION_LIST",
    207: "DELETE_SUBSCRIPTIONGROUP",
    208: "GET_CONSUME_STATS",
    215: "DELETE_TOPIC_IN_BROKER",
    222: "INVOKE_BROKER_TO_RESET_OFFSET",
    223: "INVOKE_BROKER_TO_GET_CONSUMER_STATUS",
    225: "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST",
    300: "QUERY_TOPIC_CONSUME_BY_WHO",
    303: "QUERY_CONSUME_TIME_SPAN",
    305: "GET_SYSTEM_TOPIC_LIST_FROM_BROKER",
    307: "GET_CONSUMER_RUNNING_INFO",
    309: "CONSUME_MESSAGE_DIRECTLY",
    310: "SEND_MESSAGE_V2",
    314: "CLONE_GROUP_OFFSET",
    315: "VIEW_BROKER_STATS_DATA",
    317: "GET_BROKER_CONSUME_STATS",
    320: "SEND_BATCH_MESSAGE",
    321: "QUERY_CONSUME_QUEUE",
    324: "SEND_REPLY_MESSAGE",
    325: "SEND_REPLY_MESSAGE_V2",
    328: "GET_ALL_PRODUCER_INFO",
    343: "QUERY_TOPICS_BY_CONSUMER",
    345: "QUERY_SUBSCRIPTION_BY_CONSUMER",
    351: "GET_TOPIC_CONFIG",
    352: "GET_SUBSCRIPTIONGROUP_CONFIG",
    353: "UPDATE_AND_GET_GROUP_FORBIDDEN",
    361: "LITE_PULL_MESSAGE",
    370: "RECALL_MESSAGE",
    400: "QUERY_ASSIGNMENT",
    401: "SET_MESSAGE_REQUEST_MODE",
    907: "GET_BROKER_HA_STATUS",
    200050: "POP_MESSAGE",
    200051: "ACK_MESSAGE",
    200053: "CHANGE_MESSAGE_INVISIBLETIME",
    200054: "NOTIFICATION",
    200055: "POLLING_INFO",
    200070: "POP_LITE_MESSAGE",
    200071: "LITE_SUBSCRIPTION_CTL",
    200151: "BATCH_ACK_MESSAGE",
}
NAMESRV = {
    100: "PUT_KV_CONFIG",
    101: "GET_KV_CONFIG",
    102: "DELETE_KV_CONFIG",
    103: "REGISTER_BROKER",
    104: "UNREGISTER_BROKER",
    105: "GET_ROUTEINFO_BY_TOPIC",
    106: "GET_BROKER_CLUSTER_INFO",
    205: "WIPE_WRITE_PERM_OF_BROKER",
    206: "GET_ALL_TOPIC_LIST_FROM_NAMESERVER",
    216: "DELETE_TOPIC_IN_NAMESRV",
    217: "REGISTER_TOPIC_IN_NAMESRV",
    219: "GET_KVLIST_BY_NAMESPACE",
    224: "GET_TOPICS_BY_CLUSTER",
    304: "GET_SYSTEM_TOPIC_LIST_FROM_NS",
    319: "GET_NAMESRV_CONFIG",
    322: "QUERY_DATA_VERSION",
    327: "ADD_WRITE_PERM_OF_BROKER",
    904: "BROKER_HEARTBEAT",
}


@pytest.mark.parametrize(
    ("table", "expected"), [(BROKER_REQUESTS, BROKER), (NAMESRV_REQUESTS, NAMESRV)]
)
def test_each_answered_request_code_is_listed_here(table, expected):
    """A file of handlers that `handlers` does not import would be missing here."""
    assert {code: RequestCode(code).name for code in table.codes()} == expected


def test_a_request_code_has_one_handler():
    table: HandlerTable[BrokerState] = HandlerTable()
    table.handles(34)(lambda state, request: None)
    with pytest.raises(ValueError, match="request code 34 has two handlers"):
        table.handles(34)(lambda state, request: None)
