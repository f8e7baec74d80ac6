"""Requests to a controller, which elects the masters of brokers (5.0 and later).

Source: ControllerRequestProcessor in apache/rocketmq.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rmqcli.api.call import header_of, make_call
from rmqcli.wire.bodies.ha import BrokerReplicasInfo
from rmqcli.wire.body import decode_body
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.headers.controller import GetMetaDataResponseHeader

if TYPE_CHECKING:
    from collections.abc import Collection

    from rmqcli.api.call import Call


def get_controller_metadata() -> Call[GetMetaDataResponseHeader]:
    """Which of the controllers leads; the others do not answer for brokers."""
    return make_call(
        RequestCode.CONTROLLER_GET_METADATA_INFO,
        lambda answer: header_of(GetMetaDataResponseHeader, answer),
        what="controllers",
    )


def get_sync_state_data(broker_names: Collection[str]) -> Call[BrokerReplicasInfo]:
    """The SyncStateSet of each of the brokers. At least one name is needed."""
    return make_call(
        RequestCode.CONTROLLER_GET_SYNC_STATE_DATA,
        lambda answer: decode_body(BrokerReplicasInfo, answer.body),
        what="SyncStateSet of brokers",
        body=json.dumps(sorted(broker_names)).encode(),
    )
