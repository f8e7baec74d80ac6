"""Positions in queues of other brokers are resolved while one does not answer."""

from __future__ import annotations

import pytest

from rmqcli.admin.positions import ResolvedRange, resolve_ranges_each
from rmqcli.api.client import Client
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.config import ClientConfig
from rmqcli.errors import TransportError
from rmqcli.model import MessageQueue, OffsetRange
from rmqcli.position import Ago, AtGroup, AtNow, AtTime, Earliest, LastN, Latest, PlusN

A = [MessageQueue("T", "broker-a", n) for n in range(2)]
B = [MessageQueue("T", "broker-b", n) for n in range(2)]


@pytest.fixture(scope="module")
def client():
    """A client of two brokers with three messages in each queue; broker-b hangs."""
    with EmbeddedCluster(brokers=2, queues=2) as cluster:
        cluster.create_topic("T")
        for queue in (*A, *B):
            cluster.send(
                "T", ["x"] * 3, broker=queue.broker_name, queue_id=queue.queue_id
            )
        config = ClientConfig(namesrv=(cluster.namesrv,), timeout_ms=1_000)
        with Client(config) as client:
            client.route("T")
            cluster.broker("broker-b").hang()
            yield client


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "end", "offsets"),
    [
        (Earliest(), Latest(), (0, 3)),
        (AtNow(), Latest(), (3, 3)),
        (Ago(3_600_000), AtNow(), (0, 3)),
        (AtTime(0, "1970"), AtNow(), (0, 3)),
        (LastN(2), PlusN(1), (1, 2)),
        (AtGroup("nobody"), Latest(), (0, 3)),
    ],
    ids=str,
)
def test_the_queues_of_the_others_are_found(client, start, end, offsets):
    found = resolve_ranges_each(client, [*B, *A], start, end)
    for queue in A:
        each = found[queue]
        assert isinstance(each, ResolvedRange), each
        assert each.offsets == OffsetRange(queue, *offsets)
    for queue in B:
        assert isinstance(found[queue], TransportError)
