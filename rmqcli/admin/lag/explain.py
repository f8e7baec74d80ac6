"""Explains in sentences why a group is behind. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.admin.lag.model import BROADCASTING
from rmqcli.admin.lag.process_queues import EXPIRED_LOCK, FLOW_CONTROL, STUCK_HEAD
from rmqcli.engine.queue_lag import LagState
from rmqcli.hint import Hint, LibraryCall
from rmqcli.model import dlq_topic
from rmqcli.units import counted, format_duration, listed, rounded_rate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rmqcli.admin.lag.model import GroupLag
    from rmqcli.admin.lag.process_queues import ClientQueues, HeldQueue
    from rmqcli.admin.lag.trend import Trend
    from rmqcli.engine.queue_lag import QueueKey, QueueLag
    from rmqcli.wire.bodies.consumer import ConsumeStatus

#: A queue with at least this share of the lag is named, because a sum would hide it.
_SKEW_SHARE = 0.5
_SHOWN_QUEUES = 5


def explain(lag: GroupLag, trend: Trend | None = None) -> list[str]:
    """Explain a group's lag in sentences, the most important ones first."""
    sentences = [*_paused(lag), _headline(lag)]
    parts = (_tries, _handed_out, _states, _members, _skew, _held, _consuming, _filters)
    for part in parts:
        sentences += part(lag)
    if trend is not None:
        sentences.append(_trend(trend))
    return sentences


def _paused(lag: GroupLag) -> Iterator[str]:
    if lag.reading.paused_on:
        yield Hint(
            f"Its consumption is switched off on {', '.join(lag.reading.paused_on)}:"
            " members get no messages from there. Switch it on with: ",
            LibraryCall("Admin.resume_group", lag.group),
        )


def _headline(lag: GroupLag) -> str:
    if lag.total_lag is None:
        known = (
            f" ({counted(lag.known_lag, 'message')} at least)" if lag.known_lag else ""
        )
        return f"How far {lag.group} is behind is unknown{known}: {lag.reason}."
    if lag.total_lag == 0 and lag.doubt is not None:
        return f"{lag.group} has {lag.doubt}: these do not count as lag."
    if lag.total_lag == 0:
        return (
            f"{lag.group} has read everything. Messages that failed are counted once"
            " their next try is due: brokers do not report them before."
        )
    age = ""
    if lag.known_age_ms is not None:
        least = "at least " if lag.age_ms is None else ""
        age = f"; the oldest has waited {least}{format_duration(lag.known_age_ms)}"
    return f"{lag.group} has {counted(lag.total_lag, 'message')} to read{age}."


def _tries(lag: GroupLag) -> Iterator[str]:
    retries = sum(topic.known_lag for topic in lag.topics if topic.is_retry)
    if retries:
        yield f"{retries} of them failed before and wait for a retry."
    if lag.reading.dead_letters:
        letters = counted(lag.reading.dead_letters, "message")
        yield Hint(
            f"Its dead-letter topic holds {letters}; read them with: ",
            LibraryCall("Admin.read", dlq_topic(lag.group)),
        )


def _handed_out(lag: GroupLag) -> Iterator[str]:
    pop = lag.pop
    if pop is None or not pop.inflight:
        return
    be = "is" if pop.inflight == 1 else "are"
    words = f"{counted(pop.inflight, 'message')} {be} handed out and not acknowledged"
    if pop.visible_in_ms is not None:
        rest = format_duration(pop.visible_in_ms)
        words += f"; the first is delivered again in {rest}"
    if pop.overdue:
        words += f"; {pop.overdue} were not acknowledged in time, and the broker has"
        words += " not yet moved them to the retry topic"
    yield words + "."


