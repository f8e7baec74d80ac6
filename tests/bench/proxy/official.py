"""The official client's side of `tests.bench.proxy`; runs in its own environment.

Of this project, it imports only `pace`, which is in the same folder. OPTIONS and output
are those of `ours`.
"""

from __future__ import annotations

import json
import os
import sys
import time

# In the same folder as this file, which runs as a program.
from pace import Latencies, Span, at_rate  # type: ignore[import-not-found]
from rocketmq import (  # type: ignore[import-not-found]  # not in our environment
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

_TOPIC = "bench"
_LATENCY_TOPIC = "latency"
_THREADS = 20


def main() -> None:
    """Run the measurement that the argument selects."""
    options = json.loads(sys.argv[1])
    config = ClientConfiguration(options["endpoints"], Credentials())
    group, messages = options["group"], options["messages"]
    if options["kind"] == "push":
        found = pushes(config, group, 5 * messages)
    elif options["kind"] == "latency":
        found = latencies(config, group)
    else:
        run = receives if options["kind"] == "receive" else sends
        count, wall_s, cpu_s = run(config, group, messages)
        found = {"count": count, "wall_s": wall_s, "cpu_s": cpu_s}
    print(json.dumps(found), flush=True)
    os._exit(0)  # the client's threads may not end


class Listener(MessageListener):  # type: ignore[misc]  # its base is unknown here
    """Calls a function with each message."""

    def __init__(self, act):
        self._act = act

    def consume(self, message):
        self._act(message)
        return ConsumeResult.SUCCESS


def consumer_of(config, group, topic, act):
    """Start a push consumer, and return it."""
    consumer = PushConsumer(
        config,
        group,
        Listener(act),
        {topic: FilterExpression()},
        consumption_thread_count=_THREADS,
    )
    consumer.startup()


def pushes(config, group, messages):
    """Consume `messages` messages with a listener that does nothing."""
    span = Span(messages)
    consumer_of(config, group, _TOPIC, lambda _: span.count())
    span.wait()
    return span.found()


def latencies(config, group):
    """Send at a steady rate, and consume."""
    found = Latencies()
    producer = Producer(config, (_LATENCY_TOPIC,))
    producer.startup()
    consumer_of(config, group, _LATENCY_TOPIC, lambda each: found.came(each.body))

    def send(body):
        message = Message()
        message.topic = _LATENCY_TOPIC
        message.body = body
        producer.send(message)

    return at_rate(send, found)


def sends(config, _group, messages):
    """Send `messages` messages one at a time, as this client has no batches."""
    producer = Producer(config, (_TOPIC,))
    producer.startup()

    def send():
        message = Message()
        message.topic = _TOPIC
        message.body = b"x" * 128
        producer.send(message)

    for _ in range(20):
        send()
    wall, cpu = time.monotonic(), time.process_time()
    for _ in range(messages):
        send()
    return messages, time.monotonic() - wall, time.process_time() - cpu


def receives(config, group, messages):
    """Receive 32 at a time, and acknowledge each alone, the client's only way."""
    consumer = SimpleConsumer(config, group, {_TOPIC: FilterExpression()})
    consumer.startup()
    time.sleep(2)  # startup does not wait for the settings
    wall, cpu = time.monotonic(), time.process_time()
    count = 0
    while count < messages:
        for each in consumer.receive(32, 60) or ():
            _ = each.body
            consumer.ack(each)
            count += 1
    return count, time.monotonic() - wall, time.process_time() - cpu


if __name__ == "__main__":
    main()
