"""Messages to protobuf and back.

A received body may be damaged on its way, or compressed: a proxy passes on what is
stored, says GZIP for everything that is compressed, and means zlib for what a remoting
client compressed. So the first bytes decide how it is inflated. The digest, of the
bytes as they came, is verified when a message arrives; reading the body of a message
that does not fit its digest raises DecodeError, and the rest of it can still be read.

Source: GrpcConverter in apache/rocketmq; MessageImpl, PublishingMessageImpl in
apache/rocketmq-clients.
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rmqcli.errors import DecodeError
from rmqcli.model import MessageQueue
from rmqcli.wire.compression import INFLATED_MAX
from rmqcli.wire.protobuf import definition_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.timestamp_pb2 import Timestamp

    from rmqcli.proxy.endpoints import Endpoints

#: Of a window size for `zlib`: take a gzip or a zlib header, whichever is there.
_EITHER_HEADER: Final = 32 + zlib.MAX_WBITS
_IDENTITY: Final = (int(pb.Encoding.ENCODING_UNSPECIFIED), int(pb.Encoding.IDENTITY))


class ProxyMessage:
    """A message that a proxy delivered. Treat as immutable.

    Attributes have the names of `Message`, which the remoting protocol delivers.
    `receipt_handle` is what acknowledges it; a change of the invisible time replaces
    it. `delivery_attempt` counts from 1. `endpoints` are those of the proxy that has to
    be told. `damage` says what is wrong with the body, None for nothing.
    """

    __slots__ = (
        "_properties",
        "body_bytes",
        "consume_start_ms",
        "damage",
        "endpoints",
        "message_queue",
        "raw",
        "receipt_handle",
    )

    #: when a listener got it (monotonic), set by the consumer
    consume_start_ms: int

    def __init__(
        self, raw: pb.Message, *, broker_name: str, endpoints: Endpoints
    ) -> None:
        system = raw.system_properties
        self.raw = raw
        self.endpoints = endpoints
        self.message_queue = MessageQueue(raw.topic.name, broker_name, system.queue_id)
        self.receipt_handle = system.receipt_handle
        self.body_bytes = len(raw.body)
        self.damage = damage_of(raw)
        self._properties: dict[str, str] | None = None

    @property
    def topic(self) -> str:
        """The topic it was sent to, for a retry as well."""
        return self.raw.topic.name

    @property
    def broker_name(self) -> str:
        """The broker that it was received from."""
        return self.message_queue.broker_name

    @property
    def raw_body(self) -> bytes:
        """The body as it came, possibly compressed."""
        return self.raw.body

    @property
    def body(self) -> bytes:
        """The body as its producer gave it; inflated each time it is read.

        Raises DecodeError when it is damaged, or inflates to over 16 MiB.
        """
        if self.damage is not None:
            raise DecodeError(self.damage)
        if self.raw.system_properties.body_encoding in _IDENTITY:
            return self.raw.body
        return inflate_either(self.raw.body)

    @property
    def properties(self) -> dict[str, str]:
        """The properties that its producer gave it; must not be changed."""
        if self._properties is None:
            self._properties = dict(self.raw.user_properties)
        return self._properties

    @property
    def tags(self) -> str | None:
        """Its tag."""
        system = self.raw.system_properties
        return system.tag if system.HasField("tag") else None

    @property
    def keys(self) -> str | None:
        """Its keys, separated by spaces."""
        return " ".join(self.raw.system_properties.keys) or None

    @property
    def msg_id(self) -> str:
        """The id that its producer gave it."""
        return self.raw.system_properties.message_id

    @property
    def message_group(self) -> str | None:
        """The group whose messages are delivered in order (FIFO topics)."""
        system = self.raw.system_properties
        return system.message_group if system.HasField("message_group") else None

    @property
    def queue_id(self) -> int:
        """The queue that it is stored in."""
        return self.message_queue.queue_id

    @property
    def queue_offset(self) -> int | None:
        """Its place in the queue, if the proxy says it."""
        system = self.raw.system_properties
        return system.queue_offset if system.HasField("queue_offset") else None

    @property
    def delivery_attempt(self) -> int:
        """How often it was delivered, this time included; 1 for the first time."""
        return max(1, self.raw.system_properties.delivery_attempt)

    def count_attempt(self, attempt: int) -> None:
        """Note that it is consumed again without being delivered again (FIFO)."""
        self.raw.system_properties.delivery_attempt = attempt

    @property
    def reconsume_times(self) -> int:
        """How often it was delivered before."""
        return self.delivery_attempt - 1

    @property
    def born_timestamp_ms(self) -> int:
        """When its producer made it, by the producer's clock."""
        return timestamp_ms(self.raw.system_properties.born_timestamp)

    @property
    def born_host(self) -> str:
        """The host of its producer."""
        return self.raw.system_properties.born_host

    @property
    def store_timestamp_ms(self) -> int | None:
        """When the broker stored it, if the proxy says it."""
        system = self.raw.system_properties
        if not system.HasField("store_timestamp"):
            return None
        return timestamp_ms(system.store_timestamp)

    @property
    def store_host(self) -> str:
        """The broker that stored it."""
        return self.raw.system_properties.store_host

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(topic={self.topic!r}, queue_id={self.queue_id}, "
            f"queue_offset={self.queue_offset}, msg_id={self.msg_id!r})"
        )


