"""The calls of MessagingService as values: the request, and the parser of the answer.

A function here creates an `Rpc`, and `Session` makes the call. Every list of an answer
is cut to a bound, and a status that is not OK is raised as an error of `status`.

Source: service.proto, StatusCode.md in apache/rocketmq-apis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

from google.protobuf.message import DecodeError as ProtobufError

from rmqcli.dataclass import dataclass
from rmqcli.errors import BodyError, RmqError
from rmqcli.model import MessageQueue
from rmqcli.proxy.endpoints import Endpoints, endpoints_of
from rmqcli.proxy.message import ProxyMessage, milliseconds
from rmqcli.proxy.status import OK, check, error_of
from rmqcli.units import counted
from rmqcli.wire.protobuf import definition_pb2 as pb
from rmqcli.wire.protobuf import service_pb2 as service
from rmqcli.wire.receipt_handle import changed_handle
from rmqcli.wire.subscription import SQL92, SubscriptionData

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from google.protobuf.message import Message as ProtobufMessage

T = TypeVar("T")

#: The most queues of one topic.
QUEUES_MAX: Final = 65_536
#: The most bytes of one answer that is a stream. Brokers return one message, or up to
#: some 256 KiB of them.
STREAM_BYTES_MAX: Final = 64 << 20
#: The most parts of a stream that are not messages; there are two or three.
_OTHER_PARTS_MAX: Final = 64

_EVERY_MESSAGE: Final = SubscriptionData(topic="")
_SERVICE: Final = "/apache.rocketmq.v2.MessagingService/"
TELEMETRY: Final = _SERVICE + "Telemetry"
_READABLE: Final = (int(pb.Permission.READ), int(pb.Permission.READ_WRITE))
_WRITABLE: Final = (int(pb.Permission.WRITE), int(pb.Permission.READ_WRITE))
#: Codes of stored messages, including those not flushed or replicated in time.
STORED_CODES: Final = frozenset(
    map(
        int,
        (
            pb.Code.OK,
            pb.Code.MASTER_PERSISTENCE_TIMEOUT,
            pb.Code.SLAVE_PERSISTENCE_TIMEOUT,
            pb.Code.HA_NOT_AVAILABLE,
        ),
    )
)
#: Codes at the end of a receive with or without messages.
_RECEIVED: Final = (OK, int(pb.Code.MESSAGE_NOT_FOUND))


@dataclass(slots=True, kw_only=True)
class Rpc(Generic[T]):
    """One unary call; treat as immutable. `what` names its purpose in errors.

    `parse` takes the bytes of the answer and the server's address; it raises RmqError.
    """

    method: str
    request: bytes
    parse: Callable[[bytes, str], T]
    what: str


@dataclass(slots=True, kw_only=True)
class ReceiveRpc:
    """One ReceiveMessage, whose answer is a stream. See `receive_message`.

    `polling_ms` is how long the server may hold the call when there is no message; the
    deadline of the call must be some seconds later.
    """

    request: bytes
    what: str
    broker_name: str
    polling_ms: int
    batch_size: int

    method: str = _SERVICE + "ReceiveMessage"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyQueue:
    """A queue in a route or an assignment.

    In an assignment `queue.queue_id` may be -1, for all queues of the broker. `raw` is
    the protobuf message for a receive.
    """

    queue: MessageQueue
    broker_id: int
    endpoints: Endpoints
    is_readable: bool
    is_writable: bool
    accept_message_types: frozenset[int]
    raw: pb.MessageQueue


@dataclass(slots=True, kw_only=True)
class SendEntry:
    """The proxy's result for one message, or for a batch; treat as immutable.

    `code` is OK, or one of the codes of stored messages; see `ProxyPublisher`.
    """

    code: int
    msg_id: str
    transaction_id: str
    queue_offset: int
    recall_handle: str


@dataclass(frozen=True, slots=True)
class AckFailure:
    """Why one message could not be acknowledged."""

    receipt_handle: str
    error: RmqError


@dataclass(frozen=True, slots=True)
class Received:
    """The result of a receive; it is empty when the proxy had no message in time.

    `error` is set when the stream failed after some messages; these are still valid.
    """

    messages: list[ProxyMessage]
    delivery_timestamp_ms: int | None = None
    error: RmqError | None = None


def query_route(topic: str, access_point: Endpoints) -> Rpc[tuple[ProxyQueue, ...]]:
    """The queues of a topic. Raises NotFoundError for a topic that does not exist."""
    request = service.QueryRouteRequest(endpoints=access_point.to_protobuf())
    request.topic.name = topic
    what = f"route of topic {topic}"

    def parse(data: bytes, address: str) -> tuple[ProxyQueue, ...]:
        answer = service.QueryRouteResponse.FromString(data)
        check(answer.status, what=what, address=address, topic=topic)
        return tuple(map(_queue_of, answer.message_queues[:QUEUES_MAX]))

    return _rpc("QueryRoute", request, parse, what)


def query_assignment(
    topic: str, group: str, access_point: Endpoints
) -> Rpc[tuple[ProxyQueue, ...]]:
    """The assignment of a push consumer: brokers, or queues for a FIFO group."""
    request = service.QueryAssignmentRequest(endpoints=access_point.to_protobuf())
    request.topic.name, request.group.name = topic, group
    what = f"assignment of group {group} for topic {topic}"

    def parse(data: bytes, address: str) -> tuple[ProxyQueue, ...]:
        answer = service.QueryAssignmentResponse.FromString(data)
        check(answer.status, what=what, address=address)
        return tuple(
            _queue_of(each.message_queue) for each in answer.assignments[:QUEUES_MAX]
        )

    return _rpc("QueryAssignment", request, parse, what)


def heartbeat(client_type: int, group: str | None) -> Rpc[bool]:
    """Keep the client registered; False when the proxy has lost its settings."""
    request = service.HeartbeatRequest(client_type=client_type)  # type: ignore[arg-type]  # its number
    if group is not None:
        request.group.name = group

    def parse(data: bytes, address: str) -> bool:
        answer = service.HeartbeatResponse.FromString(data)
        if answer.status.code == pb.Code.UNRECOGNIZED_CLIENT_TYPE:
            return False
        check(answer.status, what="heartbeat", address=address)
        return True

    return _rpc("Heartbeat", request, parse, "heartbeat")


def notify_client_termination(group: str | None) -> Rpc[None]:
    """Unregister the client: the proxy forgets it and its settings."""
    request = service.NotifyClientTerminationRequest()
    if group is not None:
        request.group.name = group
    return _status_only(
        "NotifyClientTermination",
        request,
        "unregistration",
        service.NotifyClientTerminationResponse,
    )


def send_message(messages: Sequence[pb.Message], what: str) -> Rpc[list[SendEntry]]:
    """Store messages of one topic; the result has an entry for each, or for a batch."""
    request = service.SendMessageRequest(messages=messages)
    count = len(messages)

    def parse(data: bytes, address: str) -> list[SendEntry]:
        answer = service.SendMessageResponse.FromString(data)
        entries = answer.entries[:count]
        if answer.status.code != OK and not entries:
            check(answer.status, what=what, address=address)
        if not entries:
            raise BodyError(f"{what}: {address} answered OK without a result")
        return [_entry_of(each, what=what, address=address) for each in entries]

    return _rpc("SendMessage", request, parse, what)


def end_transaction(
    *,
    topic: str,
    msg_id: str,
    transaction_id: str,
    is_commit: bool,
    from_check: bool,
) -> Rpc[None]:
    """Commit or roll back a half message."""
    request = service.EndTransactionRequest(
        message_id=msg_id,
        transaction_id=transaction_id,
        resolution=pb.TransactionResolution.COMMIT
        if is_commit
        else pb.TransactionResolution.ROLLBACK,
        source=pb.TransactionSource.SOURCE_SERVER_CHECK
        if from_check
        else pb.TransactionSource.SOURCE_CLIENT,
    )
    request.topic.name = topic
    what = f"end of transaction {transaction_id}"
    return _status_only("EndTransaction", request, what, service.EndTransactionResponse)


def recall_message(topic: str, recall_handle: str) -> Rpc[str]:
    """Recall a delayed message before it is delivered; the result is its id."""
    request = service.RecallMessageRequest(recall_handle=recall_handle)
    request.topic.name = topic
    what = f"recall of a message of topic {topic}"

    def parse(data: bytes, address: str) -> str:
        answer = service.RecallMessageResponse.FromString(data)
        check(answer.status, what=what, address=address)
        return answer.message_id

    return _rpc("RecallMessage", request, parse, what)


def filter_of(subscription: SubscriptionData) -> pb.FilterExpression:
    """The filter of a group's subscription: tags `a || b`, `*`, or SQL92."""
    is_sql = subscription.expression_type == SQL92
    return pb.FilterExpression(
        type=pb.FilterType.SQL if is_sql else pb.FilterType.TAG,
        expression=subscription.sub_string,
    )


