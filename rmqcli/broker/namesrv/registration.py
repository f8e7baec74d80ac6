"""Brokers register over the wire: 103, 104, 322 and 904.

Imitated: both forms of the body, its checksum, the liveness rules of 4.x and 5.x.
Not imitated: filter servers, static topics, the state versions of controllers.

Source: `DefaultRequestProcessor`, `RegisterBrokerBody` in apache/rocketmq.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Final

from rmqcli.broker.namesrv.routes import EXPIRED_MS, BrokerId, Registration
from rmqcli.broker.namesrv.state import ORDER_NAMESPACE, NamesrvState, handles
from rmqcli.broker.request import BrokerRequest, Reply, read_body, system_error
from rmqcli.errors import BodyError
from rmqcli.model import QUEUE_NUMS_MAX
from rmqcli.wire.bodies.config import KVTable, RegisterBrokerBody, TopicConfig
from rmqcli.wire.bodies.data_version import DataVersion
from rmqcli.wire.body import decode_body, encode_body
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.headers import registration

if TYPE_CHECKING:
    from collections.abc import Mapping


_INFLATED_MAX: Final = 32 * 1024 * 1024
_TIMEOUT_MAX_MS: Final = 3_600_000
_CRC_MASK: Final = 0x7FFF_FFFF


@handles(RequestCode.REGISTER_BROKER)
def register_broker(server: NamesrvState, request: BrokerRequest) -> Reply:
    """Register a broker and its topics (103), until its connection ends."""
    header = request.header(registration.RegisterBrokerRequestHeader)
    body = bytes(request.command.body)
    if header.body_crc32 and zlib.crc32(body) & _CRC_MASK != header.body_crc32:
        raise system_error("crc32 not match")
    parse = _parse_compressed if header.compressed else _parse_plain
    version, topics = read_body(parse, request) if body else (DataVersion(), {})
    timeout_ms = header.heartbeat_timeout_millis or EXPIRED_MS
    broker = _broker_of(header)
    server.routes.register(
        Registration(
            broker=broker,
            data_version=version,
            topics=topics,
            ha_address=header.ha_server_addr,
            timeout_ms=min(max(timeout_ms, 1), _TIMEOUT_MAX_MS),
        ),
        request.now,
        request.peer,
    )
    answer = registration.RegisterBrokerResponseHeader()
    master = server.routes.master(header.broker_name)
    if header.broker_id != 0 and master is not None:
        answer = registration.RegisterBrokerResponseHeader(
            master_addr=master[0], ha_server_addr=master[1]
        )
    order = server.kv.table(ORDER_NAMESPACE)
    return Reply(
        header=answer, body=b"" if order is None else encode_body(KVTable(table=order))
    )


@handles(RequestCode.UNREGISTER_BROKER)
def unregister_broker(server: NamesrvState, request: BrokerRequest) -> Reply:
    """Forget a broker (104)."""
    header = request.header(registration.UnRegisterBrokerRequestHeader)
    server.routes.unregister(_broker_of(header))
    return Reply()


@handles(RequestCode.QUERY_DATA_VERSION)
def query_data_version(server: NamesrvState, request: BrokerRequest) -> Reply:
    """Answer whether a broker must register again (322).

    If it need not, the request counts as a heartbeat.
    """
    header = request.header(registration.QueryDataVersionRequestHeader)
    given = request.body(DataVersion)
    broker = _broker_of(header)
    known = server.routes.data_version(broker)
    if known == given:
        server.routes.touch(header.broker_name, header.broker_addr, request.now)
    return Reply(
        header=registration.QueryDataVersionResponseHeader(changed=known != given),
        body=b"" if known is None else encode_body(known),
    )


@handles(RequestCode.BROKER_HEARTBEAT)
def broker_heartbeat(server: NamesrvState, request: BrokerRequest) -> Reply:
    """Record that a broker is alive (904)."""
    header = request.header(registration.BrokerHeartbeatRequestHeader)
    server.routes.touch(header.broker_name, header.broker_addr, request.now)
    return Reply()


def _broker_of(
    header: registration.RegisterBrokerRequestHeader
    | registration.UnRegisterBrokerRequestHeader
    | registration.QueryDataVersionRequestHeader,
) -> BrokerId:
    return BrokerId(
        cluster=header.cluster_name,
        broker_name=header.broker_name,
        broker_id=header.broker_id,
        address=header.broker_addr,
    )


def _parse_plain(body: bytes) -> tuple[DataVersion, Mapping[str, TopicConfig]]:
    data = decode_body(RegisterBrokerBody, body).topic_config_serialize_wrapper
    return data.data_version or DataVersion(), data.topic_config_table


def _parse_compressed(body: bytes) -> tuple[DataVersion, Mapping[str, TopicConfig]]:
    """Read a compressed body: texts, each after its length in four bytes.

    What follows the topics is ignored.
    """
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(body, _INFLATED_MAX)
    except zlib.error as error:
        raise BodyError(f"compressed registration: {error}") from error
    if inflater.unconsumed_tail:
        raise BodyError(f"registration of more than {_INFLATED_MAX} bytes")
    reader = _Reader(data)
    version = decode_body(DataVersion, reader.text())
    topics: dict[str, TopicConfig] = {}
    for _ in range(reader.number()):
        config = _topic(reader.text().decode("utf-8", "replace"))
        topics[config.topic_name] = config
    return version, topics


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self) -> int:
        if self._at + 4 > len(self._data):
            raise BodyError(f"compressed registration ends at byte {self._at}")
        (value,) = struct.unpack_from(">i", self._data, self._at)
        self._at += 4
        return int(value)

    def text(self) -> bytes:
        length = self.number()
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise BodyError(f"compressed registration: invalid text length {length}")
        text, self._at = self._data[self._at : end], end
        return text


def _topic(text: str) -> TopicConfig:
    """Parse `name readQueueNums writeQueueNums perm filterType [attributes]`."""
    parts = text.split(" ")
    try:
        name, read, write, perm = parts[0], *map(int, parts[1:4])
    except ValueError as error:
        raise BodyError(f"topic {text[:80]!r} cannot be read") from error
    if not (0 <= read <= QUEUE_NUMS_MAX and 0 <= write <= QUEUE_NUMS_MAX):
        raise BodyError(
            f"topic {name[:80]!r} has invalid queue counts: read {read}, write {write}"
        )
    return TopicConfig(
        topic_name=name, read_queue_nums=read, write_queue_nums=write, perm=perm
    )
