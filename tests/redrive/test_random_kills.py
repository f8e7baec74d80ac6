"""Commands that send letters, killed at random, lose nothing and name what doubles."""

from __future__ import annotations

import pytest

from tests.redrive.kills import BATCH, FlushKills, RedriveKills

KILLS = 6
COMMANDS = pytest.mark.parametrize("command", [RedriveKills, FlushKills])


def check(command, namesrv, folder):
    kills = command(namesrv, folder, seed=1)
    kills.run(KILLS)
    counts = kills.counts
    assert (counts.runs, counts.lost, counts.unnamed) == (1, 0, 0)
    assert counts.again <= BATCH * counts.kills


@COMMANDS
@pytest.mark.slow
def test_commands_on_embedded_brokers(rmq_cluster_factory, tmp_path, command):
    check(command, rmq_cluster_factory(brokers=2).namesrv, tmp_path)


@COMMANDS
@pytest.mark.slow
@pytest.mark.rmq_versions("5.5.0")
def test_commands_on_real_brokers(real_cluster, tmp_path, command):
    check(command, real_cluster.namesrv, tmp_path)