def receive_message(
    queue: ProxyQueue,
    *,
    group: str,
    batch_size: int,
    polling_ms: int,
    subscription: SubscriptionData = _EVERY_MESSAGE,
    invisible_ms: int | None = None,
    auto_renew: bool = False,
    attempt_id: str | None = None,
) -> ReceiveRpc:
    """Receive up to `batch_size` messages; the call is held for up to `polling_ms`.

    The messages are invisible to other consumers for `invisible_ms`, from 10 s to 12 h.
    With `auto_renew` and without `invisible_ms`, the proxy chooses this time and renews
    it.
    """
    request = service.ReceiveMessageRequest(
        message_queue=queue.raw, batch_size=batch_size, auto_renew=auto_renew
    )
    request.group.name = group
    request.filter_expression.CopyFrom(filter_of(subscription))
    request.long_polling_timeout.FromMilliseconds(polling_ms)
    if invisible_ms is not None:
        request.invisible_duration.FromMilliseconds(invisible_ms)
    if attempt_id is not None:
        request.attempt_id = attempt_id
    return ReceiveRpc(
        request=request.SerializeToString(),
        what=f"receive from {queue.queue.topic}@{queue.queue.broker_name}",
        broker_name=queue.queue.broker_name,
        polling_ms=polling_ms,
        batch_size=batch_size,
    )


