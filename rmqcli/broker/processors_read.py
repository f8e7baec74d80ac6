"""Who answers the requests that read: pulls, offsets, messages.

Source: `BrokerController.registerProcessor`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.broker.offset_requests import (
    query_consumer_offset,
    update_consumer_offset,
)
from rmqcli.broker.pull_message import pull_message
from rmqcli.broker.queue_requests import (
    get_earliest_store_time,
    get_max_offset,
    get_min_offset,
    search_offset,
)
from rmqcli.broker.view_requests import query_message, view_message
from rmqcli.wire.codes import RequestCode

if TYPE_CHECKING:
    from rmqcli.broker.processors import Processor

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
