"""Sends messages to a cluster and receives them, with the library's own clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqcli import Producer, ProducerMessage
from tests.kit.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqcli import ReceivedMessage, SimpleConsumer


def send(cluster: Any, topic: str, bodies: Iterable[bytes], **fields: Any) -> None:
    """Send messages one after the other; `fields` apply to all of them."""
    with Producer(namesrv=cluster.namesrv) as producer:
        for body in bodies:
            producer.send(ProducerMessage(topic, body, **fields))


def receive_all(
    consumer: SimpleConsumer, count: int, **options: Any
) -> list[ReceivedMessage]:
    """Receive at least `count` messages, which may come in several answers."""
    found: list[ReceivedMessage] = []

    def are_there() -> bool:
        found.extend(consumer.receive(**options))
        return len(found) >= count

    wait_until(are_there, f"{count} messages")
    return found
