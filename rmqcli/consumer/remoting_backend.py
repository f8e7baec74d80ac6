"""The back end of a `Consumer` that speaks to name servers and brokers.

It connects the engine with its threads, its network and the listener. The thread that
owns the engine (see `engine_thread`) carries out what other threads hand over; they
wait for it with a `Latch`, and never hold a lock meanwhile.

Source: DefaultMQPushConsumerImpl, MQClientInstance in apache/rocketmq.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from rmqcli.api.client import Client
from rmqcli.client_id import claim_client_id, new_client_id
from rmqcli.clock import Deadline
from rmqcli.consumer.backend import GOODBYE_MS, not_started
from rmqcli.consumer.engine_lease import LeasingEngineThread
from rmqcli.consumer.engine_thread import EngineThread
from rmqcli.consumer.latch import Latch
from rmqcli.consumer.local_offsets import LocalOffsetFile, local_offset_path
from rmqcli.consumer.peer_requests import PeerRequests
from rmqcli.consumer.remoting_network import RemotingNetwork
from rmqcli.dataclass import dataclass
from rmqcli.engine.config import MessageModel
from rmqcli.engine.consume.request import consume_concurrently, consume_orderly
from rmqcli.engine.member import Member
from rmqcli.engine.offset_store import LocalFileOffsetStore, RemoteBrokerOffsetStore
from rmqcli.engine.push_consumer import PushConsumer
from rmqcli.engine.queue_lag import QueueReading, queue_lag
from rmqcli.errors import (
    DeadlineError,
    DeniedError,
    NotFoundError,
    PartialError,
    RmqError,
    TransportError,
    UsageError,
)
from rmqcli.hint import Argument, ForPrograms, Hint
from rmqcli.model import retry_topic
from rmqcli.position import Earliest
from rmqcli.tasks import All, Within, every, start
from rmqcli.transport.lookups import local_ip
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.subscription import parse_subscription

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from rmqcli.clock import Clock
    from rmqcli.consumer.backend import JobRunner, MemberParts, Offsets
    from rmqcli.engine.consume.request import (
        ConcurrentOutcome,
        ConcurrentRequest,
        OrderlyOutcome,
        OrderlyRequest,
    )
    from rmqcli.engine.listener import Listener
    from rmqcli.engine.offset_store import OffsetStore
    from rmqcli.engine.queue_lag import QueueLag
    from rmqcli.model import MessageQueue
    from rmqcli.tasks import Pending, Task
    from rmqcli.wire.bodies.consumer import ConsumerRunningInfo

T = TypeVar("T")

_JOIN_MS: Final = 500
_ASK_LOOK_MS: Final = 100
#: How much longer than for brokers `lag` waits for the engine.
_LAST_ANSWER_MS: Final = 1_000
#: How often `commit` sends an offset of which an older one is read back.
_COMMITS_MAX: Final = 3
_WAIT: Final = "start(wait_for_cluster=True)"


class RemotingConsumerBackend:
    """Implements `ConsumerBackend` and `Offsets`."""

    def __init__(self, parts: MemberParts) -> None:
        self.group = parts.group
        self.client_id: str | None = None
        self.has_begun = False
        #: whether `release` has ended; then no thread owns the engine
        self.has_ended = False
        #: the next two are made by `start`
        self.engine: PushConsumer | None = None
        self.engine_thread: EngineThread | None = None
        self._client_config = parts.client_config
        self._config = config = parts.config
        self._listener = parts.listener
        self._runner = parts.runner
        self._clock = parts.clock
        self._on_end = parts.on_end
        self._is_broadcasting = config.message_model is MessageModel.BROADCASTING
        self._subscriptions = dict(parts.subscriptions)
        if not self._is_broadcasting:
            retries = retry_topic(self.group)
            self._subscriptions[retries] = parse_subscription(
                retries, "*", sub_version=self._clock.epoch_ms()
            )
        self._client: Client | None = None
        self._requests: PeerRequests | None = None

    # --- life ---

    def start(
        self,
        *,
        timeout_ms: int,
        wait_for_cluster: bool,
        is_cancelled: Callable[[], bool],
    ) -> None:
        """See ConsumerBackend."""
        engine, engine_thread = self._make()
        if is_cancelled():
            self._on_end()
            return
        self._runner.start()
        engine_thread.start(engine)
        self.has_begun = True
        outcomes: list[RmqError | None] = []

        def begin(done: Callable[[], None]) -> None:
            def ended(pending: Pending[None]) -> None:
                outcomes.append(pending.outcome())
                done()

            if not engine.is_closing:
                engine.start(wait_for_cluster=wait_for_cluster).on_done(ended)

        # A start may never end after a close.
        self._hand_over(begin, Deadline(self._clock, timeout_ms), is_cancelled)
        namesrvs = self._client_config.namesrv
        if is_cancelled():
            return  # a close ends the requests of a start, which is not an error
        if not outcomes:
            raise _not_joined(
                self.group, namesrvs, timeout_ms, reason=engine.start_error
            )
        if outcomes[0] is not None:
            raise _explained(outcomes[0], namesrvs)

    def abort(self) -> bool:
        """See ConsumerBackend."""
        engine_thread = self.engine_thread
        if engine_thread is None or self.engine is None:
            return False
        engine_thread.post(lambda: self._close(0))
        deadline = Deadline(self._clock, _JOIN_MS)
        while not engine_thread.has_run and not deadline.is_over():
            Latch().wait(1)  # its thread may be about to run
        self.has_begun = engine_thread.has_run
        if not self.has_begun:
            engine_thread.end()
        return self.has_begun

    def begin_close(self, wait_ms: int) -> None:
        """See ConsumerBackend."""
        self._post(lambda: self._close(wait_ms))

    def release(self) -> None:
        """See ConsumerBackend."""
        try:
            if self.engine is not None:
                self._runner.stop(_JOIN_MS)
            if self._client is not None:
                self._client.close()
        finally:
            self.has_ended = True

    def join(self) -> None:
        """See ConsumerBackend."""
        if self.engine_thread is not None:
            self.engine_thread.join()

    def is_inside(self) -> bool:
        """See ConsumerBackend."""
        engine_thread = self.engine_thread
        return self._runner.is_current() or (
            engine_thread is not None and engine_thread.is_current()
        )

    def forget_after_fork(self) -> None:
        """See ConsumerBackend."""
        self.has_ended = True
        if self.engine_thread is not None:
            self.engine_thread.forget_after_fork()
        if self.engine is not None:
            for process_queue in self.engine.member.process_queues.values():
                # so that its listener gets no more messages
                process_queue.drop("the process forked")

    def _make(self) -> tuple[PushConsumer, EngineThread]:
        """Make the engine, its thread and its client."""
        config, clock, listener = self._config, self._clock, self._listener
        namesrv = self._client_config.namesrv
        self.client_id = new_client_id(
            ip=config.client_ip or local_ip(namesrv[0]) or "127.0.0.1",
            instance_name=config.instance_name,
            is_broadcasting=self._is_broadcasting,
        )
        # Broadcasting members keep their own offsets and share nothing.
        if not self._is_broadcasting:
            claim_client_id(self, ";".join(namesrv), self.client_id)
        self._client = client = Client(self._client_config, clock=clock)
        network = RemotingNetwork(client)
        self.engine_thread = engine_thread = self._make_engine_thread(
            client, self._runner
        )
        workers = _ListenerWorkers(
            listener,
            clock,
            needs_lock=listener.is_orderly and not self._is_broadcasting,
            runner=self._runner,
            engine_thread=engine_thread,
            # The engine is created after the workers, and before listeners run.
            consumed=lambda outcome: self._need_engine().consumed(outcome),
        )
        member = Member(
            group=self.group,
            client_id=self.client_id,
            config=config,
            listener=listener,
            subscriptions=self._subscriptions,
            clock=clock,
            network=network,
            workers=workers,
            offsets=self._offset_store(network, self.client_id),
        )
        self.engine = engine = PushConsumer(member)
        self._requests = PeerRequests(
            engine,
            namesrv=";".join(namesrv),
            call=engine_thread.call,
            answer_later=client.remoting.answer_later,
        )
        client.remoting.set_request_handler(self._requests.handle)
        return engine, engine_thread

    def _make_engine_thread(self, client: Client, runner: JobRunner) -> EngineThread:
        """Create the thread that will own the engine; tests override this method."""
        # An event loop of the program cannot own the engine.
        make = EngineThread if self._listener.is_async else LeasingEngineThread
        return make(client, runner, on_end=self._on_end)

    def _offset_store(self, network: RemotingNetwork, client_id: str) -> OffsetStore:
        if not self._is_broadcasting:
            return RemoteBrokerOffsetStore(self.group, network)
        path = local_offset_path(Path.home(), client_id, self.group)
        store = LocalFileOffsetStore(LocalOffsetFile(path))
        store.load()
        return store

    def _close(self, wait_ms: int) -> None:
        """Inside the engine: close it, or shorten the wait of a close in progress."""
        engine, engine_thread = self._need_engine(), self.engine_thread
        assert engine_thread is not None  # made with the engine  # noqa: S101
        if engine.is_closing:
            engine.close_sooner(wait_ms)
            return
        engine.member.call_later(wait_ms + GOODBYE_MS, engine_thread.end)
        engine.close(wait_ms).on_done(lambda _: engine_thread.end())

    # --- queues and offsets ---

    def pause(self) -> None:
        """See ConsumerBackend."""
        self._post(self._need_engine().pause)

    def resume(self) -> None:
        """See ConsumerBackend."""
        self._post(self._need_engine().resume)

    @property
    def is_confirmed(self) -> bool:
        """See ConsumerBackend."""
        return self.engine is None or self.engine.is_confirmed

    @property
    def refused(self) -> Mapping[MessageQueue, RmqError]:
        """See ConsumerBackend."""
        return {} if self.engine is None else self.engine.refused

    def queues(self) -> list[MessageQueue]:
        """See ConsumerBackend. Includes retry queues."""
        member = self._need_engine().member
        return sorted(self.ask(member.live_queues))

    def offsets_for(self, method: str) -> Offsets:  # all are possible
        """See ConsumerBackend."""
        self._need_engine()
        return self

    def commit(self, timeout_ms: int) -> None:
        """See Offsets."""
        self._run(_commit(self._need_engine().member), "commit", timeout_ms)

    def lag(self, timeout_ms: int) -> tuple[QueueLag, ...]:
        """See Offsets."""
        task = _lag(self._need_engine().member, timeout_ms)
        return self._run(task, "lag", timeout_ms + _LAST_ANSWER_MS)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """See Offsets."""
        engine = self._need_engine()
        self._post(lambda: engine.move({queue: offset}))

    def offsets(self) -> dict[MessageQueue, int]:
        """See Offsets."""
        return self.ask(self._need_engine().member.offsets.table.all)

    def running_info(self) -> ConsumerRunningInfo:
        """See Offsets."""
        assert self._requests is not None  # made with the engine  # noqa: S101
        return self.ask(self._requests.running_info)

    # --- from other threads into the engine ---

    def ask(self, question: Callable[[], T]) -> T:
        """Call `question` inside the engine; return its result or raise its error."""
        engine_thread = self.engine_thread
        if engine_thread is None or self.has_ended or engine_thread.is_current():
            return question()
        answers: list[T] = []
        errors: list[BaseException] = []

        def answer(done: Callable[[], None]) -> None:
            try:
                answers.append(question())
            except BaseException as error:  # noqa: BLE001  # it is the caller's
                errors.append(error)
            done()

        self._hand_over(answer)
        if errors:
            raise errors[0]
        return answers[0] if answers else question()

    def _run(self, task: Task[T], what: str, timeout_ms: int) -> T:
        """Run a task in the engine; return its result or raise its error."""
        engine_thread = self.engine_thread
        if engine_thread is None or self.has_ended:
            raise UsageError("the consumer is closed")
        if engine_thread.is_current():
            raise UsageError(f"callbacks such as on_assigned must not call {what}")
        member = self._need_engine().member
        pendings: list[Pending[T]] = []

        def run(done: Callable[[], None]) -> None:
            def ended(pending: Pending[T]) -> None:
                pendings.append(pending)
                done()

            start(task, member).on_done(ended)

        self._hand_over(run, Deadline(self._clock, timeout_ms))
        if pendings:
            return pendings[0].result()
        if self.has_ended:
            raise UsageError("the consumer is closed")
        raise DeadlineError(
            f"{what} of group {self.group} did not finish within {timeout_ms} ms",
            address=";".join(self._client_config.namesrv),
        )

    def _hand_over(
        self,
        action: Callable[[Callable[[], None]], None],
        deadline: Deadline | None = None,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        """Call `action(done)` inside the engine, and wait until it calls `done`.

        The wait also ends at the deadline, when it is cancelled, and at the end of the
        engine.
        """
        engine_thread = self.engine_thread
        assert engine_thread is not None  # made with the engine  # noqa: S101
        latch = Latch()
        engine_thread.post(lambda: action(latch.set))
        if self._runner.is_current():
            engine_thread.give_way()
        # In turns, because the engine may end, or a signal handler cancel the wait.
        while True:
            left_ms = _ASK_LOOK_MS if deadline is None else deadline.left_ms()
            if latch.wait(min(_ASK_LOOK_MS, left_ms)):
                return
            if self.has_ended or is_cancelled() or not left_ms:
                return

    def _post(self, action: Callable[[], None]) -> None:
        if self.engine_thread is not None and not self.has_ended:
            self.engine_thread.post(action)

    def _need_engine(self) -> PushConsumer:
        if self.engine is None:
            raise not_started()
        return self.engine


@dataclass(eq=False, repr=False)
class _ListenerWorkers:
    """Implements the engine's `Workers`: jobs call the listener.

    `consumed` receives outcomes, in the thread that owns the engine.
    """

    listener: Listener
    clock: Clock
    needs_lock: bool
    runner: JobRunner
    engine_thread: EngineThread
    consumed: Callable[[ConcurrentOutcome | OrderlyOutcome], None]

    def consume_concurrently(self, request: ConcurrentRequest) -> None:
        """See Workers.

        Coroutines share a request from its beginning, as far as they wait.
        """
        times = 1
        if self.listener.is_async:
            request.is_shared, times = True, self._batches(request)
        self.engine_thread.take(*[functools.partial(self._serve, request)] * times)

    def share(self, request: ConcurrentRequest) -> None:
        """See Workers.

        The request gets a thread for each remaining batch, but no more threads than
        there are.
        """
        request.is_shared = True
        job = functools.partial(self._serve, request)
        self.runner.put(*[job] * (self._batches(request) - 1))

    def _batches(self, request: ConcurrentRequest) -> int:
        """How many jobs can work on the request at once."""
        return min(-(-request.left // request.batch_size), self.runner.count)

    def consume_orderly(self, request: OrderlyRequest) -> None:
        """See Workers."""
        self.engine_thread.take(functools.partial(self._serve_orderly, request))

    async def _serve(self, request: ConcurrentRequest) -> None:
        await consume_concurrently(
            request,
            self.listener,
            self.clock,
            report=self._report,
            share=self.share,
        )

    def _report(self, outcome: ConcurrentOutcome) -> None:
        action = functools.partial(self.consumed, outcome)
        if outcome.failed:
            self.engine_thread.post(action)
        else:
            # Offsets are committed only every 5 s, so this is not worth a wake-up.
            self.engine_thread.leave(action)

    async def _serve_orderly(self, request: OrderlyRequest) -> None:
        outcome = await consume_orderly(
            request, self.listener, self.clock, needs_lock=self.needs_lock
        )
        self.engine_thread.post(functools.partial(self.consumed, outcome))


def _not_joined(
    group: str,
    namesrvs: Collection[str],
    timeout_ms: int,
    *,
    reason: RmqError | None,
) -> RmqError:
    """The error of a start that took too long; `reason` is the last failure."""
    why = "" if reason is None else f": {reason.message}"
    hint = "" if reason is None else reason.hint
    text = (
        f"no broker accepted a heartbeat of group {group} within {timeout_ms} ms{why}"
    )
    if isinstance(reason, DeniedError):
        return DeniedError(
            text,
            code=reason.code,
            name=reason.name,
            remark=reason.remark,
            address=reason.address,
            hint=hint,
        )
    return DeadlineError(
        text,
        address=";".join(namesrvs),
        hint=hint or "check that the brokers of the topics are online",
    )


def _explained(error: RmqError, namesrvs: Collection[str]) -> RmqError:
    """Add a hint to an error if an argument may have caused it; return the error."""
    if isinstance(error, NotFoundError):
        if error.code == int(ResponseCode.TOPIC_NOT_EXIST):
            error.hint = Hint(
                "check ",
                Argument("topics"),
                ", or create the topic",
                ForPrograms(f"; to wait until it exists, use {_WAIT}"),
            )
    elif isinstance(error, TransportError) and error.address in namesrvs:
        error.hint = Hint(
            "check ",
            Argument("namesrv"),
            " or NAMESRV_ADDR",
            ForPrograms(f"; to wait until a name server is available, use {_WAIT}"),
        )
    return error


def _commit(member: Member) -> Task[None]:
    """Commit the offsets of the member's queues, then read each of them back.

    While an offset that an operator has reset waits for its group, brokers from 5.1 on
    answer that a commit was successful, and do not store it. An older offset may also
    be that of a pull which arrived after the commit; then it is committed again.
    """
    known = {queue: member.offsets.table.get(queue) for queue in member.live_queues()}
    wanted = {queue: at for queue, at in known.items() if at is not None}
    older: dict[MessageQueue, int | None] = {}
    for _ in range(_COMMITS_MAX):
        errors = yield from member.offsets.persist_last(wanted)
        for error in errors.values():
            raise error
        stored = yield from every(*(member.offsets.read(queue) for queue in wanted))
        older = {}
        for (queue, offset), outcome in zip(wanted.items(), stored, strict=True):
            if outcome is None or outcome < offset:
                older[queue] = outcome
        wanted = {queue: wanted[queue] for queue in older}
        if not older:
            return
    for queue, found in older.items():
        raise PartialError(
            f"offset {wanted[queue]} of {queue} was not stored: the broker has"
            f" {'none' if found is None else found}"
        )


def _lag(member: Member, limit_ms: int) -> Task[tuple[QueueLag, ...]]:
    """The lag of each queue of the member; a broker's error makes it unknown."""
    table, network = member.offsets.table, member.network
    held = {queue: table.get(queue) for queue in sorted(member.live_queues())}
    bounds = yield All(
        [
            All(
                [
                    Within(network.resolve(queue, Earliest()), limit_ms),
                    Within(network.max_offset(queue), limit_ms),
                ]
            )
            for queue in held
        ]
    )
    return tuple(
        queue_lag(_reading(queue, committed, *ends), client_id=member.client_id)
        for (queue, committed), ends in zip(held.items(), bounds, strict=True)
    )


def _reading(
    queue: MessageQueue,
    committed: int | None,
    low: int | RmqError,
    high: int | RmqError,
) -> QueueReading:
    failure = next((e.message for e in (low, high) if isinstance(e, RmqError)), None)
    return QueueReading(
        topic=queue.topic,
        broker_name=queue.broker_name,
        queue_id=queue.queue_id,
        committed=committed,
        min_offset=None if isinstance(low, RmqError) else low,
        max_offset=None if isinstance(high, RmqError) else high,
        failure=failure,
    )
