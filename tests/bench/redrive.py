"""Measure the speed and memory of `rmq dlq redrive`, the whole process. Prints JSON.

    python -m tests.bench.redrive [--letters 500000] [--version 5.5.0]

The letters of 100 bytes are on an embedded broker in a process of its own, or with
`--version` on a real one. A redrive reads them twice, for the plan and to send them.
`peak_mib` must not grow with them. The last line compares the redrive with `rmq send
--lines` of as many messages to the same topic: the ratios of messages per second by the
clock and by the CPU of the sender.
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
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rmqcli import Admin
from rmqcli.api.calls.send import send_batch_message
from rmqcli.api.client import Client
from rmqcli.config import ClientConfig
from rmqcli.wire.headers.send import SendMessageRequestHeaderV2
from rmqcli.wire.message.batch import BatchItem, encode_batch
from tests.bench.consume.members import cluster_of
from tests.bench.send import run_command

DEAD = "%DLQ%billing"
#: Letters that are stored at once.
_STEP = 20_000
_REQUEST = 500


def items(numbers: range) -> list[BatchItem]:
    """Return the letters with these numbers."""
    return [
        BatchItem(
            b"x" * 100,
            {
                "RETRY_TOPIC": "orders",
                "ORIGIN_MESSAGE_ID": "7F00000100002A9F0000000000000000",
                "region": f"r{number % 10}",
            },
        )
        for number in numbers
    ]


def serve(letters: int, pipe: Any) -> None:
    """Serve the letters until the other end says something."""
    from rmqcli.broker.cluster.embedded import EmbeddedCluster
    from rmqcli.testing import Seed

    with EmbeddedCluster(queues=4) as cluster:
        cluster.create_topic("orders")
        cluster.create_topic(DEAD, queues=1)
        for start in range(0, letters, _STEP):
            cluster.send(
                DEAD,
                [
                    Seed(body=each.body, properties=each.properties)
                    for each in items(range(start, min(letters, start + _STEP)))
                ],
            )
        pipe.send(cluster.namesrv)
        pipe.recv()


def fill(namesrv: str, letters: int) -> None:
    """Store the letters on a real broker."""
    with (
        Admin(namesrv=namesrv) as admin,
        Client(ClientConfig(namesrv=(namesrv,))) as client,
    ):
        admin.create_group("billing")
        admin.create_topic("orders", queue_nums=4)
        admin.create_topic(DEAD, queue_nums=1)
        address = client.route(DEAD).brokers[0].master_address
        assert address is not None
        header = SendMessageRequestHeaderV2(
            producer_group="fill",
            topic=DEAD,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=0,
            sys_flag=0,
            born_timestamp=client.clock.epoch_ms(),
            flag=0,
            properties="",
            reconsume_times=0,
            unit_mode=False,
            batch=True,
        )
        for start in range(0, letters, _REQUEST):
            batch = items(range(start, min(letters, start + _REQUEST)))
            client.invoke(address, send_batch_message(header, encode_batch(batch)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--letters", type=int, default=500_000)
    parser.add_argument("--namesrv", help="a cluster that has letters of billing")
    parser.add_argument("--version", help="of a real broker to start")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        namesrv = options.namesrv
        if options.version is not None:
            namesrv = stack.enter_context(cluster_of(options.version)).namesrv
            fill(namesrv, options.letters)
        elif namesrv is None:
            ours, theirs = multiprocessing.Pipe()
            server = multiprocessing.Process(
                target=serve, args=(options.letters, theirs)
            )
            server.start()
            stack.callback(server.join)
            stack.callback(ours.send, "end")
            namesrv = ours.recv()
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


if __name__ == "__main__":
    main()
