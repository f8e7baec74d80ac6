"""Convert messages to protobuf and back.

A received body may be damaged or compressed. A proxy passes on the stored body and says
GZIP for every compressed body, although remoting clients compress with zlib, LZ4 or
zstd. So the first bytes of the body decide how it is inflated. The digest, which is
that of the received bytes, is verified when a message arrives. If it does not match,
reading the body raises DecodeError; the rest of the message can still be read.

Source: GrpcConverter in apache/rocketmq; MessageImpl, PublishingMessageImpl in
apache/rocketmq-clients.
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import field
from typing import TYPE_CHECKING, Final

from rmqcli.dataclass import dataclass
from rmqcli.errors import DecodeError
from rmqcli.model import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX, MessageQueue
from rmqcli.wire.compression import INFLATED_MAX, inflate
from rmqcli.wire.message.system_flag import COMPRESSED, CompressionType, compressed_with
from rmqcli.wire.protobuf import definition_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.duration_pb2 import Duration
    from google.protobuf.timestamp_pb2 import Timestamp

    from rmqcli.proxy.endpoints import Endpoints

#: The magic numbers of frames, which begin with them.
_KIND_OF_MAGIC: Final = {
    b"\x04\x22\x4d\x18": CompressionType.LZ4,
    b"\x28\xb5\x2f\xfd": CompressionType.ZSTD,
}
_IDENTITY: Final = pb.Encoding.IDENTITY
_NOT_COMPRESSED: Final = (pb.Encoding.ENCODING_UNSPECIFIED, pb.Encoding.IDENTITY)


class ProxyMessage:
    """A message that a proxy delivered. Treat as immutable.

    It has the attributes of `rmqcli.Message`. `receipt_handle` is needed to acknowledge
    the message; a change of the invisible time replaces it. `delivery_attempt` counts
    from 1. `endpoints` are those of the proxy to which acks must be sent. `damage` says
    what is wrong with the body; None when it is intact.
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

    #: when a listener received it (monotonic), set by the consumer
    consume_start_ms: int

    def __init__(
        self, raw: pb.Message, *, broker_name: str, endpoints: Endpoints
    ) -> None:
        system = raw.system_properties
        self.raw = raw
        self.endpoints = endpoints
        topic = full_name(raw.topic)
        self.message_queue = MessageQueue(topic, broker_name, system.queue_id)
        self.receipt_handle = system.receipt_handle
        self.body_bytes = len(raw.body)
        self.damage = damage_of(raw)
        self._properties: dict[str, str] | None = None

    @property
    def topic(self) -> str:
        """The topic to which it was sent, also for a retry."""
        return self.message_queue.topic

    @property
    def broker_name(self) -> str:
        """The broker from which it was received."""
        return self.message_queue.broker_name

    @property
    def raw_body(self) -> bytes:
        """The body as it was received, possibly compressed."""
        return self.raw.body

    @property
    def body(self) -> bytes:
        """The body that the producer sent. It is inflated each time it is read.

        Raises DecodeError when it is damaged, or inflates to more than 16 MiB.
        """
        if self.damage is not None:
            raise DecodeError(self.damage)
        if self.raw.system_properties.body_encoding in _NOT_COMPRESSED:
            return self.raw.body
        return inflate_any(self.raw.body)

    @property
    def properties(self) -> dict[str, str]:
        """The properties that the producer set; must not be changed."""
        if self._properties is None:
            self._properties = dict(self.raw.user_properties)
        return self._properties

    @property
    def tags(self) -> str | None:
        """The tag of the message."""
        system = self.raw.system_properties
        return system.tag if system.HasField("tag") else None

    @property
    def keys(self) -> str | None:
        """The keys of the message, separated by spaces."""
        return " ".join(self.raw.system_properties.keys) or None

    @property
    def msg_id(self) -> str:
        """The id that the producer gave the message."""
        return self.raw.system_properties.message_id

    @property
    def message_group(self) -> str | None:
        """The message group, whose messages are delivered in order (FIFO topics)."""
        system = self.raw.system_properties
        return system.message_group if system.HasField("message_group") else None

    @property
    def priority(self) -> int | None:
        """Which messages come first, the highest or the lowest (PRIORITY topics)."""
        system = self.raw.system_properties
        return system.priority if system.HasField("priority") else None

    @property
    def queue_id(self) -> int:
        """The id of the queue in which it is stored."""
        return self.message_queue.queue_id

    @property
    def queue_offset(self) -> int | None:
        """The offset in its queue; None if the proxy does not tell it."""
        system = self.raw.system_properties
        return system.queue_offset if system.HasField("queue_offset") else None

    @property
    def delivery_attempt(self) -> int:
        """How often it was delivered, this time included; 1 for the first time."""
        return max(1, self.raw.system_properties.delivery_attempt)

    def count_attempt(self, attempt: int) -> None:
        """Set the attempt when it is consumed again without a new delivery (FIFO)."""
        self.raw.system_properties.delivery_attempt = attempt

    @property
    def reconsume_times(self) -> int:
        """How often it was delivered before."""
        return self.delivery_attempt - 1

    @property
    def born_timestamp_ms(self) -> int:
        """When the producer created it, by the producer's clock."""
        return milliseconds(self.raw.system_properties.born_timestamp)

    @property
    def born_host(self) -> str:
        """The host of its producer."""
        return self.raw.system_properties.born_host

    @property
    def store_timestamp_ms(self) -> int | None:
        """When the broker stored it; None if the proxy does not tell it."""
        system = self.raw.system_properties
        if not system.HasField("store_timestamp"):
            return None
        return milliseconds(system.store_timestamp)

    @property
    def store_host(self) -> str:
        """The broker that stored it."""
        return self.raw.system_properties.store_host

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(topic={self.topic!r}, queue_id={self.queue_id}, "
            f"queue_offset={self.queue_offset}, msg_id={self.msg_id!r})"
        )


