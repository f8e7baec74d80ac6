"""Measure the speed and memory of `rmq dlq redrive`, the whole process. Prints JSON.

    python -m tests.bench.redrive [--letters 500000]

The letters of 100 bytes are on an embedded broker in a process of its own. A redrive
reads them twice, for the plan and to send them. `peak_mib` must not grow with them. The
last line compares the redrive with `rmq send --lines` of as many messages to the same
topic: the ratios of messages per second by the clock and by the CPU of the sender.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench.send import run_command

#: Letters that are stored at once.
_STEP = 20_000


def serve(letters: int, pipe: Any) -> None:
    """Serve the letters until the other end says something."""
    from rmqcli.broker.cluster.embedded import EmbeddedCluster
    from rmqcli.testing import Seed

    with EmbeddedCluster(queues=4) as cluster:
        cluster.create_topic("orders")
        cluster.create_topic("%DLQ%billing", queues=1)
        for start in range(0, letters, _STEP):
            cluster.send(
                "%DLQ%billing",
                [
                    Seed(
                        body=b"x" * 100,
                        properties={
                            "RETRY_TOPIC": "orders",
                            "ORIGIN_MESSAGE_ID": "7F00000100002A9F0000000000000000",
                            "region": f"r{number % 10}",
                        },
                    )
                    for number in range(start, min(letters, start + _STEP))
                ],
            )
        pipe.send(cluster.namesrv)
        pipe.recv()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--letters", type=int, default=500_000)
    parser.add_argument("--namesrv", help="a cluster that has letters of billing")
    options = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    server = None
    namesrv = options.namesrv
    if namesrv is None:
        server = multiprocessing.Process(target=serve, args=(options.letters, theirs))
        server.start()
        namesrv = ours.recv()
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "rmqcli", "dlq", "redrive", "billing",
            "-n", namesrv, "-o", "json", "--log", str(Path(folder) / "log"),
        ]  # fmt: skip
        line: dict[str, Any] = {}
        for mode in ((), ("--execute", "--yes")):
            began = time.monotonic()
            process = subprocess.Popen([*command, *mode], stdout=subprocess.PIPE)
            assert process.stdout is not None
            found = json.loads(process.stdout.read())
            _, status, used = os.wait4(process.pid, 0)
            seconds = time.monotonic() - began
            line = {
                "mode": found["mode"],
                "letters": found["read"],
                "sent": found["sent"],
                "exit_status": status,
                "seconds": round(seconds, 2),
                "letters_per_s": round(found["read"] / seconds),
                "letters_per_cpu_s": round(
                    found["read"] / (used.ru_utime + used.ru_stime)
                ),
                "peak_mib": used.ru_maxrss // 1024,
            }
            print(json.dumps(line), flush=True)
    lines = run_command(namesrv, "orders", line["letters"])
    ratios = {
        "to_send_lines": round(line["letters_per_s"] / lines["messages_per_s"], 2),
        "to_send_lines_by_cpu": round(
            line["letters_per_cpu_s"] / lines["messages_per_cpu_s"], 2
        ),
    }
    print(json.dumps({**lines, **ratios}), flush=True)
    if server is not None:
        ours.send("end")
        server.join()


if __name__ == "__main__":
    main()
