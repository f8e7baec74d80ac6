"""The acts of POP on a real broker of 5.5.0, which shows that they are right."""

from __future__ import annotations

import pytest

from tests.broker.behaviour.pop import ACTS, SCENES, act

pytestmark = pytest.mark.rmq_versions("5.5.0")


@pytest.fixture(scope="module")
def address(real_cluster, rmq_version):
    return real_cluster.broker_address()


@pytest.mark.parametrize("name", ACTS)
def test_real_broker(address, name):
    act(address, name)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_real_broker_holds(address, scene):
    scene(address)
