"""A redrive that is interrupted or killed goes on where it was, and loses nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqcli import Admin
from tests.admin.dlq.letters import make_letters
from tests.kit.waiting import PATIENCE_S, wait_until

ROOT = Path(__file__).parents[3]
LETTERS = 40


@pytest.fixture
def cluster(rmq_cluster_factory):
    cluster = rmq_cluster_factory(queues=1)
    for topic in ("orders", "repair"):
        cluster.create_topic(topic)
    cluster.create_group("billing")
    make_letters(cluster, "billing", "orders", [f"{n}" for n in range(LETTERS)])
    return cluster


@contextmanager
def redrive(cluster, folder, *flags):
    command = [
        *(sys.executable, "-m", "rmqcli", "dlq", "redrive", "billing"),
        *("--to", "repair", "--execute", "--yes", "-n", cluster.namesrv, *flags),
    ]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "XDG_STATE_HOME": str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def sent(cluster):
    with Admin(namesrv=cluster.namesrv) as admin:
        return Counter(message.body.decode() for message in admin.read("repair"))


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_comes_between_two_batches(cluster, tmp_path, signum):
    with redrive(cluster, tmp_path, "--rate", "4/s") as process:
        wait_until(lambda: sent(cluster))
        process.send_signal(signum)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    assert f"of {LETTERS} sent, see" in err
    assert 0 < len(sent(cluster)) < LETTERS
    with redrive(cluster, tmp_path) as process:
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert "may have been sent already" not in err
    assert sent(cluster) == {f"{n}": 1 for n in range(LETTERS)}


def test_after_a_kill_nothing_is_lost_and_what_is_doubled_was_named(cluster, tmp_path):
    for _ in range(3):
        before = len(sent(cluster))
        with redrive(cluster, tmp_path, "--rate", "4/s") as process:
            wait_until(lambda before=before: len(sent(cluster)) > before)
            process.kill()
            process.communicate(timeout=PATIENCE_S)
    with redrive(cluster, tmp_path) as process:
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    counts = sent(cluster)
    assert sorted(map(int, counts)) == list(range(LETTERS))
    assert sum(counts.values()) - LETTERS <= 3 * 4  # a batch for each kill
