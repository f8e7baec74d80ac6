"""Clusters for the asynchronous clients."""

from __future__ import annotations

import pytest

from rmqcli import ClientConfig
from tests.kit.waiting import PATIENCE_S

TIMEOUT_MS = PATIENCE_S * 1_000


def proxy_of(cluster):
    """How clients reach the proxy of a cluster."""
    return ClientConfig(
        endpoints=(cluster.endpoints,), plaintext=True, timeout_ms=TIMEOUT_MS
    )


@pytest.fixture(params=["remoting", "proxy"])
def protocol(request):
    return request.param


@pytest.fixture
def cluster(rmq_cluster_factory, protocol):
    """A cluster with the topic orders."""
    made = rmq_cluster_factory(proxy=protocol == "proxy")
    made.create_topic("orders", queues=2)
    return made


@pytest.fixture
def client(cluster, protocol):
    """How clients reach it: the name server or the proxy."""
    if protocol == "proxy":
        return proxy_of(cluster)
    return ClientConfig(namesrv=(cluster.namesrv,), timeout_ms=TIMEOUT_MS)
