"""Our client as a member of a group, through a proxy; see tests/kit/clients/member.py.

Arguments: `simple`, `push` or `orderly`, endpoints, group, topic, and the invisible
duration of a SimpleConsumer in seconds.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from rmqcli import ClientConfig, Consumer, SimpleConsumer

STOPPED = threading.Event()
HOLDS = threading.Event()


def main() -> None:
    """Consume until the test writes `stop`."""
    kind, endpoints, group, topic, lease_s = sys.argv[1:]
    config = ClientConfig(endpoints=(endpoints,), plaintext=True, timeout_ms=60_000)
    threading.Thread(target=follow_orders, daemon=True).start()
    if kind == "simple":
        lease_ms = int(lease_s) * 1_000
        with SimpleConsumer(
            group, topic, client=config, invisible_duration_ms=lease_ms
        ) as simple:
            say("started")
            while not STOPPED.is_set():
                found = simple.receive(4, await_ms=5_000)
                for message in found:
                    begin(message)
                    simple.ack(message)
                    say("done", message.body.decode())
    else:
        with Consumer(group, topic, listen, client=config, orderly=kind == "orderly"):
            say("started")
            STOPPED.wait()
    say("stopped")


def listen(message: Any) -> None:
    """Consume every message, until the test writes `hold`."""
    begin(message)
    say("done", message.body.decode())


def begin(message: Any) -> None:
    """Report a message that arrived; after `hold`, do not return."""
    body = message.body.decode()
    say("begin", body)
    if HOLDS.is_set():
        say("holding", body)
        threading.Event().wait()


def follow_orders() -> None:
    """Read and obey the lines that the test writes."""
    for line in sys.stdin:
        if line.strip() == "hold":
            HOLDS.set()
            say("held")
        else:
            STOPPED.set()
    STOPPED.set()


def say(event: str, body: str = "") -> None:
    """Report an event to the test, in one write."""
    sys.stdout.write(f"{event}\t{time.monotonic_ns()}\t{body}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
