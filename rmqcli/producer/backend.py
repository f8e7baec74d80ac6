"""What a `Producer` needs from its network, and the values that pass between them.

`remoting.backend` talks to name servers and brokers, `proxy.backend` to a proxy over
gRPC. A `Producer` checks arguments and delegates; it does not know which one it has.
What a protocol cannot do is an UnsupportedError or UsageError of its back end.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from rmqcli.checked import check_int
from rmqcli.dataclass import dataclass
from rmqcli.errors import (
    ConfigError,
    DeadlineError,
    DeniedError,
    SendUnknownError,
    UsageError,
)
from rmqcli.hint import Hint, LibraryCall
from rmqcli.model import QUEUE_NUMS_MAX
from rmqcli.units import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from rmqcli.api.calls.send import SendStatus
    from rmqcli.errors import TransportError
    from rmqcli.model import MessageQueue
    from rmqcli.producer.message import ProducerMessage
    from rmqcli.producer.transactions import LocalTransactionState

    #: Chooses one of a topic's queues; the last argument is the `arg` of `send`.
    MessageQueueSelector: TypeAlias = Callable[
        [Sequence[MessageQueue], ProducerMessage, Any], MessageQueue
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """Where one message was stored.

    `status` is SEND_OK, or says that the broker stored the message but could not flush
    or replicate it in time. `msg_id` is the id that the producer gave the message
    (UNIQ_KEY), `offset_msg_id` is the broker's id. `queue_offset` is None for a delayed
    message and for a message of a transaction, which are not in the queue yet. A proxy
    does not tell in which queue a message is: then `queue` and `offset_msg_id` are
    None. `recall_handle`, for a delayed message that can be recalled, is the argument
    of `Producer.recall`.
    """

    msg_id: str
    status: SendStatus
    queue: MessageQueue | None
    queue_offset: int | None
    offset_msg_id: str | None
    transaction_id: str | None = None
    recall_handle: str | None = None


@dataclass(frozen=True, slots=True)
class QueueChoice:
    """The caller's choice of a queue: a queue, a selector, or neither of them."""

    queue: MessageQueue | None = None
    selector: MessageQueueSelector | None = None
    arg: object = None


#: The back end chooses.
ANY_QUEUE = QueueChoice()


@dataclass(frozen=True, slots=True)
class HalfMessage:
    """A stored half message. `end` sends the decision, and raises RmqError.

    It sends nothing for UNKNOW where the protocol has no message for it.
    """

    result: SendResult
    end: Callable[[LocalTransactionState], None]


class ProducerBackend(Protocol):
    """Sends the messages of one producer. Any thread may call any method.

    A method that returns an outcome waits for it in the caller's thread. `timeout_ms`
    bounds all attempts of a send together. Errors are those of `Producer.send`.
    """

    @property
    def client_id(self) -> str:
        """The id with which brokers or proxies know the producer."""

    def start(self) -> None:
        """Start the threads. Contacts no server before the first message."""

    def submit_by(self, soon: Callable[[Callable[[], None]], object]) -> None:
        """Hand over what `submit` gets when `soon` calls its argument, all together.

        It is called in the thread that submits, which must always be the same.
        """

    def post(self, action: Callable[[], None]) -> None:
        """Run `action` in the back end's thread, after what it does now."""

    def hurry(self) -> None:
        """Let no submitted message linger from now on, because `close` waits for it."""

    def close(self) -> None:
        """Leave the group, and close threads and connections. Idempotent."""

    def in_own_thread(self) -> bool:
        """Whether the caller runs in the thread that ends sends, and must not wait."""

    def queues(self, topic: str) -> list[MessageQueue]:
        """The writable queues of a topic, sorted."""

    def send(
        self, message: ProducerMessage, choice: QueueChoice, timeout_ms: int
    ) -> SendResult:
        """Store one message."""

    def submit(
        self, message: ProducerMessage, choice: QueueChoice, timeout_ms: int
    ) -> Future[SendResult]:
        """Store one message; the future ends in the back end's thread.

        The caller has counted the message with `begin_async`; its end is counted here,
        unless this raises an error.
        """

    def send_batch(
        self,
        messages: Sequence[ProducerMessage],
        queue: MessageQueue | None,
        timeout_ms: int,
    ) -> list[SendResult]:
        """Store messages of one topic next to each other with one request."""

    def send_oneway(self, message: ProducerMessage, choice: QueueChoice) -> None:
        """Hand a message to the network without learning whether it is stored."""

    def send_half(self, message: ProducerMessage, timeout_ms: int) -> HalfMessage:
        """Store the half message of a transaction."""

    def recall(self, topic: str, recall_handle: str) -> str:
        """Recall a delayed message; return its id."""


