"""The views of messages: those that arrive, dead letters, and what became of one."""

from __future__ import annotations

import shlex
from collections import deque
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from rmqcli.admin.dlq.letter import place_of
from rmqcli.admin.dlq.read import DeadLetters, read_letters
from rmqcli.admin.dlq.redriven import is_redriven, known_redrives, redrives_of
from rmqcli.admin.message.find import find_messages, missing_message
from rmqcli.admin.message.gather import outcomes_of
from rmqcli.admin.positions import resolve_ranges_each
from rmqcli.admin.tail.batch import Batcher, TailCounts
from rmqcli.admin.tail.filter import TailFilter
from rmqcli.admin.tail.tail import Tail, TailPlan
from rmqcli.cli.dlq.show import COLUMNS as LETTER_COLUMNS
from rmqcli.cli.dlq.show import LAST_DEFAULT
from rmqcli.cli.message.show import (
    GROUP_COLUMNS,
    known_backups,
    stored_text,
)
from rmqcli.cli.selection import readable_queues
from rmqcli.cli.tail.command import LOOK_BACK
from rmqcli.cli.top.frame import wrap
from rmqcli.cli.top.view import View, ViewKey, clock_time, refresh
from rmqcli.cli.ui.output import Column, number_column, row_of
from rmqcli.cli.ui.records.text import Pretty, cut_text
from rmqcli.cli.ui.rich.table import shortened
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.dataclass import dataclass
from rmqcli.errors import DecodeError, RmqError
from rmqcli.hint import placed, with_options
from rmqcli.position import AtOffset, Earliest, Latest
from rmqcli.units import counted, format_rfc3339
from rmqcli.wire.message.record import DecodeFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmqcli.admin.dlq.log import LetterStates
    from rmqcli.admin.message.gather import MessageOutcome
    from rmqcli.admin.tail.follow import Seen
    from rmqcli.api.client import Client
    from rmqcli.cli.top.view import Reads
    from rmqcli.cli.ui.output import Row
    from rmqcli.model import MessageQueue, OffsetRange
    from rmqcli.wire.message.record import Record

#: Messages of a tail that are kept.
KEPT_MAX = 500
#: The messages that a tail shows first, as those of `rmq tail`.
_LAST = 10
#: A busy topic is shown this often.
_POST_MS = 200
#: A quiet one shows this often that it is still read.
_IDLE_MS = 1_000
_BODY_BYTES_MAX = 200
_SAID_MAX = 3

_TAIL_COLUMNS = (
    Column("stored", priority=20),
    Column("broker_name", title="BROKER", priority=40),
    number_column("queue_id", title="QUEUE"),
    number_column("queue_offset", title="OFFSET"),
    Column("tags", priority=30, shorten=True),
    Column("keys", priority=25, shorten=True),
    Column("body", shorten=True, is_wanted=True),
)
_LINE_COLUMNS = (Column("line", title="MESSAGE"),)
_LETTER_NAMES = (
    "letter",
    "origin_topic",
    "deliveries",
    "redriven",
    "store_timestamp",
    "keys",
    "body",
)
_LETTER_TABLE = tuple(
    column for column in LETTER_COLUMNS if column.name in _LETTER_NAMES
)


def _body_of(message: Any) -> str:
    """Return the beginning of a body as one line, or why it cannot be read."""
    try:
        return cut_text(message.body, _BODY_BYTES_MAX)
    except DecodeError as error:
        return f"error: {error.message}"


def _row_of_record(queue: MessageQueue, record: Record) -> dict[str, Any]:
    row: dict[str, Any] = {
        "topic": queue.topic,
        "broker_name": queue.broker_name,
        "queue_id": queue.queue_id,
        "queue_offset": record.queue_offset,
    }
    if isinstance(record, DecodeFailure):
        return {**row, "stored": None, "body": f"error: {record.error}"}
    stored_ms = record.store_timestamp_ms
    return {
        **row,
        "stored": None if stored_ms is None else clock_time(stored_ms),
        "tags": record.tags,
        "keys": record.keys,
        "body": _body_of(record),
    }


