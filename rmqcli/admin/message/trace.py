"""What clients have reported about a message: its trace, as events in order of time.

Producers and consumers with traces switched on write reports to a trace topic. They are
found there by the id of the message, in the index of each broker; where a broker has no
index, or on request, the topic is read from the message's time on. A report that is
missing proves nothing: the client may have traces switched off, may use a proxy, or may
not have been able to write. So what is missing is part of the result.

Source: QueryMsgTraceByIdSubCommand and TraceView in apache/rocketmq.
"""

from __future__ import annotations

import functools
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING

from rmqcli.admin.brokers import ask_each, reader_addresses
from rmqcli.admin.message.find import (
    by_offset_id,
    find_by_index,
    find_messages,
    is_id,
    missing_message,
    note_departed,
    parse_place,
)
from rmqcli.admin.message.place import check_places, removed_because
from rmqcli.admin.message.records import PENDING_TOPICS, decode_all, decode_found
from rmqcli.admin.topics import read_topic
from rmqcli.api.calls.config import get_broker_config
from rmqcli.api.calls.namesrv import get_all_topic_list
from rmqcli.api.calls.pull import pull_message
from rmqcli.dataclass import dataclass
from rmqcli.errors import BrokerError, DecodeError, NotFoundError, RmqError, UsageError
from rmqcli.hint import Blank, Hint, Setting
from rmqcli.model import is_system_group
from rmqcli.trace.codec import decode_records
from rmqcli.trace.record import EndTransaction, Pub, Recall, SubAfter, SubBefore
from rmqcli.trace.setting import TRACE_TOPIC
from rmqcli.units import counted, format_rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rmqcli.api.client import Client
    from rmqcli.engine.message import PulledMessage
    from rmqcli.errors import DeniedError
    from rmqcli.model import TopicRoute
    from rmqcli.trace.record import TraceRecord

#: Messages of one key whose traces are looked up; of more, the newest.
TRACED_MAX = 20
#: A scan begins this long before the message was sent: clocks differ.
_BEFORE_MS = 60_000


class TraceEventKind(StrEnum):
    """What happened to a message."""

    PRODUCED = "produced"
    STORED = "stored"
    TRANSACTION = "transaction"
    RECALLED = "recalled"
    DELIVERED = "delivered"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEvent:
    """Something that happened to a message, as its client has reported it.

    | kind | `at_ms` | `status` |
    |---|---|---|
    | produced | when the request was sent | `success`; `not_safe`: stored, but not flushed or replicated in time |
    | stored | when it was stored, by the broker's clock | `stored`, or `removed`: it is in the log, but no longer in its topic |
    | transaction | when the producer decided | a name of LocalTransactionState; whether the decision reached the broker is not reported |
    | recalled | when it was recalled | `success` or `failed` |
    | delivered | when the listener got it | `success`, `failed`, or `no_end`: the end was not reported |

    Times are epoch ms by the client's clock, except for `stored`, which is not a report
    but what the broker has. `client_host` is the address from which the report came.
    `cost_ms` is how long the request or the listener took; of a listener that got
    several messages, an equal share. `attempt` counts deliveries from 1, `return_type`
    is a name of ConsumeReturnType, `message_type` one of MessageType. `where` is the
    place of the stored message. What was not reported, or does not apply, is None.
    """  # noqa: E501  # a table

    kind: TraceEventKind
    at_ms: int | None
    status: str
    group: str | None = None
    client_host: str | None = None
    cost_ms: int | None = None
    attempt: int | None = None
    return_type: str | None = None
    message_type: str | None = None
    is_from_check: bool | None = None
    where: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceGap:
    """A part of a trace that is missing, and what that may mean.

    `part` is `producer`, `group` (then `group` names it), `message` or `traces`.
    """

    part: str
    reason: str
    group: str | None = None


