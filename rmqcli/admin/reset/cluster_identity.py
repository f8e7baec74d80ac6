"""Which cluster a backup or a plan was made on: recorded in files, compared later.

Clusters often share group, topic and broker names, so a cluster is identified by the
addresses that its brokers advertise:

    same     they have a cluster name in common, and at least one broker of the same
             name still advertises one of its addresses
    other    everything else

Name servers do not decide: one cluster can be reached through several addresses, and
one address (a port that is forwarded) can lead to several clusters. Advertised
addresses do not depend on how the broker was reached, so TLS and the VIP port make no
difference. A broker that is down, is new or has moved does no harm while another one is
unchanged. When every broker has moved, the cluster cannot be distinguished from another
one and is refused, unless the caller insists. Two clusters that advertise the same
addresses (containers of the same private network range) cannot be distinguished either.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from rmqcli.dataclass import dataclass
from rmqcli.units import listed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.model import TopicRoute

#: More brokers than this are not listed in a message.
_BROKERS_LISTED = 3


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """The identity of a cluster, from a topic's route.

    `names` are the cluster names, sorted. `brokers` is broker name -> the addresses
    that its master and slaves advertise, sorted.
    """

    names: tuple[str, ...]
    brokers: Mapping[str, tuple[str, ...]] = field(hash=False)

    def __str__(self) -> str:
        brokers = (f"{name} {' '.join(at)}" for name, at in self.brokers.items())
        return f"{', '.join(self.names)} ({listed(brokers, _BROKERS_LISTED)})"


def identity_of(route: TopicRoute) -> ClusterIdentity:
    """Return the identity of the cluster that `route` is part of."""
    return ClusterIdentity(
        names=tuple(sorted({broker.cluster for broker in route.brokers})),
        brokers={
            broker.broker_name: tuple(sorted(set(broker.addresses.values())))
            for broker in sorted(route.brokers, key=lambda b: b.broker_name)
        },
    )


def is_same_cluster(then: ClusterIdentity, now: ClusterIdentity) -> bool:
    """Whether both are the same cluster, by the rule of this module."""
    return bool(set(then.names) & set(now.names)) and any(
        set(addresses) & set(now.brokers.get(name, ()))
        for name, addresses in then.brokers.items()
    )


def identity_json(identity: ClusterIdentity) -> dict[str, object]:
    """Return the JSON object to write into a file."""
    return {
        "names": list(identity.names),
        "brokers": {name: list(at) for name, at in identity.brokers.items()},
    }


def parse_identity(data: object) -> ClusterIdentity:
    """Read what `identity_json` wrote. Raises TypeError for anything else."""
    if not isinstance(data, dict):
        raise TypeError("cluster is not an object")
    names, brokers = data.get("names"), data.get("brokers")
    if not isinstance(names, list) or not isinstance(brokers, dict):
        raise TypeError("cluster has no names and brokers")
    if not all(isinstance(addresses, list) for addresses in brokers.values()):
        raise TypeError("the addresses of a broker are not a list")
    return ClusterIdentity(
        names=tuple(map(str, names)),
        brokers={str(name): tuple(map(str, at)) for name, at in brokers.items()},
    )
