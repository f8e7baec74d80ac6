"""Topics of batches on a real broker of 5.5.0."""

from __future__ import annotations

import pytest

from tests.broker.behaviour.batches import SCENES, run

pytestmark = pytest.mark.rmq_versions("5.5.0")


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_real_broker(real_cluster, rmq_version, scene):
    run(scene, real_cluster.broker_address())
