"""The README's commands through a proxy, run as they stand on the embedded one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.kit.waiting import PATIENCE_S

ROOT = Path(__file__).parents[1]
ENDPOINTS = "127.0.0.1:8081"


def the_commands():
    """The block of commands in the section about `--endpoints`."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    _, found, section = text.partition("### `--endpoints`")
    assert found
    match = re.search(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    assert match is not None
    return match[1]


def test_the_commands_through_a_proxy_work_as_they_stand(rmq_cluster_factory):
    cluster = rmq_cluster_factory(proxy=True)
    cluster.create_topic("orders")
    cluster.create_topic("steps", attributes={"message.type": "FIFO"})
    commands = the_commands()
    assert f"export ROCKETMQ_ENDPOINTS={ENDPOINTS} " in commands
    script = f'rmq() {{ "{sys.executable}" -m rmqcli "$@"; }}\n' + commands.replace(
        ENDPOINTS, cluster.endpoints
    )
    environ = {name: os.environ[name] for name in ("PATH", "HOME")}
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("2 sent, 0 failed") == 1
    assert "joined group billing as " in done.stderr
    assert "1 consumed; " in done.stderr
    assert '"body":"{\\"id\\":1}"' in done.stdout
    assert "tail joined group billing through " in done.stderr
    assert "topic orders: NORMAL, 4 queues" in done.stdout
