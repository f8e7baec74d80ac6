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

    commit_log_offset: Final = None
    offset_msg_id: Final = None
    flag: Final = None
    sys_flag: Final = None
    store_bytes: Final = None

    def __init__(self, message: ProxyMessage) -> None:
        self._message = message
        self.topic = message.topic
        #: None if the proxy does not report it
        self.queue_offset = message.queue_offset
        #: the id that its producer gave it
        self.msg_id = message.msg_id or None
        self.tags = message.tags
        self.keys = message.keys
        #: when its producer created it, by the producer's clock
        self.born_timestamp_ms: int | None = None
        if message.raw.system_properties.HasField("born_timestamp"):
            self.born_timestamp_ms = message.born_timestamp_ms
        self.store_timestamp_ms = message.store_timestamp_ms
        self.born_host = message.born_host or None
        self.store_host = message.store_host or None
        #: how often it was delivered before
        self.reconsume_times = message.reconsume_times
        of_system = {
            "UNIQ_KEY": self.msg_id,
            "KEYS": self.keys,
            "TAGS": self.tags,
            SHARDING_KEY: message.message_group,
            PRIORITY: None if message.priority is None else str(message.priority),
        }
        self.properties: dict[str, str] = dict(message.properties)
        for name, value in of_system.items():
            if value is not None:
                self.properties[name] = value

    @property
    def raw_body(self) -> bytes:
        """The body as it came, possibly compressed."""
        return self._message.raw_body

    @property
    def body(self) -> bytes:
        """The body as its producer gave it. Raises DecodeError for a damaged one."""
        return self._message.body
