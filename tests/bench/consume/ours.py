"""A consumer with defaults that only counts messages, like BenchConsumer.java.

    python -m tests.bench.consume.ours OPTIONS

OPTIONS are a JSON object: namesrv, group, topic, orderly, batch, messages (how many to
count), latency, cached_bytes_max, block, and plain, with which the engine is not handed
off to consume threads. Prints {"event": "first", "epochUs"} at the first message and
{"event": "done", "seen", "spanS"} once all were counted. With latency, only bodies
"m<epoch us>" count, and "done" has percentiles of their ages. With messages 0, it runs
until standard input ends; with block, each listener call waits for that, too. The
threshold of the garbage collector is that of `rmq consume`, as the README advises.
"""

from __future__ import annotations

import gc
import itertools
import json
import sys
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rmqcli.consumer.consumer import Consumer
from rmqcli.consumer.engine_thread import EngineThread
from rmqcli.consumer.remoting_backend import RemotingConsumerBackend
from rmqcli.engine.config import ConsumeFromWhere, ConsumerConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmqcli.model import Message


def say(**event: object) -> None:
    """Write one event to standard output, and flush it."""
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


class PlainBackend(RemotingConsumerBackend):
    """A back end whose engine is never handed off to a consume thread."""

    def _make_engine_thread(self, client, runner):
        return EngineThread(client, runner, on_end=self._on_end)


class PlainConsumer(Consumer):
    """A consumer with that back end."""

    _remoting_backend = PlainBackend


class Counter:
    """Counts messages from any thread up to `messages`; `over` is set at the last."""

    def __init__(self, messages: int) -> None:
        self.messages = messages
        self.over = threading.Event()
        self.ages_us: list[int] = []
        self._first_s = self._last_s = 0.0
        self._next = itertools.count(1).__next__
        self._edges = frozenset((1, messages))

    def one(self, _message: Message) -> None:
        """Count a message. A listener of single messages."""
        number = self._next()
        if number in self._edges:
            self._edge(number)

    def several(self, messages: Sequence[Message], _context: object) -> None:
        """Count messages. A listener of batches."""
        for _ in messages:
            number = self._next()
            if number in self._edges:
                self._edge(number)

    def age(self, message: Message) -> None:
        """Count a message whose body has the time of its send, and note its age."""
        if not self._first_s:
            self._edge(1)
        body = message.body
        if not body.startswith(b"m"):
            return
        self.ages_us.append(time.time_ns() // 1_000 - int(body[1:]))
        if self._next() == self.messages:
            self._edge(self.messages)

    def block(self, message: Message) -> None:
        """Count a message, and block until the end."""
        self.one(message)
        self.over.wait()

    def done(self) -> dict[str, Any]:
        """Return the event that reports what was counted."""
        event: dict[str, Any] = {
            "event": "done",
            "seen": self._next() - 1,
            "spanS": self._last_s - self._first_s,
        }
        if self.ages_us:
            ages, count = sorted(self.ages_us), self.messages
            event |= {
                "p50Us": ages[count // 2],
                "p99Us": ages[count * 99 // 100],
                "maxUs": ages[count - 1],
            }
        return event

    def _edge(self, number: int) -> None:
        now_s = time.perf_counter()
        if number == 1:
            self._first_s = now_s
            say(event="first", epochUs=time.time_ns() // 1_000)
        if number == self.messages:
            self._last_s = now_s
            self.over.set()


def main() -> None:
    """Consume until all messages are counted, or until standard input ends."""
    options = json.loads(sys.argv[1])
    gc.set_threshold(50_000)
    counter = Counter(options["messages"])
    on_message: Callable[[Any], None] | None = counter.one
    on_batch: Callable[[list[Any], Any], None] | None = None
    if options["batch"] > 1:
        on_message, on_batch = None, counter.several
    elif options.get("latency"):
        on_message = counter.age
    elif options.get("block"):
        on_message = counter.block
    config = ConsumerConfig(
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        consume_message_batch_max_size=options["batch"],
    )
    if "cached_bytes_max" in options:
        config = replace(config, cached_bytes_max=options["cached_bytes_max"])
    make = PlainConsumer if options.get("plain") else Consumer
    with make(
        options["group"],
        options["topic"],
        on_message,
        on_batch=on_batch,
        orderly=options.get("orderly", False),
        namesrv=options["namesrv"],
        config=config,
    ):
        if counter.messages:
            counter.over.wait()
            say(**counter.done())
        else:
            sys.stdin.read()
            counter.over.set()


if __name__ == "__main__":
    main()
