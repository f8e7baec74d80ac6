"""Finds single messages: by place, by id, or by key.

Ids and keys are looked up in the index of each broker, all brokers side by side. The
index holds hashes and whole seconds, so that topic, key and time of each answer are
compared again. A broker returns the newest 64 entries at most, or fewer if its setting
maxMsgsNumBatch says so; older ones are asked for until there are none. The search by
the time of an id is in `by_time.py`.

A broker whose index is switched off, or of a kind that does not answer this request,
answers "not found", just like one that has no such message, and an index that was
switched off knows only what was stored before. So for a key, and for an id that was not
found, the broker is asked in the same way for the newest message that it has; if its
index does not know that one, the broker counts as one without an index. An index in
RocksDB (indexRocksDBEnable, 5.5.0) answers for at most maxRocksDBIndexQueryDays; a
beginning at 0 is for it the last of these days, whatever the end is.

Source: QueryMessageProcessor, DefaultMessageStore#queryMessage, IndexService,
IndexRocksDBStore and MQAdminImpl#queryMessage in apache/rocketmq.
"""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import field
from typing import TYPE_CHECKING, Final

from rmqcli.admin.brokers import addresses_of_host, reader_addresses
from rmqcli.admin.lag.memory import (
    check_departed,
    departed_brokers,
    slave_errors,
    unread_error,
    untold_errors_of,
)
from rmqcli.admin.message.records import (
    PENDING_TOPICS,
    count_records,
    decode_all,
    decode_found,
    query_message_max,
    stored_order,
    waits_for,
)
from rmqcli.admin.positions import resolve_times_each
from rmqcli.admin.topics import list_topics
from rmqcli.api.broker_errors import is_nothing_there, not_found, unanswered
from rmqcli.api.calls.config import get_broker_config, get_topic_config
from rmqcli.api.calls.pull import pull_message
from rmqcli.api.calls.stats import get_topic_stats_info
from rmqcli.api.calls.store import (
    QUERY_END_MS,
    QUERY_MESSAGE_MAX,
    query_message,
    view_message_by_id,
)
from rmqcli.api.runner import run_tasks
from rmqcli.dataclass import dataclass
from rmqcli.errors import (
    BrokerError,
    ConfigError,
    DeadlineError,
    DecodeError,
    DeniedError,
    DisconnectedError,
    FrameError,
    NotFoundError,
    PartialError,
    RefusedError,
    RmqError,
    TextError,
    UsageError,
)
from rmqcli.hint import Blank, Hint, LibraryCall, Setting
from rmqcli.queue_selector import parse_queue
from rmqcli.tasks import All, Request
from rmqcli.units import counted
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.ids import decode_offset_msg_id
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.properties import REAL_TOPIC
from rmqcli.wire.message.record import DecodeFailure, has_key
from rmqcli.wire.version import V5_0_0

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from rmqcli.admin.message.by_time import TimeSearch
    from rmqcli.admin.reset.target import PastMessage
    from rmqcli.api.client import Client
    from rmqcli.engine.message import PulledMessage
    from rmqcli.model import MessageQueue
    from rmqcli.tasks import Task
    from rmqcli.wire.bodies.stats import TopicOffset

#: Messages of one key that are looked up on one broker.
FOUND_MAX = 1_000
#: An id without its topic is looked up in at most this many topics.
TOPICS_MAX = 200
_LACKING: Final = "{} cannot look it up: the index is off, late, or of another kind"
#: Hex digits of the ids of clients: 32 and 56 over remoting, 34 over gRPC.
_ID_LENGTHS = (32, 34, 56)
#: An entry's time is rounded down to a whole second since its file began.
_INDEX_ROUNDS_MS = 1_000
#: Messages among which one that must be in the index is looked for.
_LOOKED_AT_MAX = 32
#: The first time that is asked for: an index in RocksDB takes 0 for some days ago.
_BEGIN_MS = 1


@dataclass(frozen=True, slots=True)
class MessagePlace:
    """A queue and an offset in it, written as TOPIC@BROKER:QUEUE:OFFSET."""

    queue: MessageQueue
    queue_offset: int

    def __str__(self) -> str:
        return f"{self.queue}:{self.queue_offset}"


def parse_place(text: str) -> MessagePlace | None:
    """Read TOPIC@BROKER:QUEUE:OFFSET; None for any other text, such as an id or key."""
    queue, _, digits = text.rpartition(":")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
        return None
    try:
        return MessagePlace(parse_queue(queue), int(digits))
    except TextError:
        return None


