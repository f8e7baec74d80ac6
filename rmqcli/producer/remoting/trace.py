"""Writes the traces of a producer or a consumer to a trace topic, in the background.

A client hands its records over with `append`, which never waits and never fails: when
too many records wait, it drops them. They are written by a thread of their own with
connections of its own, many records in each message, whose keys are the ids and keys of
the messages that they are about. What could not be written is counted, and logged once.

| thread | runs | ended by |
|---|---|---|
| rmq-trace | sockets, timers | close() |

Source: AsyncTraceDispatcher, SendMessageTraceHookImpl and EndTransactionTraceHookImpl
in apache/rocketmq.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from typing import TYPE_CHECKING, Final

from rmqcli import tasks
from rmqcli.api.client import Client
from rmqcli.api.task_thread import TaskThread
from rmqcli.dataclass import dataclass
from rmqcli.errors import RmqError
from rmqcli.log import get_logger
from rmqcli.producer.config import ProducerConfig
from rmqcli.producer.ids import UniqueIds
from rmqcli.producer.remoting.publisher import Prepared, Publisher
from rmqcli.trace.codec import encode_records, trace_keys
from rmqcli.trace.record import DEFAULT_REGION_ID, EndTransaction, Pub, TraceMessageType
from rmqcli.transport.lookups import local_ip
from rmqcli.units import counted
from rmqcli.wire.message.batch import split_batch
from rmqcli.wire.message.properties import (
    KEYS,
    TAGS,
    UNIQ_KEY,
    encode_properties,
    parse_properties,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rmqcli.api.calls.send import SendAnswer
    from rmqcli.clock import Clock
    from rmqcli.config import ClientConfig
    from rmqcli.producer.transactions import LocalTransactionState
    from rmqcli.trace.record import TraceRecord
    from rmqcli.wire.headers.send import EndTransactionRequestHeader

logger = get_logger(__name__)

#: Records that may wait. Java bounds calls instead, by 2,048.
WAITING_MAX: Final = 16_384
#: How long a record waits for others at most. Java waits for up to 5 s.
_LINGER_MS: Final = 1_000
#: The most records of one message, and the most bytes of their text and of its keys:
#: the properties of a message have 32 KiB.
_RECORDS_MAX: Final = 100
_BODY_BYTES_MAX: Final = 128_000  # AsyncTraceDispatcher.maxMsgSize
_KEYS_BYTES_MAX: Final = 16_384
#: Messages that wait for the broker's answer.
_REQUESTS_MAX: Final = 16
_SEND_MS: Final = 5_000
#: How long a close waits for what is left to be written.
CLOSE_MS: Final = 5_000


class TraceDispatcher:
    """Writes records to the topic `topic`. Any thread may call its methods.

    It is started before the first record and closed after the last one; what comes
    later is dropped.
    """

    def __init__(self, config: ClientConfig, topic: str, *, clock: Clock) -> None:
        self.topic = topic
        self._clock = clock
        #: appended to by any thread, emptied by rmq-trace; single calls need no lock
        self._waiting: deque[TraceRecord] = deque()
        self._is_woken = False
        #: records that were not written; an approximation when threads drop at once
        self.dropped = 0
        self._unwritten = 0  # the part of them that brokers did not take
        self._in_flight = 0
        self._is_closing = False
        self._done = threading.Event()
        rng = random.Random()  # noqa: S311  # spreads load, keeps no secret
        ip = local_ip(config.namesrv[0]) or "127.0.0.1"
        self._ids = UniqueIds(ip, clock=clock, rng=rng)
        client = Client(config, clock=clock)
        self._thread = TaskThread(client, "rmq-trace")
        self._publisher = Publisher(
            client,
            self._thread,
            config=ProducerConfig(),
            rng=rng,
        )

    def start(self) -> None:
        """Start the thread. Contacts no broker before the first record."""
        self._thread.start()
        self._thread.post(self._begin)

    def append(self, records: Sequence[TraceRecord]) -> None:
        """Have records written; drop them when too many wait. Never raises."""
        if self._is_closing:
            return
        if len(self._waiting) + len(records) > WAITING_MAX:
            is_first = not self.dropped
            self.dropped += len(records)
            if is_first:
                logger.warning(
                    "traces are dropped, because they come faster than they are written"
                    " topic=%s",
                    self.topic,
                )
            return
        self._waiting.extend(records)
        if len(self._waiting) >= _RECORDS_MAX and not self._is_woken:
            self._is_woken = True
            self._thread.post(self._flush)

    def close(self, timeout_ms: int = CLOSE_MS) -> None:
        """Write what waits, wait for it up to `timeout_ms`, and end. Idempotent."""
        if self._is_closing:
            return
        self._is_closing = True
        if self._thread.is_started:
            self._thread.post(self._flush)
            self._done.wait(timeout_ms / 1_000)
        self._thread.end()
        lost = self.dropped + len(self._waiting)
        if lost:
            logger.warning(
                "%s not written topic=%s", counted(lost, "trace"), self.topic
            )

    def forget_after_fork(self) -> None:
        """In a forked child, which has no thread rmq-trace: drop what comes."""
        self._is_closing = True
        self._waiting.clear()

    # --- in the thread rmq-trace ---

    def _begin(self) -> None:
        self._publisher.start()
        self._tick()

    def _tick(self) -> None:
        self._flush()
        self._thread.call_later(_LINGER_MS, self._tick)

    def _flush(self) -> None:
        """Send what waits, as far as there is room for requests."""
        self._is_woken = False
        while self._waiting and self._in_flight < _REQUESTS_MAX:
            self._send(self._take())
        if self._is_closing and not self._waiting and not self._in_flight:
            self._done.set()

    def _take(self) -> list[TraceRecord]:
        """The records of the next message, in order."""
        taken: list[TraceRecord] = []
        body_bytes = keys_bytes = 0
        while self._waiting and len(taken) < _RECORDS_MAX:
            record = self._waiting[0]
            body_bytes += 4 * sum(map(len, trace_keys(record))) + 512  # about
            keys_bytes += sum(4 * len(key) + 1 for key in trace_keys(record))
            is_too_much = body_bytes > _BODY_BYTES_MAX or keys_bytes > _KEYS_BYTES_MAX
            if taken and is_too_much:
                break
            taken.append(self._waiting.popleft())
        return taken

    def _send(self, records: list[TraceRecord]) -> None:
        msg_id = self._ids.next_id()
        prepared = Prepared(
            topic=self.topic,
            msg_ids=(msg_id,),
            body=encode_records(records).encode(),
            properties=encode_properties({KEYS: _keys_of(records), UNIQ_KEY: msg_id}),
            born_timestamp_ms=self._clock.epoch_ms(),
        )
        self._in_flight += 1
        task = self._publisher.send(
            prepared, queue=None, timeout_ms=_SEND_MS, retry_times=2
        )

        def ended(pending: tasks.Pending[object]) -> None:
            self._in_flight -= 1
            outcome = pending.outcome()
            if isinstance(outcome, RmqError):
                self._refused(outcome, len(records))
            self._flush()

        tasks.start(task, self._thread).on_done(ended)

    def _refused(self, error: RmqError, records: int) -> None:
        if not self._unwritten:
            logger.warning(
                "traces cannot be written topic=%s error=%s", self.topic, error
            )
        self._unwritten += records
        self.dropped += records


def _keys_of(records: Sequence[TraceRecord]) -> str:
    """The keys of a message with these records, each of them once."""
    keys = dict.fromkeys(key for each in records for key in trace_keys(each))
    if sum(4 * len(key) + 1 for key in keys) > _KEYS_BYTES_MAX:
        # Of one message with very many keys: its id is what a trace is looked up by.
        keys = dict.fromkeys(each.msg_id for each in records)
    return " ".join(keys)


@dataclass(frozen=True, eq=False)
class SentTraces:
    """Makes the records of a producer of `group`, for the thread that sends."""

    dispatcher: TraceDispatcher
    group: str
    clock: Clock

    def stored(
        self,
        prepared: Prepared,
        answer: SendAnswer,
        address: str,
        *,
        started_ms: int,
        ended_ms: int,
    ) -> None:
        """A request was answered; the times are epoch ms.

        A message of the trace topic itself, and one whose broker has traces switched
        off (traceOn), are left out, as by Java.
        """
        fields = answer.fields
        if prepared.topic == self.dispatcher.topic or (
            fields.get("TRACE_ON") == "false"
        ):
            return
        ids = answer.offset_msg_ids
        offset_ids = ids if len(ids) == len(prepared.msg_ids) else ()
        self.dispatcher.append(
            [
                Pub(
                    timestamp_ms=started_ms,
                    region_id=fields.get("MSG_REGION") or DEFAULT_REGION_ID,
                    group=self.group,
                    topic=prepared.topic,
                    msg_id=prepared.msg_ids[index],
                    tags=properties.get(TAGS),
                    keys=properties.get(KEYS),
                    store_host=address,
                    body_bytes=body_bytes,
                    cost_ms=max(0, ended_ms - started_ms),
                    message_type=_message_type(prepared, properties),
                    offset_msg_id=offset_ids[index] if offset_ids else None,
                    is_success=answer.status.value == "SEND_OK",
                )
                for index, (properties, body_bytes) in enumerate(_items(prepared))
            ]
        )

    def transaction_ended(
        self,
        end: EndTransactionRequestHeader,
        state: LocalTransactionState,
        properties: Mapping[str, str],
        address: str,
    ) -> None:
        """The producer has decided about a half message; nobody has answered yet."""
        self.dispatcher.append(
            [
                EndTransaction(
                    timestamp_ms=self.clock.epoch_ms(),
                    region_id=properties.get("MSG_REGION") or DEFAULT_REGION_ID,
                    group=self.group,
                    topic=end.topic or "",
                    msg_id=end.msg_id,
                    tags=properties.get(TAGS),
                    keys=properties.get(KEYS),
                    store_host=address,
                    message_type=TraceMessageType.Trans_msg_Commit,
                    transaction_id=end.transaction_id,
                    state=state.value,
                    is_from_check=end.from_transaction_check,
                )
            ]
        )


def _items(prepared: Prepared) -> Iterator[tuple[dict[str, str], int]]:
    """The properties and the size of each message of a request."""
    body = prepared.body
    if not prepared.is_batch:
        yield parse_properties(prepared.properties), len(body)
        return
    for span in split_batch(body)[0]:
        properties = parse_properties(body[span.properties_at : span.end])
        yield properties, span.body_end - span.body_at


def _message_type(prepared: Prepared, properties: dict[str, str]) -> TraceMessageType:
    if prepared.is_elsewhere:
        return TraceMessageType.Delay_Msg
    if properties.get("TRAN_MSG") == "true":
        return TraceMessageType.Trans_Msg_Half
    return TraceMessageType.Normal_Msg
