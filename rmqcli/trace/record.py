"""What a client reports about a message, as values.

A producer reports that it has sent a message (`Pub`), how a transaction ended
(`EndTransaction`) and that it has recalled a delayed message (`Recall`). A consumer
reports each delivery twice: before its listener runs (`SubBefore`) and after it
(`SubAfter`); both have the same request id. Times are epoch ms by the client's clock.

Source: TraceContext, TraceBean, TraceType, MessageType, ConsumeReturnType and
LocalTransactionState in apache/rocketmq.
"""

from __future__ import annotations

import enum
from typing import Final, TypeAlias

from rmqcli.dataclass import dataclass

#: The region of brokers that state none.  MixAll.DEFAULT_TRACE_REGION_ID
DEFAULT_REGION_ID: Final = "DefaultRegion"


class TraceMessageType(enum.IntEnum):
    """The kind of a message that was sent. Members keep Java's names (MessageType)."""

    Normal_Msg = 0
    Trans_Msg_Half = 1
    Trans_msg_Commit = 2
    Delay_Msg = 3
    Order_Msg = 4


class ConsumeReturnType(enum.IntEnum):
    """How a listener's call ended. Members keep Java's names."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURNNULL = 3
    FAILED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reported:
    """The first fields of most records."""

    timestamp_ms: int
    region_id: str | None
    group: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfMessage(_Reported):
    """The first fields of records about a message that a producer has sent."""

    topic: str | None
    msg_id: str
    tags: str | None
    keys: str | None
    store_host: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pub(_OfMessage):
    """A message was sent, and a broker has answered.

    `cost_ms` is the time until the answer. With `is_success` False the message is
    stored, but not as safely as was wanted (see SendStatus). `msg_id` is the unique id;
    Java's clients put the ids of all messages of a batch there, separated by commas.
    `body_bytes` is the size that was sent, so perhaps compressed. `message_type` is
    None for a number that is not known.
    """

    body_bytes: int
    cost_ms: int
    message_type: TraceMessageType | None
    offset_msg_id: str | None
    is_success: bool
    client_host: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubBefore(_Reported):
    """A listener is about to get a message, for the `retry_times`-th time again."""

    request_id: str
    msg_id: str
    retry_times: int
    keys: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubAfter:
    """A listener has returned.

    `cost_ms` is the time of the call divided by the number of its messages.
    `return_type` is None for a number that is not known. Clients before 4.9 do not
    write `timestamp_ms` (when the listener returned) and `group`; they are None then,
    and the record of the same request that was written before the call has the group.
    """

    request_id: str
    msg_id: str
    cost_ms: int
    is_success: bool
    keys: str | None
    return_type: ConsumeReturnType | None = None
    timestamp_ms: int | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction(_OfMessage):
    """A producer has decided about a half message; from 4.8 on.

    `state` is a name of LocalTransactionState. With `is_from_check` a broker had asked.
    """

    message_type: TraceMessageType | None
    transaction_id: str | None
    state: str
    is_from_check: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall(_Reported):
    """A delayed message was recalled, or not; from 5.3 on, if that is switched on."""

    topic: str | None
    msg_id: str
    is_success: bool


TraceRecord: TypeAlias = Pub | SubBefore | SubAfter | EndTransaction | Recall
