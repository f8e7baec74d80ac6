"""Timer messages in a folder: what was delivered does not come again."""

from __future__ import annotations

import os
import signal
import struct

import pytest

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.store.checkpoint import read_timer_progress
from rmqcli.store.message_store import TimerProgress
from rmqcli.testing import ManualClock
from tests.broker.behaviour.stage import send_with
from tests.broker.wire_client import WireClient
from tests.kit.program import Program
from tests.kit.waiting import wait_until

START_MS = 1_700_000_000_000
MESSAGES = 60


def send_timers(address: str, *, delay_s: int) -> None:
    with WireClient(address) as client:
        for number in range(MESSAGES):
            properties = f"UNIQ_KEY\x01{number}\x02TIMER_DELAY_SEC\x01{delay_s}\x02"
            send_with(client, "T", properties)


def delivered(cluster: EmbeddedCluster) -> int:
    bounds = cluster.call(lambda: cluster.broker().store.queue_bounds("T", 0))
    return 0 if bounds is None else bounds[1]


@pytest.mark.parametrize("end", ["restart", "close"])
def test_a_clean_restart_delivers_no_timer_message_again(tmp_path, end):
    clock = ManualClock(now_ms=START_MS)
    with EmbeddedCluster(store=tmp_path, clock=clock) as cluster:
        cluster.create_topic("T", queues=1)
        send_timers(cluster.broker().address, delay_s=2)
        cluster.advance(3_000)
        assert delivered(cluster) == MESSAGES
        if end == "restart":
            cluster.broker().restart()
            cluster.advance(60_000)
            assert delivered(cluster) == MESSAGES
    assert read_timer_progress(tmp_path) == TimerProgress(START_MS + 3_000, MESSAGES)
    with EmbeddedCluster(store=tmp_path, clock=clock) as cluster:
        cluster.advance(60_000)
        assert delivered(cluster) == MESSAGES


def test_progress_is_written_as_a_real_broker_reads_it(tmp_path):
    """Without a place in the timer log, which was not written."""
    clock = ManualClock(now_ms=START_MS)
    with EmbeddedCluster(store=tmp_path, clock=clock) as cluster:
        cluster.create_topic("T", queues=1)
        send_timers(cluster.broker().address, delay_s=2)
        cluster.advance(9_000)
        data = (tmp_path / "config" / "timercheck").read_bytes()

    assert len(data) == 4096
    assert struct.unpack_from(">qqqq", data) == (START_MS + 9_000, 0, 60, 60)


BROKER = """
import pathlib, sys, threading
from rmqcli.broker.cluster.embedded import EmbeddedCluster
cluster = EmbeddedCluster(store=pathlib.Path(sys.argv[1]))
cluster.create_topic("T", queues=1)
print(cluster.broker().address)
threading.Event().wait()
"""


def max_offset(address: str) -> int:
    with WireClient(address) as client:
        answer = client.ask(30, topic="T", queueId=0)
    return int(answer.ext_fields["offset"])


@pytest.mark.slow
def test_a_killed_broker_delivers_no_timer_message_again(tmp_path):
    """SIGKILL right after the delivery, before the progress was stored."""
    store = tmp_path / "store"
    with Program(BROKER, tmp_path, str(store)) as program:
        address = program.line()
        send_timers(address, delay_s=1)
        wait_until(lambda: max_offset(address) == MESSAGES)
        os.kill(program.process.pid, signal.SIGKILL)
        program.process.wait()
    with EmbeddedCluster(store=store) as cluster:
        address = cluster.broker().address
        send_timers(address, delay_s=1)
        wait_until(lambda: delivered(cluster) >= 2 * MESSAGES)
        assert delivered(cluster) == 2 * MESSAGES
