"""Follows queues as messages arrive: one long poll for each queue, all at once.

A broker that cannot be reached is retried without limit, from the next offset, so that
no message is lost or shown twice. New queues of a topic are followed, too.

A topic may be deleted, created again and filled while it is followed; brokers go on to
hold pulls then, and answer them with messages of the new topic. So one message of each
queue is remembered, and read again after an outage, and before what arrives is given
out if the last such comparison was some time ago. Another message in its place means
that the queue is read from the first message that was stored after it.

Source: PullMessageProcessor and PullRequestHoldService of the broker.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqcli.admin.positions import resolve_each
from rmqcli.admin.read.address import AddressBook
from rmqcli.admin.read.body import last_record
from rmqcli.admin.read.queue import RangeReading
from rmqcli.admin.witness import ANOTHER, last_witness, witness_at
from rmqcli.api.calls.namesrv import get_route_info_by_topic
from rmqcli.api.calls.offset import get_max_offset
from rmqcli.api.calls.pull import pull_message
from rmqcli.dataclass import dataclass
from rmqcli.errors import (
    BrokerError,
    DeniedError,
    NotFoundError,
    PartialError,
    RmqError,
    TransportError,
    UsageError,
)
from rmqcli.model import OffsetRange
from rmqcli.position import LONG_MAX, AtOffset, AtTime, Earliest
from rmqcli.units import format_duration
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.pull_answer import PullAnswer, PullStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rmqcli.admin.read.body import Chunk
    from rmqcli.admin.witness import Witness
    from rmqcli.api.call import Call
    from rmqcli.api.client import Client, PendingCall
    from rmqcli.model import MessageQueue, TopicRoute
    from rmqcli.position import Position

#: A broker checks held requests every 5 s, so its answer may be that late.
_LATE_MS = 5_000

_BACKOFF_FIRST_MS = 50
_BACKOFF_LAST_MS = 2_000
#: An answer without messages that arrives sooner than this was not a long poll.
_SOON_MS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowOptions:
    """What to follow, and how long to wait. `selects` chooses among new queues."""

    expression: str = "*"
    expression_type: str = "TAG"
    selects: Callable[[MessageQueue], bool] = lambda _queue: True
    #: how long a broker may hold a pull: ConsumerConfig's brokerSuspendMaxTimeMillis
    suspend_ms: int = 15_000
    #: interval of the requests for new queues: ClientConfig.pollNameServerInterval
    route_every_ms: int = 30_000
    #: how long to retry a broker that refuses pulls: it may be starting
    refused_ms: int = 30_000
    #: once a queue has ended before our offset for this long, messages count as lost
    lost_ms: int = 10_000
    #: a broker that has held all pulls for this long is asked whether it answers, and
    #: has as long again to do so
    probe_ms: int = 3_000
    #: answers within this long after a comparison with the remembered message are
    #: given out without another one, so that a busy queue costs no more requests
    compare_every_ms: int = 1_000
    #: how long all brokers may be away before all queues are given up; None: for ever
    give_up_ms: int | None = None


class Seen(NamedTuple):
    """The first message that was read of a queue, and the last one as a record."""

    first: Witness
    latest: bytes


@dataclass(slots=True, eq=False)
class _Followed:
    reading: RangeReading
    #: where the pull in flight was sent to; empty without one
    asked: str = ""
    asked_ms: int = 0
    not_before_ms: int = 0
    failures: int = 0
    failing_since_ms: int = 0
    #: why the last pull failed, until one succeeds
    trouble: RmqError | None = None
    empty_answers: int = 0
    ends_before_since_ms: int | None = None
    #: the lowest end seen since then
    ended_at: int = LONG_MAX
    #: a message before the next offset, by which the queue is known again: the last
    #: one that had arrived when the queue was compared
    witness: Witness | None = None
    #: the last record that was given out, if later ones than `witness` were
    latest: bytes = b""
    compared_ms: int = -LONG_MAX
    #: whether the queue may be another one: it failed, or it ended too early
    is_doubtful: bool = False
    #: where to begin, once the queue has turned out to be another one
    begin: Position | None = None

    @property
    def queue(self) -> MessageQueue:
        return self.reading.queue

    def last_seen(self) -> Witness | None:
        """Return the last message that was given out, as far as it is known."""
        return last_witness(self.latest) or self.witness


class Follower:
    """Follows queues from the offsets in `positions`; call `poll` repeatedly.

    `say` is called with sentences for the user, once for each outage of a broker. A new
    queue of a broker of which no queue was followed is passed to `on_new_broker`: the
    broker may have been unreachable, and its queues may be old. `on_lost` is called
    with a queue whose messages the broker has lost, and the offset where it goes on.
    `seen` has the first and the last message that were read of queues before: these are
    compared before anything is given out. The outages of brokers in `troubled` have
    been announced already. Not thread-safe.
    """

    def __init__(
        self,
        client: Client,
        positions: Mapping[MessageQueue, int],
        options: FollowOptions | None = None,
        *,
        say: Callable[[str], None],
        on_new_broker: Callable[[MessageQueue], None] | None = None,
        on_lost: Callable[[MessageQueue, int], None] | None = None,
        troubled: Iterable[str] = (),
        seen: Mapping[MessageQueue, Seen] | None = None,
    ) -> None:
        self._client = client
        self._options = options or FollowOptions()
        self._say = say
        self._on_new_broker = on_new_broker
        self._on_lost = on_lost
        self._addresses = AddressBook(client)
        self._queues: dict[MessageQueue, _Followed] = {}
        #: brokers whose outage was announced
        self._troubled = set(troubled)
        #: brokers that hold pulls and did not answer when they were probed, and why
        self._silent: dict[str, RmqError] = {}
        #: brokers and topics that were probed and not answered yet
        self._probed: set[tuple[str, str]] = set()
        self._probe_at_ms = client.clock.monotonic_ms()
        self._all_away_since_ms: int | None = None
        #: whether no broker answered for `give_up_ms`
        self.has_given_up = False
        self._chunks: deque[Chunk] = deque()
        self._topics = sorted({queue.topic for queue in positions})
        route_every_ms = self._options.route_every_ms
        self._route_at_ms = client.clock.monotonic_ms() + route_every_ms
        self._routes_asked = 0
        self._new_queues: deque[MessageQueue] = deque()
        self._brokers: set[str] = set()
        #: new queues that were passed to `on_new_broker`
        self._handed_over: set[MessageQueue] = set()
        #: queues that were given up, and why
        self.abandoned: dict[MessageQueue, RmqError] = {}
        for queue, offset in positions.items():
            self.add(queue, offset, (seen or {}).get(queue))

    @property
    def is_over(self) -> bool:
        """Whether no queue is left to follow."""
        return not self._queues

    @property
    def away(self) -> dict[MessageQueue, RmqError]:
        """The queues that may have messages which were not read, and why.

        Their brokers do not answer, or the queues end before the next offset.
        """
        found = {}
        for queue, followed in self._queues.items():
            error = followed.trouble or self._silent.get(queue.broker_name)
            if error is None and followed.ended_at != LONG_MAX:
                error = PartialError(f"the queue ends at offset {followed.ended_at}")
            if error is not None:
                found[queue] = error
        return found

    def stop(self) -> None:
        """Stop following all queues; answers to open pulls are ignored."""
        self._queues.clear()

    @property
    def seen(self) -> dict[MessageQueue, Seen]:
        """The remembered messages, by which another run can compare the queues."""
        return {
            queue: Seen(followed.witness, followed.latest)
            for queue, followed in self._queues.items()
            if followed.witness is not None
        }

    def add(self, queue: MessageQueue, offset: int, seen: Seen | None = None) -> None:
        """Follow `queue` from `offset`, also if it is followed already."""
        self._brokers.add(queue.broker_name)
        wanted = OffsetRange(queue, offset, LONG_MAX)
        options = self._options
        filtered = (options.expression, options.expression_type) != ("*", "TAG")
        self._queues[queue] = followed = _Followed(
            RangeReading(wanted, filtered=filtered, one_at_a_time=True)
        )
        if seen is not None:
            followed.witness, followed.latest = seen
            followed.is_doubtful = True

    def poll(self, timeout_ms: int) -> list[Chunk]:
        """Wait for at most `timeout_ms`; return the chunks that arrived, if any."""
        self._ask_routes()
        self._adopt_new_queues()
        now_ms = self._client.clock.monotonic_ms()
        self._probe_brokers(now_ms)
        self._give_up(now_ms)
        wait_ms = timeout_ms
        for queue in list(self._queues):
            followed = self._queues.get(queue)
            if followed is None or followed.asked:
                continue
            if now_ms >= followed.not_before_ms:
                if followed.begin is not None:
                    followed = self._begin_anew(followed, followed.begin)
                if followed.begin is None:
                    self._ask(followed)
            wait_ms = min(wait_ms, max(1, followed.not_before_ms - now_ms))
        if not self._chunks:
            self._client.poll(max(0, wait_ms))
        chunks = list(self._chunks)
        self._chunks.clear()
        return chunks

    def _ask(self, followed: _Followed) -> None:
        address = self._addresses.address(followed.queue)
        if isinstance(address, RmqError):
            self._failed(followed, address)
            return
        span = followed.reading.next_pull()
        if span is None:
            self._chunks.extend(followed.reading.take())
            return
        start = span[0]

        def on_done(pending: PendingCall[PullAnswer]) -> None:
            followed.asked = ""
            if self._queues.get(followed.queue) is followed:
                self._on_done(followed, start, pending)

        self._note(followed, start, address)
        followed.asked = address
        followed.asked_ms = self._client.clock.monotonic_ms()
        # After a failure, a pull that the broker does not hold finds out if it is back.
        suspend_ms = 0 if followed.is_doubtful else self._options.suspend_ms
        try:
            self._client.submit(
                address,
                pull_message(
                    followed.queue,
                    start,
                    suspend_ms=suspend_ms,
                    expression=self._options.expression,
                    expression_type=self._options.expression_type,
                ),
                timeout_ms=self._client.config.timeout_ms
                + (suspend_ms + _LATE_MS if suspend_ms else 0),
                on_done=on_done,
            )
        except RmqError as error:
            followed.asked = ""
            followed.reading.failed(start)
            self._failed(followed, error)

    def _on_done(
        self, followed: _Followed, start: int, pending: PendingCall[PullAnswer]
    ) -> None:
        try:
            answer = pending.result()
        except RmqError as error:
            followed.reading.failed(start)
            self._addresses.failed(followed.queue, pending.address)
            self._failed(followed, error)
            return
        followed.failures, followed.trouble = 0, None
        self._answered(followed.queue.broker_name)
        self._addresses.suggested(followed.queue, answer.suggest_which_broker_id)
        if answer.status is PullStatus.OFFSET_ILLEGAL:
            if answer.max_offset < start:
                followed.reading.failed(start)
                self._ends_before(followed, start, answer.max_offset)
                return
        elif followed.witness is None:
            self._reaches_again(followed, start, is_same=False)
            followed.witness = last_witness(answer.body)
            followed.is_doubtful = False
        elif followed.is_doubtful or self._is_comparison_due(followed):
            self._compare(followed, followed.witness, start, pending)
            return
        self._accept(followed, start, answer)

    def _accept(self, followed: _Followed, start: int, answer: PullAnswer) -> None:
        if followed.reading.answered(start, answer):
            followed.empty_answers = 0
            if answer.body:
                followed.latest = last_record(answer.body)
            self._chunks.extend(followed.reading.take())
        else:
            self._slow_down(followed)

    def _is_comparison_due(self, followed: _Followed) -> bool:
        now_ms = self._client.clock.monotonic_ms()
        return now_ms - followed.compared_ms >= self._options.compare_every_ms

    def _note(self, followed: _Followed, start: int, address: str) -> None:
        """Read the message before `start`, to remember it, if none is remembered.

        The pull at `start` does not wait for it.
        """
        is_known = followed.witness is not None or start == 0
        if is_known or followed.trouble or not self._is_comparison_due(followed):
            return

        def on_done(pending: PendingCall[PullAnswer]) -> None:
            answer = pending.outcome()
            if followed.witness is None and not isinstance(answer, RmqError):
                followed.witness = witness_at(start - 1, answer.body)

        followed.compared_ms = self._client.clock.monotonic_ms()
        try:
            call = pull_message(followed.queue, start - 1, max_msg_nums=1)
            self._client.submit(address, call, on_done=on_done)
        except RmqError:
            return  # the pull at `start` fails, too

    def _compare(
        self,
        followed: _Followed,
        witness: Witness,
        start: int,
        pull: PendingCall[PullAnswer],
    ) -> None:
        """Give out the answer to `pull` only if `witness` is still where it was."""
        offset = witness.queue_offset

        def failed(error: RmqError) -> None:
            followed.asked = ""
            followed.reading.failed(start)
            self._addresses.failed(followed.queue, pull.address)
            self._failed(followed, error)

        def on_done(pending: PendingCall[PullAnswer]) -> None:
            if self._queues.get(followed.queue) is not followed:
                return
            try:
                answer = pending.result()
            except RmqError as error:
                failed(error)
                return
            followed.asked = ""
            found = witness_at(offset, answer.body)
            if not is_there(witness, answer):
                followed.reading.failed(start)
                self._doubt(followed.queue)
                if found is None:
                    self._ends_before(followed, start, answer.max_offset)
                else:
                    followed.begin = _after(witness, found)
                return
            latest = followed.last_seen()
            followed.latest = b""
            if latest not in (None, witness) and followed.is_doubtful:
                followed.witness = latest
                self._compare(followed, latest, start, pull)
                return
            self._reaches_again(followed, start, is_same=found is not None)
            followed.compared_ms = self._client.clock.monotonic_ms()
            followed.is_doubtful = False
            is_gone = found is None and answer.status is PullStatus.FOUND
            followed.witness = None if is_gone and latest == witness else latest
            self._accept(followed, start, pull.result())

        followed.asked = pull.address
        try:
            call = pull_message(followed.queue, offset, max_msg_nums=1)
            self._client.submit(pull.address, call, on_done=on_done)
        except RmqError as error:
            failed(error)

    def _begin_anew(self, followed: _Followed, begin: Position) -> _Followed:
        """Follow a queue that is another one from `begin`, on which brokers decide.

        Waits only for a broker that answered a moment ago.
        """
        found = resolve_each(self._client, [followed.queue], begin)[followed.queue]
        if isinstance(found, RmqError):
            self._failed(followed, found)
            return followed
        offset = found.min_offset if found.offset is None else found.offset
        start, ended_at = followed.reading.take_at, followed.ended_at
        witness = followed.last_seen()
        # A message that was stored later, but is not after it, has replaced it.
        limit = 0 if witness is None else witness.queue_offset + 1
        if offset < min(limit, found.max_offset) or ended_at == LONG_MAX:
            self._say(f"{followed.queue}: {ANOTHER}; continuing at offset {offset}")
        elif self._is_lost(followed):
            offset = ended_at
            self._say(
                f"{followed.queue}: the broker lost offsets {offset} to {start};"
                f" continuing at {offset}"
            )
        else:
            followed.begin = None
            self._await_end(followed, start)
            return followed
        self.add(followed.queue, offset)
        if self._on_lost is not None:
            self._on_lost(followed.queue, offset)
        return self._queues[followed.queue]

    def _doubt(self, changed: MessageQueue) -> None:
        """Compare all queues of a topic on a broker: one is not what it was.

        Pulls that the broker holds are given up; others take their places.
        """
        place = changed.topic, changed.broker_name
        for queue, followed in list(self._queues.items()):
            if (queue.topic, queue.broker_name) != place or followed.witness is None:
                continue
            if followed.asked and not followed.is_doubtful:
                reading = followed.reading
                wanted = OffsetRange(queue, reading.take_at, LONG_MAX)
                again = RangeReading(
                    wanted, filtered=reading.filtered, one_at_a_time=True
                )
                followed = replace(followed, reading=again, asked="", not_before_ms=0)
                self._queues[queue] = followed
            followed.is_doubtful = True

    def _probe_brokers(self, now_ms: int) -> None:
        """Ask brokers that hold all their pulls whether they still answer.

        A broker that was stopped, or whose machine is gone, holds a pull just as one
        does that waits for messages.
        """
        probe_ms = self._options.probe_ms
        if now_ms < self._probe_at_ms:
            return
        self._probe_at_ms = now_ms + probe_ms
        held: dict[tuple[str, str], list[tuple[int, MessageQueue]]] = {}
        for queue, followed in self._queues.items():
            if followed.asked:
                places = held.setdefault((queue.broker_name, queue.topic), [])
                places.append((followed.asked_ms, queue))
        for key, places in held.items():
            asked_ms, _ = max(places)
            if key not in self._probed and now_ms - asked_ms >= probe_ms:
                self._probe(key, [queue for _, queue in places])

    def _probe(self, key: tuple[str, str], held: list[MessageQueue]) -> None:
        """Ask a broker for a message that is remembered, which also compares it.

        Without one, the end of a queue is asked for. One queue speaks for all, because
        a topic is deleted with all its queues.
        """
        name, _ = key
        queue = max(held, key=lambda each: self._queues[each].witness is not None)
        followed = self._queues[queue]
        address, witness = followed.asked, followed.witness

        def on_done(pending: PendingCall[Any]) -> None:
            self._probed.discard(key)
            if self._client.remoting.is_closed:
                return
            answer = pending.outcome()
            if isinstance(answer, TransportError):
                self._silent[name] = answer
                self._announce(name, f"{name} ({address}) does not answer; retrying")
            elif name in self._silent:
                self._answered(name)
            if self._queues.get(queue) is not followed:
                return
            if isinstance(answer, BrokerError):
                is_another = answer.code == ResponseCode.TOPIC_NOT_EXIST
            else:
                is_another = (
                    isinstance(answer, PullAnswer)
                    and witness is not None
                    and witness is followed.witness
                    and not is_there(witness, answer)
                )
            if is_another:
                self._doubt(queue)

        call: Call[Any] = (
            get_max_offset(queue.topic, queue.queue_id)
            if witness is None
            else pull_message(queue, witness.queue_offset, max_msg_nums=1)
        )
        self._probed.add(key)
        try:
            self._client.submit(
                address, call, timeout_ms=self._options.probe_ms, on_done=on_done
            )
        except RmqError:
            self._probed.discard(key)  # the pull in flight fails, too

    def _give_up(self, now_ms: int) -> None:
        """Abandon all queues once no broker has answered for `give_up_ms`."""
        limit_ms = self._options.give_up_ms
        if limit_ms is None or not self._troubled:
            self._all_away_since_ms = None
            return
        away = self.away
        if len(away) < len(self._queues):
            self._all_away_since_ms = None
        elif self._all_away_since_ms is None:
            self._all_away_since_ms = now_ms
        elif now_ms - self._all_away_since_ms >= limit_ms:
            self.abandoned.update(away)
            self.has_given_up = True
            self._queues.clear()

    def _slow_down(self, followed: _Followed) -> None:
        """Delay the next pull after several empty answers that arrived at once.

        An empty answer at the end of a long poll is normal.
        """
        now_ms = self._client.clock.monotonic_ms()
        if now_ms - followed.asked_ms >= _SOON_MS:
            followed.empty_answers = 0
            return
        followed.empty_answers += 1
        if followed.empty_answers > 2:
            backoff_ms = _BACKOFF_FIRST_MS << min(followed.empty_answers - 3, 10)
            followed.not_before_ms = now_ms + min(backoff_ms, _BACKOFF_LAST_MS)

    def _ends_before(self, followed: _Followed, offset: int, max_offset: int) -> None:
        """Handle a queue that ends before our offset.

        Either a slave is behind, or the broker has lost messages, or the queue is
        another one.
        """
        followed.ended_at = min(followed.ended_at, max(0, max_offset))
        self._doubt(followed.queue)
        followed.is_doubtful = True
        witness = followed.last_seen()
        if witness is not None:
            followed.begin = _after(witness)
        elif self._is_lost(followed):
            followed.begin = AtOffset(followed.ended_at)
        else:
            self._await_end(followed, offset)

    def _await_end(self, followed: _Followed, offset: int) -> None:
        now_ms = self._client.clock.monotonic_ms()
        followed.not_before_ms = now_ms + 1_000
        if followed.ends_before_since_ms is None:
            followed.ends_before_since_ms = now_ms
            self._say(
                f"{followed.queue}: the queue now ends at offset {followed.ended_at},"
                f" before offset {offset}; waiting"
            )

    def _is_lost(self, followed: _Followed) -> bool:
        """Whether a queue has ended before our offset for long."""
        since_ms = followed.ends_before_since_ms
        now_ms = self._client.clock.monotonic_ms()
        return since_ms is not None and now_ms - since_ms >= self._options.lost_ms

    def _reaches_again(
        self, followed: _Followed, offset: int, *, is_same: bool
    ) -> None:
        """Handle a queue that ended before our offset, and does not any more.

        The slave has caught up, or a broker that had lost messages has new ones, at
        offsets that were read before. `is_same` is whether a comparison excludes that.
        """
        if followed.ends_before_since_ms is not None:
            doubt = (
                ""
                if is_same
                else f"; if its broker lost messages, new ones at offsets"
                f" {followed.ended_at} to {offset} are not shown"
            )
            self._say(
                f"{followed.queue}: the queue has grown to offset {offset} again{doubt}"
            )
        followed.ends_before_since_ms, followed.ended_at = None, LONG_MAX

    def _failed(self, followed: _Followed, error: RmqError) -> None:
        if self._client.remoting.is_closed:
            return  # the reader has ended, not the broker
        now_ms = self._client.clock.monotonic_ms()
        if not followed.failures:
            followed.failing_since_ms = now_ms
        followed.failures += 1
        can_wait = error.retriable or _is_away(error)
        is_hopeless = is_refusal(error) or (
            not can_wait
            and now_ms - followed.failing_since_ms >= self._options.refused_ms
        )
        if is_hopeless:
            del self._queues[followed.queue]
            self.abandoned[followed.queue] = error
            self._say(f"stopped reading {followed.queue}: {error.message}")
            return
        followed.trouble = error
        followed.is_doubtful = True
        backoff_ms = _BACKOFF_FIRST_MS << min(followed.failures - 1, 10)
        followed.not_before_ms = now_ms + min(backoff_ms, _BACKOFF_LAST_MS)
        limit_ms = self._options.refused_ms
        limit = "" if can_wait else f" for up to {format_duration(limit_ms)}"
        name = followed.queue.broker_name
        self._announce(name, f"{name}: {error.message}; retrying{limit}")

    def _announce(self, name: str, text: str) -> None:
        """Tell the user of a broker's outage, once."""
        if name not in self._troubled:
            self._troubled.add(name)
            self._say(text)

    def _answered(self, name: str) -> None:
        self._silent.pop(name, None)
        if name in self._troubled:
            self._troubled.discard(name)
            self._say(f"{name} is back; continuing")

    def _ask_routes(self) -> None:
        """Request the topics' routes periodically, without waiting for the answers."""
        now_ms = self._client.clock.monotonic_ms()
        if now_ms < self._route_at_ms:
            return
        self._route_at_ms = now_ms + self._options.route_every_ms
        namesrvs = self._client.config.namesrv
        address = namesrvs[self._routes_asked % len(namesrvs)]
        self._routes_asked += 1
        for topic in self._topics:
            try:
                self._client.submit(
                    address, get_route_info_by_topic(topic), on_done=self._on_route
                )
            except RmqError:
                return  # another name server is asked next time

    def _on_route(self, pending: PendingCall[TopicRoute]) -> None:
        route = pending.outcome()
        if isinstance(route, RmqError):
            return  # the queues that are known stay
        known = self._queues.keys() | self.abandoned.keys() | self._handed_over
        self._new_queues.extend(
            queue
            for queue in route.read_queues()
            if queue not in known and self._options.selects(queue)
        )

    def _adopt_new_queues(self) -> None:
        new, self._new_queues = self._new_queues, deque()
        for topic in {queue.topic for queue in new}:
            try:
                self._client.route(topic, refresh=True)
            except RmqError as error:
                self._say(error.message)
        brokers = frozenset(self._brokers)
        for queue in dict.fromkeys(new):
            if self._on_new_broker is not None and queue.broker_name not in brokers:
                self._handed_over.add(queue)
                self._on_new_broker(queue)
            elif queue not in self._queues:
                self._say(f"{queue}: new queue; reading from its start")
                self.add(queue, 0)


