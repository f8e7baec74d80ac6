"""Headers with which a broker registers itself and its topics at a name server.

Codes 103, 104, 322, 904.

Source: the classes of the same names in apache/rocketmq.
"""

from __future__ import annotations

from rmqcli.wire.fields import declared, wire_field
from rmqcli.wire.header import Header


@declared
class RegisterBrokerRequestHeader(Header):
    """Register a broker and its topics (103)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: int
    heartbeat_timeout_millis: int | None = None  # 5.0
    enable_acting_master: bool | None = None  # 5.0
    compressed: bool = False
    body_crc32: int = wire_field("bodyCrc32", default=0)  # 0: not checked


@declared
class RegisterBrokerResponseHeader(Header):
    """The addresses at which a slave finds its master."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@declared
class UnRegisterBrokerRequestHeader(Header):
    """Unregister a broker (104)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: int


@declared
class QueryDataVersionRequestHeader(Header):
    """Query whether the name server has the current topics of the broker (322)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: int


@declared
class QueryDataVersionResponseHeader(Header):
    """Whether the broker must register again."""

    changed: bool


@declared
class BrokerHeartbeatRequestHeader(Header):
    """Report that a broker is alive (904, 5.0)."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: int | None = None
    epoch: int | None = None
    max_offset: int | None = None
    confirm_offset: int | None = None
    heartbeat_timeout_mills: int | None = None
    election_priority: int | None = None
