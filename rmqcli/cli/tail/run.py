"""Carry out `rmq tail`: find the ranges, write the messages, and summarise.

On stderr it shows the range of each queue, a summary of what was read and what is
missing, and after an interrupt the command that continues.
"""

from __future__ import annotations

import shlex
import sys
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from rmqcli.admin.lag.memory import (
    departed_brokers_of,
    hidden_brokers,
    how_to_read,
    slave_errors,
    warnings_of_departed,
)
from rmqcli.admin.positions import (
    check_groups,
    format_range,
    resolve_each,
    resolve_ranges_each,
)
from rmqcli.admin.tail.batch import TailCounts
from rmqcli.admin.tail.bound import bound_by_time
from rmqcli.admin.tail.sql import check_sql, explain_sql, for_brokers
from rmqcli.admin.tail.tail import Tail, TailPlan
from rmqcli.api.client import Client
from rmqcli.cli.selection import check_queue_starts, readable_queues, writer_of
from rmqcli.cli.tail.command import AFTER_DEFAULT, BEFORE_DEFAULT, LOOK_BACK
from rmqcli.cli.ui.interrupts import deferred
from rmqcli.cli.ui.messages import is_screen
from rmqcli.cli.ui.output import check_reader
from rmqcli.cli.ui.queues import lines_about
from rmqcli.cli.ui.wording import with_flags
from rmqcli.errors import ExitCode, RmqError
from rmqcli.hint import command_line, with_options
from rmqcli.model import OffsetRange
from rmqcli.position import EPOCH_MS_MIN, Ago, AtGroup, AtNow, AtTime, Earliest, Latest
from rmqcli.queue_selector import select_queues
from rmqcli.units import counted, listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmqcli.admin.tail.filter import TailFilter
    from rmqcli.admin.tail.where import Where
    from rmqcli.cli.options import Common
    from rmqcli.cli.tail.command import TailOptions
    from rmqcli.cli.ui.progress import Progress
    from rmqcli.cli.ui.records.output import Writer
    from rmqcli.config import ClientConfig
    from rmqcli.model import MessageQueue


#: A queue whose end is unknown is resumed from this long before tail was started,
#: because its broker's clock may be behind the clock of this machine.
_CLOCKS_APART_MS = 60_000
#: With --count, tail ends when no broker has answered for this long.
_GIVE_UP_MS = 60_000
#: At most this many gaps of a queue are listed.
_GAPS_LISTED = 5
#: Flags that the command leaves out, together with their values.
_START_FLAGS: Final = ("--from", "--from-queue", "--last", "--count")


def run_tail(common: Common, options: TailOptions) -> int:
    """Read and write the messages; return the exit code: 0, 6 or 8."""
    tail_filter = options.filter()
    config = common.client_config()
    if options.for_ is not None:
        timeout_ms = max(1, min(config.timeout_ms, options.for_))
        config = replace(config, timeout_ms=timeout_ms)
    writer = writer_of(common, options)
    with Client(config) as client:
        tail_filter = for_brokers(client, options.topics, tail_filter)
        started_ms = client.clock.monotonic_ms()
        started_epoch_ms = client.clock.epoch_ms()
        where = tail_filter.where
        ranges, lost = _find_ranges(common, client, options, tail_filter)
        if where is not None:
            ranges = _by_time(common, client, options, ranges, where)
        departed = _departed(common, client, options, where)
        is_sure = not _warn_beside(common, client, options, where)
        has_end = options.count is not None and not options.follow
        plan = TailPlan(
            ranges=tuple(ranges),
            filter=tail_filter,
            lost=lost,
            start=options.start if options.shown_last is None else None,
            own_starts=options.queue_starts,
            started_ms=started_ms,
            last=options.shown_last,
            look_back=LOOK_BACK if options.is_plain else None,
            follow=options.follows,
            count=options.count,
            timeout_ms=options.for_,
            idle_timeout_ms=options.idle_timeout,
            rate_per_s=options.rate,
            give_up_ms=_GIVE_UP_MS if has_end else None,
            on_turn=check_reader,
            selects=lambda queue: (
                options.selects(queue) and (where is None or where.may_match_in(queue))
            ),
        )
        batcher = writer.batcher(tail_filter, TailCounts())
        tail: Tail[Any] = Tail(client, plan, batcher, say=common.messages.info)
        progress = _progress_of(common, plan)
        try:
            _write_all(tail, writer, progress)
        except KeyboardInterrupt:
            _summarise(common, tail, tail_filter, departed, is_sure=is_sure)
            command = _resume_command(tail, options, started_epoch_ms)
            common.messages.info(f"resume with: {command}")
            raise
    abandoned = tail.abandoned
    if abandoned and not tail.counts.scanned and len(abandoned) >= len(ranges):
        raise explain_sql(next(iter(abandoned.values())))
    _summarise(common, tail, tail_filter, departed, is_sure=is_sure)
    if abandoned or departed or not _are_compacted(config, tail.gaps):
        return ExitCode.PARTIAL
    if options.fail_if_empty and not tail.counts.matched:
        return ExitCode.EMPTY
    return ExitCode.OK


