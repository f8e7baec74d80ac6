"""Kinds of topics and messages on the embedded broker."""

from __future__ import annotations

import pytest

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from tests.broker.behaviour.kinds import CHANGING_SCENES, SCENES, run


@pytest.fixture(scope="module")
def address():
    with EmbeddedCluster() as cluster:
        yield cluster.broker().address


@pytest.mark.slow
@pytest.mark.parametrize(
    "scene", SCENES + CHANGING_SCENES, ids=lambda scene: scene.__name__
)
def test_embedded_broker(address, scene):
    run(scene, address)