def is_there(witness: Witness, answer: PullAnswer) -> bool:
    """Whether the answer to a pull at the offset of `witness` may be of its queue.

    A message that is not there, though the queue is long enough, shows nothing: it was
    too old, or a compaction has removed it.
    """
    found = witness_at(witness.queue_offset, answer.body)
    if found is None:
        return witness.queue_offset < answer.max_offset
    return witness.is_same(found)


def _after(witness: Witness, found: Witness | None = None) -> Position:
    """Where the messages begin that were stored after `witness`.

    `found` is another message that is at its offset now. If it was stored before, the
    broker's clock was set back, and nothing tells which messages are new.
    """
    at_ms = witness.store_timestamp_ms
    other_ms = None if found is None else found.store_timestamp_ms
    if at_ms is None or (other_ms is not None and other_ms <= at_ms):
        return Earliest()
    return AtTime(at_ms + 1, "")


def _is_away(error: RmqError) -> bool:
    """Whether the route lacks a broker: name servers drop one that restarts."""
    return (
        isinstance(error, NotFoundError) and error.code == ResponseCode.BROKER_NOT_EXIST
    )


def is_refusal(error: RmqError) -> bool:
    """Whether a retry cannot help: no permission, or a filter that a broker rejects."""
    if isinstance(error, BrokerError):
        return (
            isinstance(error, DeniedError)
            or error.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
            or "SQL92" in error.remark
        )
    return isinstance(error, UsageError)
