"""The acts of POP, on the embedded broker."""

from __future__ import annotations

import pytest

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from tests.broker.behaviour.pop import ACTS, SCENES, act


@pytest.fixture(scope="module")
def address():
    with EmbeddedCluster(settings={"enable_property_filter": True}) as cluster:
        yield cluster.broker().address


@pytest.mark.slow
@pytest.mark.parametrize("name", ACTS)
def test_embedded_broker(address, name):
    act(address, name)


@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_embedded_broker_holds(address, scene):
    scene(address)