class SendsInFlight:
    """The sends that have begun and not ended, for which `close` waits. Thread-safe.

    A `with` statement counts a send in the caller's thread.
    """

    def __init__(self) -> None:
        # Reentrant, because a signal handler may close the producer in any line here.
        self._lock = threading.RLock()
        #: notified by `close`, when submitted sends end, and once closed by any end
        self._ended = threading.Condition(self._lock)
        self._count = self._async_count = 0
        self._is_closed = False

    def __enter__(self) -> None:
        self.begin()

    def __exit__(self, *exc_info: object) -> None:
        self.end()

    def begin(self) -> None:
        """Count a send. Raises UsageError after `close`."""
        with self._lock:
            if self._is_closed:
                raise closed()
            self._count += 1

    def end(self) -> None:
        """Count the end of a send."""
        with self._lock:
            self._count -= 1
            if self._is_closed:
                self._ended.notify_all()

    def begin_async(self, async_max: int, may_wait: Callable[[], bool]) -> None:
        """Count a submitted send, once fewer than `async_max` are in flight.

        Does not wait unless `may_wait`. Raises UsageError after `close`, which ends the
        wait.
        """
        with self._lock:
            if self._async_count >= async_max and may_wait():
                self._ended.wait_for(
                    lambda: self._async_count < async_max or self._is_closed
                )
            if self._is_closed:
                raise closed()
            self._count += 1
            self._async_count += 1

    def end_async(self, count: int) -> None:
        """Count the end of submitted sends."""
        with self._lock:
            self._count -= count
            self._async_count -= count
            self._ended.notify_all()

    def close(self, timeout_ms: int) -> None:
        """Refuse further sends, and wait at most `timeout_ms` for those in flight."""
        with self._lock:
            self._is_closed = True
            self._ended.notify_all()
            self._ended.wait_for(lambda: not self._count, timeout_ms / 1_000)


def closed() -> UsageError:
    """The error of a call to a producer that is closed."""
    return UsageError("the producer is closed")


def no_writable_queue(topic: str, *, code: int, name: str) -> DeniedError:
    """The error of a send to a topic without a writable queue."""
    return DeniedError(
        f"topic {topic} has no writable queue: no master is online, or its permissions"
        " do not allow it",
        code=code,
        name=name,
        hint=Hint(
            "read the topic's permissions with ", LibraryCall("Admin.topic", topic)
        ),
    )


def what_is_sent(topic: str, msg_ids: Sequence[str]) -> str:
    """The subject of an error about a request."""
    if len(msg_ids) == 1:
        return f"message {msg_ids[0]} to topic {topic}"
    return f"batch of {counted(len(msg_ids), 'message')} to topic {topic}"


def unknown_send(
    topic: str, msg_ids: tuple[str, ...], unanswered: TransportError
) -> SendUnknownError:
    """The error of a request that was not answered."""
    return SendUnknownError(
        f"{what_is_sent(topic, msg_ids)} may or may not be stored:"
        f" {unanswered.message}",
        address=unanswered.address,
        msg_ids=msg_ids,
        hint=Hint(
            "search its id with ",
            LibraryCall("Admin.messages_by_key"),
            " before sending it again, or let consumers drop duplicates",
        ),
    )


def out_of_time(topic: str, msg_ids: Sequence[str], timeout_ms: int) -> DeadlineError:
    """The error of a message or batch that was certainly not sent in its time."""
    return DeadlineError(
        f"{what_is_sent(topic, msg_ids)} was not sent within {timeout_ms} ms",
        address="",
    )


def check_queue(queue: MessageQueue, topic: str) -> None:
    """Raise ConfigError for a queue of another topic, and for an id that none has.

    For a negative id a broker chooses a queue.
    """
    if queue.topic != topic:
        raise ConfigError(f"queue {queue} does not belong to topic {topic}")
    check_int(queue.queue_id, "queue_id", 0, QUEUE_NUMS_MAX - 1)


def one_topic_of(messages: Sequence[ProducerMessage]) -> str:
    """The topic of a batch. Raises ConfigError for no messages, and for several."""
    topics = {each.topic for each in messages}
    if len(topics) != 1:
        raise ConfigError(
            f"a batch needs messages of one topic; these are of {len(topics)}"
        )
    return messages[0].topic