@dataclass(slots=True, kw_only=True)
class MessageTrace:
    """The trace of one message.

    `messages` are what brokers have stored: none if it was not found, and several if
    its producer has sent it again; `removed` are those of them that are no longer in
    the topic. `topic` is None if nothing tells it. `unreadable`
    counts reports that cannot be read. `errors` has the brokers that did not answer, by
    name: their part is missing. `denial` is the error if all brokers denied access, to
    traces as to the message.
    """

    msg_id: str
    trace_topic: str
    topic: str | None = None
    messages: list[PulledMessage] = field(default_factory=list)
    removed: list[PulledMessage] = field(default_factory=list)
    events: list[TraceEvent] = field(default_factory=list)
    missing: list[TraceGap] = field(default_factory=list)
    unreadable: int = 0
    errors: dict[str, RmqError] = field(default_factory=dict, hash=False)
    denial: DeniedError | None = None

    @property
    def is_reported(self) -> bool:
        """Whether any client has reported anything about the message."""
        return any(each.kind is not TraceEventKind.STORED for each in self.events)

    def lacks(self, part: str, reason: str) -> None:
        """Note that a part of the trace is missing, and why."""
        self.missing.append(TraceGap(part=part, reason=reason))


def traces_of(
    client: Client,
    ref: str,
    *,
    topic: str | None = None,
    trace_topic: str = TRACE_TOPIC,
    scan: bool = False,
    on_scan: Callable[[str], None] = lambda _: None,
) -> list[MessageTrace]:
    """Return the traces of the messages that `ref` names; see `find_messages`.

    With `scan` the trace topic is read as well, and not only where a broker has no
    index; `on_scan` is called before that with a text that says what is read. Raises
    NotFoundError when the trace topic does not exist, when there is no such message,
    and UsageError for a key without `topic`.
    """
    route = _route_of_traces(client, trace_topic)
    looked_up = _Lookup(client, trace_topic, route, is_scan=scan, on_scan=on_scan)
    traces = _named(client, ref, topic, on_scan)
    for each in traces:
        looked_up.add(each)
    return traces


def _route_of_traces(client: Client, trace_topic: str) -> TopicRoute:
    try:
        return client.route(trace_topic)
    except NotFoundError as error:
        settings = _settings(client)
        off = [
            name
            for name, each in settings.items()
            if each.get("traceTopicEnable") == "false"
        ]
        why = f"; traceTopicEnable is off on {', '.join(off)}" if off else ""
        unknown = sorted(client.cluster_info().brokers.keys() - settings.keys())
        if unknown:
            why += f"; the settings of {', '.join(unknown)} are not known"
        raise NotFoundError(
            f"topic {trace_topic} does not exist, so no client has written a trace"
            f" there{why}",
            code=error.code,
            name=error.name,
            hint=Hint(
                "switch traces on in clients; for traces in another topic: ",
                Setting("trace_topic", Blank("TOPIC")),
            ),
        ) from error


def _settings(client: Client) -> dict[str, dict[str, str]]:
    """The settings of the brokers that show them."""
    brokers = reader_addresses(client.cluster_info().brokers.values())
    answers = ask_each(client, brokers, get_broker_config())
    return {
        name: dict(each)
        for name, each in answers.items()
        if not isinstance(each, RmqError)
    }


def _named(
    client: Client, ref: str, topic: str | None, on_scan: Callable[[str], None]
) -> list[MessageTrace]:
    """The messages that `ref` names, as traces without events.

    A trace without a message is of an id whose topic is not known yet.
    """
    has_topic = topic is not None or parse_place(ref) is not None or not is_id(ref)
    found = (
        find_messages(client, ref, topic, on_search=on_scan)
        if has_topic
        else by_offset_id(client, ref, None)
    )
    by_id: dict[str, list[PulledMessage]] = {}
    for message in found.messages:
        by_id.setdefault(message.msg_id or message.offset_msg_id, []).append(message)
    if not by_id and is_id(ref):
        by_id[ref.upper()] = []
    if not by_id:
        error = missing_message(found, ref)
        error.hint = "its trace may still be found by its ID"
        raise error
    gaps = []
    if len(by_id) > TRACED_MAX:
        gaps.append(
            f"{counted(len(by_id), 'message')} have this key, and the traces of the"
            f" newest {TRACED_MAX} are here"
        )
    if found.messages and found.unsearched is not None:
        gaps.append(f"other messages may have {ref}: {found.unsearched}")
    return [
        MessageTrace(
            msg_id=msg_id,
            trace_topic="",
            topic=topic or (messages[0].topic if messages else None),
            messages=messages,
            errors=dict(found.errors),
            missing=[TraceGap(part="message", reason=each) for each in gaps],
        )
        for msg_id, messages in list(by_id.items())[-TRACED_MAX:]
    ]