@dataclass(slots=True, kw_only=True)
class _Arrived:
    """New messages, oldest first, how many more there were, and what was said.

    `has_stored` is whether the queues had messages when they were first asked, and
    `is_reading` whether the last of them are still being read.
    """

    rows: list[dict[str, Any]]
    has_stored: bool
    is_reading: bool
    skipped: int
    said: tuple[str, ...]


class TailView(View):
    """The messages of a topic, or of one queue, as they arrive; the newest first."""

    columns = _TAIL_COLUMNS

    def __init__(self, topic: str, queue: tuple[str, int] | None = None) -> None:
        name = topic if queue is None else f"{topic} {queue[0]}:{queue[1]}"
        super().__init__(f"tail {name}")
        self.topic = topic
        self._queue = queue
        self._rows: deque[dict[str, Any]] = deque(maxlen=KEPT_MAX)
        self._said: tuple[str, ...] = ()
        self._skipped = 0
        #: queue -> where a tail goes on that begins anew, None if it was never read;
        #: for the thread of the feed
        self._positions: dict[MessageQueue, int | None] = {}
        #: by which it notices that a topic was deleted and created again
        self._seen: dict[MessageQueue, Seen] = {}

    @property
    def command(self) -> list[str]:
        words = ["tail", *placed(self.topic)]
        if self._queue is None:
            return words
        return with_options(words, ["--queue", f"{self._queue[0]}:{self._queue[1]}"])

    def rows(self) -> Sequence[Row]:
        return list(self._rows)

    def key_of(self, row: Row) -> Any:
        return row["broker_name"], row["queue_id"], row["queue_offset"]

    def run(self, feed: Reads) -> None:
        while True:
            feed.begin()
            try:
                self._follow(feed)
            except RmqError as error:
                feed.post(error)
            feed.pause(self.interval_ms or 2_000)

    def _follow(self, feed: Reads) -> None:
        client = feed.client
        refresh(client)
        queues = [
            queue
            for queue in readable_queues(client, self.topic)
            if self._queue in (None, (queue.broker_name, queue.queue_id))
        ]
        found = resolve_ranges_each(client, queues, Earliest(), Latest())
        lost = {q: each for q, each in found.items() if isinstance(each, RmqError)}
        if lost and len(lost) == len(found):
            client.raise_if_none_answers(lost.values())
            raise next(iter(lost.values()))
        ranges = [r.offsets for r in found.values() if not isinstance(r, RmqError)]
        has_stored = any(map(len, ranges))
        is_resumed = bool(self._positions)
        skipped = 0
        if is_resumed:
            ranges, skipped = self._resumed(ranges)
        waiting: deque[dict[str, Any]] = deque(maxlen=KEPT_MAX)
        said: deque[str] = deque(maxlen=_SAID_MAX)
        state = {"arrived": skipped, "posted_ms": 0}

        def say(text: str) -> None:
            said.append(f"{clock_time(client.clock.epoch_ms())} {text}")
            flush()

        def flush() -> None:
            rows = list(waiting)
            skipped = state["arrived"] - len(rows)
            feed.post(
                _Arrived(
                    rows=rows,
                    has_stored=has_stored,
                    is_reading=tail.is_showing_last,
                    skipped=skipped,
                    said=tuple(said),
                )
            )
            waiting.clear()
            state["arrived"], state["posted_ms"] = 0, SYSTEM_CLOCK.monotonic_ms()

        def on_turn() -> None:
            feed.check()
            late_ms = SYSTEM_CLOCK.monotonic_ms() - state["posted_ms"]
            if late_ms >= (_POST_MS if state["arrived"] else _IDLE_MS):
                flush()

        for queue, error in lost.items():
            said.append(f"{queue}: {error.message}")
        tail: Tail[dict[str, Any]] = Tail(
            client,
            TailPlan(
                ranges=tuple(ranges),
                filter=TailFilter(),
                lost=lost,
                own_starts={
                    queue: AtOffset(offset)
                    for queue, offset in self._positions.items()
                    if queue in lost and offset is not None
                },
                seen=self._seen,
                last=None if is_resumed else _LAST,
                look_back=LOOK_BACK,
                follow=True,
                selects=lambda queue: (
                    self._queue in (None, (queue.broker_name, queue.queue_id))
                ),
                on_turn=on_turn,
            ),
            Batcher(
                TailFilter(),
                lambda queue, some: [_row_of_record(queue, each) for each in some],
                TailCounts(),
            ),
            say=say,
        )
        flush()
        try:
            with closing(tail.items()) as arriving:
                for rows in arriving:
                    state["arrived"] += len(rows)
                    waiting.extend(rows)
                    on_turn()
        finally:
            if not tail.is_showing_last:
                unread = dict.fromkeys(lost.keys() - self._positions.keys())
                self._positions |= {**unread, **tail.positions}
                self._seen = tail.seen
            flush()

    def _resumed(self, stored: list[OffsetRange]) -> tuple[list[OffsetRange], int]:
        """Return what has come since the tail ended, and how many are left out of it.

        No more of a queue is read than is kept.
        """
        found, skipped = [], 0
        for each in stored:
            known = self._positions.get(each.queue, each.start)
            if known is None:
                known = each.end
            elif known > each.end:  # the topic was created again
                known = each.start
            begin = max(known, each.start)
            start = max(begin, each.end - KEPT_MAX)
            skipped += start - begin
            found.append(replace(each, start=start))
        return found, skipped

    def take(self, answer: _Arrived) -> None:
        self.none = "no message yet"
        if answer.has_stored:
            self.none = "reading ..." if answer.is_reading else "no new message yet"
        known = {self.key_of(row): row for row in self._rows}
        for row in answer.rows:
            before = known.get(self.key_of(row))
            if row == before:  # it began anew after an error
                continue
            if before is not None and before in self._rows:
                self._rows.remove(before)  # the topic was deleted and created again
            self._rows.appendleft(row)
        self._skipped += answer.skipped
        self._said = answer.said

    def intro(self, row: Row | None) -> Sequence[str]:
        if not self._skipped:
            return ()
        return (
            f"{counted(self._skipped, 'message')} came faster than they can be shown",
        )

    def notes(self) -> Sequence[str]:
        return self._said

    def open(self, row: Row) -> View | None:
        if row["queue_offset"] is None:
            return None
        place = f"{row['topic']}@{row['broker_name']}:{row['queue_id']}"
        return MessageView(f"{place}:{row['queue_offset']}")


