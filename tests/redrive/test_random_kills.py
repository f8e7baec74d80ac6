"""`rmq dlq redrive`, killed at random, loses nothing and names what it sends twice."""

from __future__ import annotations

import pytest

from tests.redrive.kills import BATCH, Kills

KILLS = 6


def check(namesrv, folder):
    kills = Kills(namesrv, folder, seed=1)
    kills.redrive(KILLS)
    counts = kills.counts
    assert (counts.redrives, counts.lost, counts.unnamed) == (1, 0, 0)
    assert counts.again <= BATCH * counts.kills


@pytest.mark.slow
def test_a_redrive_to_embedded_brokers(rmq_cluster_factory, tmp_path):
    check(rmq_cluster_factory(brokers=2).namesrv, tmp_path)


@pytest.mark.slow
@pytest.mark.rmq_versions("5.5.0")
def test_a_redrive_to_real_brokers(real_cluster, tmp_path):
    check(real_cluster.namesrv, tmp_path)