def full_name(resource: pb.Resource) -> str:
    """Return a topic's name as brokers know it.

    A proxy reads the name NS1%orders of a message's topic as the topic orders in the
    namespace NS1. In requests it takes no notice of the namespace: an ack of orders
    would be one of another topic.
    Source: GrpcConverter.buildResource, NamespaceUtil.
    """
    namespace, name = resource.resource_namespace, resource.name
    if not namespace:
        return name
    for prefix in (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX):
        if name.startswith(prefix):
            return f"{prefix}{namespace}%{name.removeprefix(prefix)}"
    return f"{namespace}%{name}"


def damage_of(raw: pb.Message) -> str | None:
    """Say how a message's body differs from its digest; None when it matches."""
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
    return f"the body of {len(raw.body)} bytes does not match its {name}"


def inflate_any(data: bytes, *, limit_bytes: int = INFLATED_MAX) -> bytes:
    """Inflate gzip, zlib, LZ4 or zstd data, as its first bytes say.

    Other data is returned unchanged. Raises DecodeError when the data is damaged,
    truncated, or inflates to more than `limit_bytes`.
    """
    kind = _KIND_OF_MAGIC.get(data[:4])
    if kind is not None:
        return inflate(data, compressed_with(kind), limit_bytes=limit_bytes)
    is_zlib = (
        len(data) > 1 and data[0] & 0x0F == 8 and not (data[0] << 8 | data[1]) % 31
    )
    if not is_zlib and not data.startswith(b"\x1f\x8b"):
        return data
    return inflate(data, COMPRESSED, limit_bytes=limit_bytes)


@dataclass(slots=True, kw_only=True)
class OutgoingProxyMessage:
    """One message to send; treat as immutable.

    `message_type` is a number of `MessageType`.
    """

    topic: str
    body: bytes
    msg_id: str
    message_type: int
    born_timestamp_ms: int
    born_host: str = ""
    tag: str | None = None
    keys: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    message_group: str | None = None
    priority: int | None = None
    delivery_timestamp_ms: int | None = None

    def to_protobuf(self) -> pb.Message:
        """The message that is sent."""
        message = pb.Message(body=self.body)
        message.topic.name = self.topic
        if self.properties:
            message.user_properties.update(self.properties)
        system = message.system_properties
        system.message_id = self.msg_id
        system.message_type = self.message_type  # type: ignore[assignment]  # its number
        system.body_encoding = _IDENTITY
        system.born_host = self.born_host
        system.born_timestamp.FromMilliseconds(self.born_timestamp_ms)
        if self.tag is not None:
            system.tag = self.tag
        if self.keys:
            system.keys.extend(self.keys)
        if self.message_group is not None:
            system.message_group = self.message_group
        if self.priority is not None:
            system.priority = self.priority
        if self.delivery_timestamp_ms is not None:
            system.delivery_timestamp.FromMilliseconds(self.delivery_timestamp_ms)
        return message


def milliseconds(value: Timestamp | Duration) -> int:
    """A time in epoch ms, or a duration in ms, for any value that a server may send."""
    return int(value.seconds) * 1_000 + int(value.nanos) // 1_000_000
