"""Headers of requests to a name server.

Codes 100 to 105, 205, 216, 217, 219, 224, 322, 327, 904.

Source: the classes of the same names in apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import field

from rmqcli.wire.fields import declared, wire
from rmqcli.wire.header import Header


@declared
class GetRouteInfoRequestHeader(Header):
    """Where a topic's queues are (105)."""

    topic: str
    accept_standard_json_only: bool | None = None  # 4.9.4


@declared
class GetTopicsByClusterRequestHeader(Header):
    """The topics of one cluster (224)."""

    cluster: str


@declared
class GetKVConfigRequestHeader(Header):
    """One value of the name server's key-value store (101)."""

    namespace: str
    key: str


@declared
class GetKVConfigResponseHeader(Header):
    """The value."""

    value: str | None = None


@declared
class PutKVConfigRequestHeader(Header):
    """Set one value (100)."""

    namespace: str
    key: str
    value: str


@declared
class DeleteKVConfigRequestHeader(Header):
    """Remove one value (102)."""

    namespace: str
    key: str


@declared
class GetKVListByNamespaceRequestHeader(Header):
    """Every value of one namespace (219)."""

    namespace: str


@declared
class RegisterBrokerRequestHeader(Header):
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


@declared
class RegisterBrokerResponseHeader(Header):
    """Where a slave finds its master."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@declared
class UnRegisterBrokerRequestHeader(Header):
    """A broker leaves (104)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: int


@declared
class QueryDataVersionRequestHeader(Header):
    """Whether the broker's topics are known as they are (322)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: int


@declared
class QueryDataVersionResponseHeader(Header):
    """Whether it must register again."""

    changed: bool


@declared
class BrokerHeartbeatRequestHeader(Header):
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


@declared
class DeleteTopicFromNamesrvRequestHeader(Header):
    """Forget a topic (216)."""

    topic: str
    cluster_name: str | None = None


@declared
class RegisterTopicRequestHeader(Header):
    """Announce one topic (217, 5.0)."""

    topic: str


@declared
class WipeWritePermOfBrokerRequestHeader(Header):
    """Take a broker's topics out of writing (205)."""

    broker_name: str


@declared
class WipeWritePermOfBrokerResponseHeader(Header):
    """How many topics changed."""

    wipe_topic_count: int


@declared
class AddWritePermOfBrokerRequestHeader(Header):
    """Let a broker's topics be written again (327)."""

    broker_name: str


@declared
class AddWritePermOfBrokerResponseHeader(Header):
    """How many topics changed."""

    add_topic_count: int
