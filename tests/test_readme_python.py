"""The README's examples in Python, run as they stand on the embedded cluster."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import rmqcli
from rmqcli.testing import Seed
from tests.consumer.collecting import committed
from tests.kit.waiting import wait_until

README = Path(__file__).parents[1] / "README.md"
NAMESRV = "127.0.0.1:9876"


def examples():
    """Those of the library, in their order."""
    text = README.read_text(encoding="utf-8").partition("## As a library")[2]
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.fixture
def cluster(rmq_cluster_factory):
    cluster = rmq_cluster_factory(settings={"enable_property_filter": True})
    cluster.create_topic("orders")
    cluster.create_topic("payments")
    return cluster


def running(cluster, number, output):
    """An example on its way, with the cluster's address, writing to a file."""
    return subprocess.Popen(
        [
            sys.executable,
            "-u",
            "-c",
            examples()[number].replace(NAMESRV, cluster.namesrv),
        ],
        env={**os.environ, "NAMESRV_ADDR": cluster.namesrv},
        stdout=output,
    )


def test_a_listener_of_one_message(cluster, tmp_path):
    shown = tmp_path / "shown"
    with shown.open("wb") as output, running(cluster, 0, output) as process:

        def is_shown():
            cluster.send("orders", ["skipped"], tags="New")
            cluster.send("orders", ["hello"], tags="Paid")
            return "b'hello'" in shown.read_text()

        wait_until(is_shown)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == -signal.SIGINT
    assert "skipped" not in shown.read_text()
    assert sum(committed(cluster, "billing", "orders").values()) > 0


def test_a_listener_of_batches(cluster, tmp_path):
    cluster.send("orders", ['{"id":1}'] * 3, tags="Paid", queue_id=0)
    cluster.send(
        "payments",
        [Seed(body=b'{"a":%d}' % n, properties={"amount": str(n)}) for n in (5, 6)],
        queue_id=1,
    )
    shown = tmp_path / "shown"
    with shown.open("wb") as output, running(cluster, 1, output) as process:
        wait_until(lambda: len(shown.read_text().splitlines()) == 4)
        process.send_signal(signal.SIGINT)
        process.wait(20)
    assert sorted(shown.read_text().splitlines()) == [
        "0 0 b'{\"id\":1}'",
        "0 1 b'{\"id\":1}'",
        "0 2 b'{\"id\":1}'",
        "1 1 b'{\"a\":6}'",
    ]
    assert committed(cluster, "billing", "orders")[0] == 3


def test_one_method_for_each_request(cluster, tmp_path):
    cluster.send("orders", ["x"] * 3, queue_id=2)
    shown = tmp_path / "shown"
    with shown.open("wb") as output, running(cluster, 2, output) as process:
        assert process.wait(20) == 0
    lines = shown.read_text().splitlines()
    assert [line.split()[-2:] for line in lines] == [
        ["0", "0"],
        ["0", "0"],
        ["0", "3"],
        ["0", "0"],
    ]


def test_every_public_name_is_there():
    for name in rmqcli.__all__:
        assert getattr(rmqcli, name)
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = rmqcli.nothing_like_it
