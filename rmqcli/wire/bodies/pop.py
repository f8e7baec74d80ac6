"""Bodies of POP: which queues a client consumes and how, and batches of acks (5.0).

Source: QueryAssignmentRequestBody, QueryAssignmentResponseBody, BatchAck,
MessageQueueAssignment, MessageRequestMode, SetMessageRequestModeRequestBody,
MessageRequestModeSerializeWrapper, BatchAckMessageRequestBody,
BitSetSerializerDeserializer in apache/rocketmq.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import field
from typing import TYPE_CHECKING, Final

from rmqcli.errors import BodyError
from rmqcli.model import MessageQueue
from rmqcli.wire.body import Body, enum_field, to_text
from rmqcli.wire.fields import declared, wire_field

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqcli.wire.fastjson import JsonValue

MODE_PULL: Final = "PULL"
MODE_POP: Final = "POP"

#: Longest text of a bit set: 65,536 offsets, four times the number that a broker passes
#: over for one batch.
_BIT_SET_CHARACTERS_MAX: Final = 10924


@declared
class QueryAssignmentRequestBody(Body):
    """The body of QUERY_ASSIGNMENT (400).

    `message_model`: CLUSTERING or BROADCASTING, None when unknown. `strategy_name`: an
    allocation strategy such as AVG.
    """

    topic: str | None = None
    consumer_group: str | None = None
    client_id: str | None = None
    strategy_name: str | None = None
    message_model: str | None = enum_field("BROADCASTING", "CLUSTERING")


@declared
class MessageQueueAssignment(Body):
    """One queue that a client consumes; queue id -1 means all queues of a broker.

    `mode` is PULL or POP; an absent mode is PULL, an unknown one None.
    """

    message_queue: MessageQueue | None = None
    mode: str | None = enum_field(MODE_PULL, MODE_POP, default=MODE_PULL)
    attachments: dict[str, str] | None = None


@declared
class QueryAssignmentResponseBody(Body):
    """The answer to QUERY_ASSIGNMENT; None if the broker does not know the queues."""

    message_queue_assignments: list[MessageQueueAssignment] | None = None


@declared
class SetMessageRequestModeRequestBody(Body):
    """The body of SET_MESSAGE_REQUEST_MODE (401): how a group consumes a topic.

    With `pop_share_queue_num` N, a client in POP mode shares the queues of the N
    clients after it; 0 shares all queues among all clients.
    """

    topic: str | None = None
    consumer_group: str | None = None
    mode: str | None = enum_field(MODE_PULL, MODE_POP, default=MODE_PULL)
    pop_share_queue_num: int = 0


@declared
class MessageRequestModeSerializeWrapper(Body):
    """The file messageRequestMode.json: topic -> group -> mode."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequestBody]] = (
        field(default_factory=dict)
    )


def _read_bit_set(value: JsonValue, name: str) -> frozenset[int] | None:
    text = to_text(value, name)
    if len(text) > _BIT_SET_CHARACTERS_MAX:
        raise BodyError(f"{name} is a bit set of {len(text)} characters: too long")
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise BodyError(f"{name} is not base64: {text[:40]!r}") from None
    bits = int.from_bytes(data, "little")
    return frozenset(at for at in range(bits.bit_length()) if bits >> at & 1)


def _write_bit_set(positions: Iterable[int]) -> str:
    # BitSet.toByteArray: little-endian, without zero bytes at the end.
    bits = 0
    for at in positions:
        bits |= 1 << at
    data = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
    return base64.b64encode(data).decode()


