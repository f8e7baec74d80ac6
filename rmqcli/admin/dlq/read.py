"""Reading the dead letters of a group, also where their topic is write-only.

Up to 4.9.1 a broker creates `%DLQ%GROUP` write-only, and refuses pulls from it. Its
permission is left as it is: the entries of the consume queue say where each letter is
in the commit log, and the letters are read from there one by one, many at once. Old
brokers, such as 4.6.0, do not show the entries; then only the user can help, by making
the topic readable. A topic keeps its permission when the broker is upgraded.

Source: PullMessageProcessor (which checks permissions), AdminBrokerProcessor
(QUERY_CONSUME_QUEUE) and QueryMessageProcessor (VIEW_MESSAGE_BY_ID), which do not.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING

from rmqcli.admin.brokers import split_answers
from rmqcli.admin.dlq.letter import facts_of
from rmqcli.admin.lag.memory import departed_errors_of_group, how_to_read
from rmqcli.admin.positions import (
    check_group_names,
    resolve_ranges_each,
    warn_of_unsorted,
)
from rmqcli.admin.read.range import RangeReader, ReadOptions, view_entries
from rmqcli.admin.tail.sql import check_sql
from rmqcli.api.calls.store import query_consume_queue
from rmqcli.checked import check_int
from rmqcli.dataclass import dataclass
from rmqcli.engine.message import Origin, PulledItem, PulledRecord
from rmqcli.errors import (
    DeniedError,
    NotFoundError,
    PartialError,
    RmqError,
    UnsupportedError,
)
from rmqcli.hint import Hint, LibraryCall
from rmqcli.model import PERM_READ, MessageQueue, OffsetRange, dlq_topic
from rmqcli.names import check_group
from rmqcli.position import LONG_MAX, Earliest, Latest
from rmqcli.queue_selector import select_queues
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.message.decode import StoredMessage, decode_messages
from rmqcli.wire.subscription import SQL92

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from rmqcli.admin.read.body import Span
    from rmqcli.admin.tail.filter import TailFilter
    from rmqcli.api.client import Client
    from rmqcli.engine.message import PulledMessage
    from rmqcli.model import TopicRoute
    from rmqcli.position import Position
    from rmqcli.queue_selector import QueueSelector
    from rmqcli.wire.message.record import DecodeFailure

    Letters = list[StoredMessage | DecodeFailure]

#: Letters of a write-only queue that are asked for at once.
_VIEWED_AT_ONCE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterRanges:
    """The letters to read: a range of each queue, pinned when it was resolved.

    `write_only` are the queues that brokers do not let anybody pull from. `errors` has
    the queues whose ends are unknown. `is_cut` says that a queue has more than the last
    letters that were asked for.
    """

    group: str
    ranges: tuple[OffsetRange, ...]
    write_only: frozenset[MessageQueue]
    errors: dict[MessageQueue, RmqError] = field(hash=False)
    is_cut: bool = False

    @property
    def count(self) -> int:
        """How many offsets the ranges have."""
        return sum(map(len, self.ranges))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One dead letter: its place among the group's letters, and what it says of itself.

    `queue` and `queue_offset` are its place in `%DLQ%GROUP`. `message` is the message
    as it died, with the topic of the dead letters. `origin_topic` is where it was first
    sent and `origin_msg_id` the broker's id of it there; None where nothing says so.
    `deliveries` is how often consumers failed. `redriven_times` counts earlier redrives
    of the message, and `redriven_from` names the letter of the last of them.
    """

    queue: MessageQueue
    queue_offset: int
    message: PulledMessage
    origin_topic: str | None
    origin_msg_id: str | None
    deliveries: int
    redriven_times: int
    redriven_from: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetters:
    """Letters that were read; each queue keeps its order.

    `is_cut` says that there are more than were wanted. `undecodable` counts letters
    that cannot be read, `missing` those of the range that brokers do not have any more.
    `without_value` counts letters of which the condition asked for the value of a body
    that does not fit the format. `errors` has the queues that were not read to their
    ends.
    """

    letters: tuple[DeadLetter, ...]
    is_cut: bool
    undecodable: int
    missing: int
    errors: dict[MessageQueue, RmqError] = field(hash=False)
    without_value: int = 0