@dataclass(slots=True, kw_only=True)
class FoundMessages:
    """The messages that were found, by store time, and what was not searched.

    `errors` has the brokers that did not answer, by name. `without_index` are brokers
    that answered, but whose index does not even know the newest message that they have,
    or one of the time at which an id was made, or has no keys of what they store, as of
    batches that are one record. `by_time` is what was read there to find an id by that
    time, None if nothing was. `more_on` are brokers that have, or may have, more
    messages of the key than are here. `damaged` counts the records that could not be
    read, by broker: each may be a message of the key. `removed`, `removed_because` and
    `unplaced` are those of `place.set_removed_aside`. Without `has_answers` no broker
    told what its index has of any of the topics.
    """

    messages: list[PulledMessage] = field(default_factory=list)
    errors: dict[str, RmqError] = field(default_factory=dict)
    without_index: list[str] = field(default_factory=list)
    more_on: list[str] = field(default_factory=list)
    damaged: dict[str, int] = field(default_factory=Counter)
    has_answers: bool = True
    by_time: TimeSearch | None = None
    #: in the commit log, but no longer in the topic, and what shows that
    removed: list[PulledMessage] = field(default_factory=list)
    removed_because: str | None = None
    #: static topics, in which nothing is looked up
    static_topics: list[str] = field(default_factory=list)
    #: why some of the messages may no longer be in the topic, either
    unplaced: str | None = None

    @property
    def is_complete(self) -> bool:
        """Whether every broker was searched to the end."""
        gaps = (self.errors, self.without_index, self.more_on, self.damaged)
        return not any(gaps)

    @property
    def denial(self) -> DeniedError | None:
        """The error if nothing was searched, as brokers denied it; None otherwise."""
        denied = [e for e in self.errors.values() if isinstance(e, DeniedError)]
        if self.has_answers or self.by_time is not None or not denied:
            return None
        return denied[0] if len(denied) == len(self.errors) else None

    @property
    def silence(self) -> str:
        """Say which brokers were not searched, and why; there are `errors`."""
        is_denied = all(isinstance(each, DeniedError) for each in self.errors.values())
        why = next(iter(self.errors.values())).message
        words = f"denied the look-up: {why}" if is_denied else unanswered(why)
        return f"{', '.join(self.errors)} {words}"

    @property
    def unsearched(self) -> str | None:
        """Say what was not searched although its brokers answered; None if nothing.

        Beside the messages that were found there may be others. An id is searched to
        the end, too, where all messages within reach of its time were read.
        """
        if self.more_on:
            return f"{', '.join(self.more_on)} did not tell all messages"
        if self.damaged:
            return self.damage
        if not self.without_index:
            return None
        if self.by_time is None:
            return _LACKING.format(", ".join(self.without_index))
        if self.by_time.is_cut or self.by_time.unread:
            return f"by its time, this was read: {self.by_time}"
        return None

    @property
    def damage(self) -> str:
        """Say how many records could not be read, and where; empty if none."""
        parts = [
            f"{counted(count, 'record')} on {name} cannot be read"
            for name, count in self.damaged.items()
        ]
        return ", ".join(parts)

    def note(self, broker_name: str, searched: _Searched) -> None:
        """Note what a search has shown that a broker does not tell."""
        if searched.damaged:
            self.damaged[broker_name] += len(searched.damaged)
        if searched.has_more and broker_name not in self.more_on:
            self.more_on.append(broker_name)
        if searched.is_without_index and broker_name not in self.without_index:
            self.without_index.append(broker_name)


