"""A cluster of two brokers, and `rmq` with its rows."""

from __future__ import annotations

import json

import pytest

from rmqcli.cli.main import run


@pytest.fixture
def cluster(rmq_cluster_factory):
    return rmq_cluster_factory(brokers=2)


@pytest.fixture
def rmq(cluster, capsys):
    """Run `rmq`; return its exit code, its JSON, and what it says on stderr."""

    def run_it(*arguments):
        capsys.readouterr()
        code = run([*arguments, "-n", cluster.namesrv, "-o", "json"])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else None, err

    return run_it
