"""Requests that look up single messages.

Source: QueryMessageProcessor of the broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.api.call import make_call
from rmqcli.wire.bodies.broker import QueryConsumeQueueResponseBody
from rmqcli.wire.body import decode_body
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.headers import store as headers

if TYPE_CHECKING:
    from rmqcli.api.call import Call

#: A broker returns no more messages, or fewer (MessageStoreConfig.maxMsgsNumBatch).
QUERY_MESSAGE_MAX = 64
#: The end of the year 9999, for a search of the index without an end: a broker's clock
#: may be ahead, or have been. An index in RocksDB takes the largest number for now.
QUERY_END_MS = 253_402_300_799_999


def view_message_by_id(commit_log_offset: int, *, topic: str | None) -> Call[bytes]:
    """The stored message at an offset of the broker's commit log, as bytes.

    The broker does not check the offset: verify that the answer is a message, and the
    one that was meant. Since 5.3 `topic` is used for access control only.
    """
    return make_call(
        RequestCode.VIEW_MESSAGE_BY_ID,
        lambda answer: answer.body,
        what=f"message at commit log offset {commit_log_offset}",
        header=headers.ViewMessageRequestHeader(offset=commit_log_offset, topic=topic),
    )


def query_consume_queue(
    topic: str, queue_id: int, index: int, *, count: int
) -> Call[QueryConsumeQueueResponseBody]:
    """Entries of a consume queue from offset `index` on, whatever its permissions.

    An entry says where in the commit log the message is.
    """
    return make_call(
        RequestCode.QUERY_CONSUME_QUEUE,
        lambda answer: decode_body(QueryConsumeQueueResponseBody, answer.body),
        what=f"entries of {topic}:{queue_id}",
        header=headers.QueryConsumeQueueRequestHeader(
            topic=topic, queue_id=queue_id, index=index, count=count
        ),
    )


def query_message(
    topic: str,
    key: str,
    *,
    begin_ms: int = 0,
    end_ms: int = QUERY_END_MS,
    max_num: int = QUERY_MESSAGE_MAX,
) -> Call[bytes]:
    """Stored messages back to back whose key has the hash of `key`; b"" for none.

    The index has only hashes and seconds: check topic, key and time of each message
    again.
    """
    return make_call(
        RequestCode.QUERY_MESSAGE,
        lambda answer: b"" if answer.code else answer.body,
        what=f"messages of topic {topic} with key {key}",
        header=headers.QueryMessageRequestHeader(
            topic=topic,
            key=key,
            max_num=min(max_num, QUERY_MESSAGE_MAX),
            begin_timestamp=begin_ms,
            end_timestamp=end_ms,
        ),
        also_ok=(ResponseCode.QUERY_NOT_FOUND,),
    )
