"""Headers of requests to a name server.

Codes 100 to 105, 205, 216, 217, 219, 224, 322, 327, 904.

Source: the classes of the same names in apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rmqcli.wire.header import wire


@dataclass(frozen=True, slots=True, kw_only=True)
class GetRouteInfoRequestHeader:
    """Where a topic's queues are (105)."""

    topic: str
    accept_standard_json_only: bool | None = None  # 4.9.4


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTopicsByClusterRequestHeader:
    """The topics of one cluster (224)."""

    cluster: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetKVConfigRequestHeader:
    """One value of the name server's key-value store (101)."""

    namespace: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetKVConfigResponseHeader:
    """The value."""

    value: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PutKVConfigRequestHeader:
    """Set one value (100)."""

    namespace: str
    key: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteKVConfigRequestHeader:
    """Remove one value (102)."""

    namespace: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetKVListByNamespaceRequestHeader:
    """Every value of one namespace (219)."""

    namespace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerRequestHeader:
    """A broker announces itself and its topics (103)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: int
    heartbeat_timeout_millis: int | None = None  # 5.0
    enable_acting_master: bool | None = None  # 5.0
    compressed: bool = False
    body_crc32: int = field(default=0, metadata=wire("bodyCrc32"))  # 0: not checked


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerResponseHeader:
    """Where a slave finds its master."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnRegisterBrokerRequestHeader:
    """A broker leaves (104)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryDataVersionRequestHeader:
    """Whether the broker's topics are known as they are (322)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryDataVersionResponseHeader:
    """Whether it must register again."""

    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeatRequestHeader:
    """A broker is alive (904, 5.0)."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: int | None = None
    epoch: int | None = None
    max_offset: int | None = None
    confirm_offset: int | None = None
    heartbeat_timeout_mills: int | None = None
    election_priority: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicFromNamesrvRequestHeader:
    """Forget a topic (216)."""

    topic: str
    cluster_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterTopicRequestHeader:
    """Announce one topic (217, 5.0)."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WipeWritePermOfBrokerRequestHeader:
    """Take a broker's topics out of writing (205)."""

    broker_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WipeWritePermOfBrokerResponseHeader:
    """How many topics changed."""

    wipe_topic_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AddWritePermOfBrokerRequestHeader:
    """Let a broker's topics be written again (327)."""

    broker_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddWritePermOfBrokerResponseHeader:
    """How many topics changed."""

    add_topic_count: int
