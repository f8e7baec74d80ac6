"""The benchmarks: produce, consume, and latency from a send to a listener.

They use `Producer` and `Consumer` as programs do. `run` measures until the count or the
time is over; an exception, such as an interrupt, ends it, too. In any case `result`
then says what was measured so far.

With a rate, a latency begins when the message was due, and not when it was sent at
last: otherwise a broker that stands still for a second would delay one message only.
"""

from __future__ import annotations

import os
import threading
import uuid
from abc import ABC, abstractmethod
from dataclasses import asdict, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from rmqcli.api.client import Client
from rmqcli.benchmark.result import Meter
from rmqcli.clock import SYSTEM_CLOCK, monotonic_us
from rmqcli.consumer.consumer import Consumer
from rmqcli.dataclass import dataclass
from rmqcli.engine.config import ConsumerConfig
from rmqcli.errors import (
    ConfigError,
    DeniedError,
    NotFoundError,
    RmqError,
    SendUnknownError,
    TransportError,
)
from rmqcli.producer.config import ProducerConfig
from rmqcli.producer.message import ProducerMessage
from rmqcli.producer.producer import Producer
from rmqcli.units import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from rmqcli.benchmark.result import BenchResult
    from rmqcli.config import ClientConfig
    from rmqcli.model import Message
    from rmqcli.producer.backend import SendResult

