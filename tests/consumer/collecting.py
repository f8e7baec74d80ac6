"""Consumers for tests, and a listener that records messages and can wait for them."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from rmqcli.consumer.consumer import Consumer
from rmqcli.consumer.engine_lease import LeasingEngineThread
from rmqcli.consumer.engine_thread import EngineThread
from rmqcli.consumer.remoting_backend import RemotingConsumerBackend
from rmqcli.engine.config import ConsumeFromWhere, ConsumerConfig
from tests.kit.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

FROM_FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


#: The environment variable with the kind of engine thread that a test's consumers use.
ENGINE_THREAD = "RMQ_TEST_ENGINE_THREAD"
ENGINE_THREADS = {"plain": EngineThread, "leasing": LeasingEngineThread}


class BackendUnderTest(RemotingConsumerBackend):
    """A back end with the kind of engine thread that the environment variable names."""

    def _make_engine_thread(self, client, runner):
        make = ENGINE_THREADS[os.environ.get(ENGINE_THREAD, "leasing")]
        return make(client, runner, on_end=self._on_end)


class ConsumerUnderTest(Consumer):
    """A consumer whose back end is that one."""

    _remoting_backend = BackendUnderTest
    _backend: Any


class Seen:
    """A listener that records its messages; `act(message, times)` returns its result.

    `times` is how often this body has been delivered, including this delivery.
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
        """Wait until `count` different bodies have been seen; return all, sorted."""
        wait_until(lambda: len(set(self.bodies)) >= count, timeout_s=timeout_s)
        return sorted(set(self.bodies))


def consumer(cluster, group, topics, listener, **options):
    """Create a consumer that begins at the first offset.

    `options` are fields of ConsumerConfig or arguments of Consumer.
    """
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
    """Return the committed offsets in the brokers, by queue id."""
    found = {}
    for broker in cluster.brokers:
        table = cluster.call(lambda broker=broker: broker.state.offsets.table())
        found.update(table.get((topic, group), {}))
    return found
