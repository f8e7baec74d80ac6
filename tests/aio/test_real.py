"""The asynchronous clients work with a real broker, and through a real proxy."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from rmqcli import Admin, ClientConfig, ProducerMessage
from rmqcli.aio import AsyncAdmin, AsyncConsumer, AsyncProducer
from tests.aio.interrupting import eventually, run_clean

pytestmark = [
    pytest.mark.java,
    pytest.mark.rmq_versions("5.5.0"),
    pytest.mark.real_only,
]


@pytest.fixture
def cluster(local_proxy):
    return local_proxy


@pytest.fixture(params=["remoting", "proxy"])
def client(request, cluster):
    if request.param == "proxy":
        return ClientConfig(endpoints=(cluster.endpoints,), plaintext=True)
    return ClientConfig(namesrv=(cluster.namesrv,))


def test_what_is_sent_is_consumed_once_and_committed(cluster, client):
    topic, group = cluster.create_topic(queues=2), f"g-{uuid.uuid4().hex[:12]}"
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.create_group(group)
    names = [b"%03d" % n for n in range(200)]
    bodies: list[bytes] = []

    async def handle(message):
        bodies.append(message.body)

    async def main():
        more: dict[str, Any] = {} if client.endpoints else {"consume_from": "earliest"}
        async with (
            AsyncConsumer(group, topic, handle, client=client, **more),
            AsyncProducer(client=client) as producer,
        ):
            for name in names:
                await producer.send(ProducerMessage(topic, name))
            await eventually(lambda: len(bodies) >= len(names))
        async with AsyncAdmin(namesrv=cluster.namesrv) as admin:
            return await admin.lag(group)

    lag = run_clean(main)
    assert sorted(bodies) == names
    if not client.endpoints:  # of POP, a broker moves the offset later
        assert lag.total_lag == 0