def _progress_of(common: Common, plan: TailPlan) -> Progress | None:
    """A progress bar, if the ranges have an end and stdout is not the terminal."""
    if plan.follow or plan.last is not None or is_screen(sys.stdout):
        return None
    if not is_screen(sys.stderr):
        return None
    from rmqcli.cli.ui.progress import Progress

    total = sum(max(0, each.end - each.start) for each in plan.ranges)
    return Progress(common.messages, "reading", total=total)


def _write_all(tail: Tail[Any], writer: Writer, progress: Progress | None) -> None:
    """Write the messages. The output is closed even after an interrupt."""
    try:
        with progress or nullcontext():
            for items in tail.items():
                # What was written has to count, or it would come again with `resume`.
                with deferred():
                    writer.write(items)
                    tail.count_shown()
                if progress is not None:
                    progress.update(tail.counts.scanned)
    except KeyboardInterrupt:
        writer.close()
        raise
    writer.close()


def _find_ranges(
    common: Common, client: Client, options: TailOptions, tail_filter: TailFilter
) -> tuple[list[OffsetRange], dict[MessageQueue, RmqError]]:
    """Find the range of each queue and show it on stderr; also return failed queues.

    Raises the first error when no queue has a range, or NoBrokerError when no broker
    answers.
    """
    topics = {topic: readable_queues(client, topic) for topic in options.topics}
    queues: list[MessageQueue] = []
    for readable in topics.values():
        queues += select_queues(readable, options.selectors)
    check_queue_starts(client, options.queue_starts, queues, topics=topics)
    where = tail_filter.where
    if where is not None and any(map(where.may_match_in, queues)):
        queues = [queue for queue in queues if where.may_match_in(queue)]
    unchecked: dict[MessageQueue, RmqError] = {}
    if tail_filter.sql is not None:
        unchecked = check_sql(client, tail_filter.sql, queues)
        queues = [queue for queue in queues if queue not in unchecked]
    around = None if options.around_group is None else AtGroup(options.around_group)
    check_groups(
        client,
        queues,
        [around, options.start, options.to, *options.queue_starts.values()],
    )
    if around is not None:
        found = _around_group(common, client, options, queues)
    else:
        resolved = resolve_ranges_each(
            client,
            queues,
            options.start or Earliest(),
            options.to or Latest(),
            own_starts=options.queue_starts,
        )
        found = {
            queue: each if isinstance(each, RmqError) else each.offsets
            for queue, each in resolved.items()
        }
        client.raise_if_none_answers(found.values())
        unsorted = {
            queue: format_range(each)
            for queue, each in resolved.items()
            if not isinstance(each, RmqError) and each.is_unsorted
        }
        if options.shown_last is None:
            texts = {queue: format_range(each) for queue, each in resolved.items()}
        else:
            texts = {queue: _ends(each) for queue, each in found.items()}
        for queue in unsorted:
            del texts[queue]
        for line in lines_about(texts):
            common.messages.info(line)
        for line in lines_about(unsorted):
            common.messages.warn(line)
    ranges = [each for each in found.values() if not isinstance(each, RmqError)]
    lost = {q: each for q, each in found.items() if isinstance(each, RmqError)}
    lost |= unchecked
    if lost and not ranges:
        client.raise_if_none_answers(lost.values())
        raise next(iter(lost.values()))
    return ranges, lost


def _by_time(
    common: Common,
    client: Client,
    options: TailOptions,
    ranges: list[OffsetRange],
    where: Where,
) -> list[OffsetRange]:
    """Return the parts of ranges in which `--where` can be true by its store times."""
    found = bound_by_time(client, ranges, where, keeps_ends=options.follows)
    left_out = sum(map(len, ranges)) - sum(map(len, found))
    if left_out:
        common.messages.info(
            f"{counted(left_out, 'message')} not read: more than an hour outside the"
            " times of --where"
        )
    return found