@dataclass(slots=True)
class _Lookup:
    """Looks traces up in one trace topic."""

    client: Client
    trace_topic: str
    route: TopicRoute
    is_scan: bool
    on_scan: Callable[[str], None]

    def add(self, trace: MessageTrace) -> None:
        """Add what is reported about a message, and what is missing."""
        trace.trace_topic = self.trace_topic
        found = find_by_index(self.client, [self.trace_topic], trace.msg_id)
        if not found.messages:
            note_departed(self.client, found)
        trace.errors |= found.errors
        reports = dict.fromkeys(_reports(trace, found.messages))
        if found.more_on:
            names = ", ".join(found.more_on)
            trace.lacks("traces", f"{names} has more; the newest are here")
        if found.damaged:
            trace.lacks("traces", found.damage)
        if not trace.messages:
            trace.denial = found.denial
            if trace.topic is None and (topic := _topic_of(reports)) is not None:
                trace.topic = self._with_namespace(topic, trace.msg_id)
            self._find_message(trace)
        self._note_removed(trace)
        if self.is_scan or found.without_index:
            if found.without_index:
                names = ", ".join(found.without_index)
                self.on_scan(f"{names} cannot look traces up by key: no index")
            reports |= dict.fromkeys(self._scan(trace))
        trace.events = sorted(_events(trace, reports), key=_order)
        self._note_missing(trace)

    def _with_namespace(self, topic: str, msg_id: str) -> str:
        """Return the name under which brokers know a topic that a client reported.

        Java's clients with a namespace report orders instead of NS1%orders.
        """
        try:
            listed = self.client.namesrv(get_all_topic_list())
        except BrokerError:  # 5.x can be configured to refuse this request
            return topic
        names = [each for each in listed if each.partition("%")[2] == topic]
        found = find_by_index(self.client, names, msg_id)
        return found.messages[0].topic if found.messages else topic

    def _find_message(self, trace: MessageTrace) -> None:
        """Find the message that the reports are about, where it is still stored."""
        topic, msg_id = trace.topic, trace.msg_id
        try:
            found = find_messages(self.client, msg_id, topic, on_search=self.on_scan)
        except UsageError as error:  # an id in more topics than are searched
            trace.lacks("message", f"not searched: {error.message}")
            return
        except NotFoundError:
            trace.lacks("message", f"topic {topic} does not exist")
            return
        trace.errors |= found.errors
        if found.denial is None:
            trace.denial = None
        if found.messages:
            trace.messages = found.messages
            trace.topic = topic or found.messages[0].topic
            return
        reason = "no broker has it any more, or it never was stored"
        if found.without_index or found.errors or found.damaged:
            reason = missing_message(found, msg_id).message
        trace.lacks("message", reason)

    def _note_removed(self, trace: MessageTrace) -> None:
        """Note which messages are in the log, but no longer in their topics."""
        placed = [e for e in trace.messages if e.topic not in PENDING_TOPICS]
        states = check_places(self.client, placed)
        gone = [(each, state) for each, state in states if state.is_there is False]
        trace.removed = [each for each, _ in gone]
        if gone:
            trace.lacks("message", removed_because(gone[0][1]))

    def _scan(self, trace: MessageTrace) -> Iterator[tuple[TraceRecord, str]]:
        """Read the trace topic from the message's time on."""
        from rmqcli.admin.positions import resolve_ranges
        from rmqcli.admin.read.range import RangeReader, ReadOptions
        from rmqcli.api.positions import UNSORTED
        from rmqcli.position import AtTime, Earliest, Latest

        queues = self.route.read_queues()
        start: AtTime | Earliest = Earliest()
        since = ""
        if trace.messages:
            begin_ms = max(0, _sent_ms(trace.messages) - _BEFORE_MS)
            since = f" since {format_rfc3339(begin_ms)}"
            start = AtTime(begin_ms, since)
        ranges = resolve_ranges(self.client, queues, start, Latest())
        for queue, each in ranges.items():
            if each.is_unsorted:
                trace.lacks("traces", f"{queue}: {UNSORTED}")
        wanted = [ranges[queue].offsets for queue in queues]
        count = sum(max(0, each.end - each.start) for each in wanted)
        self.on_scan(
            f"reading {counted(count, 'message')} of {self.trace_topic}{since}"
        )
        options = ReadOptions(
            raise_abandoned=False, retry_for_ms=self.client.config.timeout_ms
        )
        reader = RangeReader(self.client, wanted, options)
        needle = trace.msg_id.encode()
        for chunk in reader:
            if needle in chunk.body:  # it is in the keys, which are not compressed
                found, failures = decode_all(chunk.body, chunk.queue.broker_name)
                trace.unreadable += sum(needle in each.raw for each in failures)
                yield from _reports(trace, found)
        for queue, error in reader.abandoned.items():
            trace.errors[queue.broker_name] = error

    def _note_missing(self, trace: MessageTrace) -> None:
        kinds = {each.kind for each in trace.events}
        delivered = {
            each.group for each in trace.events if each.kind is TraceEventKind.DELIVERED
        }
        topic = trace.topic or ""
        namespace = topic[: topic.find("%") + 1]  # reports of Java's clients lack it
        silent = [
            each
            for each in self._groups(trace)
            if not delivered & {each, each.removeprefix(namespace)}
        ]
        if TraceEventKind.PRODUCED in kinds and not silent:
            return
        gone = self._out_of_reach(trace)
        if TraceEventKind.PRODUCED not in kinds:
            reason = f"no report of the send: traces are off, or it uses a proxy{gone}"
            if not self.is_scan:
                reason += "; of a batch of Java's, only a scan finds the report"
            trace.lacks("producer", reason)
        trace.missing += [
            TraceGap(
                part="group",
                group=each,
                reason=f"no delivery reported: none yet, or its traces are off{gone}",
            )
            for each in silent
        ]
        if not trace.is_reported:
            self._note_switched_off(trace)

    def _groups(self, trace: MessageTrace) -> list[str]:
        """The groups of the message's topic."""
        if trace.topic is None:
            return []
        try:
            detail = read_topic(self.client, trace.topic)
        except NotFoundError:
            return []
        trace.errors |= detail.errors
        return sorted(each for each in detail.groups if not is_system_group(each))

    def _out_of_reach(self, trace: MessageTrace) -> str:
        """What to add to a reason if the report may be elsewhere, or be deleted."""
        if trace.errors:
            return f", or its report is on {', '.join(trace.errors)}: no answer"
        if not trace.messages:
            return ""
        oldest_ms = self._oldest_ms()
        if oldest_ms is None or oldest_ms <= _sent_ms(trace.messages):
            return ""
        return (
            f", or its report is deleted: the oldest trace is of"
            f" {format_rfc3339(oldest_ms)}"
        )

    def _oldest_ms(self) -> int | None:
        """When the oldest trace was stored that every broker still has."""
        detail = read_topic(self.client, self.trace_topic)
        addresses = reader_addresses(self.route.brokers)
        questions = {
            each.queue: (
                addresses[each.queue.broker_name],
                pull_message(each.queue, each.offset.min_offset, max_msg_nums=1),
            )
            for each in detail.queues
            if each.offset is not None
            # A queue that begins at 0 has lost nothing.
            and 0 < each.offset.min_offset < each.offset.max_offset
            and each.queue.broker_name in addresses
        }
        times = [
            message.store_timestamp_ms
            for queue, answer in self.client.ask_many(questions).items()
            if not isinstance(answer, RmqError)
            for message in decode_found(answer.body, queue.broker_name)
        ]
        return max(times, default=None)

    def _note_switched_off(self, trace: MessageTrace) -> None:
        """Note settings of brokers because of which there may be no trace here."""
        mine = trace.trace_topic
        for name, settings in _settings(self.client).items():
            if settings.get("traceOn") == "false":
                nothing = "clients report nothing about its messages"
                trace.lacks("traces", f"traceOn is off on {name}: {nothing}")
            other = settings.get("msgTraceTopicName", mine)
            if other != mine:
                why = f"the trace topic of {name} is {other}, not {mine}"
                trace.lacks("traces", why)


