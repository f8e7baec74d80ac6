"""`rmq sql` as a process: the commands in the README, and an interrupt."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.spark import no_java, patiently
from tests.kit.waiting import PATIENCE_S, wait_until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(no_java() is not None, reason=no_java() or ""),
]
ROOT = Path(__file__).parents[3]


@pytest.fixture
def cluster(rmq_cluster_factory):
    cluster = rmq_cluster_factory()
    cluster.create_topic("orders", queues=1)
    cluster.send("orders", ['{"id": 1}'] * 3, tags="New")
    cluster.send("orders", ['{"id": 2}'], tags="Paid")
    cluster.create_group("billing")
    cluster.send("%RETRY%billing", ["again"])
    return cluster


def the_commands():
    """The block of commands in the README's section on `rmq sql`."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.partition("### `rmq sql`")[2]
    match = re.search(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    assert match is not None
    return match[1]


def test_the_commands_of_the_readme(cluster, tmp_path):
    script = f'rmq() {{ "{sys.executable}" -m rmqcli "$@"; }}\n{the_commands()}'

    def run():
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", script],
            env={
                **os.environ,
                "NAMESRV_ADDR": cluster.namesrv,
                "TMPDIR": str(tmp_path),
            },
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done

    done = patiently(run)
    heading, *table = done.stdout.splitlines()
    assert heading.split() == ["TAGS", "COUNT(1)"]
    assert sorted(line.split() for line in table[:2]) == [["New", "3"], ["Paid", "1"]]
    assert [json.loads(line) for line in table[2:6]] == [
        {"queue_offset": n, "id": "2" if n == 3 else "1"} for n in range(4)
    ]
    assert table[6] == "MAX(STORE_TIMESTAMP)"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", table[7])
    assert "orders: 4 messages in 1 queue\n" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_ends_the_command_and_its_jvm(cluster, tmp_path):
    said = tmp_path / "said"
    query = "select count(*) from orders, range(1000000000000)"
    with (
        said.open("wb") as stderr,
        subprocess.Popen(
            [sys.executable, "-m", "rmqcli", "sql", query, "-n", cluster.namesrv],
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
        ) as process,
    ):
        wait_until(lambda: "orders: 4 messages" in said.read_text())
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (130, b"")
    assert said.read_text().splitlines()[-1] == "interrupted"
    wait_until(lambda: not is_alive(process.pid))


def is_alive(group):
    """Whether a process group has a process."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