def _departed(
    common: Common, client: Client, options: TailOptions, where: Where | None
) -> list[str]:
    """Return the brokers with queues of the topics that cannot be read; warn.

    They have left the route, or do not let the topic be read.
    """
    names = None if where is None else where.broker_names

    def is_wanted(name: str) -> bool:
        return (names is None or name in names) and (
            not options.selectors
            or any(s.broker_name in (None, name) for s in options.selectors)
        )

    found = []
    now_ms = client.clock.epoch_ms()
    for name, seen in sorted(departed_brokers_of(client, options.topics).items()):
        if is_wanted(name):
            found.append(name)
            common.messages.warn(
                f"{name} is no longer in the route ({seen.last_seen(now_ms)}), and"
                " groups had queues of the topic there: they are not read; if it was"
                " removed for good: rmq lag --forget"
            )
    brokers = [each for t in options.topics for each in client.route(t).brokers]
    for name, error in slave_errors(brokers).items():
        if is_wanted(name):
            found.append(f"the master of {name}")
            common.messages.warn(f"{error.message}: what it lacks is not shown")
    for topic in options.topics:
        hidden = list(filter(is_wanted, hidden_brokers(client.route(topic))))
        if hidden:
            found += hidden
            hint = with_flags(how_to_read(client, topic, hidden))
            common.messages.warn(
                f"topic {topic} is not readable on {', '.join(hidden)}: its messages"
                f" there are not read; {hint}"
            )
    found += _unread(common, client, options, where)
    return list(dict.fromkeys(found))


def _warn_beside(
    common: Common, client: Client, options: TailOptions, where: Where | None
) -> bool:
    """Warn of brokers that have left and may have had the topics; return if any."""
    if (where is not None and where.broker_names is not None) or (
        options.selectors and all(s.broker_name for s in options.selectors)
    ):
        return False  # what was asked for is on brokers that were named
    found = warnings_of_departed(client, options.topics, done="read")
    for text in found:
        common.messages.warn(with_flags(text))
    return bool(found)


def _unread(
    common: Common, client: Client, options: TailOptions, where: Where | None
) -> list[str]:
    """Return how many queues are beyond the read queues of a broker, in words; warn."""
    found = []
    for topic in options.topics:
        route = client.route(topic)
        hidden = hidden_brokers(route)
        unread = [
            queue
            for queue in route.unread_queues()
            if queue.broker_name not in hidden
            and (where is None or where.may_match_in(queue))
            and options.selects(queue)
        ]
        if unread:
            common.messages.warn(
                f"no consumer may read {listed(unread, _GAPS_LISTED)}: messages there"
                " are not shown; see the permissions and numbers of queues with:"
                f" {command_line('rmq topic show', topic)}"
            )
            found.append(counted(len(unread), "queue"))
    return found


def _ends(found: OffsetRange | RmqError) -> str:
    if isinstance(found, RmqError):
        return f"unknown: {found.message}"
    return f"offsets {found.start}-{found.end - 1}" if len(found) else "empty"


def _around_group(
    common: Common, client: Client, options: TailOptions, queues: list[MessageQueue]
) -> dict[MessageQueue, OffsetRange | RmqError]:
    group = options.around_group or ""
    before = BEFORE_DEFAULT if options.before is None else options.before
    after = AFTER_DEFAULT if options.after is None else options.after
    found: dict[MessageQueue, OffsetRange | RmqError] = {}
    texts: dict[MessageQueue, str] = {}
    for queue, at in resolve_each(client, queues, AtGroup(group)).items():
        if isinstance(at, RmqError):
            found[queue] = at
        elif at.offset is None:
            texts[queue] = f"{group} has committed nothing"
        else:
            start = max(at.min_offset, at.offset - before)
            end = min(at.max_offset, at.offset + after)
            found[queue] = OffsetRange(queue, start, max(start, end))
            note = f"; {at.note}" if at.note else ""
            texts[queue] = (
                f"committed offset of {group} is {at.offset}, showing {start} to"
                f" {end}{note}"
            )
    for line in lines_about(texts):
        common.messages.info(line)
    return found


