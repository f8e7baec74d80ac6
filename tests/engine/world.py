"""A scripted world around one engine, with a manual clock and a scripted network.

The network records the requests. Unless a test wants otherwise (`fail`, `hold`), it
answers successfully at once; but pulls always wait for `World.found` and similar
methods. Listeners run when the world runs; with `holds_work` their requests wait for
`work`.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rmqcli.engine.config import ConsumeFromWhere, ConsumerConfig, MessageModel
from rmqcli.engine.consume.request import (
    consume_concurrently,
    consume_orderly,
    run_at_once,
)
from rmqcli.engine.listener import Listener
from rmqcli.engine.member import Member
from rmqcli.engine.offset_store import LocalFileOffsetStore, RemoteBrokerOffsetStore
from rmqcli.engine.push_consumer import PushConsumer
from rmqcli.engine.rebalance import TAKE_OVER_MS
from rmqcli.errors import BrokerError, DeadlineError, RmqError
from rmqcli.model import MessageQueue
from rmqcli.tasks import Pending
from rmqcli.testing import ManualClock
from rmqcli.wire.ids import crc32
from rmqcli.wire.message.encode import MessageFields, encode_message
from rmqcli.wire.pull_answer import PullAnswer, PullStatus
from rmqcli.wire.subscription import parse_subscription

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rmqcli.model import Message
    from rmqcli.wire.bodies.consumer import ConsumerConnection

GROUP, TOPIC, RETRY = "g", "orders", "%RETRY%g"
ME, OTHER = "10.0.0.1@1", "10.0.0.2@1"
BROKER = "broker-a"
START_MS = 1_000_000
FROM_FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
FROM_TIMESTAMP = ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
BROADCASTING = MessageModel.BROADCASTING


#: In place of a topic.
ALL = object()


def queue_of(number=0, *, topic=TOPIC, broker=BROKER):
    return MessageQueue(topic, broker, number)


def refusal(code=1, remark="no"):
    return BrokerError(remark, code=code, name=str(code), remark=remark)


def no_answer():
    return DeadlineError("no answer in 3000 ms", address="127.0.0.1:10911")


def stored(
    queue, offset, *, tags=None, size=10, times=0, body=None, at_ms=0, **properties
):
    """Return the bytes of a message that was stored at `at_ms`.

    Its commit log offset is 1,000 times its queue offset.
    """
    if tags is not None:
        properties["TAGS"] = tags
    fields = MessageFields(
        topic=queue.topic,
        body=_body_of(size)[0] if body is None else body,
        body_crc=_body_of(size)[1] if body is None else None,
        queue_id=queue.queue_id,
        queue_offset=offset,
        commit_log_offset=offset * 1_000,
        store_timestamp_ms=at_ms,
        reconsume_times=times,
        properties=properties,
    )
    return encode_message(fields)


@functools.lru_cache(maxsize=4)
def _body_of(size):
    """Return a body of so many bytes, and its CRC."""
    body = b"x" * size
    return body, crc32(body)


def _check_member(group, client_id=ME):
    """Fail unless a request names this member and its group."""
    assert (group, client_id) == (GROUP, ME), f"request of {client_id} in {group}"


@dataclass(eq=False)
class Call:
    """One request of the engine. `pending` is None for a one-way request."""

    name: str
    at_ms: int
    args: dict[str, Any]
    pending: Pending[Any] | None = field(default_factory=Pending)

    @property
    def is_open(self):
        """Whether the request waits for an answer."""
        return self.pending is not None and not self.pending.is_done

    def answer(self, value):
        """Answer with a value, or fail with an RmqError."""
        assert self.is_open, "answered already"
        assert self.pending is not None
        if isinstance(value, RmqError):
            self.pending.fail(value)
        else:
            self.pending.succeed(value)


@dataclass
class ScriptedNetwork:
    """Satisfies `Network`. Its public fields are the state of the brokers."""

    clock: ManualClock
    calls: list[Call] = field(default_factory=list)
    pulls: list[Call] = field(default_factory=list)
    queues: dict[str, list[MessageQueue]] = field(default_factory=dict)
    members: list[str] = field(default_factory=lambda: [ME])
    connection: ConsumerConnection | None = None
    committed: dict[MessageQueue, int] = field(default_factory=dict)
    ends: defaultdict[MessageQueue, int] = field(
        default_factory=lambda: defaultdict(int)
    )
    at_times: dict[MessageQueue, int] = field(default_factory=dict)
    locked_by_others: set[MessageQueue] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)
    #: addresses of brokers
    addresses: set[str] = field(default_factory=lambda: {"127.0.0.1:10911"})
    #: names of brokers that never answer
    hung: set[str] = field(default_factory=set)
    #: names of calls that fail, with the error
    fail: dict[str, Exception] = field(default_factory=dict)
    #: names of calls that wait for the test
    hold: set[str] = field(default_factory=set)
    #: the member that uses the network
    member: Member | None = None
    #: names of calls that raise when they are made, with the exception
    broken: dict[str, Exception] = field(default_factory=dict)

    def of(self, name):
        return [call for call in self.calls if call.name == name]

    def names(self):
        return [call.name for call in self.calls]

    def _record(self, name, args, pending=None):
        assert None not in args.values(), f"{name} of nothing: {args}"
        call = Call(name, self.clock.now_ms, args, pending)
        self.calls.append(call)
        if name in self.broken:
            # Without the traceback of the last time, which would grow with each.
            raise self.broken[name].with_traceback(None)
        return call

    def _ask(self, name, answer, **args):
        call = self._record(name, args, Pending())
        if name not in self.hold and not self._is_hung(args):
            call.answer(self.fail[name] if name in self.fail else answer())
        return (yield call.pending)

    def _is_hung(self, args):
        queues = [*args.get("queues", ()), args.get("queue")]
        names = {queue.broker_name for queue in queues if queue is not None}
        return not self.hung.isdisjoint(names | {args.get("broker")})

    def submit(self, request):
        raise AssertionError("the tasks of this network yield no requests")

    def fetch_queues(self, topic):
        def answer():
            return sorted(self.queues[topic]) if topic in self.queues else refusal(17)

        return self._ask("fetch_queues", answer, topic=topic)

    def brokers(self, topic=ALL):
        names = {
            queue.broker_name
            for known, queues in self.queues.items()
            for queue in queues or [queue_of()]
            if topic in (ALL, known)
        }
        return sorted(names)

    def is_broker(self, address):
        return address in self.addresses

    def consumer_ids(self, group, broker_name):
        _check_member(group)
        return self._ask("consumer_ids", lambda: list(self.members), broker=broker_name)

    def consumer_connection(self, group, topic):
        _check_member(group)
        return self._ask("consumer_connection", lambda: self.connection, topic=topic)

    def query_offset(self, group, queue):
        _check_member(group)
        return self._ask("query_offset", lambda: self.committed.get(queue), queue=queue)

    def update_offset(self, group, queue, offset):
        _check_member(group)
        self._commit(queue, offset)
        return self._ask("update_offset", lambda: None, queue=queue, offset=offset)

    def update_offset_oneway(self, group, queue, offset):
        _check_member(group)
        self._commit(queue, offset)
        self._record("update_offset", {"queue": queue, "offset": offset})

    def _commit(self, queue, offset):
        if "update_offset" not in self.fail:
            self.committed[queue] = offset

    def max_offset(self, queue):
        return self._ask("max_offset", lambda: self.ends[queue], queue=queue)

    def resolve(self, queue, position):
        return self._ask(
            "resolve",
            lambda: self.at_times.get(queue, 0),
            queue=queue,
            position=position,
        )

    def lock(self, group, client_id, queues):
        _check_member(group, client_id)
        return self._ask(
            "lock",
            lambda: set(queues) - self.locked_by_others,
            queues=list(queues),
        )

    def unlock(self, group, client_id, queues):
        _check_member(group, client_id)
        return self._ask("unlock", lambda: None, queues=list(queues))

    def unlock_oneway(self, group, client_id, queues):
        _check_member(group, client_id)
        self._record("unlock", {"queues": list(queues)})

    def heartbeat(self, heartbeat, broker_name):
        return self._ask(
            "heartbeat", lambda: None, heartbeat=heartbeat, broker=broker_name
        )

    def unregister(self, client_id, group, broker_name):
        _check_member(group, client_id)
        return self._ask("unregister", lambda: None, broker=broker_name)

    def check_subscription(self, client_id, group, subscription, broker_name):
        _check_member(group, client_id)
        text = subscription.sub_string
        return self._ask(
            "check_subscription", lambda: None, text=text, broker=broker_name
        )

    def send_back(self, message):
        return self._ask("send_back", lambda: None, message=message)

    def send_retry(self, message):
        return self._ask("send_retry", lambda: None, message=message)

    def pull(self, ask):
        """Record a pull, which waits for the test; commit the offset it carries."""
        _check_member(ask.group)
        if "pull" in self.broken:
            raise self.broken["pull"].with_traceback(None)
        if ask.commit_offset is not None:
            self.committed[ask.queue] = ask.commit_offset
        assert self.member is not None
        process_queue = self.member.process_queues.get(ask.queue)
        args = {"ask": ask, "process_queue": process_queue}
        call = self._record("pull", args, Pending())
        self.pulls.append(call)
        return call.pending

    def keep_topics(self, topics):
        self.kept = set(topics)


class ScriptedWorkers:
    """Satisfies `Workers`. Keeps requests until the world runs them."""

    def __init__(self):
        self.requests: list[Any] = []
        self.shared: list[Any] = []
        #: raised by the next requests
        self.error: Exception | None = None

    def consume_concurrently(self, request):
        if self.error is not None:
            raise self.error
        self.requests.append(request)

    def share(self, request):
        if self.error is not None:
            raise self.error
        request.is_shared = True
        self.shared.append(request)
        self.requests.append(request)

    def consume_orderly(self, request):
        if self.error is not None:
            raise self.error
        self.requests.append(request)


class MemoryFile:
    """Satisfies `OffsetFile`."""

    def __init__(self):
        self.offsets: dict[MessageQueue, int] = {}
        #: raised by the next writes
        self.error: Exception | None = None

    def read(self):
        return dict(self.offsets)

    def write(self, offsets):
        if self.error is not None:
            raise self.error
        self.offsets.update(offsets)


class World:
    """One member of GROUP that subscribes to TOPIC, which has `queues` queues.

    `act(messages, context)` is the listener. `seen` has the offsets of each call.
    Settings of `ConsumerConfig` are keyword arguments.
    """

    def __init__(
        self,
        *,
        queues: int = 1,
        act: Callable[[Sequence[Message], Any], Any] = lambda *_: None,
        orderly: bool = False,
        shares_slow_pulls: bool = True,
        one_message: bool = False,
        on_undecodable: Callable[[Any], None] | None = None,
        on_failed: Callable[[Any], None] | None = None,
        on_start: Callable[[Any], None] | None = None,
        tags: str = "*",
        expression_type: str = "TAG",
        has_retry_route: bool = False,
        **settings: Any,  # fields of ConsumerConfig
    ) -> None:
        settings.setdefault("consume_from_where", FROM_FIRST)
        config = ConsumerConfig(**settings)
        self.clock = ManualClock(START_MS)
        self.network = ScriptedNetwork(self.clock)
        self.network.queues[TOPIC] = [queue_of(n) for n in range(queues)]
        if has_retry_route:
            self.network.queues[RETRY] = [queue_of(topic=RETRY)]
        self.workers = ScriptedWorkers()
        self.file = MemoryFile()
        self.act = act
        self.seen: list[tuple[MessageQueue, list[int]]] = []
        self.outcomes: list[Any] = []
        #: whether requests wait for `work`
        self.holds_work = False
        #: after this time pulls get the answer that nothing is new; None: never
        self.hold_ms: int | None = None
        is_broadcasting = config.message_model is BROADCASTING
        subscriptions = {
            TOPIC: parse_subscription(
                TOPIC, tags, expression_type=expression_type, sub_version=START_MS
            )
        }
        if not is_broadcasting:
            subscriptions[RETRY] = parse_subscription(RETRY, "*", sub_version=START_MS)
        self.member = Member(
            group=GROUP,
            client_id=ME,
            config=config,
            listener=Listener(
                call=self._listen_to_one if one_message else self._listen,
                is_orderly=orderly,
                one_message=one_message,
                shares_slow_pulls=shares_slow_pulls,
                on_undecodable=on_undecodable,
                on_failed=on_failed,
                on_start=on_start,
            ),
            subscriptions=subscriptions,
            clock=self.clock,
            network=self.network,
            workers=self.workers,
            offsets=LocalFileOffsetStore(self.file)
            if is_broadcasting
            else RemoteBrokerOffsetStore(GROUP, self.network),
        )
        self.network.member = self.member
        self.engine = PushConsumer(self.member)
        self.started: list[Any] = []
        self.closed: list[Any] = []

    def _listen(self, messages, context):
        offsets = [each.queue_offset for each in messages]
        self.seen.append((context.message_queue, offsets))
        return self.act(messages, context)

    def _listen_to_one(self, message):
        self.seen.append((message.message_queue, [message.queue_offset]))
        return self.act([message], None)

    # the engine's thread

    def start(self) -> World:
        self.begin()
        # In a larger group a member waits before it queries the first offsets.
        self.run(0 if len(self.network.members) < 2 else TAKE_OVER_MS)
        return self

    def begin(self, **options):
        """Start the member without letting time pass."""
        pending = self.engine.start(**options)
        pending.on_done(lambda _: self.started.append(pending.outcome()))

    def close(self, timeout_ms=10_000):
        pending = self.engine.close(timeout_ms)
        pending.on_done(lambda _: self.closed.append(pending.outcome()))

    def run(self, ms=0):
        """Let `ms` pass; timers run at their times."""
        end_ms = self.clock.now_ms + ms
        self._turn()
        while (due := self._due_ms()) is not None and due <= end_ms:
            self.clock.now_ms = max(due, self.clock.now_ms)
            self._turn()
        self.clock.now_ms = end_ms
        self._turn()

    def _due_ms(self):
        due_ms = self.engine.next_due_ms()
        ends_ms = [each.at_ms + (self.hold_ms or 0) for each in self._held_pulls()]
        return min([*ends_ms, *([] if due_ms is None else [due_ms])], default=None)

    def _held_pulls(self):
        return [] if self.hold_ms is None else self.pulls()

    def _turn(self):
        for call in self._held_pulls():
            if self.clock.now_ms - call.at_ms >= (self.hold_ms or 0):
                offset = call.args["ask"].queue_offset
                call.answer(
                    PullAnswer(PullStatus.NO_NEW_MSG, offset, 0, offset, 0, b"")
                )
        self.engine.run_due(self.member.now())
        if not self.holds_work:
            self.work()
        self.validate()

    def validate(self):
        """Fail when a queue's state is inconsistent; called after every event."""
        for process_queue in self.member.process_queues.values():
            process_queue.validate()

    def consume(self):
        """Run the listeners of all requests; keep the results in `outcomes`."""
        requests, self.workers.requests = self.workers.requests, []
        for request in requests:
            if hasattr(request, "batches"):
                job = consume_concurrently(
                    request,
                    self.member.listener,
                    self.clock,
                    report=self.outcomes.append,
                    share=self.workers.share,
                )
                run_at_once(job)
            else:
                needs_lock = self.member.needs_lock
                work = consume_orderly(
                    request, self.member.listener, self.clock, needs_lock=needs_lock
                )
                self.outcomes.append(run_at_once(work))

    def settle(self):
        """Pass the outcomes to the engine."""
        outcomes, self.outcomes = self.outcomes, []
        for outcome in outcomes:
            self.engine.consumed(outcome)

    def work(self):
        while self.workers.requests or self.outcomes:
            self.consume()
            self.settle()

    # the broker

    def pulls(self, queue: MessageQueue | None = None) -> list[Call]:
        """Return the pulls that wait for an answer, of one queue or of all."""
        waiting = [call for call in self.network.pulls if call.is_open]
        self.network.pulls = waiting
        return [
            call for call in waiting if queue is None or call.args["ask"].queue == queue
        ]

    def pull(self, number=0):
        """Return the only pull of a queue that waits for an answer."""
        queue = queue_of(number)
        found = self.pulls(queue)
        assert len(found) == 1, f"{len(found)} pulls of {queue} wait"
        return found[0]

    def asked(self, number=0):
        """Return the requests of all pulls of a queue so far."""
        queue = queue_of(number)
        asks = [call.args["ask"] for call in self.network.of("pull")]
        return [ask for ask in asks if ask.queue == queue]

    def found(
        self,
        offsets: Iterable[int],
        *,
        call: Call | None = None,
        next_offset: int | None = None,
        max_offset: int | None = None,
        **message: Any,  # of `stored`
    ) -> None:
        """Answer a pull with messages at these offsets, and let listeners run."""
        call = call or self.pull()
        queue, offsets = call.args["ask"].queue, list(offsets)
        end = offsets[-1] + 1 if offsets else call.args["ask"].queue_offset
        next_offset = end if next_offset is None else next_offset
        body = b"".join(stored(queue, each, **message) for each in offsets)
        end = max(end, next_offset) if max_offset is None else max_offset
        self.answer(PullStatus.FOUND, next_offset, call=call, max_offset=end, body=body)

    def answer(
        self, status, next_offset, *, call=None, body=b"", min_offset=0, max_offset=None
    ):
        """Answer a pull with any status.

        Without `max_offset` the queue ends at `next_offset`.
        """
        call = call or self.pull()
        max_offset = max(next_offset, 0) if max_offset is None else max_offset
        call.answer(PullAnswer(status, next_offset, min_offset, max_offset, 0, body))
        self.run()

    def fail_pull(self, error=None, *, call=None):
        (call or self.pull()).answer(error or refusal())
        self.run()

    # for the checks of a test

    @property
    def elapsed_ms(self) -> int:
        return self.clock.now_ms - START_MS

    def offsets_seen(self) -> list[int]:
        """Return all offsets that listeners have got, in the order of the calls."""
        return [offset for _, offsets in self.seen for offset in offsets]

    def offset(self, number: int = 0) -> int | None:
        """Return the offset of a queue in the member's table."""
        return self.member.offsets.table.get(queue_of(number))

    def committed(self, number: int = 0) -> int | None:
        """Return the offset of a queue that the broker has."""
        return self.network.committed.get(queue_of(number))

    def process_queue(self, number: int = 0) -> Any:  # ProcessQueue
        return self.member.process_queues[queue_of(number)]

    def next_pull_after_ms(self, number: int = 0, *, within_ms: int = 60_000) -> int:
        """Let time pass until the queue is pulled again; return that time.

        Fails if there is more than one pull, as when a PullRequest was put back twice.
        """
        queue = queue_of(number)
        assert not self.pulls(queue)
        began_ms = self.clock.now_ms
        while not self.pulls(queue):
            due_ms = self.engine.next_due_ms()
            assert due_ms is not None
            assert due_ms <= began_ms + within_ms, "it is not pulled again"
            self.clock.now_ms = max(due_ms, self.clock.now_ms)
            self._turn()
        assert len(self.pulls(queue)) == 1
        return self.clock.now_ms - began_ms


def started(**options: Any) -> World:  # arguments of World
    """Return a world whose member has acquired its queues and pulls them."""
    return World(**options).start()


def sent_back(world):
    """Return the messages that were sent back by CONSUMER_SEND_MSG_BACK (36)."""
    return [call.args["message"] for call in world.network.of("send_back")]


def offsets_of(requests):
    return [each.commit_log_offset // 1_000 for each in requests]


def failing(*offsets):
    """Return a listener that fails for messages with these offsets."""

    def act(messages, _):
        return not any(each.queue_offset in offsets for each in messages)

    return act


def deliveries(failed):
    """Return the arguments of `on_failed` calls, with offsets in place of messages."""
    return [
        (
            each.message.queue_offset,
            each.fate.name,
            each.retry,
            each.retries_max,
            each.error,
        )
        for each in failed
    ]