def read_letters(
    client: Client,
    group: str,
    *,
    start: Position,
    end: Position,
    last: int | None,
    limit: int,
    wanted: TailFilter | None = None,
) -> DeadLetters:
    """Read at most `limit` letters of a group. Raises as `find_letters` does."""
    from rmqcli.admin.tail.filter import TailFilter

    check_group(group)
    check_int(limit, "limit", 0, LONG_MAX)
    found = find_letters(client, group, start=start, end=end, last=last)
    wanted = wanted or TailFilter()
    reader = LetterReader(client, found, wanted, decode=_decode_pulled)
    letters: list[DeadLetter] = []
    undecodable = 0
    for queue, some in reader:
        for each in some:
            if not isinstance(each, PulledRecord | PulledItem):
                undecodable += 1
                continue
            each.origin = Origin(queue, each.queue_offset, each.queue_offset + 1)
            facts = facts_of(group, each)
            letters.append(
                DeadLetter(
                    queue=queue,
                    queue_offset=each.queue_offset,
                    message=each,
                    origin_topic=facts.origin_topic,
                    origin_msg_id=facts.origin_msg_id,
                    deliveries=facts.deliveries,
                    redriven_times=facts.redriven_times,
                    redriven_from=facts.redriven_from,
                )
            )
        if len(letters) > limit:
            break
    return DeadLetters(
        letters=tuple(letters[:limit]),
        is_cut=len(letters) > limit,
        undecodable=undecodable,
        missing=sum(b - a for spans in reader.missing.values() for a, b in spans),
        errors=dict(reader.abandoned),
        without_value=0 if wanted.where is None else wanted.where.undecodable,
    )


def _decode_pulled(body: bytes) -> Letters:
    return decode_messages(body, record_type=PulledRecord, item_type=PulledItem)


def letter_route(client: Client, group: str) -> TopicRoute:
    """Return the route of a group's dead letters.

    Raises NotFoundError when the group does not exist or has no topic of dead letters,
    and PartialError when only a broker that has left the route may have it.
    """
    topic = dlq_topic(group)
    try:
        return client.route(topic)
    except NotFoundError as missing:
        for name, error in departed_errors_of_group(client, group, ()).items():
            raise PartialError(
                f"group {group} has no dead letters on the brokers that are left:"
                f" {name} is no longer in the route, and may have some",
                hint=error.hint,
            ) from missing
        check_group_names(client, [group])
        missing.message = f"group {group} has no dead letters: there is no {topic}"
        missing.missing = None  # no topic of that name was meant
        missing.hint = Hint(
            "list the groups that have dead letters: ",
            LibraryCall("Admin.dead_letters"),
        )
        raise


def check_pullable(client: Client, group: str) -> None:
    """Raise UnsupportedError for write-only letters, and as `letter_route` does.

    For readers that only pull, as an export to Parquet does: they would find nothing.
    """
    topic = dlq_topic(group)
    hidden = _write_only(letter_route(client, group))
    if hidden:
        raise UnsupportedError(
            f"{topic} is write-only on {', '.join(hidden)}, and an export to Parquet"
            " reads only what brokers let clients pull",
            hint=how_to_read(client, topic, hidden),
        )


def _write_only(route: TopicRoute) -> list[str]:
    return sorted({d.broker_name for d in route.queues if not d.perm & PERM_READ})


def find_letters(
    client: Client,
    group: str,
    *,
    start: Position | None = None,
    end: Position | None = None,
    last: int | None = None,
    selectors: Collection[QueueSelector] = (),
    sql: str | None = None,
) -> LetterRanges:
    """Resolve which letters of a group are meant; `last` counts in each queue.

    `selectors` choose queues. All brokers are asked whether they can filter by `sql`.

    A broker that has left the route, and on which the group had queues, may have
    letters: it is among the errors. Raises NoBrokerError when no broker answers,
    UnsupportedError for SQL and letters that are write-only, and as `letter_route` and
    `check_sql` do; and ConfigError for a `last` below 1.
    """
    if last is not None:
        check_int(last, "last", 1, LONG_MAX)
    topic = dlq_topic(group)
    route = letter_route(client, group)
    queues = select_queues(
        sorted(
            MessageQueue(topic, data.broker_name, queue_id)
            for data in route.queues
            for queue_id in range(max(data.read_queue_nums, data.write_queue_nums))
        ),
        selectors,
    )
    unreadable = _write_only(route)
    unchecked: dict[MessageQueue, RmqError] = {}
    if sql is not None:
        for queue in queues:
            if queue.broker_name in unreadable:
                raise UnsupportedError(
                    f"{topic} is write-only on {queue.broker_name}, and a broker"
                    " filters by SQL only what it lets clients pull",
                    hint=how_to_read(client, topic, unreadable),
                )
        unchecked = check_sql(client, sql, queues)
    resolved = resolve_ranges_each(client, queues, start or Earliest(), end or Latest())
    warn_of_unsorted(resolved)
    known, errors = split_answers(resolved)
    client.raise_if_none_answers(errors.values())
    errors |= unchecked
    there = {data.broker_name for data in route.queues}
    for name, error in departed_errors_of_group(client, group, there).items():
        if not selectors or any(s.broker_name in (None, name) for s in selectors):
            errors[MessageQueue(topic, name, 0)] = error
    ranges = [each.offsets for q, each in known.items() if q not in unchecked]
    is_cut = last is not None and any(len(each) > last for each in ranges)
    if last is not None:
        ranges = [replace(e, start=max(e.start, e.end - last)) for e in ranges]
    return LetterRanges(
        group=group,
        ranges=tuple(ranges),
        write_only=frozenset(q for q in queues if q.broker_name in unreadable),
        errors=errors,
        is_cut=is_cut,
    )