@dataclass(frozen=True, slots=True)
class _Letters:
    """Dead letters, and which of them were redriven; None where no log says so."""

    found: DeadLetters
    redriven: LetterStates | RmqError | None


class LettersView(View):
    """The last dead letters of a group."""

    columns = _LETTER_TABLE
    interval_ms = 10_000
    late_ms = 10_000

    def __init__(self, group: str) -> None:
        super().__init__(f"dead letters of {group}")
        self.group = group
        self.keys = {"o": ViewKey("origin", self._origin)}

    @property
    def command(self) -> list[str]:
        return ["dlq", "show", *placed(self.group)]

    def rows_of(self, found: _Letters) -> Sequence[Row]:
        states = found.redriven
        if isinstance(states, RmqError):
            states = None
        return [
            {
                "letter": place_of(each.queue, each.queue_offset),
                "origin_topic": each.origin_topic,
                "deliveries": each.deliveries,
                "redriven": is_redriven(states, each.queue, each.message),
                "store_timestamp": format_rfc3339(each.message.store_timestamp_ms),
                "keys": each.message.keys,
                "body": _body_of(each.message),
                "place": f"{each.queue}:{each.queue_offset}",
                "origin_msg_id": each.origin_msg_id,
            }
            for each in sorted(
                found.found.letters,
                key=lambda each: each.message.store_timestamp_ms,
                reverse=True,
            )
        ]

    def key_of(self, row: Row) -> Any:
        return row["letter"]

    def read(self, client: Client) -> _Letters:
        # As many of each broker as `rmq dlq show` reads.
        found = read_letters(
            client,
            self.group,
            start=Earliest(),
            end=Latest(),
            last=LAST_DEFAULT,
            limit=KEPT_MAX,
        )
        try:
            return _Letters(found, redrives_of(client, self.group))
        except RmqError as error:
            return _Letters(found, error)

    def take(self, answer: _Letters) -> None:
        super().take(answer)
        # Up to 4.9.1 the topic is write-only, and some brokers show nothing of it.
        self.none = "not read: see below" if answer.found.errors else View.none

    def notes_of(self, found: _Letters) -> Sequence[str]:
        read = found.found
        notes = [f"{queue}: {error.message}" for queue, error in read.errors.items()]
        hints = [self.worded(error.hint) for error in read.errors.values()]
        notes += filter(None, dict.fromkeys(hints))
        if read.undecodable:
            notes.append(f"{read.undecodable:,} cannot be decoded")
        if read.missing:
            notes.append(f"{read.missing:,} are not stored any more")
        if read.is_cut:
            more = shlex.join(["rmq", *self.command_for(None)])
            notes.append(f"there are more: {more}")
        if isinstance(found.redriven, RmqError):
            notes.append(f"REDRIVEN is not known: {found.redriven.message}")
        return notes

    def open(self, row: Row) -> View:
        has_origin = row["origin_msg_id"] is not None
        origin = partial(self._origin, row) if has_origin else None
        return MessageView(row["place"], origin=origin)

    def _origin(self, row: Row | None) -> MessageView | None:
        if row is None or row["origin_msg_id"] is None:
            return None
        return MessageView(row["origin_msg_id"], row["origin_topic"])


