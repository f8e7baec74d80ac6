"""A producer's calls to a proxy, as tasks: routes, sends, transactions, recalls.

A proxy chooses the queue itself; messages of one message group go to one queue. A send
is retried only when it is certain that nothing was stored: the connection failed, or
the proxy was too busy. The proxy's settings say how often and after which pause. A send
that gets no answer, from the proxy or from the broker behind it, raises
SendUnknownError.

The same tasks run in the caller's thread for `send` and in the I/O thread for
`submit`.

Source: ProducerImpl in apache/rocketmq-clients, SendMessageActivity in apache/rocketmq.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from rmqcli import tasks
from rmqcli.api.calls.send import SendStatus
from rmqcli.clock import Deadline
from rmqcli.errors import (
    BrokerError,
    BusyError,
    ConfigError,
    ConnectError,
    DeadlineError,
    DisconnectedError,
    NotFoundError,
    RmqError,
    TransportError,
    UnsupportedError,
)
from rmqcli.producer.backend import (
    SendResult,
    no_writable_queue,
    out_of_time,
    unknown_send,
    what_is_sent,
)
from rmqcli.proxy import rpc as calls
from rmqcli.proxy.status import TEXT_MAX
from rmqcli.wire.ids import java_string_hash
from rmqcli.wire.protobuf import definition_pb2 as pb

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from rmqcli.proxy.endpoints import Endpoints
    from rmqcli.proxy.message import OutgoingProxyMessage
    from rmqcli.proxy.rpc import ProxyQueue, SendEntry
    from rmqcli.proxy.session import Session
    from rmqcli.proxy.via import Via

#: Codes of stored messages -> the status of the remoting protocol.
_STATUS_OF_CODE: Final = {
    int(pb.Code.OK): SendStatus.SEND_OK,
    int(pb.Code.MASTER_PERSISTENCE_TIMEOUT): SendStatus.FLUSH_DISK_TIMEOUT,
    int(pb.Code.SLAVE_PERSISTENCE_TIMEOUT): SendStatus.FLUSH_SLAVE_TIMEOUT,
    int(pb.Code.HA_NOT_AVAILABLE): SendStatus.SLAVE_NOT_AVAILABLE,
}
#: Codes of a batch that is refused when one message in it is. The last one is that of
#: every refusal of a broker for which proxies have no code.
_SPLIT_CODES: Final = frozenset(
    map(
        int,
        (
            pb.Code.ILLEGAL_MESSAGE_TAG,
            pb.Code.ILLEGAL_MESSAGE_KEY,
            pb.Code.ILLEGAL_MESSAGE_GROUP,
            pb.Code.ILLEGAL_MESSAGE_PROPERTY_KEY,
            pb.Code.ILLEGAL_MESSAGE_ID,
            pb.Code.ILLEGAL_DELIVERY_TIME,
            pb.Code.ILLEGAL_LITE_TOPIC,
            pb.Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            pb.Code.MESSAGE_CORRUPTED,
            pb.Code.PAYLOAD_TOO_LARGE,
            pb.Code.MESSAGE_BODY_TOO_LARGE,
            pb.Code.MESSAGE_BODY_EMPTY,
            pb.Code.REQUEST_HEADER_FIELDS_TOO_LARGE,
            pb.Code.MESSAGE_PROPERTIES_TOO_LARGE,
            pb.Code.INTERNAL_SERVER_ERROR,
        ),
    )
)
_TRANSACTION: Final = int(pb.MessageType.TRANSACTION)
_WITHOUT_PLACE: Final = (int(pb.MessageType.DELAY), _TRANSACTION)


class ProxyPublisher:
    """The tasks of one producer. They may run in any thread."""

    def __init__(self, session: Session, *, rng: random.Random) -> None:
        self._session = session
        # Start at a random queue, so that short runs do not all use the first broker.
        self._turns = itertools.count(rng.randrange(1 << 16))
        #: proxy -> whether it stores batches unchanged, as far as known
        self._batches: dict[Endpoints, bool] = {}

    def queues(self, topic: str, via: Via) -> tasks.Task[list[ProxyQueue]]:
        """Return the writable queues of a topic.

        Raises NotFoundError for a topic that does not exist, and DeniedError for a
        topic without a writable queue.
        """
        self._session.add_topic(topic)
        found = yield from self._session.route(topic, via)
        queues = [each for each in found if each.is_writable]
        if not queues:
            code = int(pb.Code.FORBIDDEN)
            raise no_writable_queue(topic, code=code, name="FORBIDDEN")
        return queues

    def send(
        self,
        messages: Sequence[OutgoingProxyMessage],
        *,
        timeout_ms: int,
        via: Via,
    ) -> tasks.Task[list[tuple[SendResult, Endpoints]]]:
        """Store messages of one topic with one call; return a result for each.

        `timeout_ms` bounds all attempts. See the module.
        """
        first = messages[0]
        msg_ids = tuple([each.msg_id for each in messages])
        what = what_is_sent(first.topic, msg_ids)
        deadline = Deadline(self._session.clock, timeout_ms)
        raw = [each.to_protobuf() for each in messages]
        policy = self._session.settings.retry
        failed: set[Endpoints] = set()
        for attempt in itertools.count(1):
            left_ms = deadline.left_ms()
            if not left_ms:
                raise out_of_time(first.topic, msg_ids, timeout_ms)
            try:
                queues = yield from self.queues(first.topic, via)
                queue = self._pick(queues, first.message_group, failed)
                if len(messages) > 1:
                    yield from self._need_batches(queue.endpoints, via)
            except (ConnectError, BusyError) as error:
                failure: RmqError = error
            else:
                call = calls.send_message(raw, what)
                try:
                    entries = yield via.call(queue.endpoints, call, left_ms)
                except (ConnectError, BusyError) as error:
                    failure = error
                    failed.add(queue.endpoints)
                except NotFoundError:
                    self._session.forget_route(first.topic)
                    raise
                except RmqError as error:
                    if not error.may_be_done:
                        raise
                    lost = _unanswered(error, address=str(queue.endpoints))
                    raise unknown_send(first.topic, msg_ids, lost) from lost
                else:
                    return [
                        (each, queue.endpoints)
                        for each in _results(messages, queue, entries)
                    ]
            if attempt >= policy.max_attempts:
                raise failure
            delay_ms = policy.delay_ms(attempt)
            if delay_ms >= deadline.left_ms():
                raise failure
            yield tasks.Sleep(delay_ms)
        raise AssertionError("unreachable")

    def can_batch(self, topic: str, via: Via) -> tasks.Task[bool]:
        """Return whether every proxy of a topic stores batches unchanged."""
        queues = yield from self.queues(topic, via)
        try:
            for endpoints in {each.endpoints for each in queues}:
                yield from self._need_batches(endpoints, via)
        except UnsupportedError:
            return False
        return True

    def recall(self, topic: str, recall_handle: str, via: Via) -> tasks.Task[str]:
        """Recall a delayed message; return its id."""
        call = calls.recall_message(topic, recall_handle)
        msg_id: str = yield via.call(self._session.access_point, call)
        return msg_id

    def _need_batches(self, endpoints: Endpoints, via: Via) -> tasks.Task[None]:
        known = self._batches.get(endpoints)
        if known is None:
            try:
                yield via.call(endpoints, calls.keeps_batches_apart())
                known = True
            except UnsupportedError:
                known = False
            self._batches[endpoints] = known
        if not known:
            raise UnsupportedError(
                f"the proxy {endpoints} is too old for batches: it would give all"
                " messages the first one's id, tag, keys and properties",
                hint="send them one by one, with submit",
            )

    def _pick(
        self,
        queues: list[ProxyQueue],
        message_group: str | None,
        failed: set[Endpoints],
    ) -> ProxyQueue:
        """The next queue in turn, if possible at a proxy that is not in `failed`."""
        if message_group is not None:
            return queues[abs(java_string_hash(message_group)) % len(queues)]
        for _ in queues:
            queue = queues[next(self._turns) % len(queues)]
            if queue.endpoints not in failed:
                return queue
        return queues[next(self._turns) % len(queues)]


def _results(
    messages: Sequence[OutgoingProxyMessage],
    queue: ProxyQueue,
    entries: list[SendEntry],
) -> list[SendResult]:
    results = []
    for index, message in enumerate(messages):
        # For a batch a proxy returns only the entry of the first message; the messages
        # are stored next to each other.
        entry = entries[index] if index < len(entries) else entries[0]
        offset = entry.queue_offset
        if len(entries) < len(messages):
            offset = entries[0].queue_offset + index
        results.append(
            SendResult(
                msg_id=message.msg_id,
                status=_STATUS_OF_CODE[entry.code],
                queue=None,
                queue_offset=None if message.message_type in _WITHOUT_PLACE else offset,
                offset_msg_id=None,
                transaction_id=_transaction_id(message, entry),
                recall_handle=entry.recall_handle or None,
            )
        )
    return results


def _transaction_id(message: OutgoingProxyMessage, entry: SendEntry) -> str | None:
    """The transaction's id. A proxy returns one for every message, even without one."""
    is_half = message.message_type == _TRANSACTION
    return entry.transaction_id or None if is_half else None


def _unanswered(error: RmqError, *, address: str) -> TransportError:
    """Return the error of a call after which it is unknown what is stored."""
    if isinstance(error, TransportError):
        return error
    is_late = isinstance(error, BrokerError) and error.code == pb.Code.PROXY_TIMEOUT
    kind = DeadlineError if is_late else DisconnectedError
    return kind(error.message[:TEXT_MAX], address=address)


def may_be_one_message(error: RmqError) -> bool:
    """Whether a batch was refused, certainly as a whole, perhaps for one message."""
    return (
        isinstance(error, BrokerError)
        and error.code in _SPLIT_CODES
        and not error.may_be_done
    )


def check_size(
    body: bytes, *, max_bytes: int, limits: str = "proxy allows", where: str = ""
) -> None:
    """Raise ConfigError for a body that no proxy accepts, or that `limits` forbid.

    The message of the error begins with `where`.
    """
    if not body:
        raise ConfigError(f"{where}the message's body is empty, which proxies refuse")
    if len(body) > max_bytes:
        raise ConfigError(
            f"{where}a body of {len(body)} bytes is larger than the {max_bytes} that"
            f" the {limits}"
        )
