"""A real proxy whose broker dies during a send: whether it is stored is unknown."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from rmqcli import (
    ClientConfig,
    Producer,
    ProducerMessage,
    SendUnknownError,
)
from tests.kit.proxy.real import RealProxy
from tests.kit.waiting import PATIENCE_S, wait_until

pytestmark = [
    pytest.mark.java,
    pytest.mark.rmq_versions("5.3.3", "5.5.0"),
    pytest.mark.real_only,
]


def unread_bytes(port):
    """The most bytes that wait in a connection to the port to be read."""
    most = 0
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError):
            for line in Path("/proc/net", table).read_text().splitlines()[1:]:
                _, local, _, _, queues = line.split()[:5]
                if int(local.rpartition(":")[2], 16) == port:
                    most = max(most, int(queues.partition(":")[2], 16))
    return most


def test_a_broker_that_dies_during_a_send_may_have_stored_it(fresh_cluster):
    cluster = fresh_cluster()
    topic = cluster.create_topic()
    port = int(cluster.broker_address().rpartition(":")[2])
    with RealProxy(cluster) as proxy:
        config = ClientConfig(endpoints=(proxy.endpoints,), plaintext=True)
        with Producer(client=config) as producer:
            producer.send(ProducerMessage(topic, b"before"))
            cluster.suspend_broker()
            future = producer.submit(
                ProducerMessage(topic, bytes(50_000)), timeout_ms=PATIENCE_S * 1_000
            )
            wait_until(lambda: unread_bytes(port) > 30_000)
            cluster.kill_broker()
            error = future.exception()
    assert type(error) is SendUnknownError
    assert "send request to <" in error.message