def missing_message(
    found: FoundMessages, ref: str, topic: str | None = None
) -> RmqError:
    """Return the error for a message that was not found: what was not searched, too.

    `topic` is the only one that was searched, if one was given.
    """
    if found.removed:
        return RefusedError(
            f"{ref} is not a message that consumers can get: {found.removed_because}",
            hint="name a message that is in the topic now",
        )
    if found.denial is not None:
        return found.denial
    parts = []
    if found.errors:
        parts.append(found.silence)
    if found.without_index:
        parts.append(_LACKING.format(", ".join(found.without_index)))
    if found.more_on:
        parts.append(f"{', '.join(found.more_on)} did not tell all messages")
    if found.damaged:
        parts.append(found.damage)
    if found.static_topics:
        names = ", ".join(found.static_topics)
        parts.append(f"static topics are not supported, and not searched: {names}")
    if found.by_time is not None:
        parts.append(f"it is not in what was read by its time: {found.by_time}")
    if parts:
        return PartialError(
            f"{ref} was not found: {'; '.join(parts)}", hint=_hint(found)
        )
    place = parse_place(ref)
    if place is None:
        message = f"no broker has a message {ref}"
        if topic is not None:
            message += f" of topic {topic}"
        hint: str = (
            "it may have been deleted, or sent so lately that it is not in the index"
            " yet; an ID may need its topic, and a key always does"
        )
    else:
        message = f"{place.queue} has no message at offset {place.queue_offset}"
        hint = Hint(
            "it was deleted, or not sent yet; see its offsets with: ",
            LibraryCall("Admin.topic", place.queue.topic),
        )
    return NotFoundError(
        message,
        code=ResponseCode.NO_MESSAGE,
        hint=hint,
    )


def _hint(found: FoundMessages) -> str:
    """What to try after a search that is not complete."""
    if not found.without_index:
        return next((error.hint for error in found.errors.values()), "")
    if found.by_time is None:
        return Hint(
            "an ID is also looked for by its time, in its topic: ",
            Setting("topic", Blank("TOPIC")),
        )
    return Hint("to search all of it, read the topic: ", LibraryCall("Admin.read"))


def find_messages(
    client: Client,
    ref: str,
    topic: str | None = None,
    *,
    pending: bool = False,
    on_search: Callable[[str], None] = lambda _: None,
) -> FoundMessages:
    """Find messages by `ref`, in `topic` or anywhere.

    `ref` is TOPIC@BROKER:QUEUE:OFFSET, the id of a message (its UNIQ_KEY), an offset
    id, or, with `topic`, a key. Several messages may have the same id, for instance
    after a producer sent a message again. With `pending`, a key, and an id that is not
    found, is also looked for among the messages that no consumer gets yet: half and
    delayed ones, which lie in topics of the broker's own. With `topic`, an id that an
    index does not know is looked for by its time; `on_search` is called with what is
    read for that.
    Raises UsageError for a key without `topic`, and for an id without it where there
    are more than TOPICS_MAX topics; NotFoundError when there is no such topic, queue or
    broker; PartialError for a queue that cannot be read; DecodeError for a damaged
    record at a place; NoBrokerError when no broker answers.
    """
    place = parse_place(ref)
    if place is not None and topic in (None, place.queue.topic):
        return _at_place(client, place)
    if topic is None and not is_id(ref):
        raise UsageError(
            f"{ref!r} is neither a message id nor TOPIC@BROKER:QUEUE:OFFSET",
            hint=Hint(
                "to find a key, name its topic: ", Setting("topic", Blank("TOPIC"))
            ),
        )
    found = FoundMessages()
    if is_id(ref):
        found = by_offset_id(client, ref, topic, pending=pending)
    if found.messages:
        return found
    topics = [topic] if topic is not None else _all_topics(client, ref, found)
    texts = _spellings(ref)
    # A key is looked up everywhere; an id is among what waits if it is nowhere else.
    waiting = _among_pending(client, ref) if pending and not is_id(ref) else []
    for text in texts:
        by_index = find_by_index(client, topics, text, beside=waiting)
        found.messages += [
            each for each in by_index.messages if text in (ref, each.msg_id)
        ]
        found.errors |= by_index.errors
        found.without_index = by_index.without_index
        found.has_answers = by_index.has_answers
        found.more_on += by_index.more_on
        for name, count in by_index.damaged.items():
            found.damaged[name] += count
    if pending and is_id(ref) and not found.messages:
        waiting = [each for text in texts for each in _among_pending(client, text)]
        _run(client, waiting)
    if waiting:
        _add_pending(topics, ref, waiting, found)
    if topic is not None and is_id(ref) and not found.messages:
        _add_by_time(client, topic, texts, found, on_search, pending=pending)
    if is_id(ref) and not found.messages:
        note_departed(client, found)
    return found