def _sent_ms(messages: Iterable[PulledMessage]) -> int:
    """Return when a message was sent first, at the latest.

    One with a delay, or of a transaction, is stored in its topic long after that.
    """
    return min(min(e.born_timestamp_ms, e.store_timestamp_ms) for e in messages)


def _reports(
    trace: MessageTrace, messages: Iterable[PulledMessage]
) -> Iterator[tuple[TraceRecord, str]]:
    """The records about the message, each with the host of the client that wrote it.

    Java's producers report a batch once, under the ids of all its messages.
    """
    for message in messages:
        try:
            decoded = decode_records(message.body)
        except DecodeError:
            trace.unreadable += 1
            continue
        trace.unreadable += decoded.unreadable
        host = message.born_host.rpartition(":")[0]
        for record in decoded.records:
            if trace.msg_id == record.msg_id or (
                "," in record.msg_id and trace.msg_id in record.msg_id.split(",")
            ):
                yield record, host


def _topic_of(reports: Iterable[tuple[TraceRecord, str]]) -> str | None:
    for record, _ in reports:
        if isinstance(record, Pub | EndTransaction | Recall) and record.topic:
            return record.topic
    return None


def _events(
    trace: MessageTrace, reports: Iterable[tuple[TraceRecord, str]]
) -> Iterator[TraceEvent]:
    kinds = TraceEventKind
    for message in trace.messages:
        yield TraceEvent(
            kind=kinds.STORED,
            at_ms=message.store_timestamp_ms,
            status="removed" if message in trace.removed else "stored",
            where=f"{message.message_queue}:{message.queue_offset}",
        )
    before: dict[str, tuple[SubBefore, str]] = {}
    after: dict[str, tuple[SubAfter, str]] = {}
    for record, host in reports:
        if isinstance(record, SubBefore):
            before[record.request_id] = record, host
            continue
        if isinstance(record, SubAfter):
            after[record.request_id] = record, host
            continue
        event = functools.partial(
            TraceEvent, at_ms=record.timestamp_ms, group=record.group, client_host=host
        )
        match record:
            case Pub(message_type=kind):
                yield event(
                    kind=kinds.PRODUCED,
                    status="success" if record.is_success else "not_safe",
                    client_host=record.client_host or host,
                    cost_ms=record.cost_ms,
                    message_type=None if kind is None else kind.name,
                )
            case EndTransaction():
                yield event(
                    kind=kinds.TRANSACTION,
                    status=record.state,
                    is_from_check=record.is_from_check,
                )
            case Recall():
                status = "success" if record.is_success else "failed"
                yield event(kind=kinds.RECALLED, status=status)
    for request_id in dict.fromkeys([*before, *after]):
        yield _delivery(before.get(request_id), after.get(request_id))


def _delivery(
    before: tuple[SubBefore, str] | None, after: tuple[SubAfter, str] | None
) -> TraceEvent:
    """A delivery; one of its two reports may be missing."""
    begin = before and before[0]
    end = after and after[0]
    at_ms = begin.timestamp_ms if begin else None
    if begin is None and end is not None and end.timestamp_ms is not None:
        at_ms = end.timestamp_ms - end.cost_ms
    status = "no_end"
    if end is not None:
        status = "success" if end.is_success else "failed"
    return TraceEvent(
        kind=TraceEventKind.DELIVERED,
        at_ms=at_ms,
        status=status,
        group=(begin and begin.group) or (end and end.group) or None,
        client_host=(before or after or (None, None))[1],
        cost_ms=end.cost_ms if end else None,
        attempt=begin.retry_times + 1 if begin else None,
        return_type=end.return_type.name
        if end and end.return_type is not None
        else None,
    )


def _order(event: TraceEvent) -> tuple[bool, int, int]:
    """By time; of events of one ms, in the order in which they happen."""
    return (
        event.at_ms is None,
        event.at_ms or 0,
        list(TraceEventKind).index(event.kind),
    )