@dataclass(slots=True)
class LetterReader:
    """Iterates over the letters of ranges, in lists; each queue keeps its order.

    After the iteration `abandoned` has the queues that were not read to their ends and
    `missing` the offsets that brokers did not have. Letters that cannot be decoded are
    DecodeFailures, which no filter leaves out. It can be iterated once, and ends early
    when `is_stopped` says so, which is asked before each letter.
    """

    _client: Client
    _found: LetterRanges
    filter: TailFilter
    decode: Callable[[bytes], Letters] = decode_messages
    is_stopped: Callable[[], bool] = lambda: False
    scanned: int = 0
    abandoned: dict[MessageQueue, RmqError] = field(init=False)
    missing: dict[MessageQueue, list[Span]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.abandoned = dict(self._found.errors)

    def __iter__(self) -> Iterator[tuple[MessageQueue, Letters]]:
        found = self._found
        open_ranges = [e for e in found.ranges if e.queue not in found.write_only]
        # Tags are compared here alone, so that every letter is counted as read.
        options = ReadOptions(raise_abandoned=False)
        if self.filter.sql is not None:
            options = replace(
                options, expression=self.filter.sql, expression_type=SQL92
            )
        reader = RangeReader(self._client, open_ranges, options)
        for chunk in reader:
            if chunk.missing:
                self.missing.setdefault(chunk.queue, []).extend(chunk.missing)
            letters = self.decode(chunk.body) if chunk.body else []
            yield from self._chosen(chunk.queue, letters, chunk.start, chunk.end)
            if self.is_stopped():
                return
        self.abandoned.update(reader.abandoned)
        for each in found.ranges:
            if each.queue in found.write_only:
                yield from self._viewed(each)

    def _chosen(
        self,
        queue: MessageQueue,
        letters: Letters,
        start: int,
        end: int,
    ) -> Iterator[tuple[MessageQueue, Letters]]:
        chosen: Letters = []
        if self.filter.is_everything:
            chosen = [
                each
                for each in letters
                if not isinstance(each, StoredMessage)
                or start <= each.queue_offset < end
            ]
            self.scanned += len(chosen)
            letters = []
        for letter in letters:
            if self.is_stopped():
                return
            if isinstance(letter, StoredMessage):
                if not start <= letter.queue_offset < end:
                    continue
                self.scanned += 1
                if self.filter.matches(letter, queue.broker_name):
                    chosen.append(letter)
            else:
                self.scanned += 1
                chosen.append(letter)
        if chosen:
            yield queue, chosen

    def _viewed(self, wanted: OffsetRange) -> Iterator[tuple[MessageQueue, Letters]]:
        """Read a write-only queue by its entries."""
        queue, at = wanted.queue, wanted.start
        try:
            address = self._client.reader_of(queue)
            while at < wanted.end and not self.is_stopped():
                count = min(_VIEWED_AT_ONCE, wanted.end - at)
                letters, reached = self._view(queue, address, at, count)
                yield from self._chosen(queue, letters, at, reached)
                at = reached
        except RmqError as error:
            self.abandoned[queue] = error

    def _view(
        self, queue: MessageQueue, address: str, at: int, count: int
    ) -> tuple[Letters, int]:
        """Return the letters from offset `at` on, and the offset after them."""
        client = self._client
        call = query_consume_queue(queue.topic, queue.queue_id, at, count=count)
        answer = client.invoke(address, call)
        entries = (answer.queue_data or [])[:count]
        if not entries and not answer.max_queue_index:
            raise DeniedError(
                f"{queue.topic} is write-only, and the broker {address} does not say"
                " where its messages are",
                code=ResponseCode.NO_PERMISSION,
                address=address,
                hint=how_to_read(
                    self._client,
                    queue.topic,
                    (q.broker_name for q in self._found.write_only),
                ),
            )
        if not entries:
            low = min(answer.min_queue_index, at + count)
            if low <= at:
                raise PartialError(f"{queue}: {address} has no entry for offset {at}")
            self.missing.setdefault(queue, []).append((at, low))
            return [], low
        letters: Letters = []
        for offset, body in view_entries(client, address, queue, entries, at):
            found = self.decode(body)
            # The broker does not check the place, so the answer has to name this one.
            is_right = len(found) == 1 and found[0].queue_offset in (offset, None)
            if not is_right:
                raise PartialError(
                    f"{queue}: {address} returned another message for offset {offset}"
                )
            letters += found
        return letters, at + len(entries)
