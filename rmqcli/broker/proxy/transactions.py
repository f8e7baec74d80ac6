"""Transactions: finding the half message that a client ends, and transaction checks.

A broker identifies a half message by two offsets, a client by a transaction id. The
proxy remembers the offsets for 30 s after the message was sent, and for 30 s after each
check. A client that decides later has to wait for a check.

Imitated: the heartbeat that makes brokers send the checks of a topic to the proxy, for
topics of type TRANSACTION, on a connection of its own; each topic is its own producer
group. RocketMQ sends the
first such heartbeat up to 20 s later; here it is sent when a producer sends its
settings.

Source: `EndTransactionActivity`, `ClusterTransactionService`,
`TransactionDataManager` and `ProxyClientRemotingProcessor` in apache/rocketmq.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from rmqcli.broker.proxy.activity import Activity, Shared
from rmqcli.broker.proxy.checks import check_topic
from rmqcli.broker.proxy.message import PRODUCER_GROUP, grpc_message
from rmqcli.broker.proxy.status import ProxyError, internal_error, ok
from rmqcli.dataclass import dataclass
from rmqcli.errors import RmqError
from rmqcli.log import get_logger
from rmqcli.wire.bodies.heartbeat import HeartbeatData, ProducerData
from rmqcli.wire.body import encode_body
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.header import from_ext_fields
from rmqcli.wire.headers.client import CheckTransactionStateRequestHeader
from rmqcli.wire.headers.send import EndTransactionRequestHeader
from rmqcli.wire.message.decode import DecodeFailure, decode_messages
from rmqcli.wire.message.system_flag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from rmqcli.wire.protobuf import definition_pb2 as pb
from rmqcli.wire.protobuf import service_pb2 as service

if TYPE_CHECKING:
    from rmqcli.broker.proxy.brokers import BrokerLinks
    from rmqcli.broker.proxy.caller import Caller
    from rmqcli.wire.command import RemotingCommand

logger = get_logger(__name__)

_CLIENT_ID: Final = "rmq-proxy-producer-client"
_KEPT_MS: Final = 30_000  # transactionDataExpireMillis
_KEPT_PER_ID_MAX: Final = 15  # transactionDataMaxNum
_KEPT_MAX: Final = 100_000
_HEARTBEAT_MS: Final = 20_000  # transactionHeartbeatPeriodSecond
_TYPE: Final = "TRANSACTION"


@dataclass(frozen=True, slots=True)
class Half:
    """A half message: its broker, its place there, and when it is forgotten."""

    address: str
    queue_offset: int
    commit_log_offset: int
    until_ms: int


class ProxyTransactions(Activity):
    """The half messages that clients may end, for the proxy's event loop."""

    def __init__(self, shared: Shared, producers_links: BrokerLinks) -> None:
        super().__init__(shared)
        self._producers_links = producers_links
        #: (topic, transaction id) -> half messages, the newest last
        self._halves: dict[tuple[str, str], deque[Half]] = {}
        #: topics of type TRANSACTION that have had a producer
        self._topics: set[str] = set()
        self._next_heartbeat_ms = 0

    def add(
        self,
        topic: str,
        transaction_id: str,
        *,
        address: str,
        queue_offset: int,
        commit_log_offset: int,
    ) -> None:
        """Remember a half message that was just stored or is being checked."""
        if len(self._halves) >= _KEPT_MAX:
            # Forget the oldest one: its client has to wait for a check.
            del self._halves[next(iter(self._halves))]
        until_ms = self._clock.epoch_ms() + _KEPT_MS
        known = self._halves.setdefault(
            (topic, transaction_id), deque(maxlen=_KEPT_PER_ID_MAX)
        )
        known.append(Half(address, queue_offset, commit_log_offset, until_ms))

    async def end_transaction(
        self, _caller: Caller, request: service.EndTransactionRequest
    ) -> service.EndTransactionResponse:
        """EndTransaction: send a one-way request to the broker.

        So the status OK does not mean that the broker has ended the transaction.
        """
        topic = request.topic.name
        check_topic(topic)
        if not request.transaction_id.strip():
            raise ProxyError(
                pb.Code.INVALID_TRANSACTION_ID, "transaction id cannot be empty"
            )
        half = self._take(topic, request.transaction_id)
        if half is None:
            raise internal_error("cannot found transaction data")
        ends = {
            pb.TransactionResolution.COMMIT: TRANSACTION_COMMIT,
            pb.TransactionResolution.ROLLBACK: TRANSACTION_ROLLBACK,
        }
        header = EndTransactionRequestHeader(
            topic=topic,
            producer_group=topic,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.commit_log_offset,
            commit_or_rollback=ends.get(request.resolution, 0),
            from_transaction_check=(
                request.source == pb.TransactionSource.SOURCE_SERVER_CHECK
            ),
            msg_id=request.message_id,
            transaction_id=request.transaction_id,
        )
        await self._links.tell(half.address, RequestCode.END_TRANSACTION, header)
        return service.EndTransactionResponse(status=ok())

    def _take(self, topic: str, transaction_id: str) -> Half | None:
        known = self._halves.get((topic, transaction_id))
        now_ms = self._clock.epoch_ms()
        found = None
        while known and found is None:
            half = known.pop()
            if half.until_ms >= now_ms:
                found = half
        if known is not None and not known:
            del self._halves[topic, transaction_id]
        return found

    # --- checks ---

    def checked(self, address: str, command: RemotingCommand) -> None:
        """Pass a broker's transaction check to one of the topic's producers.

        Without a producer that has a stream the check is dropped; the broker repeats
        it.
        """
        try:
            header = from_ext_fields(
                CheckTransactionStateRequestHeader, command.ext_fields
            )
            message = decode_messages(command.body)[0]
        except (RmqError, IndexError) as error:
            logger.warning("could not decode transaction check: %s", error)
            return
        if isinstance(message, DecodeFailure):
            logger.warning("could not decode transaction check: %s", message)
            return
        group = message.properties.get(PRODUCER_GROUP, "")
        client = self._clients.producer_of(group)
        transaction_id = header.transaction_id or ""
        if client is None or client.stream is None:
            logger.debug(
                "transaction check dropped group=%s: no connected producer", group
            )
            return
        self.add(
            group,
            transaction_id,
            address=address,
            queue_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset,
        )
        client.stream.push(
            service.TelemetryCommand(
                recover_orphaned_transaction_command=service.RecoverOrphanedTransactionCommand(
                    message=grpc_message(message, topic=message.topic),
                    transaction_id=transaction_id,
                )
            )
        )

    async def subscribe(self, topics: list[str]) -> None:
        """Have brokers send the transaction checks of these topics to the proxy."""
        new = [
            topic
            for topic in topics
            if topic not in self._topics
            and await self._routes.message_type(topic) == _TYPE
        ]
        if new:
            self._topics.update(new)
            await self._send_heartbeat()

    async def run_due(self) -> None:
        """Send the periodic heartbeat, and forget expired half messages."""
        now_ms = self._clock.epoch_ms()
        for key, known in list(self._halves.items()):
            while known and known[0].until_ms < now_ms:
                known.popleft()
            if not known:
                del self._halves[key]
        if now_ms >= self._next_heartbeat_ms:
            self._topics.intersection_update(self._clients.topics_of_producers())
            await self._send_heartbeat()

    async def _send_heartbeat(self) -> None:
        self._next_heartbeat_ms = self._clock.epoch_ms() + _HEARTBEAT_MS
        if not self._topics:
            return
        data = HeartbeatData(
            client_id=_CLIENT_ID,
            producers=tuple(
                ProducerData(group_name=topic) for topic in sorted(self._topics)
            ),
        )
        body = encode_body(data)
        try:
            addresses = (await self._routes.brokers()).values()
        except ProxyError as error:
            logger.warning("transaction heartbeat not sent: %s", error.message)
            return
        for address in addresses:
            try:
                await self._producers_links.tell(
                    address, RequestCode.HEART_BEAT, body=body
                )
            except ProxyError as error:
                logger.warning("heartbeat lost broker=%s: %s", address, error.message)