def find_message(client: Client, topic: str, message_id: str) -> PulledMessage:
    """Find the one message of `topic` with this id, an offset id or a unique id.

    Raises UsageError for a text that is not an id, and when several messages have it: a
    producer that sends a message again uses its id again. Raises NotFoundError when no
    message has it, RefusedError for one that is no longer in the topic, DeniedError
    when every broker denied the search, and PartialError when a broker that was not
    searched may have one.
    """
    from rmqcli.admin.message.place import set_removed_aside

    if not is_id(message_id):
        raise UsageError(
            f"{message_id!r} is not a message id",
            hint="an id has 32, 34 or 56 hex digits",
        )
    found = find_messages(client, message_id, topic)
    set_removed_aside(client, found)
    texts = _spellings(message_id)
    messages = {
        (each.message_queue, each.queue_offset): each
        for each in found.messages
        if each.msg_id in texts or each.offset_msg_id in texts  # others have it as key
    }
    if not messages:
        raise missing_message(found, message_id, topic)
    if len(messages) > 1:
        places = ", ".join(f"{queue} at {offset}" for queue, offset in messages)
        raise UsageError(
            f"{counted(len(messages), 'message')} have the id {message_id}: {places}",
            hint="name one of them by its offset_msg_id",
        )
    if found.errors:
        raise PartialError(
            f"others may have the id {message_id}: {found.silence}",
            hint=next(iter(found.errors.values())).hint,
        )
    (message,) = messages.values()
    return message


def find_past(client: Client, topic: str, message_id: str) -> PastMessage:
    """Return the target of a reset past the message of `topic` with this id.

    Raises the errors of `find_message`.
    """
    from rmqcli.admin.reset.target import PastMessage

    try:
        found = find_message(client, topic, message_id)
    except (NotFoundError, PartialError) as error:
        error.hint = Hint(
            "if you know the message's queue and offset, name them: ",
            Setting("queues", Blank("[QUEUE]")),
            Setting("to", Blank("OFFSET+1")),
        )
        raise
    return PastMessage(message_id, found.message_queue, found.queue_offset)


def _spellings(ref: str) -> list[str]:
    """Ids are in capitals; a key, such as a hash, may look like one."""
    return list(dict.fromkeys([ref, ref.upper()] if is_id(ref) else [ref]))


def _add_by_time(
    client: Client,
    topic: str,
    texts: list[str],
    found: FoundMessages,
    on_search: Callable[[str], None],
    *,
    pending: bool,
) -> None:
    """Add what is found by the time in an id on brokers whose index does not know it.

    An index may also have gaps, as when it was switched off for a while. So a broker
    with an index has to find a message of that time.
    """
    from rmqcli.admin.message.by_time import likely_times_ms, search_by_time

    addresses = reader_addresses(client.route(topic).brokers)
    indexed = {
        name: address
        for name, address in addresses.items()
        if name not in found.errors and name not in found.without_index
    }
    times_ms = likely_times_ms(client, texts[0])
    if not times_ms:
        return
    near = _messages_near(client, topic, indexed, times_ms, found)
    tasks = [
        _Search(topic, queue.broker_name, indexed[queue.broker_name], "").lacks(
            queue, offset
        )
        for queue, offset in near
    ]
    for (queue, _), lacks in zip(near, run_tasks(client, tasks), strict=True):
        name = queue.broker_name
        if isinstance(lacks, RmqError):
            found.errors[name] = lacks
        elif lacks and name not in found.without_index:
            found.without_index.append(name)
    unsure = set(found.without_index) - found.errors.keys()
    if unsure:
        search = functools.partial(
            search_by_time, client, topic, texts, unsure, on_search=on_search
        )
        read = search()
        if pending and not read.messages:
            read.add(search(waiting_in=PENDING_TOPICS))
            read.messages = _last_of_each(read.messages)
        found.by_time = read
        found.messages = read.messages
        found.errors |= found.by_time.errors
        for name, count in read.damaged.items():
            found.damaged[name] += count


def _messages_near(
    client: Client,
    topic: str,
    brokers: Collection[str],
    times_ms: list[int],
    found: FoundMessages,
) -> list[tuple[MessageQueue, int]]:
    """Find a message on each broker that was stored near each of the times.

    The errors of brokers are noted in `found`.
    """
    queues = [
        each
        for each in client.route(topic).read_queues()
        if each.broker_name in brokers
    ]
    near: dict[tuple[str, int], tuple[MessageQueue, int]] = {}
    for queue, ends in resolve_times_each(client, queues, times_ms).items():
        if isinstance(ends, RmqError):
            found.errors[queue.broker_name] = ends
            continue
        for number, each in enumerate(ends):
            offset = min(each.offset or 0, each.max_offset - 1)
            if offset >= each.min_offset:
                near.setdefault((queue.broker_name, number), (queue, offset))
    return list(near.values())