class _StreamBound:
    """Bounds the parts of an answer that is a stream; a server could send many."""

    def __init__(self, what: str, batch_size: int) -> None:
        self._what = what
        self._batch_size = batch_size
        self._messages = self._others = self._bytes = 0

    def admit(self, data: bytes, *, is_message: bool) -> None:
        """Count a part. Raises BodyError for one too many, after which no more is read.

        Messages that are refused so are delivered again when their lease is over.
        """
        self._bytes += len(data)
        if is_message:
            self._messages += 1
        else:
            self._others += 1
        if self._messages > self._batch_size:
            reason = (
                f"has more than the {counted(self._batch_size, 'message')} that"
                " were requested"
            )
        elif self._bytes > STREAM_BYTES_MAX:
            reason = f"is larger than {STREAM_BYTES_MAX} bytes"
        elif self._others > _OTHER_PARTS_MAX:
            reason = f"has more than {_OTHER_PARTS_MAX} parts besides its messages"
        else:
            return
        raise BodyError(f"{self._what}: the answer {reason}; the rest is refused")


class ReceiveParser:
    """Parses the stream of one receive, part by part. Its memory is bounded."""

    def __init__(self, rpc: ReceiveRpc, endpoints: Endpoints) -> None:
        self._rpc = rpc
        self._endpoints = endpoints
        self._bound = _StreamBound(rpc.what, rpc.batch_size)
        self._status: pb.Status | None = None
        self._delivery_timestamp_ms: int | None = None
        self.messages: list[ProxyMessage] = []

    @property
    def has_begun(self) -> bool:
        """Whether a part of the answer is here."""
        return self._status is not None or bool(self.messages)

    def feed(self, data: bytes) -> None:
        """Parse one part. Raises BodyError when it is invalid."""
        try:
            part = service.ReceiveMessageResponse.FromString(data)
        except ProtobufError as error:
            raise BodyError(f"{self._rpc.what}: the answer cannot be read") from error
        kind = part.WhichOneof("content")
        self._bound.admit(data, is_message=kind == "message")
        if kind == "message":
            message = ProxyMessage(
                part.message,
                broker_name=self._rpc.broker_name,
                endpoints=self._endpoints,
            )
            self.messages.append(message)
        elif kind == "status":
            self._status = part.status
        elif kind == "delivery_timestamp":
            self._delivery_timestamp_ms = milliseconds(part.delivery_timestamp)

    def end(self, failure: RmqError | None = None) -> Received:
        """The received messages. Raises the stream's error if there are none."""
        status = self._status
        if failure is None and status is not None and status.code not in _RECEIVED:
            address = str(self._endpoints)
            failure = error_of(status, what=self._rpc.what, address=address)
        if failure is not None and not self.messages:
            raise failure
        return Received(self.messages, self._delivery_timestamp_ms, failure)


def ack_messages(
    topic: str, group: str, messages: Sequence[tuple[str, str]]
) -> Rpc[list[AckFailure]]:
    """Acknowledge messages of one topic, as (message id, receipt handle).

    The result lists the messages that were not acknowledged, and why. The call raises
    an error when it failed as a whole.
    """
    request = service.AckMessageRequest(
        entries=[
            service.AckMessageEntry(message_id=msg_id, receipt_handle=handle)
            for msg_id, handle in messages
        ]
    )
    request.topic.name, request.group.name = topic, group
    what = f"ack of {counted(len(messages), 'message')} of topic {topic}"
    count = len(messages)

    def parse(data: bytes, address: str) -> list[AckFailure]:
        answer = service.AckMessageResponse.FromString(data)
        entries = answer.entries[:count]
        if not entries:
            check(answer.status, what=what, address=address)
        return [
            AckFailure(
                each.receipt_handle,
                error_of(each.status, what=what, address=address),
            )
            for each in entries
            if each.status.code != OK
        ]

    return _rpc("AckMessage", request, parse, what)


