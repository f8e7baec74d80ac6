"""An embedded cluster that was wiped: an empty one in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.broker.cluster.embedded import EmbeddedCluster


def wiped(
    cluster: EmbeddedCluster, factory: Callable[..., EmbeddedCluster], **fields: Any
) -> EmbeddedCluster:
    """Close a cluster, and return an empty one with its brokers' names and addresses.

    `factory` is the fixture `rmq_cluster_factory`.
    """
    brokers = cluster.brokers
    cluster.close()
    return factory(
        brokers=len(brokers),
        namesrv_port=_port(cluster.namesrv),
        broker_ports=[_port(each.address) for each in brokers],
        **fields,
    )


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])