def _among_pending(client: Client, text: str) -> list[_Search]:
    """Return the searches for an id or key among what no consumer gets yet."""
    addresses = reader_addresses(client.cluster_info().brokers.values())
    return [
        _Search(own, name, address, text)
        for name, address in addresses.items()
        for own in PENDING_TOPICS
    ]


def _add_pending(
    topics: Collection[str],
    ref: str,
    searches: Iterable[_Search],
    found: FoundMessages,
) -> None:
    """Add the half and the delayed messages of the topics with this id or key.

    What became of them is in their own topic: those that were found there do not count.
    """
    waiting: list[PulledMessage] = []
    for search in searches:
        outcome = search.outcome
        if isinstance(outcome, RmqError):
            found.errors[search.broker_name] = outcome
            continue
        found.note(search.broker_name, outcome)
        waiting += [
            each
            for each in outcome.messages
            if waits_for(each, topics) and search.key in (ref, each.msg_id)
        ]
    known = {(each.broker_name, each.msg_id) for each in found.messages if each.msg_id}
    found.messages += [
        each
        for each in _last_of_each(waiting)
        if (each.broker_name, each.msg_id) not in known
    ]
    found.messages.sort(key=stored_order)


def _last_of_each(waiting: Iterable[PulledMessage]) -> list[PulledMessage]:
    """Return the last record of each message that waits.

    A broker writes a half message again when it checks it, and one that is due late.
    """
    last: dict[object, PulledMessage] = {}
    for each in sorted(waiting, key=lambda e: e.commit_log_offset):
        place = (each.message_queue, each.queue_offset)
        last[(each.broker_name, each.msg_id) if each.msg_id else place] = each
    return list(last.values())


def is_id(text: str) -> bool:
    """Whether this may be the id of a message, or an offset id."""
    is_hex = text.isascii() and all(each in "0123456789abcdefABCDEF" for each in text)
    return is_hex and len(text) in _ID_LENGTHS


def _all_topics(client: Client, ref: str, found: FoundMessages) -> list[str]:
    listed = list_topics(client)
    found.errors |= listed.errors  # topics that only these have are not searched
    found.static_topics = [r.topic for r in listed.topics if r.kind == "static"]
    names = [row.topic for row in listed.topics if row.kind == "normal"]
    if len(names) > TOPICS_MAX:
        raise UsageError(
            f"there are {counted(len(names), 'topic')}, and an id is looked up in at"
            f" most {TOPICS_MAX}",
            hint=Hint(f"name the topic of {ref}: ", Setting("topic", Blank("TOPIC"))),
        )
    return names


def _at_place(client: Client, place: MessagePlace) -> FoundMessages:
    broker_name = place.queue.broker_name
    if broker_name not in client.cluster_info().brokers:
        check_departed(client, "broker", broker_name)
        raise not_found("broker", broker_name)
    address = client.reader_of(place.queue)
    call = pull_message(place.queue, place.queue_offset, max_msg_nums=1)
    try:
        answer = client.ask(address, call)
    except BrokerError as error:
        raise _without_queue(client, place.queue, error) from error
    for failure in decode_messages(answer.body):
        if isinstance(failure, DecodeFailure) and failure.queue_offset in (
            None,
            place.queue_offset,
        ):
            raise DecodeError(f"the message at {place} is damaged: {failure.error}")
    return FoundMessages(
        messages=[
            message
            for message in decode_found(answer.body, place.queue.broker_name)
            if message.queue_offset == place.queue_offset
        ]
    )


def _without_queue(client: Client, queue: MessageQueue, error: BrokerError) -> RmqError:
    """Return why no consumer can read a queue with this number, or the pull's error."""
    topic, name = queue.topic, queue.broker_name
    route = client.route(topic)
    for each in route.queues:
        if each.broker_name != name or queue.queue_id < each.read_queue_nums:
            continue
        if queue.queue_id < each.write_queue_nums:
            unread = unread_error(route)
            return PartialError(
                f"{queue} cannot be read: {name} has more write queues than read"
                f" queues of topic {topic}",
                hint="" if unread is None else unread.hint,
            )
        return NotFoundError(
            f"queue {queue.queue_id} of topic {topic} on {name} does not exist:"
            f" it has {counted(each.read_queue_nums, 'queue')} there",
            code=error.code,
            name=error.name,
            hint=Hint("list its queues with: ", LibraryCall("Admin.topic", topic)),
        )
    return error


