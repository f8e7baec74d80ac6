"""The back end of a `Producer` that talks to name servers and brokers.

| thread | runs | ended by |
|---|---|---|
| rmq-producer | sockets, timers, callbacks of futures | close() |

The caller's thread encodes a message, and hands its request over to rmq-producer.

Source: DefaultMQProducerImpl in apache/rocketmq.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from rmqcli import tasks
from rmqcli.api.client import Client
from rmqcli.api.task_thread import TaskThread
from rmqcli.checked import check_callback, check_returned
from rmqcli.client_id import new_client_id
from rmqcli.engine.message import Origin, PulledItem, PulledRecord
from rmqcli.errors import ConfigError, RmqError, UnsupportedError, UsageError
from rmqcli.log import get_logger
from rmqcli.model import MessageQueue
from rmqcli.producer.accumulator import Accumulator, Entry
from rmqcli.producer.backend import (
    ANY_QUEUE,
    HalfMessage,
    QueueChoice,
    SendResult,
    check_queue,
    one_topic_of,
)
from rmqcli.producer.future import SendFuture
from rmqcli.producer.ids import UniqueIds
from rmqcli.producer.lane import ALONE_BYTES, takes_batches
from rmqcli.producer.message import OutgoingMessage, checked_properties
from rmqcli.producer.remoting.publisher import (
    PRODUCER_GROUP,
    Prepared,
    Publisher,
    Stored,
)
from rmqcli.producer.remoting.requests import SendRequests
from rmqcli.producer.transactions import LocalTransactionState, TransactionChecks
from rmqcli.transport.lookups import local_ip
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.command import RemotingCommand
from rmqcli.wire.compression import deflate_zlib
from rmqcli.wire.header import from_ext_fields
from rmqcli.wire.headers.client import CheckTransactionStateRequestHeader
from rmqcli.wire.headers.send import EndTransactionRequestHeader
from rmqcli.wire.ids import decode_offset_msg_id
from rmqcli.wire.message.batch import encode_items
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.properties import (
    IGNORED_IN_BATCHES,
    LITE_TOPIC,
    PRIORITY,
    UNIQ_KEY,
)
from rmqcli.wire.message.system_flag import (
    COMPRESSED,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from rmqcli.clock import Clock
    from rmqcli.config import ClientConfig
    from rmqcli.producer.backend import SendsInFlight
    from rmqcli.producer.config import ProducerConfig
    from rmqcli.producer.message import ProducerMessage
    from rmqcli.producer.remoting.requests import BatchPart
    from rmqcli.producer.remoting.trace import SentTraces

logger = get_logger(__name__)

_END_OF_STATE: Final = {
    LocalTransactionState.COMMIT_MESSAGE: TRANSACTION_COMMIT,
    LocalTransactionState.ROLLBACK_MESSAGE: TRANSACTION_ROLLBACK,
    LocalTransactionState.UNKNOW: 0,
}


class RemotingBackend:
    """Sends to brokers. Implements ProducerBackend.

    A `group` makes heartbeats, and with `on_check` the broker's checks of transactions
    arrive. With `trace_topic` it writes traces there.
    """

    def __init__(
        self,
        client: ClientConfig,
        config: ProducerConfig,
        *,
        group: str | None,
        on_check: Callable[[Any], object] | None,
        in_flight: SendsInFlight,
        clock: Clock,
        rng: random.Random,
        trace_topic: str | None = None,
    ) -> None:
        self._config = config
        self._group = group
        self._in_flight = in_flight
        self._clock = clock
        self._timeout_ms = client.timeout_ms
        ip = config.client_ip or local_ip(client.namesrv[0]) or "127.0.0.1"
        self.client_id = new_client_id(ip=ip, instance_name=config.instance_name)
        #: Bodies of at least this size are compressed, or gain nothing from a batch.
        self._alone_bytes = min(
            config.compress_msg_body_over_howmuch_bytes, ALONE_BYTES
        )
        self._lock = threading.Lock()
        self._ids = UniqueIds(ip, clock=clock, rng=rng)  # guarded by _lock
        self._traces: SentTraces | None = None
        if trace_topic is not None:
            from rmqcli.producer.remoting.trace import SentTraces, TraceDispatcher

            self._traces = SentTraces(
                TraceDispatcher(client, trace_topic, clock=clock),
                group or PRODUCER_GROUP,
                clock=clock,
            )
        api = Client(client, clock=clock)
        self._thread = TaskThread(api, "rmq-producer")
        self._publisher = Publisher(
            api,
            self._thread,
            config=config,
            group=group,
            client_id=self.client_id,
            rng=rng,
            traces=self._traces,
        )
        self._accumulator = Accumulator(
            SendRequests(self._publisher),
            self._thread,
            post=self._thread.post,
            on_end=in_flight.end_async,
            linger_ms=config.linger_ms,
            clock=clock,
        )
        self.post, self.submit_by = self._thread.post, self._accumulator.put_by
        self.in_own_thread = self._thread.is_current
        self._checks: TransactionChecks | None = None
        if on_check is not None:
            self._checks = TransactionChecks(on_check)
            api.remoting.set_request_handler(self._requested)

    def start(self) -> None:
        """See ProducerBackend."""
        if self._traces is not None:
            self._traces.dispatcher.start()
        self._thread.start()
        self._thread.post(self._publisher.start)

    def hurry(self) -> None:
        """See ProducerBackend."""
        self._accumulator.linger(0)

    def close(self) -> None:
        """See ProducerBackend."""
        if self._checks is not None:
            self._checks.close()
        try:
            left = self._thread.run(self._publisher.leave())
            left.result(self._timeout_ms / 1_000)
        except (RmqError, TimeoutError) as error:
            logger.info(
                "producer not unregistered group=%s error=%s", self._group, error
            )
        if not self._thread.end():
            logger.error(
                "thread rmq-producer did not end; is the callback of a future still"
                " running?"
            )
        if self._traces is not None:
            self._traces.dispatcher.close()

    # --- sending ---

    def queues(self, topic: str) -> list[MessageQueue]:
        """See ProducerBackend."""
        target = self._counted(self._publisher.target(topic)).result()
        return list(target.queues)

    def send(
        self, message: ProducerMessage, choice: QueueChoice, timeout_ms: int
    ) -> SendResult:
        """See ProducerBackend."""
        queue = self._chosen(message, choice)
        return self._send(self._prepare(message), queue, timeout_ms)[0]

    def submit(
        self, message: ProducerMessage, choice: QueueChoice, timeout_ms: int
    ) -> Future[SendResult]:
        """See ProducerBackend."""
        queue = self._chosen(message, choice)
        if message.is_delayed:
            # The broker decides its order by time, so nothing has to wait for it.
            prepared, future = self._prepare(message), SendFuture()
            self._thread.post(
                lambda: self._send_apart(prepared, queue, timeout_ms, future)
            )
            return future
        content: Prepared | BatchPart
        is_alone = len(message.body) >= self._alone_bytes or not (
            IGNORED_IN_BATCHES.isdisjoint(message.properties)
        )
        if is_alone:
            content = self._prepare(message)
            (msg_id,) = content.msg_ids
            size_bytes = len(content.body) + len(content.properties)
        else:
            msg_id, properties = self._identified(message)
            content = (message.body, properties, message.flag)
            size_bytes = len(message.body) + len(properties)
        entry = Entry(
            message.topic,
            queue,
            content,
            msg_id=msg_id,
            size_bytes=size_bytes,
            is_alone=is_alone,
            timeout_ms=timeout_ms,
            now_ms=self._clock.monotonic_ms(),
        )
        self._accumulator.put(entry)
        return entry

    def _send_apart(
        self,
        prepared: Prepared,
        queue: MessageQueue | None,
        timeout_ms: int,
        future: SendFuture,
    ) -> None:
        def ended(pending: tasks.Pending[Stored]) -> None:
            outcome = pending.outcome()
            self._in_flight.end_async(1)
            if isinstance(outcome, RmqError):
                future.set_exception(outcome)
            else:
                future.set_stored(outcome.result, 0)

        task = self._publisher.send(
            prepared,
            queue=queue,
            timeout_ms=timeout_ms,
            retry_times=self._config.retry_times_when_send_async_failed,
        )
        tasks.start(task, self._thread).on_done(ended)

    def send_batch(
        self,
        messages: Sequence[ProducerMessage],
        queue: MessageQueue | None,
        timeout_ms: int,
    ) -> list[SendResult]:
        """See ProducerBackend."""
        prepared = self._prepare_batch(messages, queue)
        if queue is not None:
            check_queue(queue, prepared.topic)
        return self._send(prepared, queue, timeout_ms)

    def send_oneway(self, message: ProducerMessage, choice: QueueChoice) -> None:
        """See ProducerBackend."""
        queue = self._chosen(message, choice)
        prepared = self._prepare(message)
        self._counted(self._publisher.send_oneway(prepared, queue=queue)).result()

    def send_half(self, message: ProducerMessage, timeout_ms: int) -> HalfMessage:
        """See ProducerBackend. Raises UsageError without a group."""
        if self._group is None:
            raise UsageError("a transaction needs a producer with group and on_check")
        more = {"TRAN_MSG": "true", "PGROUP": self._group}
        prepared = self._prepare(message, more=more, sys_flag=TRANSACTION_PREPARED)
        (half,) = self._send(prepared, None, timeout_ms)

        def end(state: LocalTransactionState) -> None:
            self._end(message, half, state)

        # The offset is in the broker's topic of half messages, not in the user's topic.
        return HalfMessage(replace(half, queue_offset=None), end)

    def recall(self, topic: str, recall_handle: str) -> str:
        """Raises UnsupportedError: brokers give no handles to remoting clients."""
        raise UnsupportedError(
            "messages can be recalled through a proxy only",
            hint="give the producer endpoints",
        )

    def _send(
        self, prepared: Prepared, queue: MessageQueue | None, timeout_ms: int
    ) -> list[SendResult]:
        task = self._publisher.send(
            prepared,
            queue=queue,
            timeout_ms=timeout_ms,
            retry_times=self._config.retry_times_when_send_failed,
        )
        stored: Stored = self._counted(task).result()
        return stored.results()

    def _counted(self, task: Any) -> Future[Any]:  # noqa: ANN401
        """Run a task, and count it as in flight so that `close` waits for it."""
        self._in_flight.begin()
        # The task itself counts its end: Ctrl-C may come before the caller's thread
        # could ask for a callback, and `close` would wait for a send that has ended.
        return self._thread.run(self._until_ended(task))

    def _until_ended(self, task: Any) -> Any:  # noqa: ANN401
        try:
            return (yield from task)
        finally:
            self._in_flight.end()

    def _chosen(
        self, message: ProducerMessage, choice: QueueChoice
    ) -> MessageQueue | None:
        if choice is ANY_QUEUE:
            return None
        queue, selector = choice.queue, choice.selector
        if selector is None:
            if queue is not None:
                check_queue(queue, message.topic)
            return queue
        if queue is not None:
            raise ConfigError("queue and selector cannot be used together")
        check_callback(selector, "selector")
        chosen = selector(self.queues(message.topic), message, choice.arg)
        check_returned(chosen, "the selector")
        if not isinstance(chosen, MessageQueue):
            raise TypeError(f"the selector returned {chosen!r}, which is not a queue")
        check_queue(chosen, message.topic)
        return chosen

    # --- messages to requests ---

    def _prepare(
        self,
        message: ProducerMessage,
        *,
        more: dict[str, str] | None = None,
        sys_flag: int = 0,
    ) -> Prepared:
        config = self._config
        msg_id, properties = self._identified(message, more)
        body = message.body
        if len(body) >= config.compress_msg_body_over_howmuch_bytes:
            # Java sends the compressed body in any case, even above the broker's limit.
            compressed = deflate_zlib(body, level=config.compress_level)
            if len(compressed) < len(body):
                body = compressed
                sys_flag |= COMPRESSED
        return Prepared(
            topic=message.topic,
            msg_ids=(msg_id,),
            body=body,
            properties=properties.decode(),
            flag=message.flag,
            sys_flag=sys_flag,
            is_elsewhere=message.is_delayed,
            needs_timer=message.needs_timer,
            delay_level=message.delay_level,
            born_timestamp_ms=self._clock.epoch_ms(),
        )

    def _identified(
        self, message: ProducerMessage, more: dict[str, str] | None = None
    ) -> tuple[str, bytes]:
        """A new id for a message, and its encoded properties, with the id.

        Raises ConfigError for a message that no broker would take.
        """
        _refuse_message_group(message)
        if not message.body:
            raise ConfigError("the message's body is empty, which brokers refuse")
        if len(message.body) > self._config.max_message_size_bytes:
            raise ConfigError(
                f"a body of {len(message.body)} bytes is larger than"
                f" max_message_size_bytes, {self._config.max_message_size_bytes}"
            )
        with self._lock:
            msg_id = self._ids.next_id()
        return msg_id, _with_id(message, msg_id, more)

    def _prepare_batch(
        self, messages: Sequence[ProducerMessage], queue: MessageQueue | None
    ) -> Prepared:
        topic = one_topic_of(messages)
        is_delayed = any(each.is_delayed for each in messages)
        if not takes_batches(topic, is_delayed=is_delayed):
            raise ConfigError("delayed messages and retry topics cannot be in a batch")
        for message in messages:
            _refuse_message_group(message)
            if LITE_TOPIC in message.properties:
                raise UnsupportedError(
                    "messages of a lite topic cannot be in a batch, because brokers do"
                    " not look at the lite topics of a batch",
                    hint="send them one by one, with submit",
                )
            if PRIORITY in message.properties and queue is None:
                raise UnsupportedError(
                    "messages with a priority cannot be in a batch without a queue,"
                    " because brokers do not look at the priorities of a batch",
                    hint="send them one by one, with submit",
                )
        msg_ids = self._next_ids(len(messages))
        body = encode_items(
            (message.body, _with_id(message, msg_id), message.flag)
            for message, msg_id in zip(messages, msg_ids, strict=True)
        )
        if len(body) > self._config.max_message_size_bytes:
            raise ConfigError(
                f"a batch of {len(body)} bytes is larger than max_message_size_bytes,"
                f" {self._config.max_message_size_bytes}",
                hint="send it in several batches",
            )
        return Prepared(
            topic=topic,
            msg_ids=msg_ids,
            body=body,
            is_batch=True,
            born_timestamp_ms=self._clock.epoch_ms(),
        )

    def _next_ids(self, count: int) -> tuple[str, ...]:
        with self._lock:
            return tuple([self._ids.next_id() for _ in range(count)])

    # --- transactions ---

    def _end(
        self, message: ProducerMessage, half: SendResult, state: LocalTransactionState
    ) -> None:
        """Send the decision to the broker that has the half message."""
        place = decode_offset_msg_id(half.offset_msg_id or "")
        header = EndTransactionRequestHeader(
            topic=message.topic,
            producer_group=self._group or "",
            tran_state_table_offset=half.queue_offset or 0,
            commit_log_offset=place.commit_log_offset,
            commit_or_rollback=_END_OF_STATE[state],
            msg_id=half.msg_id,
            transaction_id=half.transaction_id,
        )
        if self._traces is not None:
            properties = message.all_properties()
            self._traces.transaction_ended(header, state, properties, place.host)
        assert half.queue is not None  # noqa: S101  # a broker's answer has it
        task = self._publisher.end_transaction(half.queue.broker_name, header)
        self._thread.run(task).result()

    def _requested(
        self, address: str, command: RemotingCommand
    ) -> RemotingCommand | None:
        """Handle a request of a broker. Runs in the producer's thread."""
        if command.code != RequestCode.CHECK_TRANSACTION_STATE:
            return RemotingCommand(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                remark=f"request code {command.code} is not supported",
            )
        assert self._checks is not None  # made with the handler  # noqa: S101
        header = from_ext_fields(CheckTransactionStateRequestHeader, command.ext_fields)
        found = decode_messages(
            command.body, record_type=PulledRecord, item_type=PulledItem
        )
        message = found[0] if found else None
        reason = ""
        broker_name = self._publisher.broker_at(address)
        if not broker_name:
            reason = "the peer is not a broker of our topics"
        elif not isinstance(message, PulledRecord):
            reason = "its message cannot be decoded"
        elif message.properties.get("PGROUP") != self._group:
            reason = "it is for another group"
        if reason or not isinstance(message, PulledRecord):
            self._checks.ignore(f"address={address}: {reason}")
            return None
        queue = MessageQueue(message.stored_topic, broker_name, message.queue_id)
        message.origin = Origin(queue, 0, 0)

        def answer(state: LocalTransactionState) -> Future[None]:
            end = EndTransactionRequestHeader(
                topic=message.topic,
                producer_group=self._group or "",
                tran_state_table_offset=header.tran_state_table_offset,
                commit_log_offset=header.commit_log_offset,
                commit_or_rollback=_END_OF_STATE[state],
                from_transaction_check=True,
                msg_id=message.msg_id or message.offset_msg_id,
                transaction_id=header.transaction_id,
            )
            if self._traces is not None:
                self._traces.transaction_ended(end, state, message.properties, address)
            return self._thread.run(self._publisher.end_transaction_at(address, end))

        self._checks.ask(message, answer, body_bytes=len(command.body))
        return None


def _with_id(
    message: ProducerMessage, msg_id: str, more: dict[str, str] | None = None
) -> bytes:
    """The encoded properties of a message, with its id as the last one."""
    if not (more or message.properties or message.has_settings):
        return f"{UNIQ_KEY}\x01{msg_id}\x02".encode()
    properties = message.all_properties()
    if more:
        properties.update(more)
    properties[UNIQ_KEY] = msg_id
    return checked_properties(OutgoingMessage(message.body, properties))


def _refuse_message_group(message: ProducerMessage) -> None:
    if message.message_group is not None:
        raise ConfigError(
            "message_group needs a producer with endpoints",
            hint="use selector=select_by_hash with name servers",
        )