def change_invisible_duration(
    *,
    topic: str,
    group: str,
    msg_id: str,
    receipt_handle: str,
    invisible_ms: int,
) -> Rpc[str]:
    """Make a message invisible for `invisible_ms` from now on, from 0 to 12 h.

    The result is the new receipt handle. The old handle becomes useless, although an
    ack with it is answered with OK.
    """
    request = service.ChangeInvisibleDurationRequest(
        receipt_handle=receipt_handle, message_id=msg_id
    )
    request.topic.name, request.group.name = topic, group
    request.invisible_duration.FromMilliseconds(invisible_ms)
    what = f"change of the invisible time of message {msg_id}"

    def parse(data: bytes, address: str) -> str:
        answer = service.ChangeInvisibleDurationResponse.FromString(data)
        check(answer.status, what=what, address=address)
        if not answer.receipt_handle:
            raise BodyError(f"{what}: {address} answered without a receipt handle")
        return changed_handle(answer.receipt_handle)

    return _rpc("ChangeInvisibleDuration", request, parse, what)


def forward_to_dead_letter_queue(
    *,
    topic: str,
    group: str,
    msg_id: str,
    receipt_handle: str,
    delivery_attempt: int,
    max_delivery_attempts: int,
) -> Rpc[None]:
    """Forward a message to the group's dead-letter queue. A repeated call copies it."""
    request = service.ForwardMessageToDeadLetterQueueRequest(
        receipt_handle=receipt_handle,
        message_id=msg_id,
        delivery_attempt=delivery_attempt,
        max_delivery_attempts=max_delivery_attempts,
    )
    request.topic.name, request.group.name = topic, group
    return _status_only(
        "ForwardMessageToDeadLetterQueue",
        request,
        f"forwarding of message {msg_id} to the dead-letter queue of {group}",
        service.ForwardMessageToDeadLetterQueueResponse,
    )


def _queue_of(raw: pb.MessageQueue) -> ProxyQueue:
    permission = int(raw.permission)
    return ProxyQueue(
        queue=MessageQueue(raw.topic.name, raw.broker.name, raw.id),
        broker_id=raw.broker.id,
        endpoints=endpoints_of(raw.broker.endpoints),
        is_readable=permission in _READABLE,
        is_writable=permission in _WRITABLE,
        accept_message_types=frozenset(map(int, raw.accept_message_types)),
        raw=raw,
    )


def _entry_of(raw: service.SendResultEntry, *, what: str, address: str) -> SendEntry:
    if raw.status.code not in STORED_CODES:
        raise error_of(raw.status, what=what, address=address)
    return SendEntry(
        code=int(raw.status.code),
        msg_id=raw.message_id,
        transaction_id=raw.transaction_id,
        queue_offset=raw.offset,
        recall_handle=raw.recall_handle,
    )


def _rpc(
    method: str,
    request: ProtobufMessage,
    parse: Callable[[bytes, str], T],
    what: str,
) -> Rpc[T]:
    def parse_bytes(data: bytes, address: str) -> T:
        try:
            return parse(data, address)
        except ProtobufError as error:
            raise BodyError(
                f"{what}: the answer of {address} cannot be read"
            ) from error

    return Rpc(
        method=_SERVICE + method,
        request=request.SerializeToString(),
        parse=parse_bytes,
        what=what,
    )


def _status_only(
    method: str, request: ProtobufMessage, what: str, answer_type: type[ProtobufMessage]
) -> Rpc[None]:
    def parse(data: bytes, address: str) -> None:
        answer = answer_type.FromString(data)
        check(answer.status, what=what, address=address)  # type: ignore[attr-defined]  # all of them have one

    return _rpc(method, request, parse, what)


def keeps_batches_apart() -> Rpc[bool]:
    """Whether the proxy is new enough to store a batch unchanged.

    Proxies of 5.3 give all messages of a batch the first one's id, tag, keys and
    properties. They lack a call that was added together with the fix; this makes that
    call, without a topic, so that it has no effect. Raises UnsupportedError for an old
    proxy.
    """
    return _rpc(
        "SyncLiteSubscription",
        service.SyncLiteSubscriptionRequest(),
        lambda _data, _address: True,
        "batches",
    )