ACKS_ALL: Final = "all"
ACKS_NONE: Final = "none"
#: So many failures in a row end a benchmark: no broker can be reached.
FAILURES_IN_A_ROW_MAX: Final = 100
#: How long a benchmark waits for messages that were sent, and have not come or are not
#: stored.
GRACE_MS: Final = 5_000
#: After an interrupt it waits only for those that are on their way.
_INTERRUPTED_GRACE_MS: Final = 500
#: How long its consumer may take until it has all queues.
_JOIN_MS: Final = 60_000
_LOOK_MS: Final = 100
#: The highest limit: brokers decide which messages are too large.
_MESSAGE_BYTES_MAX: Final = 16 << 20
#: A message is not compressed, whatever its size.
_NO_COMPRESSION: Final = 2**31 - 1
#: The property by which `latency` knows its own messages.
RUN_PROPERTY: Final = "RMQ_BENCH_RUN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How much to send or consume: until `count` or `duration_ms`, the first of them.

    `warm_up_ms` is not measured.
    """

    topic: str
    count: int | None = None
    duration_ms: int | None = None
    warm_up_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceLoad(Load):
    """What to send, and how.

    With `threads`, each of them sends `batch` messages with one request, and waits for
    the answer. Without, one thread sends as long as at most `in_flight` messages wait
    for their answers; the producer puts those that wait into common requests. `acks` is
    ACKS_ALL, or ACKS_NONE to send one-way. `rate_per_s` is for all threads together.
    """

    size_bytes: int = 1024
    rate_per_s: int | None = None
    threads: int | None = None
    in_flight: int = 1024
    batch: int = 1
    acks: str = ACKS_ALL


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeLoad(Load):
    """What to consume, and how; see ConsumerConfig."""

    group: str
    from_: str = "earliest"
    threads: int = 20
    batch: int = 32
    pull_batch: int = 32
    orderly: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyLoad(Load):
    """What to send and to receive."""

    group: str
    size_bytes: int = 1024
    rate_per_s: int = 100


class Bench(ABC):
    """One benchmark. `run` may be called once, in any thread."""

    kind = ""
    latency_of = ""

    def __init__(self, client: ClientConfig, load: Load) -> None:
        self.load = load
        self.meter = Meter()
        self._client = client
        #: set at the end, for all threads
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._ended_by = "interrupt"
        self._error: RmqError | None = None
        self._in_a_row = 0

    @property
    def error(self) -> RmqError | None:
        """Why the benchmark gave up; None if it did not."""
        return self._error

    def run(self, on_progress: Callable[[int], None] = lambda _: None) -> None:
        """Measure. `on_progress` gets the number of messages so far, now and then.

        Raises the errors of the start. A later one is in `error`.
        """
        try:
            self._run(on_progress)
        finally:
            self._stop.set()
            self.meter.end()

    def result(self) -> BenchResult:
        """Return what was measured so far."""
        return self.meter.result(
            self.kind,
            self.load.topic,
            self._settings(),
            latency_of=self.latency_of,
            ended_by=self._ended_by,
            more=self._more(),
        )

    @abstractmethod
    def _run(self, on_progress: Callable[[int], None]) -> None: ...

    def _settings(self) -> dict[str, Any]:
        settings = asdict(self.load)
        settings.pop("topic")
        return {name.rstrip("_"): value for name, value in settings.items()}

    def _more(self) -> dict[str, int]:
        return {}

    def _end(self, why: str, error: RmqError | None = None) -> None:
        with self._lock:
            if not self._stop.is_set():
                self._ended_by, self._error = why, error
                self.meter.end()
                self._stop.set()

    def _watch(self, on_progress: Callable[[int], None]) -> None:
        """Wait for the end, and say when the warm-up and the time are over."""
        clock, load = SYSTEM_CLOCK, self.load
        start_ms = clock.monotonic_ms()
        while not clock.wait_ms(self._stop, _LOOK_MS):
            spent_ms = clock.monotonic_ms() - start_ms
            if load.warm_up_ms and spent_ms >= load.warm_up_ms:
                self.meter.begin()
            if (
                load.duration_ms is not None
                and spent_ms >= load.warm_up_ms + load.duration_ms
            ):
                self._end("time")
            on_progress(self.meter.done)

    def _begin_cold(self) -> None:
        """Begin to measure at once if there is no warm-up."""
        if not self.load.warm_up_ms:
            self.meter.begin()

    def _failed(self, error: RmqError, messages: int) -> None:
        """Count a failed send; end if it will not get better."""
        is_unknown = isinstance(error, SendUnknownError)
        reason = getattr(error, "name", "") or type(error).__name__
        self.meter.fail(reason, messages, is_unknown=is_unknown)
        with self._lock:
            self._in_a_row += 1
            is_down = self._in_a_row >= FAILURES_IN_A_ROW_MAX
        if isinstance(error, ConfigError | NotFoundError | DeniedError) or (
            is_down and isinstance(error, TransportError)
        ):
            self._end("error", error)


def _producer(client: ClientConfig, in_flight: int) -> Producer:
    config = ProducerConfig(
        async_messages_max=in_flight,
        compress_msg_body_over_howmuch_bytes=_NO_COMPRESSION,
        create_topic_key=None,  # an unknown topic is an error
        max_message_size_bytes=_MESSAGE_BYTES_MAX,
        retry_times_when_send_failed=0,  # an attempt is what is measured
        retry_times_when_send_async_failed=0,
    )
    return Producer(client=client, config=config)


@dataclass(slots=True)
class _Pace:
    """When the messages of one thread are due; `stop` ends a wait."""

    _per_s: float | None
    _stop: threading.Event
    _start_us: int = field(default_factory=monotonic_us)
    _count: int = 0

    def next_us(self, messages: int) -> int:
        """Wait until the next messages are due, and return when that was."""
        if self._per_s is None:
            return monotonic_us()
        due_us = self._start_us + int(self._count * 1_000_000 / self._per_s)
        self._count += messages
        while (left_us := due_us - monotonic_us()) > 0:
            if SYSTEM_CLOCK.wait_ms(self._stop, -(-left_us // 1000)):
                return monotonic_us()
        return due_us


class ProduceBench(Bench):
    """Sends messages of one size, as fast as possible or at a rate."""

    kind = "produce"

    load: ProduceLoad

    def __init__(self, client: ClientConfig, load: ProduceLoad) -> None:
        super().__init__(client, load)
        self._body = os.urandom(load.size_bytes)
        self._begun = 0
        #: threads that have something to send
        self._at_work = load.threads or 1
        #: messages without an answer, of the thread that submits
        self._open = 0
        #: of messages without an answer: those that were sent, and those not stored
        self._oneway_sent = 0
        self._not_stored: int | None = None
        self._answered = threading.Condition()
        if load.acks == ACKS_NONE:
            self.latency_of = "nothing: brokers do not answer one-way sends"
        else:
            begin = "the moment it was due" if load.rate_per_s else "the call"
            self.latency_of = f"{begin} to the broker's answer"

    def _run(self, on_progress: Callable[[int], None]) -> None:
        load = self.load
        with _producer(self._client, load.in_flight) as producer:
            if load.threads is None:
                work: Callable[[Producer], None] = self._submit
            else:
                work = self._oneway if load.acks == ACKS_NONE else self._wait
            threads = [
                threading.Thread(
                    target=self._guarded,
                    args=(work, producer),
                    name=f"rmq-bench-{number + 1}",
                    daemon=True,
                )
                for number in range(load.threads or 1)
            ]
            topic_ends = _TopicEnds(self._client, load.topic)
            stored_before = topic_ends.sum() if load.acks == ACKS_NONE else 0
            self._begin_cold()
            for thread in threads:
                thread.start()
            try:
                self._watch(on_progress)
            finally:
                self._stop.set()
                for thread in threads:
                    thread.join()
            if load.acks == ACKS_NONE:
                self._count_stored(topic_ends, stored_before)

    def _count_stored(self, ends: _TopicEnds, before: int) -> None:
        """Wait until all that was sent one-way is stored, and count what is not."""
        clock, never = SYSTEM_CLOCK, threading.Event()
        end_ms = clock.monotonic_ms() + GRACE_MS
        while True:
            try:
                stored = ends.sum() - before
            except RmqError as error:
                self._not_stored = None  # what was read before may have changed
                with self._lock:
                    self._error = self._error or error
                return
            # Others may send to the topic, too.
            self._not_stored = max(0, self._oneway_sent - stored)
            if not self._not_stored or clock.monotonic_ms() >= end_ms:
                return
            clock.wait_ms(never, _LOOK_MS)

    def _more(self) -> dict[str, int]:
        return {} if self._not_stored is None else {"not_stored": self._not_stored}

    def _guarded(self, work: Callable[[Producer], None], producer: Producer) -> None:
        try:
            work(producer)
        except RmqError as error:
            self._end("error", error)
            return
        with self._lock:
            self._at_work -= 1
            is_last = not self._at_work
        if is_last:
            self._end("count")

    def _take(self, wanted: int) -> int:
        """Return how many messages to send next; 0 at the end."""
        if self._stop.is_set():
            return 0
        if self.load.count is None:
            return wanted
        with self._lock:
            granted = min(wanted, self.load.count - self._begun)
            self._begun += granted
            return granted

    def _pace(self) -> _Pace:
        rate = self.load.rate_per_s
        threads = self.load.threads or 1
        return _Pace(None if rate is None else rate / threads, self._stop)

    def _wait(self, producer: Producer) -> None:
        """Send, and wait for each answer."""
        message = ProducerMessage(self.load.topic, self._body)
        pace = self._pace()
        while granted := self._take(self.load.batch):
            due_us = pace.next_us(granted)
            try:
                if granted == 1:
                    found = [producer.send(message)]
                else:
                    found = producer.send_batch([message] * granted)
            except RmqError as error:
                self._failed(error, granted)
                continue
            self._stored(found[0], granted, due_us)

    def _oneway(self, producer: Producer) -> None:
        message = ProducerMessage(self.load.topic, self._body)
        pace = self._pace()
        while self._take(1):
            pace.next_us(1)
            try:
                producer.send_oneway(message)
            except RmqError as error:
                self._failed(error, 1)
                continue
            with self._lock:
                self._oneway_sent += 1
            self.meter.add(1, len(self._body), status="ONEWAY")

    def _submit(self, producer: Producer) -> None:
        """Send, and let the answers come later."""
        message = ProducerMessage(self.load.topic, self._body)
        pace = self._pace()
        while self._take(1):
            due_us = pace.next_us(1)
            future = producer.submit(message)
            with self._answered:
                self._open += 1
            future.add_done_callback(partial(self._on_answer, due_us))
        with self._answered:
            self._answered.wait_for(lambda: not self._open)

    def _on_answer(self, due_us: int, done: Future[SendResult]) -> None:
        error = done.exception()
        if error is None:
            self._stored(done.result(), 1, due_us)
        elif isinstance(error, RmqError):
            self._failed(error, 1)
        with self._answered:
            self._open -= 1
            if not self._open:
                self._answered.notify_all()

    def _stored(self, result: SendResult, messages: int, due_us: int) -> None:
        self._in_a_row = 0
        self.meter.add(
            messages,
            messages * len(self._body),
            since_us=due_us,
            status=result.status.value,
        )


class ConsumeBench(Bench):
    """Consumes in a group, with a listener that does nothing."""

    kind = "consume"
    latency_of = (
        "the store time, by the broker's clock, to the listener, by this machine's"
    )

    load: ConsumeLoad
    _early = 0

    def _run(self, on_progress: Callable[[int], None]) -> None:
        load = self.load
        consumer = Consumer(
            load.group,
            load.topic,
            on_batch=self._on_batch,
            orderly=load.orderly,
            consume_from=load.from_,
            config=ConsumerConfig(
                consume_threads=load.threads,
                consume_message_batch_max_size=load.batch,
                pull_batch_size=load.pull_batch,
            ),
            client=self._client,
        )
        with consumer:
            self._watch(on_progress)

    def _more(self) -> dict[str, int]:
        return {"before_store_time": self._early} if self._early else {}

    def _on_batch(self, messages: Sequence[Message], _context: object) -> bool:
        self._begin_cold()  # without the time that joining the group took
        now_ms = SYSTEM_CLOCK.epoch_ms()
        for message in messages:
            age_ms = now_ms - (message.store_timestamp_ms or now_ms)
            if age_ms < 0:  # the broker's clock is ahead
                self._early += 1
            self.meter.add(
                1,
                len(message.body),
                duration_us=None if age_ms < 0 else age_ms * 1000,
            )
        if self.load.count is not None and self.meter.done >= self.load.count:
            self._end("count")
        return True


class LatencyBench(Bench):
    """Sends at a rate, and receives the same messages by a consumer of this process."""

    kind = "latency"
    latency_of = "the moment a message was due to the listener that received it"

    load: LatencyLoad

    def __init__(self, client: ClientConfig, load: LatencyLoad) -> None:
        super().__init__(client, load)
        self._run_id = uuid.uuid4().hex
        #: number of a message -> when it was due; those that were not received
        self._due_us: dict[int, int] = {}
        self._sent = 0
        self._twice = 0
        self._is_joined = threading.Event()
        self._received = threading.Condition()

    def _more(self) -> dict[str, int]:
        return {
            "sent": self._sent,
            "not_received": len(self._due_us),
            "received_twice": self._twice,
        }

    def _run(self, on_progress: Callable[[int], None]) -> None:
        load = self.load
        queues = _readable_queues(self._client, load.topic)
        assigned: set[object] = set()

        def on_start(start: Any) -> None:  # noqa: ANN401  # a QueueStart
            if start.queue.topic == load.topic:  # not the group's retry topic
                assigned.add(start.queue)
            if len(assigned) >= queues:
                self._is_joined.set()

        consumer = Consumer(
            load.group,
            load.topic,
            on_batch=self._on_batch,
            consume_from="latest",
            on_start=on_start,
            client=self._client,
        )
        with consumer, _producer(self._client, 1024) as producer:
            if not SYSTEM_CLOCK.wait_ms(self._is_joined, _JOIN_MS):
                raise RmqError(
                    f"group {load.group} does not have all {counted(queues, 'queue')}"
                    f" of topic {load.topic}: other members may be online",
                    hint="name another group",
                )
            thread = threading.Thread(
                target=self._send, args=(producer,), name="rmq-bench-1", daemon=True
            )
            self._begin_cold()
            thread.start()
            is_interrupted = True
            try:
                self._watch(on_progress)
                is_interrupted = False
            finally:
                self._stop.set()
                with self._received:
                    self._received.notify_all()  # the sender may wait for it
                thread.join()
                grace_ms = _INTERRUPTED_GRACE_MS if is_interrupted else GRACE_MS
                with self._received:
                    self._received.wait_for(lambda: not self._due_us, grace_ms / 1000)

    def _send(self, producer: Producer) -> None:
        load = self.load
        pace = _Pace(load.rate_per_s, self._stop)
        body = os.urandom(load.size_bytes)
        while not self._stop.is_set():
            if load.count is not None and self._sent >= load.count:
                break
            number = self._sent
            due_us = pace.next_us(1)
            message = ProducerMessage(
                load.topic, body, properties={RUN_PROPERTY: f"{self._run_id}-{number}"}
            )
            self._due_us[number] = due_us
            try:
                future = producer.submit(message)
            except RmqError as error:
                del self._due_us[number]
                self._end("error", error)
                return
            self._sent += 1
            future.add_done_callback(partial(self._on_answer, number))
        if self._stop.is_set():
            return
        with self._received:
            self._received.wait_for(
                lambda: not self._due_us or self._stop.is_set(), GRACE_MS / 1000
            )
        self._end("count")

    def _on_answer(self, number: int, done: Future[SendResult]) -> None:
        error = done.exception()
        if error is None:
            self._in_a_row = 0
        elif isinstance(error, RmqError):
            self._failed(error, 1)
            if not isinstance(error, SendUnknownError):
                with self._received:
                    self._due_us.pop(number, None)  # nothing to receive
                    self._received.notify_all()

    def _on_batch(self, messages: Sequence[Message], _context: object) -> bool:
        for message in messages:
            run, _, number = message.properties.get(RUN_PROPERTY, "").partition("-")
            if run != self._run_id:
                continue  # of another program, or another run
            due_us = self._due_us.pop(int(number), None)
            if due_us is None:
                self._twice += 1
                continue
            self.meter.add(1, len(message.body), since_us=due_us)
        with self._received:
            self._received.notify_all()
        return True


def _readable_queues(client: ClientConfig, topic: str) -> int:
    with Client(client) as opened:
        return len(opened.route(topic).read_queues())


@dataclass(slots=True)
class _TopicEnds:
    """Where the queues of a topic end, on the brokers that it has at first."""

    _config: ClientConfig
    _topic: str
    _masters: list[str] = field(default_factory=list)

    def sum(self) -> int:
        """Return how many messages were ever stored. Raises a broker's error."""
        from rmqcli.api.calls.stats import get_topic_stats_info

        call = get_topic_stats_info(self._topic)
        with Client(self._config) as client:
            if not self._masters:
                route = client.route(self._topic)
                names = sorted({each.broker_name for each in route.write_queues()})
                self._masters = [client.master_of(route, name) for name in names]
            answers = [client.invoke(address, call) for address in self._masters]
        return sum(each.max_offset for found in answers for each in found.values())