def damage_of(raw: pb.Message) -> str | None:
    """What is wrong with a message's body by its digest; None for nothing."""
    digest = raw.system_properties.body_digest
    expected = digest.checksum
    if not expected:
        return None
    kind = digest.type
    if kind == pb.DigestType.MD5:
        found = hashlib.md5(raw.body, usedforsecurity=False).hexdigest()
    elif kind == pb.DigestType.CRC32:
        # Java prints the number in hex without leading zeros.
        found, expected = f"{zlib.crc32(raw.body):x}", expected.lstrip("0") or "0"
    elif kind == pb.DigestType.SHA1:
        found = hashlib.sha1(raw.body, usedforsecurity=False).hexdigest()
    else:
        return None
    if found == expected.lower():
        return None
    name = pb.DigestType.Name(kind)
    return (
        f"the body of {len(raw.body)} bytes does not have the {name} it was sent with"
    )


def inflate_either(data: bytes, *, limit_bytes: int = INFLATED_MAX) -> bytes:
    """Inflate gzip or zlib, by the first bytes; what is neither is returned as it is.

    Raises DecodeError when the data is damaged, cut, or larger than `limit_bytes`.
    """
    is_zlib = (
        len(data) > 1 and data[0] & 0x0F == 8 and not (data[0] << 8 | data[1]) % 31
    )
    if not is_zlib and not data.startswith(b"\x1f\x8b"):
        return data
    stream = zlib.decompressobj(_EITHER_HEADER)
    try:
        inflated = stream.decompress(data, limit_bytes + 1)
    except zlib.error as error:
        raise DecodeError(f"body is not valid gzip or zlib: {error}") from error
    if len(inflated) > limit_bytes:
        raise DecodeError(f"compressed body inflates to more than {limit_bytes} bytes")
    if not stream.eof:
        raise DecodeError(f"compressed body of {len(data)} bytes ends too early")
    return inflated


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingProxyMessage:
    """One message to send. `message_type` is a number of `MessageType`."""

    topic: str
    body: bytes
    msg_id: str
    message_type: int
    born_timestamp_ms: int
    born_host: str = ""
    tag: str | None = None
    keys: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    message_group: str | None = None
    delivery_timestamp_ms: int | None = None
    is_compressed: bool = False
    check_delay_ms: int | None = None

    def to_protobuf(self) -> pb.Message:
        """The message that is sent."""
        message = pb.Message(body=self.body, user_properties=self.properties)
        message.topic.name = self.topic
        system = message.system_properties
        system.message_id = self.msg_id
        system.message_type = self.message_type  # type: ignore[assignment]  # its number
        system.body_encoding = (
            pb.Encoding.GZIP if self.is_compressed else pb.Encoding.IDENTITY
        )
        system.born_host = self.born_host
        system.born_timestamp.FromMilliseconds(self.born_timestamp_ms)
        if self.tag is not None:
            system.tag = self.tag
        if self.keys:
            system.keys.extend(self.keys)
        if self.message_group is not None:
            system.message_group = self.message_group
        if self.delivery_timestamp_ms is not None:
            system.delivery_timestamp.FromMilliseconds(self.delivery_timestamp_ms)
        if self.check_delay_ms is not None:
            system.orphaned_transaction_recovery_duration.FromMilliseconds(
                self.check_delay_ms
            )
        return message


def timestamp_ms(value: Timestamp) -> int:
    """A time in epoch ms; whatever number a server put there."""
    return int(value.seconds) * 1_000 + int(value.nanos) // 1_000_000
