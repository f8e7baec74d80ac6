"""Clusters for the asynchronous clients."""

from __future__ import annotations

import pytest

from rmqcli import ClientConfig
from tests.kit.waiting import PATIENCE_S


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
    timeout_ms = PATIENCE_S * 1_000
    if protocol == "proxy":
        return ClientConfig(
            endpoints=(cluster.endpoints,), plaintext=True, timeout_ms=timeout_ms
        )
    return ClientConfig(namesrv=(cluster.namesrv,), timeout_ms=timeout_ms)
