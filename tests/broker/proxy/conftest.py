"""A cluster with a proxy, and raw clients that are closed with the test."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from tests.kit.proxy.raw_client import GrpcClient


@pytest.fixture
def start():
    """A function that starts a cluster with a proxy and any of ClusterOptions."""
    with ExitStack() as stack:

        def start(**options):
            options.setdefault("proxy", True)
            return stack.enter_context(EmbeddedCluster(**options))

        yield start


@pytest.fixture
def cluster(start):
    """One broker with a proxy."""
    return start()


@pytest.fixture
def connect():
    """A function that makes a raw client of a cluster."""
    with ExitStack() as stack:

        def connect(cluster, **options):
            return stack.enter_context(GrpcClient(cluster.endpoints, **options))

        yield connect


@pytest.fixture
def client(cluster, connect):
    """A raw client of `cluster`."""
    return connect(cluster)
