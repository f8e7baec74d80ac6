"""Messages by commit log offset or by key: 33 and 12.

Imitated: the bytes at an offset are returned unchecked; keys are looked up in the hash
index, so that messages with another key of the same hash may be among the results
(clients compare the keys); the newest messages are returned, sorted from old to new.
Not imitated: the place of the last update of the index; the answer has the end of the
log instead. Answers over 16 MiB, which clients do not read, are refused.

Source: `QueryMessageProcessor`, `DefaultMessageStore.queryMessage` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.broker.dispatch import handles
from rmqcli.broker.request import BrokerRequest, Refusal, Reply, system_error
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.headers import store

if TYPE_CHECKING:
    from rmqcli.broker.state.broker import BrokerState

_UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
_DEFAULT_QUERY_MAX_NUM: Final = 32
_BODY_BYTES_MAX: Final = 16 * 1024 * 1024 - 64 * 1024  # clients refuse larger frames


@handles(RequestCode.VIEW_MESSAGE_BY_ID)
def view_message(broker: BrokerState, request: BrokerRequest) -> Reply:
    """The message at a commit log offset (33)."""
    offset = request.header(store.ViewMessageRequestHeader).offset
    low, high = broker.store.log_bounds()
    record = broker.store.message_at(offset) if low <= offset < high else None
    if record is None:
        raise system_error(f"can not find message by the offset, {offset}")
    return Reply(body=record)


@handles(RequestCode.QUERY_MESSAGE)
def query_message(broker: BrokerState, request: BrokerRequest) -> Reply:
    """The messages with a key (12)."""
    header = request.header(store.QueryMessageRequestHeader)
    count_max = min(header.max_num, broker.settings.max_msgs_num_batch)
    if request.command.ext_fields.get(_UNIQUE_KEY_QUERY) == "true":
        count_max = _DEFAULT_QUERY_MAX_NUM
    offsets: list[int] = []
    if count_max > 0:
        offsets = broker.store.query_index(
            header.topic,
            header.key,
            begin_ms=header.begin_timestamp,
            end_ms=header.end_timestamp,
            count_max=count_max,
        )
    _, end = broker.store.log_bounds()
    header_found = store.QueryMessageResponseHeader(
        index_last_update_timestamp=request.now.epoch_ms if end else 0,
        index_last_update_phyoffset=end,
    )
    body = bytearray()
    for offset in sorted(offsets):
        record = broker.store.message_at(offset)
        if record is not None:
            body += record
        if len(body) > _BODY_BYTES_MAX:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"{len(offsets)} messages with the key do not fit into one answer",
                header=header_found,
            )
    if not body:
        raise Refusal(
            ResponseCode.QUERY_NOT_FOUND,
            "can not find message, maybe time range not correct",
            header=header_found,
        )
    return Reply(header=header_found, body=bytes(body))
