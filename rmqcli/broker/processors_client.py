"""Who answers requests about clients: membership, locks, connections, relays.

Source: `BrokerController.registerProcessor`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.broker.connection_requests import (
    check_client_config,
    get_consumer_connections,
    get_producer_connections,
)
from rmqcli.broker.heartbeat_requests import (
    get_consumer_list,
    heart_beat,
    unregister_client,
)
from rmqcli.broker.lock_requests import lock_batch, unlock_batch
from rmqcli.broker.relay_requests import (
    consume_directly,
    get_consumer_status,
    get_running_info,
)
from rmqcli.wire.codes import RequestCode

if TYPE_CHECKING:
    from rmqcli.broker.processors import Processor

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
