"""Headers of what a broker tells a name server: that it is there, and what it has.

Codes 103, 104, 322, 904.

Source: the classes of the same names in apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import field

from rmqcli.wire.fields import declared, wire
from rmqcli.wire.header import Header


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