def by_offset_id(
    client: Client, text: str, topic: str | None, *, pending: bool = False
) -> FoundMessages:
    """Read the record at the place that an offset id names, if a broker has its host.

    The broker returns whatever bytes are there, so the record must state the id.
    """
    found = FoundMessages()
    try:
        wanted = decode_offset_msg_id(text)
    except ConfigError:
        return found
    call = view_message_by_id(wanted.commit_log_offset, topic=topic)
    for name, broker in client.cluster_info().brokers.items():
        for address in addresses_of_host(broker, wanted.host):
            try:
                body = client.invoke(address, call)
            except RmqError as error:
                # Where nothing is, it may be a unique id.
                if not is_nothing_there(error):
                    found.errors[name] = error
                continue
            found.messages += [
                message
                for message in decode_found(body, name)
                if message.offset_msg_id == text.upper()
                and (
                    topic in (None, message.message_queue.topic)
                    or (pending and topic == message.properties.get(REAL_TOPIC))
                )
            ]
    return found


def find_by_index(
    client: Client,
    topics: Iterable[str],
    key: str,
    *,
    begin_ms: int = 0,
    end_ms: int | None = None,
    found_max: int = FOUND_MAX,
    beside: Sequence[_Search] = (),
) -> FoundMessages:
    """Look a key or UNIQ_KEY up in the index of each broker of the topics.

    `begin_ms` and `end_ms` (epoch ms; None: no end) bound the store time, both
    inclusive. Each broker returns its newest `found_max` messages. The searches in
    `beside` run at the same time; afterwards each has its `outcome`. A broker that has
    left the route counts as one that did not answer: for a key, if nothing is found or
    if it had queues of the topics. For an id this is not done here: a caller that does
    not find it calls `note_departed`. Raises NotFoundError for an unknown topic,
    NoBrokerError when no broker answers, and UsageError for a key without a word.
    """
    if not key.strip(" "):
        raise UsageError("no message has a key that consists of blanks")
    topics = list(topics)
    times_ms = max(0, begin_ms), QUERY_END_MS if end_ms is None else end_ms
    found = FoundMessages()
    searches: list[_Search] = []
    for topic, route in client.routes(topics).items():
        if isinstance(route, RmqError):
            raise route
        addresses = reader_addresses(route.brokers)
        for broker in route.brokers:
            name, address = broker.broker_name, addresses.get(broker.broker_name)
            if address is not None:
                searches.append(
                    _Search(topic, name, address, key, found_max, *times_ms)
                )
                continue
            found.errors[name] = NotFoundError(
                f"broker {name} has no address", code=1, name=""
            )
    is_one_topic = len({each.topic for each in searches}) == 1
    for each in searches if is_one_topic else ():
        each.batches = _stores_batches(client, each.address, each.topic)
    _run(client, [*searches, *beside])
    answered: dict[str, _Searched] = {}
    for search in searches:
        broker_name, outcome = search.broker_name, search.outcome
        if isinstance(outcome, RmqError):
            found.errors[broker_name] = outcome
            continue
        answered[broker_name] = outcome
        found.messages += outcome.messages
        found.note(broker_name, outcome)
    if not answered:
        client.raise_if_none_answers(found.errors.values())
        found.has_answers = False
    if found.messages and not is_id(key):
        found.errors |= untold_errors_of(client, topics)
    elif not is_id(key):
        note_departed(client, found)
    found.messages.sort(key=stored_order)
    if found.messages:  # the index has none of the keys of a batch
        found.without_index += [
            name
            for name, outcome in answered.items()
            if outcome.has_batches and name not in found.without_index
        ]
    return found


def _run(client: Client, searches: Sequence[_Search]) -> None:
    outcomes = run_tasks(client, [each.run() for each in searches])
    for search, outcome in zip(searches, outcomes, strict=True):
        search.outcome = outcome


def note_departed(client: Client, found: FoundMessages) -> None:
    """Note the brokers that have left, or have no master: a message may be there."""
    brokers = client.cluster_info().brokers
    departed = departed_brokers(client, brokers)
    found.errors |= {name: seen.as_error(name) for name, seen in departed.items()}
    found.errors |= slave_errors(brokers.values())


