"""The bodies of answers about replication, from brokers and from controllers.

Source: HARuntimeInfo and BrokerReplicasInfo in apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import field

from rmqcli.wire.body import Body
from rmqcli.wire.fields import declared


@declared
class HAConnectionRuntimeInfo(Body):
    """One slave as its master sees it; `diff` is how many bytes it is behind.

    `addr` is the slave's end of the connection, not the address that it advertises.
    """

    addr: str | None = None
    slave_ack_offset: int = 0
    diff: int = 0
    in_sync: bool = False
    transferred_byte_in_second: int = 0
    transfer_from_where: int = 0


@declared
class HAClientRuntimeInfo(Body):
    """What a slave has copied."""

    master_addr: str | None = None
    transferred_byte_in_second: int = 0
    max_offset: int = 0
    last_read_timestamp: int = 0
    last_write_timestamp: int = 0
    master_flush_offset: int = 0


@declared
class HARuntimeInfo(Body):
    """The answer to GET_BROKER_HA_STATUS (907), from a master or from a slave.

    A master counts as in sync the slaves of its SyncStateSet if it has a controller,
    and otherwise those that are at most haMaxGapNotInSync bytes behind.
    """

    master: bool
    master_commit_log_max_offset: int = 0
    in_sync_slave_nums: int = 0
    ha_connection_info: list[HAConnectionRuntimeInfo] = field(default_factory=list)
    ha_client_runtime_info: HAClientRuntimeInfo | None = None


@declared
class ReplicaIdentity(Body):
    """One process of a broker; `broker_id` stays the same when it becomes master."""

    broker_name: str
    broker_id: int
    broker_address: str | None = None
    alive: bool | None = None


@declared
class ReplicasInfo(Body):
    """The master of a broker, and which of its processes are in its SyncStateSet.

    Without a master, `master_broker_id` and `master_address` are None.
    """

    master_broker_id: int | None = None
    master_address: str | None = None
    master_epoch: int | None = None
    sync_state_set_epoch: int | None = None
    in_sync_replicas: list[ReplicaIdentity] = field(default_factory=list)
    not_in_sync_replicas: list[ReplicaIdentity] = field(default_factory=list)


@declared
class BrokerReplicasInfo(Body):
    """The answer to CONTROLLER_GET_SYNC_STATE_DATA (1006), by broker name."""

    replicas_info_table: dict[str, ReplicasInfo] = field(default_factory=dict)
