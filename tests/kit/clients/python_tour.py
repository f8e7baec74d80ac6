"""Uses a proxy with the official Python client, and prints `name=value` lines.

It needs an interpreter that finds `rocketmq-python-client`, and uses nothing of rmqcli.
Arguments: endpoints, a topic, a group for a simple and one for a push consumer; then,
for a proxy with accounts, an access key and its secret key.
"""

from __future__ import annotations

import os
import sys
import threading

from rocketmq import (  # type: ignore[import-not-found]  # of the other environment
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
)


def main() -> None:
    """Send, receive and acknowledge, and consume with a listener."""
    endpoints, topic, simple_group, push_group, *keys = sys.argv[1:]
    configuration = ClientConfiguration(endpoints, Credentials(*keys))
    producer = Producer(configuration, (topic,))
    producer.startup()
    simple = SimpleConsumer(configuration, simple_group)
    simple.startup()
    simple.subscribe(topic)
    for number in range(5):
        producer.send(made(topic, f"s-{number}", "S"))
    bodies: list[str] = []
    while len(bodies) < 5:
        try:
            found = simple.receive(16, 30)
        except Exception as error:  # noqa: BLE001  # it raises what it likes
            print(f"receive failed: {error}", file=sys.stderr)
            continue
        for message in found or ():
            bodies.append(message.body.decode())
            simple.ack(message)
    print("simple=" + ",".join(sorted(bodies)), flush=True)
    simple.shutdown()
    listener = Listener()
    push = PushConsumer(
        configuration, push_group, listener, {topic: FilterExpression("P")}
    )
    push.startup()
    for number in range(3):
        producer.send(made(topic, f"p-{number}", "P"))
    listener.complete.wait(100)
    print("push=" + ",".join(sorted(listener.seen)), flush=True)
    os._exit(0)  # its shutdown may wait for threads that do not end


class Listener(MessageListener):  # type: ignore[misc]  # its base is unknown here
    """Fails once for p-1."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.complete = threading.Event()

    def consume(self, message: Message) -> ConsumeResult:
        text = message.body.decode()
        fails = text == "p-1" and "p-1" not in self.seen
        self.seen.append(text)
        if len(self.seen) == 4:
            self.complete.set()
        return ConsumeResult.FAILURE if fails else ConsumeResult.SUCCESS


def made(topic: str, body: str, tag: str) -> Message:
    """Make a message of the official library."""
    message = Message()
    message.topic = topic
    message.body = body.encode()
    message.tag = tag
    return message


if __name__ == "__main__":
    main()
