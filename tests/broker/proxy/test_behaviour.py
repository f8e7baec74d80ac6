"""The table of behaviour, on the embedded proxy."""

from __future__ import annotations

import pytest

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from tests.broker.proxy.behaviour import TABLE, Stage
from tests.kit.rows import each_row


@pytest.fixture(scope="module")
def stage():
    with EmbeddedCluster(proxy=True) as cluster:

        def create_topic(name, kind):
            attributes = {} if kind is None else {"message.type": kind}
            cluster.create_topic(name, attributes=attributes)

        def create_group(name, attributes):
            cluster.create_group(name, attributes=attributes)

        stage = Stage(cluster.endpoints, create_topic, create_group)
        yield stage
        stage.close()


@pytest.mark.slow
@each_row("name", TABLE)
def test_embedded_proxy(stage, name):
    row = TABLE[name]
    assert row.act(stage) == row.expected