def _states(lag: GroupLag) -> Iterator[str]:
    by_state: dict[LagState, list[QueueLag]] = {}
    for queue in lag.queues:
        by_state.setdefault(queue.state, []).append(queue)
    if queues := by_state.get(LagState.EXPIRED):
        lost = sum(queue.expired or 0 for queue in queues)
        yield (
            f"{counted(lost, 'message was', 'messages were')} deleted before the group"
            f" read them ({_names(queues)}): the broker keeps messages for less time"
            " than the group was away."
        )
    if queues := by_state.get(LagState.AHEAD):
        yield (
            f"It committed offsets beyond the end of {_names(queues)}: the topic was"
            " recreated, or an offset was set by hand. The group receives nothing"
            " there until the queue has grown that far or a member corrects the offset."
        )
    waiting = [q for q in by_state.get(LagState.NO_COMMIT, ()) if q.lag is None]
    started = _started(lag)
    by_client: dict[str | None, list[QueueLag]] = {}
    for queue in waiting:
        if queue.key in started:
            by_client.setdefault(queue.client_id, []).append(queue)
    for client_id, queues in by_client.items():
        yield _no_commit_yet(client_id, queues, started)
    waiting = [queue for queue in waiting if queue.key not in started]
    if waiting:
        total = sum((q.max_offset or 0) - (q.min_offset or 0) for q in waiting)
        where = "where its members choose (consumeFromWhere)"
        members = lag.reading.members
        if members is not None and members.consume_from_where:
            where = f"at {members.consume_from_where} (consumeFromWhere)"
        yield (
            f"It never committed an offset in {_names(waiting)}, which hold"
            f" {counted(total, 'message')}. It will start {where}."
        )
    if by_state.get(LagState.BROADCAST):
        yield (
            "The group consumes in broadcast mode: each member keeps its own offsets,"
            " and brokers have none."
        )


def _no_commit_yet(
    client_id: str | None, queues: Sequence[QueueLag], started: Mapping[QueueKey, int]
) -> str:
    if len(queues) == 1:
        (queue,) = queues
        return (
            f"It has started in {_name(queue)}, and has not committed an offset"
            f" there yet: the first message that {client_id} has not finished"
            f" is at offset {started[queue.key]}, and the queue ends at"
            f" {queue.max_offset}."
        )
    places = (f"{_name(q)} at {started[q.key]} of {q.max_offset}" for q in queues)
    return (
        f"It has started in {counted(len(queues), 'queue')}, and has not committed an"
        f" offset there yet. The first messages that {client_id} has not finished:"
        f" {listed(places, _SHOWN_QUEUES)}."
    )


def _started(lag: GroupLag) -> dict[QueueKey, int]:
    """Return the first offset that a member has not finished in each queue it reads.

    A queue from which it has fetched nothing is not in it.
    """
    first: dict[QueueKey, int] = {}
    for client in (lag.reading.clients or {}).values():
        for held in client.queues:
            at = held.cached_min_offset
            if held.taken_min_offset is not None:  # orderly: being processed now
                at = held.taken_min_offset
            if at is not None and not held.dropped:
                queue = held.queue
                first[queue.topic, queue.broker_name, queue.queue_id] = at
    return first


def _members(lag: GroupLag) -> Iterator[str]:
    members = lag.reading.members
    if members is None:
        if lag.reading.members_unknown is not None:
            yield f"The group's {lag.reading.members_unknown}."
        elif lag.total_lag != 0 and not lag.reading.failures:
            yield "No member is online: nothing is read until one starts."
        return
    count = len(members.connections)
    readable = sum(q.queue_id is not None and q.topic is not None for q in lag.queues)
    yield f"{counted(count, 'member is', 'members are')} online."
    if count > readable > 0 and members.message_model != BROADCASTING:
        yield f"Only {readable} of them can get a queue: there are no more queues."
    for note in members.mismatches(lag.reading.clients):
        yield f"Members have different subscriptions, so messages are lost: {note}."


def _skew(lag: GroupLag) -> Iterator[str]:
    if not lag.known_lag or len(lag.queues) < 2:
        return
    top = max(lag.queues, key=lambda queue: queue.lag or 0)
    share = (top.lag or 0) / lag.known_lag
    if share >= _SKEW_SHARE and len([q for q in lag.queues if q.max_offset]) > 1:
        owner = f", held by {top.client_id}" if top.client_id else ""
        whole = "it" if lag.total_lag is not None else "the known lag"
        yield f"{share:.0%} of {whole} is in {_name(top)}{owner}."


def _held(lag: GroupLag) -> Iterator[str]:
    """Say what is wrong with the queues that members hold, in one line for each."""
    for client_id, client in sorted((lag.reading.clients or {}).items()):
        words = []
        if full := [held for held in client.queues if FLOW_CONTROL in held.flags]:
            words.append(_full(full))
        stuck = [h for h in client.queues if STUCK_HEAD in h.flags and h not in full]
        if stuck:
            heads = [
                str(held.queue)
                if held.cached_min_offset is None
                else f"{held.queue} (offset {held.cached_min_offset})"
                for held in stuck
            ]
            words.append(
                f"does not finish the first message of {listed(heads, _SHOWN_QUEUES)}"
            )
        if waits := [h for h in client.queues if EXPIRED_LOCK in h.flags]:
            names = listed((held.queue for held in waits), _SHOWN_QUEUES)
            words.append(f"waits for the broker's lock of {names}")
        if words:
            yield f"{client_id} {'; it '.join(words)}."


