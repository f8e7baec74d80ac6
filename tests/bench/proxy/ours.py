"""Our client's side of `tests.bench.proxy`: one measurement, in its own process.

OPTIONS are a JSON object: kind, endpoints, group, messages. Prints a JSON object with
count, wall_s and cpu_s, and for latency also p50_ms and p99_ms.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

import grpc

from rmqcli import (
    ClientConfig,
    Consumer,
    ConsumerConfig,
    Producer,
    ProducerMessage,
    SimpleConsumer,
)
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.proxy.metadata import MetadataMaker
from rmqcli.wire.protobuf import definition_pb2 as pb
from rmqcli.wire.protobuf import service_pb2 as service
from tests.bench.proxy.pace import Latencies, Span, at_rate

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli import Message

_TOPIC = "bench"
_LATENCY_TOPIC = "latency"
_BATCH = 32
_THREADS = 20


def sends(client: ClientConfig, messages: int, batch: int) -> tuple[int, float, float]:
    """Send `messages` messages, `batch` in each call."""
    message = ProducerMessage(_TOPIC, b"x" * 128)
    with Producer(client=client) as producer:
        for _ in range(20):
            producer.send(message)
        if batch > 1:
            producer.send_batch([message] * batch)

        def run() -> int:
            if batch == 1:
                for _ in range(messages):
                    producer.send(message)
                return messages
            for _ in range(messages // batch):
                producer.send_batch([message] * batch)
            return messages // batch * batch

        return timed(run)


def bare_sends(endpoints: str, messages: int) -> tuple[int, float, float]:
    """Make as many calls with gRPC alone: the same request, without our client."""
    message = pb.Message(body=b"x" * 128)
    message.topic.name = _TOPIC
    system = message.system_properties
    system.message_id = "01" + "0" * 32
    system.message_type = pb.MessageType.NORMAL
    system.born_timestamp.GetCurrentTime()
    request = service.SendMessageRequest(messages=[message]).SerializeToString()
    metadata = MetadataMaker("bare@1@0@0", credentials=None, clock=SYSTEM_CLOCK).make()
    with grpc.insecure_channel(endpoints) as channel:
        send: Any = channel.unary_unary(
            "/apache.rocketmq.v2.MessagingService/SendMessage"
        )

        def run(count: int) -> int:
            for _ in range(count):
                send(request, timeout=3, metadata=metadata)
            return count

        run(20)
        return timed(lambda: run(messages))


def receives(
    client: ClientConfig, group: str, messages: int
) -> tuple[int, float, float]:
    """Receive and acknowledge `messages` messages, 32 at a time."""
    with SimpleConsumer(group, _TOPIC, client=client) as consumer:

        def run() -> int:
            count = 0
            while count < messages:
                found = consumer.receive(_BATCH, invisible_duration_ms=60_000)
                for each in found:
                    _ = each.body
                consumer.ack(found)
                count += len(found)
            return count

        return timed(run)


def pushes(client: ClientConfig, group: str, messages: int) -> dict[str, float]:
    """Consume `messages` messages with a listener that does nothing."""
    span = Span(messages)
    config = ConsumerConfig(consume_threads=_THREADS)
    with Consumer(group, _TOPIC, lambda _: span.count(), client=client, config=config):
        span.wait()
    return span.found()


def latencies(client: ClientConfig, group: str) -> dict[str, float]:
    """Send at a steady rate, and consume."""
    found = Latencies()
    config = ConsumerConfig(consume_threads=_THREADS)

    def listen(message: Message) -> None:
        found.came(message.body)

    with (
        Producer(client=client) as producer,
        Consumer(group, _LATENCY_TOPIC, listen, client=client, config=config),
    ):
        return at_rate(
            lambda body: producer.send(ProducerMessage(_LATENCY_TOPIC, body)), found
        )


def timed(run: Callable[[], int]) -> tuple[int, float, float]:
    """Call `run`; return its result, and the wall-clock and CPU seconds it took."""
    wall, cpu = time.monotonic(), time.process_time()
    count = run()
    return count, time.monotonic() - wall, time.process_time() - cpu


def main() -> None:
    """Run the measurement that the argument selects."""
    options = json.loads(sys.argv[1])
    client = ClientConfig(endpoints=(options["endpoints"],), plaintext=True)
    messages, group = options["messages"], options["group"]
    match options["kind"]:
        case "push":
            found = pushes(client, group, 5 * messages)
        case "latency":
            found = latencies(client, group)
        case "bare":
            found = as_found(*bare_sends(options["endpoints"], messages))
        case "receive":
            found = as_found(*receives(client, group, messages))
        case "batch":
            # Ten times as many messages fit into the time of the single sends.
            found = as_found(*sends(client, 10 * messages, _BATCH))
        case _:
            found = as_found(*sends(client, messages, 1))
    print(json.dumps(found))


def as_found(count: int, wall_s: float, cpu_s: float) -> dict[str, float]:
    """Return the object to print."""
    return {"count": count, "wall_s": wall_s, "cpu_s": cpu_s}


if __name__ == "__main__":
    main()
