"""Kinds of topics and messages on a real broker of 5.5.0."""

from __future__ import annotations

import pytest

from tests.broker.behaviour.kinds import CHANGING_SCENES, SCENES, run

pytestmark = pytest.mark.rmq_versions("5.5.0")


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_real_broker(real_cluster, rmq_version, scene):
    run(scene, real_cluster.broker_address())


def test_a_real_broker_whose_settings_are_changed(fresh_cluster):
    """In one test, because each cluster takes seconds to start."""
    address = fresh_cluster().broker_address()
    for scene in CHANGING_SCENES:
        run(scene, address)
