"""The receives, acks and other requests of a `SimpleConsumer`, as tasks.

A receive sends a request to every broker of every subscribed topic at once, and returns
with the first messages. A client that asks one broker after the other would return
empty-handed while messages wait at the next one. The requests that the other brokers
hold then stay open, and the next receive uses them. Messages that they bring in the
meantime wait in the `Receiver`. When such a message is returned, it is hidden anew for
the whole time, unless it has only just arrived; at the close, waiting messages are
given back. Over remoting, with one topic on one broker, no request stays open.

An ack may be repeated, so it is sent again after a lost connection. A change of the
invisible time is sent once: the broker creates a new handle for each change that it
receives, and delivers the message again for each handle that is not acknowledged. When
the answer is missing, or a proxy has lost its broker, the client cannot know which
handle is valid, and refuses an ack.

Everything here runs in the consumer's thread; `network` is remoting or gRPC.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, Protocol

from rmqcli import tasks
from rmqcli.clock import Deadline
from rmqcli.dataclass import dataclass
from rmqcli.errors import ReceiptHandleError, RmqError, TimeLimitError
from rmqcli.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from concurrent.futures import Future

    from rmqcli.clock import Clock
    from rmqcli.consumer.simple.received import ReceivedMessage
    from rmqcli.model import MessageQueue
    from rmqcli.wire.subscription import SubscriptionData

logger = get_logger(__name__)

#: The pause before a source that failed is asked again; doubled each time.
_REST_MS: Final = 200
_REST_MS_MAX: Final = 5_000
#: An empty answer is early if it came before this fraction of the polling time.
_EARLY: Final = 0.5
#: A message that has waited here for this fraction of its time is hidden anew.
_STALE: Final = 0.1
#: How long messages that are given back stay hidden.
_GIVE_BACK_MS: Final = 1_000
#: The pause before an ack is retried; doubled each time.
_ACK_AGAIN_MS: Final = 100


class PopNetwork(Protocol):
    """Receives, acks and changes, over remoting or gRPC. Tasks may raise RmqError."""

    #: the longest time for which a broker holds a receive
    poll_ms_max: int
    #: the shortest one; a receive that waits for less leaves its request open
    poll_ms_min: int
    #: how much longer a receive waits for the answers to its own requests
    answer_ms: int

    def sources(self, topic: str) -> tasks.Task[list[MessageQueue]]:
        """The queues from which the topic is received.

        Queue id -1 stands for all queues of a broker.
        """

    def receive(
        self,
        source: MessageQueue,
        subscription: SubscriptionData,
        *,
        max_messages: int,
        invisible_ms: int,
        poll_ms: int,
    ) -> tasks.Task[list[ReceivedMessage]]:
        """Receive messages of a source.

        Returns none after `poll_ms`, or earlier when the broker cannot hold the
        request.
        """

    def log_level(self, source: MessageQueue, error: RmqError) -> int:
        """The level at which to log that receives of a source have begun to fail."""

    def ack(
        self, messages: Sequence[ReceivedMessage]
    ) -> tasks.Task[list[RmqError | None]]:
        """Acknowledge messages of one broker; return an outcome for each, in order."""

    def change_invisible(
        self, message: ReceivedMessage, invisible_ms: int
    ) -> tasks.Task[None]:
        """Hide a message for `invisible_ms` from now on, and renew its lease."""


class PopBackend(PopNetwork, Protocol):
    """The network of one consumer, and the thread in which its tasks run.

    Any thread may call `start`, `run`, `post`, `subscribed` and `end`. The other
    methods may only be called inside that thread.
    """

    @property
    def client_id(self) -> str:
        """The id under which servers know the consumer."""

    @property
    def runner(self) -> tasks.Runner:
        """What runs its tasks inside the thread."""

    def start(self) -> None:
        """Start the thread, or ask the proxy for routes and settings."""

    def run(self, part: tasks.Part) -> Future[Any]:
        """Run a task in the thread; the future has its result or its RmqError."""

    def post(self, action: Callable[[], None]) -> None:
        """Call `action` in the thread."""

    def subscribed(self) -> None:
        """Note that the subscriptions have changed."""

    def leave(self) -> tasks.Task[None]:
        """Tell the servers that this member leaves."""

    def end(self) -> bool:
        """End the thread and the connections; return whether it ended in time."""


@dataclass(slots=True)
class _Source:
    """The state of one source, and the requests that it holds."""

    #: each request that is held -> the subscription with which it was sent
    open: dict[tasks.Pending[list[ReceivedMessage]], SubscriptionData] = field(
        default_factory=dict
    )
    rest_until_ms: int = 0
    rest_ms: int = 0
    failure: RmqError | None = None


@dataclass(slots=True, kw_only=True)
class _Wanted:
    """One call of `receive` in progress."""

    max_messages: int
    invisible_ms: int
    deadline: Deadline
    #: its own requests that must be answered before it may return without a message
    open_count: int = 0
    #: sources that it has asked, that hold a request already, or that rest
    asked: set[MessageQueue] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class Receiver:
    """The requests of one SimpleConsumer, and messages that it has not returned yet."""

    network: PopNetwork
    runner: tasks.Runner
    clock: Clock
    #: topic -> its subscription; other threads change it by single calls
    subscriptions: dict[str, SubscriptionData]
    _sources: dict[MessageQueue, _Source] = field(default_factory=dict)
    #: messages that no receive has returned yet
    _messages: deque[ReceivedMessage] = field(default_factory=deque)
    #: ends when something changes that receives may wait for; then it is replaced
    _news: tasks.Pending[None] = field(default_factory=tasks.Pending)
    _waiting: int = 0
    _is_closing: bool = False

    # --- receiving ---

    def receive(
        self, max_messages: int, *, invisible_ms: int, await_ms: int
    ) -> tasks.Task[list[ReceivedMessage]]:
        """Return up to `max_messages` as soon as there is one; none after `await_ms`.

        Raises at once an error that is not worth a retry. Raises any other error at the
        end, if all sources have failed.
        """
        wanted = _Wanted(
            max_messages=max_messages,
            invisible_ms=invisible_ms,
            deadline=Deadline(
                self.clock, max(await_ms, min(self.network.poll_ms_min, 1_000))
            ),
        )
        self._waiting += 1
        try:
            while True:
                messages = yield from self._take(wanted)
                if messages or self._is_closing:
                    return messages
                yield from self._ask(wanted)
                if self._is_closing:
                    return []
                self._raise_failure(wanted)
                if wanted.deadline.is_over() and not wanted.open_count:
                    return []
                if not self._messages:
                    yield from self._wait(wanted)
        finally:
            self._waiting -= 1

    def _take(self, wanted: _Wanted) -> tasks.Task[list[ReceivedMessage]]:
        """Take messages that are here already, and hide them for the wanted time."""
        renewed: list[ReceivedMessage] = []
        stale: list[ReceivedMessage] = []
        now_ms = self.clock.monotonic_ms()
        for _ in range(min(len(self._messages), wanted.max_messages)):
            message = self._messages.popleft()
            lease = message.lease
            is_stale = (
                message.topic not in self.subscriptions
                or lease.invisible_ms != wanted.invisible_ms
                or now_ms - lease.since_ms > _STALE * lease.invisible_ms
            )
            (stale if is_stale else renewed).append(message)
        if not stale:
            return renewed
        outcomes = yield tasks.All(
            [
                self.change_invisible(
                    each,
                    wanted.invisible_ms
                    if each.topic in self.subscriptions
                    else _GIVE_BACK_MS,
                )
                for each in stale
            ]
        )
        for message, outcome in zip(stale, outcomes, strict=True):
            if isinstance(outcome, RmqError):
                logger.warning(
                    "could not hide a received message again before returning it; it"
                    " will be delivered again queue=%s offset=%s error=%s",
                    message.message_queue,
                    message.queue_offset,
                    outcome.message,
                )
            elif message.topic in self.subscriptions:
                renewed.append(message)
        renewed.sort(key=lambda each: (each.message_queue, each.queue_offset or 0))
        return renewed

    def settled(self, topic: str) -> tasks.Task[None]:
        """Wait for the end of open requests with a previous filter for the topic.

        A broker that holds such a request moves the group's offset past messages that
        only the new filter matches, so these would be skipped.
        """
        subscription = self.subscriptions.get(topic)
        yield tasks.All(
            [
                pending
                for queue, source in self._sources.items()
                if queue.topic == topic
                for pending, asked in source.open.items()
                if subscription is None or not _is_same_choice(asked, subscription)
            ]
        )

    def put_back(self, messages: list[ReceivedMessage]) -> None:
        """Keep messages for the next receive, because their caller was interrupted."""
        self._messages.extendleft(reversed(messages))
        self._tell()

    def _ask(self, wanted: _Wanted) -> tasks.Task[None]:
        """Let each source hold one request for each receive that is waiting."""
        found = yield from tasks.every(
            *(self.network.sources(topic) for topic in list(self.subscriptions))
        )
        sources: list[MessageQueue] = []
        for outcome in found:
            sources += outcome
        if self._is_closing:
            return
        self._forget_others(sources)
        now_ms = self.clock.monotonic_ms()
        share = max(1, wanted.max_messages // max(1, len(sources)))
        for queue in sources:
            if queue.topic not in self.subscriptions:
                continue  # it was unsubscribed in the meantime
            source = self._sources.setdefault(queue, _Source())
            is_new = queue not in wanted.asked
            wanted.asked.add(queue)
            if len(source.open) >= self._waiting or now_ms < source.rest_until_ms:
                continue
            left_ms = wanted.deadline.left_ms()
            if left_ms or is_new:
                self._open(queue, source, wanted, share, left_ms)

    def _open(
        self,
        queue: MessageQueue,
        source: _Source,
        wanted: _Wanted,
        share: int,
        left_ms: int,
    ) -> None:
        network = self.network
        poll_ms = max(network.poll_ms_min, min(left_ms, network.poll_ms_max))
        is_own = poll_ms <= left_ms or not network.poll_ms_min
        wanted.open_count += is_own
        opened_ms = self.clock.monotonic_ms()

        def ended(pending: tasks.Pending[list[ReceivedMessage]]) -> None:
            source.open.pop(pending, None)
            wanted.open_count -= is_own
            outcome = pending.outcome()
            if isinstance(outcome, RmqError):
                self._failed(queue, source, outcome)
            else:
                source.failure = None
                spent_ms = self.clock.monotonic_ms() - opened_ms
                if not outcome and spent_ms < _EARLY * poll_ms:
                    self._rest(source)
                else:
                    source.rest_ms = 0
                self._messages.extend(outcome)
            self._tell()

        subscription = self.subscriptions[queue.topic]
        pending = tasks.start(
            network.receive(
                queue,
                subscription,
                max_messages=share,
                invisible_ms=wanted.invisible_ms,
                poll_ms=poll_ms,
            ),
            self.runner,
        )
        source.open[pending] = subscription
        pending.on_done(ended)

    def _failed(self, queue: MessageQueue, source: _Source, error: RmqError) -> None:
        is_news, source.failure = source.failure is None, error
        self._rest(source)
        if error.retriable and not self._is_closing:
            level = self.network.log_level(queue, error) if is_news else logging.INFO
            logger.log(
                level,
                "receive failed topic=%s broker=%s error=%s; next attempt in %d ms",
                queue.topic,
                queue.broker_name,
                error.message,
                source.rest_ms,
            )

    def _rest(self, source: _Source) -> None:
        source.rest_ms = min(max(_REST_MS, 2 * source.rest_ms), _REST_MS_MAX)
        source.rest_until_ms = self.clock.monotonic_ms() + source.rest_ms

    def _raise_failure(self, wanted: _Wanted) -> None:
        """Raise the error that ends a receive, if there is one.

        That is an error that is not worth a retry or, at the end, any error if all
        sources have failed.
        """
        failures = []
        for queue in wanted.asked:
            source = self._sources.get(queue)
            failure = None if source is None else source.failure
            if source is None or failure is None:
                continue
            if not failure.retriable:
                source.failure = None  # raised only once
                source.rest_until_ms = source.rest_ms = 0
                raise failure
            failures.append(failure)
        is_over = wanted.deadline.is_over() and not wanted.open_count
        if is_over and failures and len(failures) == len(wanted.asked):
            raise failures[0]

    def _wait(self, wanted: _Wanted) -> tasks.Task[None]:
        """Wait for messages, an answer, the end of a rest or the end of the receive."""
        now_ms = self.clock.monotonic_ms()
        left_ms = wanted.deadline.left_ms()
        wait_ms = left_ms or self.network.answer_ms
        for queue in wanted.asked:
            source = self._sources.get(queue)
            if left_ms and source is not None and source.rest_until_ms > now_ms:
                wait_ms = min(wait_ms, source.rest_until_ms - now_ms)
        try:
            yield tasks.Within(self._news, wait_ms)
        except TimeLimitError:
            if not left_ms:
                wanted.open_count = 0  # it has waited long enough

    def _tell(self) -> None:
        news, self._news = self._news, tasks.Pending()
        news.succeed(None)

    def _forget_others(self, sources: Collection[MessageQueue]) -> None:
        known = set(sources)
        for queue, source in list(self._sources.items()):
            if queue not in known and not source.open:
                del self._sources[queue]

    # --- acknowledging ---

    def ack(
        self, messages: Sequence[ReceivedMessage], *, timeout_ms: int
    ) -> tasks.Task[list[tuple[ReceivedMessage, RmqError]]]:
        """Acknowledge messages until `timeout_ms`.

        Returns those that were not acknowledged, each with its error.
        """
        deadline = Deadline(self.clock, timeout_ms)
        for message in messages:
            if message.lease.change is not None:
                yield tasks.All([message.lease.change])
        failures: list[tuple[ReceivedMessage, RmqError]] = []
        by_broker: dict[str, list[ReceivedMessage]] = {}
        for message in dict.fromkeys(messages):
            reason = self._void(message)
            if reason is not None:
                failures.append((message, reason))
            elif not message.lease.is_acked:
                by_broker.setdefault(message.broker_name, []).append(message)
        done = yield tasks.All(
            [self._ack_at_broker(each, deadline) for each in by_broker.values()]
        )
        for each in done:
            failures += each
        return failures

    def _ack_at_broker(
        self, messages: list[ReceivedMessage], deadline: Deadline
    ) -> tasks.Task[list[tuple[ReceivedMessage, RmqError]]]:
        """Acknowledge messages, and retry what may succeed, until the deadline."""
        left = messages
        failures: list[tuple[ReceivedMessage, RmqError]] = []
        again_ms = _ACK_AGAIN_MS
        #: the last error, which says more than that the time is over
        known: RmqError | None = None
        while True:
            try:
                outcomes = yield tasks.Within(
                    self.network.ack(left), deadline.left_ms()
                )
            except TimeLimitError as error:
                outcomes = [known or error] * len(left)
            except RmqError as error:
                outcomes = [error] * len(left)
            unanswered = []
            for message, outcome in zip(left, outcomes, strict=True):
                if outcome is None:
                    message.lease.is_acked = True
                elif (
                    outcome.retriable
                    or outcome.may_be_done
                    or isinstance(outcome, TimeLimitError)
                ):
                    unanswered.append((message, outcome))
                    known = outcome
                else:
                    failures.append((message, outcome))
            if not unanswered:
                return failures
            if deadline.left_ms() <= again_ms or self._is_closing:
                return failures + unanswered
            yield tasks.Sleep(again_ms)
            again_ms *= 2
            left = []
            for message, _ in unanswered:
                reason = self._void(message)
                if reason is None:
                    left.append(message)
                else:
                    failures.append((message, reason))
            if not left:
                return failures

    def change_invisible(
        self, message: ReceivedMessage, invisible_ms: int
    ) -> tasks.Task[None]:
        """Hide a message for `invisible_ms` from now on.

        Raises ReceiptHandleError when its handle is not valid, and other RmqErrors.
        """
        lease = message.lease
        while lease.change is not None:
            yield tasks.All([lease.change])
        reason = self._void(message)
        if reason is not None:
            raise reason
        if lease.is_acked:
            raise ReceiptHandleError(f"{_named(message)} is acknowledged already")
        lease.change = change = tasks.start(
            self.network.change_invisible(message, invisible_ms), self.runner
        )
        try:
            yield change
        except RmqError as error:
            if error.may_be_done:
                lease.doubt = error
            raise
        finally:
            lease.change = None

    def _void(self, message: ReceivedMessage) -> RmqError | None:
        """Return why a message's handle is not valid, or None if it is."""
        lease = message.lease
        if lease.doubt is not None:
            return ReceiptHandleError(
                f"the receipt handle of {_named(message)} may be invalid: its"
                f" invisible time may have been changed ({lease.doubt.message}); the"
                " message will be delivered again",
            )
        if lease.is_acked or lease.left_ms(self.clock.monotonic_ms()):
            return None
        return ReceiptHandleError(
            f"the receipt handle of {_named(message)} has expired: its invisible time"
            f" of {lease.invisible_ms} ms is over; the message will be delivered again",
            hint="receive it with a longer invisible_duration_ms, or call"
            " change_invisible in time",
        )

    # --- the end ---

    def begin_close(self) -> None:
        """Let receives return at once, with the messages that they have."""
        self._is_closing = True
        self._tell()

    def give_back(self) -> tasks.Task[None]:
        """Have brokers soon deliver again the messages that no receive has returned."""
        messages = list(self._messages)
        self._messages.clear()
        yield tasks.All(
            [self.change_invisible(each, _GIVE_BACK_MS) for each in messages]
        )


def _named(message: ReceivedMessage) -> str:
    return f"message {message.msg_id} of {message.topic}"


def _is_same_choice(one: SubscriptionData, other: SubscriptionData) -> bool:
    return (one.sub_string, one.expression_type) == (
        other.sub_string,
        other.expression_type,
    )
