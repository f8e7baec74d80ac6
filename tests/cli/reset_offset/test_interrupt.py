"""Ctrl-C and SIGTERM during a reset: the command reports which queues it changed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.reset_offset.test_reset_offset import commit, committed, new_group
from tests.kit import raw
from tests.kit.waiting import PATIENCE_S

ROOT = Path(__file__).parents[3]


@pytest.mark.rmq_versions("4.9.7", "5.5.0")
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_reports_what_was_done(real_cluster, tmp_path, signum):
    topic = real_cluster.create_topic(queues=2)
    group = new_group(real_cluster)
    commit(real_cluster, group, topic, [30, 40])
    command = [
        *(sys.executable, "-m", "rmqcli", "reset-offset", group, topic),
        *("--to", "earliest", "--execute", "--yes", "--wait", "-o", "json"),
        *("-n", real_cluster.namesrv),
    ]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        # The command now keeps reading back until a consumer would have committed.
        raw.wait_until(
            lambda: committed(real_cluster, group, topic) == [0, 0],
            timeout_ms=60_000,
            what=lambda: "the reset",
        )
        process.send_signal(signum)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    done = json.loads(out)
    assert [row["result"] for row in done["queues"]] == ["CONFIRMED", "CONFIRMED"]
    assert f"--undo {done['backup']} --execute" in err
    (backup,) = (tmp_path / "rmqcli" / "reset-offset").iterdir()
    assert backup.stem == done["backup"]
