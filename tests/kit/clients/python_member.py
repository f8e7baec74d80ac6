"""The official Python client as a member of a group; see tests/kit/clients/member.py.

It needs an interpreter that finds `rocketmq-python-client`, and uses nothing of rmqcli.
Arguments: `simple`, `push` or `lite`, endpoints, group, topic, the invisible duration
of a simple consumer in seconds, and the lite topics of a lite consumer.
"""

from __future__ import annotations

import os
import sys
import threading
import time

from rocketmq import (  # type: ignore[import-not-found]  # of the other environment
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    LitePushConsumer,
    Message,
    MessageListener,
    PushConsumer,
    SimpleConsumer,
)

STOPPED = threading.Event()
HOLDS = threading.Event()


def main() -> None:
    """Consume until the test writes `stop`."""
    kind, endpoints, group, topic, lease_s, *lite_topics = sys.argv[1:]
    configuration = ClientConfiguration(endpoints, Credentials(), request_timeout=10)
    subscription = {topic: FilterExpression()}
    threading.Thread(target=follow_orders, daemon=True).start()
    if kind == "simple":
        simple = SimpleConsumer(configuration, group, subscription, await_duration=5)
        simple.startup()
        say("started")
        while not STOPPED.is_set():
            try:
                found = simple.receive(4, int(lease_s))
            except Exception as error:  # noqa: BLE001  # it raises what it likes
                print(f"receive failed: {error}", file=sys.stderr)
                time.sleep(0.1)  # it raises until the client has its settings
                continue
            for message in found or ():
                begin(message)
                simple.ack(message)
                say("done", message.body.decode())
        simple.shutdown()
    elif kind == "lite":
        lite = LitePushConsumer(configuration, group, topic, Listener())
        lite.startup()
        for each in lite_topics:
            lite.subscribe_lite(each)
        say("started")
        STOPPED.wait()
        lite.shutdown()
    else:
        push = PushConsumer(configuration, group, Listener(), subscription)
        push.startup()
        say("started")
        STOPPED.wait()
        push.shutdown()
    say("stopped")
    os._exit(0)  # its threads may never end


class Listener(MessageListener):  # type: ignore[misc]  # its base is unknown here
    """Consumes every message, until the test writes `hold`."""

    def consume(self, message: Message) -> ConsumeResult:
        begin(message)
        say("done", message.body.decode())
        return ConsumeResult.SUCCESS


def begin(message: Message) -> None:
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