@dataclass(frozen=True, slots=True)
class _FoundMessage:
    """What became of a message, and why there may be others of its name."""

    outcome: MessageOutcome
    others: tuple[str, ...]


class MessageView(View):
    """One message: what became of it in each group of its topic, and its text."""

    parts = ("verdicts", "message")
    none = "no group of its topic is known"
    interval_ms = 5_000
    late_ms = 10_000

    def __init__(
        self,
        ref: str,
        topic: str | None = None,
        *,
        origin: Callable[[], View | None] | None = None,
    ) -> None:
        super().__init__(ref)
        if origin is not None:
            self.keys = {"o": ViewKey("origin", lambda _row: origin())}
        self._ref = ref
        self._topic = topic
        self._pretty: list[str] = []

    @property
    def command(self) -> list[str]:
        more = [] if self._topic is None else ["--topic", self._topic]
        return with_options(["message", "show", *placed(self._ref)], more)

    @property
    def columns(self) -> Sequence[Column]:
        return _LINE_COLUMNS if self.part else GROUP_COLUMNS

    def rows_of(self, found: _FoundMessage) -> Sequence[Row]:
        if self.part:
            lines = [part for line in self._pretty for part in wrap(line, self.width)]
            return [{"line": line, "at": at} for at, line in enumerate(lines)]
        return [row_of(GROUP_COLUMNS, each) for each in found.outcome.groups]

    def key_of(self, row: Row) -> Any:
        return row["at"] if self.part else row["group"]

    def read(self, client: Client) -> _FoundMessage:
        found = find_messages(client, self._ref, self._topic, pending=True)
        if not found.messages:
            raise missing_message(found, self._ref)
        (outcome,) = outcomes_of(
            client,
            [found.messages[-1]],
            backups=known_backups(),
            redriven=known_redrives(client),
        )
        others = [f"{name}: {error.message}" for name, error in found.errors.items()]
        if (count := len(found.messages)) > 1:
            more = "more than " if found.more_on else ""
            others.append(
                f"{more}{counted(count, 'message')} have this name; the newest is shown"
            )
        if found.unsearched is not None:
            others.append(f"there may be others of this name: {found.unsearched}")
        return _FoundMessage(outcome, tuple(others))

    def take(self, answer: _FoundMessage) -> None:
        super().take(answer)
        message = answer.outcome.message
        pretty = Pretty(color=False, whole="rmq message show -o json has")
        blocks = pretty.blocks(message.message_queue, [message])
        self._pretty = blocks[0].split("\n")

    def intro_of(self, found: _FoundMessage, row: Row | None) -> Sequence[str]:
        if self.part:
            return ()
        verdict = []
        if row is not None:
            because = [text for text in (row["evidence"], row["reason"]) if text]
            verdict = [f"{row['group']}: {row['verdict']}. {'; '.join(because)}"]
        body = shortened(f"  {_body_of(found.outcome.message)}", self.width)
        return [self._pretty[0], body, stored_text(found.outcome), *verdict]

    def notes_of(self, found: _FoundMessage) -> Sequence[str]:
        errors = found.outcome.errors.items()
        notes = [*found.others, *(f"{name}: {each.message}" for name, each in errors)]
        return list(dict.fromkeys(notes))
