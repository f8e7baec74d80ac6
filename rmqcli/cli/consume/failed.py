"""Lines on stderr about failed deliveries: what happened to each message.

The engine's thread only adds failed deliveries to a list, and never waits. The main
thread looks up where a message was first stored, and writes its line.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Final

from rmqcli.api.calls.store import view_message_by_id
from rmqcli.api.client import Client
from rmqcli.cli.ui.escape import safe
from rmqcli.engine.message import PulledMessage
from rmqcli.engine.reports import Fate
from rmqcli.errors import RmqError
from rmqcli.model import RETRY_GROUP_TOPIC_PREFIX, MessageQueue, dlq_topic
from rmqcli.wire.ids import decode_offset_msg_id
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.record import StoredMessage
from rmqcli.wire.version import V4_9_2

if TYPE_CHECKING:
    from rmqcli.cli.consume.counts import Counts
    from rmqcli.cli.consume.status import Status
    from rmqcli.config import ClientConfig
    from rmqcli.engine.reports import FailedDelivery
    from rmqcli.model import Message


ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
DELAY: Final = "DELAY"  # MessageConst.PROPERTY_DELAY_TIME_LEVEL
#: At most this many lines wait for the main thread; further ones are only counted.
_WAITING_MAX: Final = 10_000
#: At most this many places of failed messages are kept, for lines about retries.
_PLACES_MAX: Final = 10_000
#: A lookup is optional: a broker that hangs must not delay the lines for long.
_LOOKUP_TIMEOUT_MS: Final = 1_000


#: Queue, offset (None if a proxy did not report it) and id.
_Key = tuple[MessageQueue, "int | None", "str | None"]


def _key(message: Message) -> _Key:
    return message.message_queue, message.queue_offset, message.msg_id


def _order(item: tuple[_Key, str]) -> tuple[MessageQueue, int]:
    queue, queue_offset, _ = item[0]
    return queue, -1 if queue_offset is None else queue_offset


class FailedDeliveries:
    """Collects failed deliveries, and writes a line about each."""

    def __init__(self, group: str, counts: Counts, client_config: ClientConfig) -> None:
        self._group = group
        self._counts = counts
        self._client_config = client_config
        self._by_proxy = bool(client_config.endpoints)
        self._client: Client | None = None
        self._lock = threading.Lock()
        #: message -> why the delivery failed; guarded by _lock
        self._reasons: dict[_Key, str] = {}
        #: (delivery, reason); guarded by _lock
        self._waiting: deque[tuple[FailedDelivery, str]] = deque()
        self._left_out = 0
        #: id -> the queue and offset of the first copy; only for the main thread
        self._places: dict[str, tuple[MessageQueue, int]] = {}

    def explain(self, message: Message, reason: str) -> None:
        """Record why a delivery failed, until its fate is known. Thread-safe."""
        with self._lock:
            self._reasons[_key(message)] = reason

    def on_failed(self, failed: FailedDelivery) -> None:
        """Accept a failed delivery from the engine; waits for nothing but a lock."""
        message = failed.message
        self._counts.count_fate(failed.fate)
        with self._lock:
            reason = self._reasons.pop(_key(message), "failed")
            if len(self._waiting) < _WAITING_MAX:
                self._waiting.append((failed, reason))
            else:
                self._left_out += 1
        self._counts.has_news.set()

    def say(self, status: Status) -> None:
        """Write a line for each failed delivery; call it in the main thread."""
        with self._lock:
            waiting, self._waiting = self._waiting, deque()
            left_out, self._left_out = self._left_out, 0
        for failed, reason in waiting:
            where = self._where(failed.message)
            line = safe(f"{where}: {reason}; {self._fate(failed)}")
            if failed.fate in (Fate.DEAD_LETTER, Fate.GIVEN_UP):
                status.warn(line)
            else:
                status.say(line)
        if left_out:
            status.warn(f"{left_out:,} more failed deliveries are not listed")

    def close(self, status: Status) -> None:
        """Write the remaining lines, also of messages whose fate stays unknown."""
        self.say(status)
        with self._lock:
            unknown, self._reasons = self._reasons, {}
        for (queue, queue_offset, _), reason in sorted(unknown.items(), key=_order):
            fate = (
                "no broker confirmed that it stored the message for a retry: it may be"
                " delivered again, or be in the retry topic"
            )
            if self._by_proxy:
                fate = "its outcome is unknown: it may be delivered again"
            at = "" if queue_offset is None else f" offset {queue_offset}"
            status.warn(safe(f"{queue}{at}: {reason}; {fate}"))
        if self._client is not None:
            self._client.close()
            self._client = None

    def _fate(self, failed: FailedDelivery) -> str:
        of = "" if failed.retries_max is None else f" of {failed.retries_max}"
        match failed.fate:
            case Fate.RETRY_TOPIC | Fate.DELIVERED_AGAIN:
                return f"retry {failed.retry}{of} follows"
            case Fate.RETRY_HERE if failed.error is not None:
                return (
                    f"no broker accepted it for a retry ({failed.error}): this member"
                    " retries it"
                )
            case Fate.RETRY_HERE:
                held_up = "message group" if self._by_proxy else "queue"
                return (
                    f"retry {failed.retry}{of} follows, its {held_up} is paused until"
                    " then"
                )
            case Fate.DEAD_LETTER if self._is_delayed(failed.message):
                return (
                    f"dead letter on its way to {dlq_topic(self._group)}: brokers"
                    " before 4.9.2 may store it only after one more delay"
                )
            case Fate.DEAD_LETTER:
                return f"dead letter in {dlq_topic(self._group)}"
            case Fate.GIVEN_UP:
                return "given up: there are no retries with --broadcast"
            case Fate.QUEUE_LOST if self._by_proxy:
                return "not acknowledged in time: it will be delivered again"
            case Fate.QUEUE_LOST:
                return "not committed: the next owner of its queue receives it"
        return "already sent back, because it took too long"

    def _where(self, message: Message) -> str:
        """The queue and offset of the first copy, as far as known, and its id."""
        if not isinstance(message, PulledMessage):
            return self._where_by_proxy(message)
        queue, queue_offset = message.message_queue, message.queue_offset
        origin_id = message.properties.get(ORIGIN_MESSAGE_ID)
        msg_id = message.msg_id or origin_id or message.offset_msg_id
        if not queue.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            place: tuple[MessageQueue, int] | None = (queue, queue_offset)
            self._remember(message.offset_msg_id, (queue, queue_offset))
            self._remember(msg_id, (queue, queue_offset))
        else:
            place = self._places.get(origin_id or msg_id)
            if place is None and origin_id is not None:
                place = self._look_up(message, origin_id)
                if place is not None:
                    self._remember(origin_id, place)
        if place is None:
            where = f"message of {message.topic}, now at {queue} offset {queue_offset}"
        else:
            where = f"{place[0]} offset {place[1]}"
        return f"{where}, id {msg_id}"

    def _where_by_proxy(self, message: Message) -> str:
        """The same for a proxy, where a retry has the same id as its first copy."""
        msg_id = message.msg_id or "unknown"
        if not message.reconsume_times and message.queue_offset is not None:
            self._remember(msg_id, (message.message_queue, message.queue_offset))
        place = self._places.get(msg_id)
        if place is None:
            return f"message of {message.topic}, id {msg_id}"
        return f"{place[0]} offset {place[1]}, id {msg_id}"

    def _is_delayed(self, message: Message) -> bool:
        """Whether the broker may store the dead letter only after one more delay.

        Up to 4.9.1 brokers keep the delay of the retry that failed last.
        Source: SendMessageProcessor.consumerSendMsgBack.
        """
        if not isinstance(message, PulledMessage) or DELAY not in message.properties:
            return False
        try:
            client = self._opened_client()
            route = client.route(message.topic)
            address = client.master_of(route, message.broker_name)
            return client.broker_version(address) < V4_9_2
        except RmqError:
            return False

    def _opened_client(self) -> Client:
        if self._client is None:
            self._client = Client(self._client_config)
        return self._client

    def _remember(self, msg_id: str, place: tuple[MessageQueue, int]) -> None:
        self._places.pop(msg_id, None)
        self._places[msg_id] = place
        while len(self._places) > _PLACES_MAX:
            del self._places[next(iter(self._places))]

    def _look_up(
        self, message: Message, origin_id: str
    ) -> tuple[MessageQueue, int] | None:
        """Look up a first copy that failed before this member joined; None if gone.

        It asks the broker of the retry, which copied the message from its own log.
        """
        broker_name = message.broker_name
        try:
            at = decode_offset_msg_id(origin_id).commit_log_offset
            client = self._opened_client()
            address = client.master_of(client.route(message.topic), broker_name)
            body = client.invoke(
                address,
                view_message_by_id(at, topic=message.topic),
                timeout_ms=_LOOKUP_TIMEOUT_MS,
            )
        except RmqError:  # the line then names the place of the retry
            return None
        for found in decode_messages(body):
            if (
                isinstance(found, StoredMessage)
                and found.topic == message.topic
                and found.offset_msg_id == origin_id
                and found.msg_id == message.msg_id
            ):
                queue = MessageQueue(found.topic, broker_name, found.queue_id)
                return queue, found.queue_offset
        return None
