"""Topics of batches on the embedded broker."""

from __future__ import annotations

import pytest

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from tests.broker.behaviour.batches import SCENES, run


@pytest.fixture(scope="module")
def address():
    with EmbeddedCluster() as cluster:
        yield cluster.broker().address


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_embedded_broker(address, scene):
    run(scene, address)
