"""Runs one measurement of a client of a proxy in a process, and compares two sides."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.kit import raw

if TYPE_CHECKING:
    from collections.abc import Iterable

TOPIC = "bench"
QUEUES = 4
#: The topic of the latency measurement, which sends messages itself; others use TOPIC.
LATENCY_TOPIC = "latency"
_HERE = Path(__file__).parent


def new_group(address: str, group: str) -> str:
    """Create a group at this broker, with its offsets at the start of TOPIC."""
    body = {
        "groupName": group,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "retryQueueNums": 1,
        "retryMaxTimes": 16,
        "brokerId": 0,
        "whichBrokerWhenConsumeSlowly": 1,
    }
    code = raw.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    raw.ask(address, code, body=json.dumps(body).encode())
    for queue_id in range(QUEUES):
        offset = {"topic": TOPIC, "queueId": str(queue_id), "commitOffset": "0"}
        raw.ask(address, 15, {"consumerGroup": group, **offset})
    return group


def run_client(who: str, official: str, **options: object) -> dict[str, Any]:
    """Run one measurement in a new process, and return what it printed."""
    command = [sys.executable, "-m", "tests.bench.proxy.ours"]
    if who == "official":
        command = [official, str(_HERE / "official.py")]
    done = subprocess.run(
        [*command, json.dumps(options)],
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def summary(
    kind: str, found: dict[str, list[dict[str, Any]]], names: tuple[str, str]
) -> dict[str, Any]:
    """Return the medians of two sides, and the ratios of the first to the second."""
    sides = {who: _medians(kind, found[who]) for who in names}
    first, second = (sides[who] for who in names)
    ratios = {
        "times_the_rate": round(first["messages_per_s"] / second["messages_per_s"], 2),
        "share_of_cpu": round(
            first["cpu_ms_per_message"] / second["cpu_ms_per_message"], 3
        ),
    }
    if kind == "latency":
        ratios = {
            f"share_of_{each}": round(first[each] / second[each], 3)
            for each in ("p50_ms", "p99_ms", "cpu_ms_per_message")
        }
    return {"kind": kind, **ratios, **sides}


def _medians(kind: str, runs: list[dict[str, Any]]) -> dict[str, float]:
    found = {
        "messages_per_s": round(
            _median(each["count"] / each["wall_s"] for each in runs)
        ),
        "cpu_ms_per_message": round(
            _median(1_000 * each["cpu_s"] / each["count"] for each in runs), 4
        ),
    }
    if kind == "latency":
        for each in ("p50_ms", "p99_ms"):
            found[each] = round(_median(run[each] for run in runs), 2)
    return found


def _median(values: Iterable[float]) -> float:
    return float(statistics.median(values))