@declared
class BatchAck(Body):
    """The acknowledged messages of one batch of a POP answer.

    `bit_set` holds their offsets minus `start_offset`. `retry` is the topic type of
    `receipt_handle.py`. Times are ms.
    """

    consumer_group: str | None = wire_field("c", default=None, also="consumerGroup")
    topic: str | None = wire_field("t", default=None, also="topic")
    retry: str | None = wire_field("r", default=None, also="retry")
    start_offset: int = wire_field("so", default=0, also="startOffset")
    queue_id: int = wire_field("q", default=0, also="queueId")
    revive_queue_id: int = wire_field("rq", default=0, also="reviveQueueId")
    pop_time: int = wire_field("pt", default=0, also="popTime")
    invisible_time: int = wire_field("it", default=0, also="invisibleTime")
    bit_set: frozenset[int] | None = wire_field(
        "b", default=None, also="bitSet", read=_read_bit_set, write=_write_bit_set
    )


@declared
class BatchAckMessageRequestBody(Body):
    """The body of BATCH_ACK_MESSAGE (200151, 5.1.3)."""

    broker_name: str | None = None
    acks: list[BatchAck] | None = None


@declared
class PopCheckPoint(Body):
    """The record of delivered messages in a broker's revive topic (tag ck).

    The messages have the offsets `start_offset` plus each of `queue_offset_diff` in a
    queue of `topic`. They become visible again at `pop_time` plus `invisible_time`
    unless they are acknowledged.
    """

    start_offset: int = wire_field("so", default=0, also="startOffset")
    pop_time: int = wire_field("pt", default=0, also="popTime")
    invisible_time: int = wire_field("it", default=0, also="invisibleTime")
    bit_map: int = wire_field("bm", default=0, also="bitMap")
    num: int = wire_field("n", default=0, also="num")
    queue_id: int = wire_field("q", default=0, also="queueId")
    topic: str | None = wire_field("t", default=None, also="topic")
    consumer_group: str | None = wire_field("c", default=None, also="cId")
    revive_offset: int = wire_field("ro", default=0, also="reviveOffset")
    queue_offset_diff: list[int] | None = wire_field(
        "d", default=None, also="queueOffsetDiff"
    )
    broker_name: str | None = wire_field("bn", default=None, also="brokerName")
    revive_time: int = 0
    suspend: bool = wire_field("sp", default=False, also="suspend")


@declared
class AckMsg(Body):
    """An acknowledged message, or several, in a broker's revive topic (ack, bAck).

    For several messages `ack_offset_list` is set, and `ack_offset` is -1.
    """

    ack_offset: int = wire_field("ao", default=-1, also="ackOffset")
    ack_offset_list: list[int] | None = wire_field(
        "aol", default=None, also="ackOffsetList"
    )
    start_offset: int = wire_field("so", default=0, also="startOffset")
    consumer_group: str | None = wire_field("c", default=None, also="consumerGroup")
    topic: str | None = wire_field("t", default=None, also="topic")
    queue_id: int = wire_field("q", default=0, also="queueId")
    pop_time: int = wire_field("pt", default=0, also="popTime")
    broker_name: str | None = wire_field("bn", default=None, also="brokerName")


@declared
class OrderInfo(Body):
    """The messages of a queue that orderly POP has delivered. Times are epoch ms.

    An entry of consumerOrderInfo.json. `offset_list` has the first offset, and for each
    other message the distance from it. `commit_offset_bit` has a bit for each
    acknowledged message, as a signed 64-bit number. The keys of the two tables are
    queue offsets.
    """

    pop_time: int = 0
    invisible_time: int | None = wire_field("i", default=None)
    offset_list: list[int] | None = wire_field("o", default=None)
    offset_next_visible_time: dict[int, int] | None = wire_field("ot", default=None)
    offset_consumed_count: dict[int, int] | None = wire_field("oc", default=None)
    last_consume_timestamp: int = wire_field("l", default=0)
    commit_offset_bit: int = wire_field("cm", default=0)
    attempt_id: str | None = wire_field("a", default=None)


@declared
class ConsumerOrderInfo(Body):
    """The file consumerOrderInfo.json: `topic@group` -> queue id -> OrderInfo."""

    table: dict[str, dict[int, OrderInfo]] = field(default_factory=dict)
