"""PullMessage, UpdateOffset, GetOffset and QueryOffset, which are off by default.

RocketMQ's proxies up to 5.5.0 answer these calls with UNIMPLEMENTED. If they are
enabled, they behave as the .proto file describes. The stream of a pull has the status,
then the messages, then the next offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from rmqcli.broker.proxy.checks import (
    check_group,
    check_topic,
    duration_ms,
    timestamp_ms,
)
from rmqcli.broker.proxy.message import grpc_message
from rmqcli.broker.proxy.sessions import subscription_of
from rmqcli.broker.proxy.status import ProxyError, ok, refused, status, status_of
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.header import Header, from_ext_fields
from rmqcli.wire.headers.offset import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rmqcli.wire.headers.pull import PullMessageRequestHeader
from rmqcli.wire.message.decode import DecodeFailure, decode_messages
from rmqcli.wire.protobuf.definition_pb2 import Code, QueryOffsetPolicy
from rmqcli.wire.protobuf.service_pb2 import (
    GetOffsetResponse,
    PullMessageResponse,
    QueryOffsetResponse,
    UpdateOffsetResponse,
)
from rmqcli.wire.pull_answer import PULL_OK_CODES, PullStatus, parse_pull_answer
from rmqcli.wire.subscription import TAG

if TYPE_CHECKING:
    from rmqcli.broker.proxy.brokers import BrokerLinks
    from rmqcli.broker.proxy.caller import Caller
    from rmqcli.broker.proxy.routes import Routes
    from rmqcli.wire.message.record import StoredMessage
    from rmqcli.wire.protobuf.definition_pb2 import MessageQueue
    from rmqcli.wire.protobuf.service_pb2 import (
        GetOffsetRequest,
        PullMessageRequest,
        QueryOffsetRequest,
        UpdateOffsetRequest,
    )

HeaderT = TypeVar("HeaderT", bound=Header)

_SUSPEND: Final = 2  # PullSysFlag.FLAG_SUSPEND
_SUBSCRIPTION: Final = 4  # PullSysFlag.FLAG_SUBSCRIPTION
_POLLING_MS_MAX: Final = 20_000
_MARGIN_MS: Final = 10_000
_BATCH_MAX: Final = 32


class PullWriter(Protocol):
    """The response stream of one pull."""

    async def write(self, message: PullMessageResponse) -> None:
        """Send one part; wait until the client has room for it."""


class Offsets:
    """Serves the four calls, in the proxy's event loop."""

    def __init__(self, links: BrokerLinks, routes: Routes) -> None:
        self._links = links
        self._routes = routes

    async def pull_message(
        self, _caller: Caller, request: PullMessageRequest, writer: PullWriter
    ) -> None:
        """PullMessage: write the whole answer."""
        try:
            found, next_offset = await self._pull(request)
        except Exception as error:  # noqa: BLE001  # becomes the answer's status
            await writer.write(PullMessageResponse(status=status_of(error)))
            return
        code = Code.OK if found else Code.MESSAGE_NOT_FOUND
        await writer.write(PullMessageResponse(status=status(code)))
        topic = request.message_queue.topic.name
        for stored in found:
            message = grpc_message(stored, topic=topic)
            await writer.write(PullMessageResponse(message=message))
        await writer.write(PullMessageResponse(next_offset=next_offset))

    async def _pull(
        self, request: PullMessageRequest
    ) -> tuple[list[StoredMessage], int]:
        check_group(request.group.name)
        queue = request.message_queue
        address = await self._address(queue)
        subscription = subscription_of(queue.topic.name, request.filter_expression)
        polling_ms = duration_ms(request.long_polling_timeout)
        polling_ms = min(max(polling_ms, 0), _POLLING_MS_MAX)
        header = PullMessageRequestHeader(
            consumer_group=request.group.name,
            topic=queue.topic.name,
            queue_id=queue.id,
            queue_offset=request.offset,
            max_msg_nums=min(max(request.batch_size, 1), _BATCH_MAX),
            sys_flag=_SUBSCRIPTION | (_SUSPEND if polling_ms else 0),
            commit_offset=0,
            suspend_timeout_millis=polling_ms,
            sub_version=0,
            subscription=subscription.sub_string,
            expression_type=subscription.expression_type or TAG,
        )
        answer = await self._links.ask(
            address,
            RequestCode.PULL_MESSAGE,
            header,
            timeout_ms=polling_ms + _MARGIN_MS,
        )
        if answer.code not in PULL_OK_CODES:
            raise refused(answer)
        pulled = parse_pull_answer(answer)
        if pulled.status is PullStatus.OFFSET_ILLEGAL:
            raise ProxyError(
                Code.ILLEGAL_OFFSET,
                f"offset {request.offset} is not in {pulled.min_offset}.."
                f"{pulled.max_offset}",
            )
        found = decode_messages(pulled.body)
        if any(isinstance(each, DecodeFailure) for each in found):
            raise ProxyError(Code.MESSAGE_CORRUPTED, "a stored message is unreadable")
        messages = [each for each in found if not isinstance(each, DecodeFailure)]
        return messages, pulled.next_begin_offset

    async def update_offset(
        self, _caller: Caller, request: UpdateOffsetRequest
    ) -> UpdateOffsetResponse:
        """UpdateOffset: commit an offset of a group."""
        check_group(request.group.name)
        queue = request.message_queue
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=request.group.name,
            topic=queue.topic.name,
            queue_id=queue.id,
            commit_offset=request.offset,
        )
        answer = await self._links.ask(
            await self._address(queue), RequestCode.UPDATE_CONSUMER_OFFSET, header
        )
        if answer.code != ResponseCode.SUCCESS:
            raise refused(answer)
        return UpdateOffsetResponse(status=ok())

    async def get_offset(
        self, _caller: Caller, request: GetOffsetRequest
    ) -> GetOffsetResponse:
        """GetOffset: a group's committed offset, or OFFSET_NOT_FOUND without one."""
        check_group(request.group.name)
        queue = request.message_queue
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=request.group.name,
            topic=queue.topic.name,
            queue_id=queue.id,
            set_zero_if_not_found=False,
        )
        answer = await self._links.ask(
            await self._address(queue), RequestCode.QUERY_CONSUMER_OFFSET, header
        )
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            raise ProxyError(Code.OFFSET_NOT_FOUND, answer.remark or "no offset")
        if answer.code != ResponseCode.SUCCESS:
            raise refused(answer)
        found = from_ext_fields(QueryConsumerOffsetResponseHeader, answer.ext_fields)
        return GetOffsetResponse(status=ok(), offset=found.offset)

    async def query_offset(
        self, _caller: Caller, request: QueryOffsetRequest
    ) -> QueryOffsetResponse:
        """QueryOffset: the offset of a queue's beginning, of its end, or at a time."""
        queue = request.message_queue
        address = await self._address(queue)
        topic = queue.topic.name
        policy = request.query_offset_policy
        if policy == QueryOffsetPolicy.BEGINNING:
            low = await self._ask(
                address,
                RequestCode.GET_MIN_OFFSET,
                GetMinOffsetRequestHeader(topic=topic, queue_id=queue.id),
                GetMinOffsetResponseHeader,
            )
            offset = low.offset
        elif policy == QueryOffsetPolicy.END:
            high = await self._ask(
                address,
                RequestCode.GET_MAX_OFFSET,
                GetMaxOffsetRequestHeader(topic=topic, queue_id=queue.id),
                GetMaxOffsetResponseHeader,
            )
            offset = high.offset
        else:
            time_ms = timestamp_ms(request.timestamp)
            if time_ms is None or not request.HasField("timestamp"):
                raise ProxyError(Code.BAD_REQUEST, "timestamp is missing or invalid")
            near = await self._ask(
                address,
                RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
                SearchOffsetRequestHeader(
                    topic=topic, queue_id=queue.id, timestamp=time_ms
                ),
                SearchOffsetResponseHeader,
            )
            offset = near.offset
        return QueryOffsetResponse(status=ok(), offset=offset)

    async def _ask(
        self, address: str, code: int, header: Header, cls: type[HeaderT]
    ) -> HeaderT:
        answer = await self._links.ask(address, code, header)
        if answer.code != ResponseCode.SUCCESS:
            raise refused(answer)
        return from_ext_fields(cls, answer.ext_fields)

    async def _address(self, queue: MessageQueue) -> str:
        """Return the address of a queue's broker. Raises ProxyError.

        The topic must be legal and known.
        """
        check_topic(queue.topic.name)
        await self._routes.route(queue.topic.name)
        address = await self._routes.address_of(queue.broker.name)
        if address is None:
            raise ProxyError(
                Code.BAD_REQUEST, f"cannot find broker {queue.broker.name[:100]}"
            )
        return address