def _summarise(
    common: Common,
    tail: Tail[Any],
    tail_filter: TailFilter,
    departed: Iterable[str],
    *,
    is_sure: bool,
) -> None:
    """Show on stderr what was read, and what could not be read."""
    counts = tail.counts
    missing = sum(end - start for spans in tail.gaps.values() for start, end in spans)
    abandoned, condition = tail.abandoned, tail_filter.where
    words = [f"{counts.matched:,} shown", f"{counts.scanned:,} read"]
    if counts.undecodable:
        words.append(f"{counts.undecodable:,} undecodable")
    if condition is not None and condition.undecodable:
        words.append(f"{condition.undecodable:,} without a value")
    if missing:
        words.append(f"{missing:,} missing")
    if abandoned:
        words.append(f"{counted(len(abandoned), 'queue')} abandoned")
    words += [f"{name} not read" for name in departed]
    if not missing and not abandoned and not departed:
        on_them = "" if is_sure else " on the brokers that are left"
        words.append(f"nothing missing{on_them}")
    messages = common.messages
    for queue, spans in sorted(tail.gaps.items()):
        joined = _joined(spans)
        gaps = listed((f"{start} to {end}" for start, end in joined), _GAPS_LISTED)
        messages.warn(f"{queue}: the broker does not have offsets {gaps}")
    texts = {}
    for queue, error in abandoned.items():
        reached = tail.positions.get(queue)
        where = "" if reached is None else f" at offset {reached}"
        texts[queue] = f"abandoned{where}: {explain_sql(error).message}"
    for line in lines_about(texts):
        messages.warn(line)
    if tail.is_cut_short:
        words.append("stopped by the time limit before all messages were shown")
    messages.info(", ".join(words))


def _are_compacted(config: ClientConfig, queues: Iterable[MessageQueue]) -> bool:
    """Whether brokers remove messages amid all of these queues, as they were told to.

    Then a gap is no loss: the queue has a newer message with the same key.
    """
    places = {(queue.topic, queue.broker_name) for queue in queues}
    if not places:
        return True
    from rmqcli.admin.topics import show_topic

    try:
        with Client(config) as client:
            compacted = {
                (topic, name)
                for topic in {topic for topic, _ in places}
                for name in show_topic(client, topic).compacted
            }
    except RmqError:
        return False
    return places <= compacted


def _joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and joined[-1][1] >= start:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _resume_command(
    tail: Tail[Any], options: TailOptions, started_epoch_ms: int
) -> str:
    """The command that continues from the next offset of each queue.

    It leaves out no message. It repeats only messages that were being written at the
    interrupt, or messages of an unfinished `--last` or `--around-group`.
    """
    if options.around_group is not None or tail.is_showing_last:
        return shlex.join(["rmq", *sys.argv[1:]])
    count_left = None
    if options.count is not None:
        count_left = options.count - tail.counts.matched
    starts = {queue: str(offset) for queue, offset in tail.positions.items()}
    for queue in tail.abandoned.keys() - starts.keys():
        starts[queue] = _start_of_lost(queue, options, started_epoch_ms)
    return resume_command(starts, count_left=count_left)


def _start_of_lost(
    queue: MessageQueue, options: TailOptions, started_epoch_ms: int
) -> str:
    """The start position of a queue of which nothing was read, fixed in time."""
    start = options.start if options.shown_last is None else None
    match options.queue_starts.get(queue, start):
        case None | Latest() | AtNow():
            epoch_ms = started_epoch_ms - _CLOCKS_APART_MS
        case Ago(ago_ms):
            epoch_ms = started_epoch_ms - ago_ms - _CLOCKS_APART_MS
        case AtTime(epoch_ms):
            pass
        case position:
            return str(position)
    return f"@{epoch_ms if epoch_ms >= EPOCH_MS_MIN else 0}"


def resume_command(
    starts: Mapping[MessageQueue, str], *, count_left: int | None
) -> str:
    """The command that continues from the given position of each queue.

    `count_left` is how many messages of `--count` are left; None without `--count`.
    """
    options = [] if count_left is None else ["--count", str(max(1, count_left))]
    if len(starts) == 1:
        options += ["--from", *starts.values()]
    else:
        for queue, start in sorted(starts.items()):
            options += ["--from-queue", f"{queue}={start}"]
    words = with_options(_without(sys.argv[1:], _START_FLAGS), options)
    return shlex.join(["rmq", *words])


def _without(words: list[str], flags: tuple[str, ...]) -> list[str]:
    kept = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in flags:
            skip = True
        elif not word.startswith(tuple(f"{flag}=" for flag in flags)):
            kept.append(word)
    return kept
