"""Tools to test programs that use RocketMQ: an embedded cluster and a manual clock.

`EmbeddedCluster`, and the constructors of `rmqcli.broker.faults`, are loaded when they
are first used. The fixtures of pytest are in `rmqcli.testing.plugin`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.testing.clock import ManualClock

if TYPE_CHECKING:
    from rmqcli.broker import faults
    from rmqcli.broker.cluster.embedded import ClusterOptions, EmbeddedCluster
    from rmqcli.broker.cluster.seeding import Seed
    from rmqcli.broker.proxy.options import ProxyOptions

__all__ = [
    "ClusterOptions",
    "EmbeddedCluster",
    "ManualClock",
    "ProxyOptions",
    "Seed",
    "faults",
]

_HOMES = {
    "ClusterOptions": "rmqcli.broker.cluster.embedded",
    "EmbeddedCluster": "rmqcli.broker.cluster.embedded",
    "ProxyOptions": "rmqcli.broker.proxy.options",
    "Seed": "rmqcli.broker.cluster.seeding",
}


def __getattr__(name: str) -> object:
    import importlib

    if name == "faults":
        return importlib.import_module("rmqcli.broker.faults")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