def _stores_batches(client: Client, address: str, topic: str) -> Task[bool]:
    """Whether a broker, which has answered before, stores a batch as one record."""
    if (client.known_version(address) or 0) < V5_0_0:
        return False
    config = yield Request(address, get_topic_config(topic))
    return bool(config.attributes.get("queue.type") == "BatchCQ")


def _may_be_too_large(error: BrokerError | DisconnectedError) -> bool:
    """Whether an answer with fewer messages may do.

    Brokers do not bound the bytes of an answer, and a frame over 16 MiB is not read.
    """
    if isinstance(error, BrokerError):
        return error.code == ResponseCode.SYSTEM_ERROR
    return isinstance(error.__cause__, FrameError)


@dataclass(slots=True)
class _Searched:
    messages: list[PulledMessage]
    has_more: bool = False
    is_without_index: bool = False
    #: the bytes of each record that could not be read
    damaged: set[bytes] = field(default_factory=set)
    #: whether the index knows no entry at all with the hash of the key
    is_empty: bool = False
    #: whether it has none of the keys of what the broker stores
    has_batches: bool = False


@dataclass(slots=True)
class _Search:
    """The search for one key in one topic on one broker, and its outcome.

    `begin_ms` and `end_ms` bound the store time, both inclusive.
    """

    topic: str
    broker_name: str
    address: str
    key: str
    found_max: int = FOUND_MAX
    begin_ms: int = 0
    end_ms: int = QUERY_END_MS
    outcome: _Searched | RmqError = field(default_factory=lambda: _Searched([]))
    #: finds out `has_batches`, if anything does
    batches: Task[bool] | None = None

    def run(self) -> Task[_Searched]:
        """Search, and find out whether there is an index: of an id, if it is not found.

        An index that was switched off still tells what was stored before.
        """
        searched, stats = yield All(
            [
                self.search(),
                Request(self.address, get_topic_stats_info(self.topic)),
            ]
        )
        if isinstance(searched, RmqError):
            raise searched
        questions = [] if self.batches is None else [self.batches]
        if searched.is_empty or not (is_id(self.key) or searched.has_more):
            questions.append(self._lacks_index(stats))
        answers = yield All(questions)
        if self.batches is not None:
            searched.has_batches = answers.pop(0) is True
        for lacks in answers:
            if not isinstance(lacks, RmqError):
                searched.is_without_index = lacks
            elif searched.is_empty:
                raise lacks
            else:  # a broker that refuses to be asked has told what its index has
                searched.has_more = not isinstance(lacks, BrokerError)
        return searched  # type: ignore[no-any-return]  # of the search

    def search(self) -> Task[_Searched]:
        """Look the key up until the broker has no more."""
        # A key with spaces is stored as several: each message with its first word is
        # a candidate.
        word = next(word for word in self.key.split(" ") if word)
        seen: dict[tuple[int, int], PulledMessage] = {}
        searched = _Searched([])
        max_num = QUERY_MESSAGE_MAX
        page_max: int | None = None
        first = 0
        wanted: list[PulledMessage] = []
        # A page has the entries that were added last. Where a clock was set back, some
        # that were added before have later times, so that both sides of a page's
        # earliest time are asked for.
        first_ms = max(_BEGIN_MS, self.begin_ms - _INDEX_ROUNDS_MS)
        windows = [(first_ms, self.end_ms)]
        while windows and len(wanted) <= self.found_max:
            low_ms, until_ms = windows[-1]
            call = query_message(
                self.topic, word, begin_ms=low_ms, end_ms=until_ms, max_num=max_num
            )
            try:
                body = yield Request(self.address, call)
            except DeadlineError:
                if not wanted:
                    raise
                searched.has_more = True  # what was told until now is the newest
                break
            except (BrokerError, DisconnectedError) as error:
                if max_num == 1 or not _may_be_too_large(error):
                    raise
                max_num //= 4
                continue
            windows.pop()
            page, failures = decode_all(body, self.broker_name)
            searched.damaged |= {each.raw for each in failures}
            count = count_records(body)
            if not first:
                first = count
                page_max = yield from self._page_max(count, max_num)
            told_max = min(page_max or first, max_num)
            # The messages of a batch may have one place in the commit log.
            places = {(m.commit_log_offset, m.queue_offset): m for m in page}
            fresh = places.keys() - seen.keys()
            seen |= places
            wanted = [m for m in seen.values() if self._is_wanted(m)]
            # A message with the same key twice is in a page twice.
            if count < told_max:
                continue
            if not page:  # without a time to go on from
                searched.has_more |= count > 0
                continue
            times_ms = [m.store_timestamp_ms for m in page]
            if min(times_ms) > until_ms + _INDEX_ROUNDS_MS or min(times_ms) < low_ms:
                # The broker does not go by these times, as with an index in RocksDB, or
                # the times of the index are not those of the messages: it takes the
                # first of a file for all that were stored before it.
                searched.has_more = True
                continue
            earliest_ms = min([until_ms, *times_ms])
            parts: list[tuple[int, int]] = []
            if fresh:
                parts = [(low_ms, earliest_ms), (earliest_ms + 1, until_ms)]
            elif page_max is not None:
                # More entries of one second than a page holds: the rest is not told.
                searched.has_more = True
                parts = [(low_ms, earliest_ms - _INDEX_ROUNDS_MS)]
            windows += [each for each in parts if each[0] <= each[1]]
        wanted.sort(key=stored_order)
        if len(wanted) > self.found_max:
            searched.has_more = True
        searched.messages = wanted[-self.found_max :]
        searched.is_empty = not (seen or searched.damaged)
        return searched

    def _page_max(self, count: int, max_num: int) -> Task[int | None]:
        """Return how many messages the broker tells at a time; its first page has some.

        None if it does not show its settings: then a page that is shorter than the
        first one, or has nothing new, is taken for the last.
        """
        if count in (0, max_num):
            return max_num
        try:
            settings = yield Request(self.address, get_broker_config())
        except BrokerError:
            return None
        return query_message_max(settings)

    def _is_wanted(self, message: PulledMessage) -> bool:
        return (
            self.begin_ms <= message.store_timestamp_ms <= self.end_ms
            and message.message_queue.topic == self.topic
            and has_key(message, self.key)
        )

    def _lacks_index(
        self, stats: Mapping[MessageQueue, TopicOffset] | RmqError
    ) -> Task[bool]:
        """Whether the index does not find the newest message of the topic either.

        It is looked up between the same times, as far as they allow it.
        """
        if isinstance(stats, NotFoundError) and self.topic in PENDING_TOPICS:
            # Nothing has waited there yet, or it is 4.6.0, which does not tell.
            return (yield from self._has_index_off())
        if isinstance(stats, RmqError):
            raise stats
        newest = max(
            (
                (offsets.last_update_timestamp, queue, offsets.max_offset - 1)
                for queue, offsets in stats.items()
                if offsets.max_offset > offsets.min_offset
            ),
            default=None,
        )
        if newest is None:
            return False
        _, queue, queue_offset = newest
        first = max(stats[queue].min_offset, queue_offset + 1 - _LOOKED_AT_MAX)
        return (yield from self.lacks(queue, first, newest=True))

    def _has_index_off(self) -> Task[bool]:
        try:
            settings = yield Request(self.address, get_broker_config())
        except BrokerError:
            return False  # it does not show its settings
        return bool(settings.get("messageIndexEnable") == "false")

    def lacks(
        self, queue: MessageQueue, queue_offset: int, *, newest: bool = False
    ) -> Task[bool]:
        """Whether the index does not find the first message from an offset on.

        With `newest`, the last one of those that a broker returns from there. What has
        neither an id nor a key is in no index, and is passed over.
        """
        try:
            call = pull_message(queue, queue_offset, max_msg_nums=_LOOKED_AT_MAX)
            answer = yield Request(self.address, call)
        except BrokerError as error:
            if error.code != ResponseCode.NO_PERMISSION:
                raise
            # The topic may not be read.
            return (yield from self._has_index_off())
        messages = decode_found(answer.body, self.broker_name)
        for message in reversed(messages) if newest else messages:
            text = message.msg_id or (message.keys or "").split(" ")[0]
            if not text:
                continue
            time_ms = message.store_timestamp_ms
            probe = query_message(
                self.topic,
                text,
                begin_ms=max(_BEGIN_MS, min(self.begin_ms, time_ms) - _INDEX_ROUNDS_MS),
                end_ms=max(self.end_ms, time_ms),
                max_num=1,
            )
            body = yield Request(self.address, probe)
            return not body
        return (yield from self._has_index_off())
