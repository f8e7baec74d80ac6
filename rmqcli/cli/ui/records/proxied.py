"""Messages that came through a proxy (gRPC), as records.

The protocol carries neither the place in the commit log nor the flags, nor the size as
stored: these fields are None. This module does not import gRPC.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.wire.message.properties import PRIORITY, SHARDING_KEY

if TYPE_CHECKING:
    from rmqcli.proxy.message import ProxyMessage


class ProxyRecord:
    """A `ProxyMessage` with the attributes of a record. Satisfies `PartialMessage`.

    `properties` are the properties that a broker stores, as far as the protocol carries
    them: the producer's own, UNIQ_KEY, KEYS, TAGS, the message group, the priority.
    """

    __slots__ = ("_message", "properties")

    commit_log_offset: Final = None
    offset_msg_id: Final = None
    flag: Final = None
    sys_flag: Final = None
    store_bytes: Final = None

    def __init__(self, message: ProxyMessage) -> None:
        self._message = message
        of_system = {
            "UNIQ_KEY": message.msg_id or None,
            "KEYS": message.keys,
            "TAGS": message.tags,
            SHARDING_KEY: message.message_group,
            PRIORITY: None if message.priority is None else str(message.priority),
        }
        self.properties: dict[str, str] = dict(message.properties)
        for name, value in of_system.items():
            if value is not None:
                self.properties[name] = value

    @property
    def topic(self) -> str:
        """The topic it was sent to."""
        return self._message.topic

    @property
    def queue_offset(self) -> int | None:
        """Its offset in the queue; None if the proxy does not report it."""
        return self._message.queue_offset

    @property
    def msg_id(self) -> str | None:
        """The id that its producer gave it."""
        return self._message.msg_id or None

    @property
    def tags(self) -> str | None:
        """Its tag."""
        return self._message.tags

    @property
    def keys(self) -> str | None:
        """Its keys, separated by spaces."""
        return self._message.keys

    @property
    def born_timestamp_ms(self) -> int | None:
        """When its producer created it, by the producer's clock."""
        system = self._message.raw.system_properties
        if not system.HasField("born_timestamp"):
            return None
        return self._message.born_timestamp_ms

    @property
    def store_timestamp_ms(self) -> int | None:
        """When the broker stored it."""
        return self._message.store_timestamp_ms

    @property
    def born_host(self) -> str | None:
        """The host of its producer."""
        return self._message.born_host or None

    @property
    def store_host(self) -> str | None:
        """The broker that stored it."""
        return self._message.store_host or None

    @property
    def reconsume_times(self) -> int:
        """How often it was delivered before."""
        return self._message.reconsume_times

    @property
    def raw_body(self) -> bytes:
        """The body as it came, possibly compressed."""
        return self._message.raw_body

    @property
    def body(self) -> bytes:
        """The body as its producer gave it. Raises DecodeError for a damaged one."""
        return self._message.body
