"""Consumers for tests, a listener that remembers, and waiting for what it saw."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from rmqcli.consumer.consumer import Consumer
from rmqcli.consumer.threads import LeasingEngineThread, PlainEngineThread
from rmqcli.engine.config import ConsumeFromWhere, ConsumerConfig
from tests.kit.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

FROM_FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


#: The environment variable that says which engine thread consumers of a test have.
ENGINE_THREAD = "RMQ_TEST_ENGINE_THREAD"
ENGINE_THREADS = {"plain": PlainEngineThread, "leasing": LeasingEngineThread}


class ConsumerUnderTest(Consumer):
    """A consumer with the engine thread that the environment names."""

    def _make_engine_thread(self, client, consume_threads):
        make = ENGINE_THREADS[os.environ.get(ENGINE_THREAD, "leasing")]
        return make(client, consume_threads, on_end=self._release)


class Seen:
    """Messages as a listener got them; `act(message, times)` decides the result.

    `times` counts how often a body came, this time included.
    """

    def __init__(self, act: Callable[[Any, int], object] | None = None) -> None:
        self._act = act
        self._lock = threading.Lock()
        self.bodies: list[str] = []
        self.messages: list[Any] = []

    def __call__(self, message):
        text = message.body.decode()
        with self._lock:
            self.bodies.append(text)
            self.messages.append(message)
            times = self.bodies.count(text)
        return None if self._act is None else self._act(message, times)

    def wait_for(self, count, *, timeout_s=PATIENCE_S):
        """Wait until so many different bodies were seen; return all of them, sorted."""
        wait_until(lambda: len(set(self.bodies)) >= count, timeout_s=timeout_s)
        return sorted(set(self.bodies))


def consumer(cluster, group, topics, listener, **options):
    """A consumer from the first offset, with a setting or other options."""
    settings = {
        name: options.pop(name)
        for name in list(options)
        if name in ConsumerConfig.__dataclass_fields__
    }
    settings.setdefault("consume_from_where", FROM_FIRST)
    config = ConsumerConfig(**settings)
    if options.pop("batch", False):
        options["on_batch"] = listener
        listener = None
    return ConsumerUnderTest(
        group, topics, listener, namesrv=cluster.namesrv, config=config, **options
    )


def committed(cluster, group, topic):
    """Queue id to committed offset, as the brokers have it."""
    found = {}
    for broker in cluster.brokers:
        table = cluster.call(lambda broker=broker: broker.core.offsets.table())
        found.update(table.get((topic, group), {}))
    return found