def _consuming(lag: GroupLag) -> Iterator[str]:
    """Say how fast each member consumes, in one line, as it reports itself."""
    for client_id, client in sorted((lag.reading.clients or {}).items()):
        words = []
        for topic, status in sorted(client.statuses.items()):
            text = _speed(topic, status, client)
            if text is not None:
                words.append(text)
        if not words:
            continue
        cached = sum(held.cached_count for held in client.queues)
        threads = counted(client.threads or 0, "thread")
        has = f"{threads} and " if client.threads else ""
        has += counted(cached, "cached message")
        yield f"{client_id} has {has}; {'; '.join(words)}."


def _speed(topic: str, status: ConsumeStatus, client: ClientQueues) -> str | None:
    """Describe how a member consumes a topic; None if it has not consumed lately."""
    taken_ms, done = status.consume_rt or 0, status.consume_ok_tps or 0
    failed = status.consume_failed_tps or 0
    if not taken_ms and not done and not failed and not status.consume_failed_msgs:
        return None
    words = (
        f"of {topic} it consumes {rounded_rate(done):g}/s,"
        f" fails {rounded_rate(failed):g}/s"
    )
    if status.consume_failed_msgs:
        words += f" ({status.consume_failed_msgs} in the last hour)"
    if 0 < taken_ms < 1:
        # An average of whole milliseconds, of which most are 0: no limit follows.
        words += ", and its listener takes less than 1ms"
    elif taken_ms:
        words += f", and its listener takes {format_duration(round(taken_ms))}"
        if client.threads and not client.is_orderly:
            # With batches, one call consumes several messages.
            most = client.threads * 1_000 / taken_ms
            words += f" (calls on all threads: at most {rounded_rate(most):g}/s)"
    return words


def _full(held: Sequence[HeldQueue]) -> str:
    """Say that a member has stopped fetching, and which limits it exceeds."""
    count = sum(each.cached_count for each in held)
    limits: dict[str, None] = {}  # a set in order
    for each in held:
        if each.cached_count > each.limits.count:
            limits[f"limit {each.limits.count:,}"] = None
        elif (each.cached_size_mib or 0) > each.limits.size_mib:
            limits[f"limit {each.limits.size_mib} MiB"] = None
        else:
            limits[
                f"limit {counted(each.limits.span, 'offset')} from first to last"
            ] = None
    where = listed((each.queue for each in held), _SHOWN_QUEUES)
    per_queue = " per queue" if len(held) > 1 else ""
    return (
        f"holds {counted(count, 'unprocessed message')} of {where}"
        f" ({', '.join(limits)}{per_queue}) and has stopped fetching:"
        " its listener is slow"
    )


def _filters(lag: GroupLag) -> Iterator[str]:
    for topic in lag.topics:
        if topic.lag and topic.expression not in (None, "", "*"):
            yield (
                f"It reads only {topic.expression} of {topic.topic}: messages with"
                " other tags count as lag until a pull has gone past them."
            )


def _trend(trend: Trend) -> str:
    if trend.rate_in is None or trend.rate_out is None:
        return f"{trend.verdict}: the rates are not known."
    rates = f"{trend.rate_in:g} messages/s arrive, {trend.rate_out:g}/s are consumed"
    if trend.drain_ms is None:
        return f"{trend.verdict}: {rates}; at this rate the group never catches up."
    if trend.drain_ms == 0:
        return f"{trend.verdict}: {rates}."
    drain = format_duration(trend.drain_ms)
    return f"{trend.verdict}: {rates}; the group will catch up in {drain}."


def _names(queues: Iterable[QueueLag]) -> str:
    return listed(map(_name, queues), _SHOWN_QUEUES)


def _name(queue: QueueLag) -> str:
    if queue.topic is None or queue.queue_id is None:
        return f"all queues of {queue.broker_name}"
    return f"{queue.topic}@{queue.broker_name}:{queue.queue_id}"
