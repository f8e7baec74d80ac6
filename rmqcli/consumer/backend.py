"""What `Consumer` needs of its network: the interface of its back ends.

`remoting_backend` speaks to name servers and brokers, `proxy_backend` to a proxy. Each
has threads of its own, and gives what calls the listener to a `JobRunner`, which it
starts and stops. Every method may be called from any thread.

A back end is made with the arguments of `make`, which raises UnsupportedError for what
it cannot do. `on_end` is called once, in one of its threads, as soon as a close is done
except for `release`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from rmqcli.dataclass import dataclass
from rmqcli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.clock import Clock
    from rmqcli.config import ClientConfig
    from rmqcli.engine.config import ConsumerConfig
    from rmqcli.engine.listener import Listener
    from rmqcli.engine.queue_lag import QueueLag
    from rmqcli.errors import RmqError
    from rmqcli.model import MessageQueue
    from rmqcli.wire.bodies.consumer import ConsumerRunningInfo
    from rmqcli.wire.subscription import SubscriptionData

#: How long a close may take after its wait for listeners: for commits, unlocking and
#: unregistration, which all have deadlines. Then the back end ends, finished or not.
GOODBYE_MS: Final = 12_000


#: Calls a listener, usually for several messages; see `engine.consume.request`.
Job: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class JobRunner(Protocol):
    """Where the listener of a consumer runs: threads, or an event loop."""

    @property
    def count(self) -> int:
        """How many jobs it runs at the same time."""

    def start(self) -> None:
        """Begin; `stop` must be called."""

    def put(self, *jobs: Job) -> None:
        """Run jobs as soon as possible. From any thread; waits a few ms at most.

        A job that is put several times may run that often at the same time: the runs
        share its work, and after the end of one of them no other has to begin.
        """

    def is_current(self) -> bool:
        """Whether this is called by one of the jobs."""

    def let_end(self) -> None:
        """Run nothing but the jobs that were put, without waiting. Idempotent."""

    def stop(self, timeout_ms: int) -> None:
        """End, and wait for jobs up to `timeout_ms`. Idempotent."""


class Offsets(Protocol):
    """What a back end that owns queues does with their offsets; see Consumer."""

    def commit(self, timeout_ms: int) -> None:
        """Commit the offsets of this member's queues, and read them back."""

    def lag(self, timeout_ms: int) -> tuple[QueueLag, ...]:
        """The lag of each queue of this member, sorted by queue."""

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Consume a queue from another offset."""

    def offsets(self) -> dict[MessageQueue, int]:
        """The next offset of each queue."""

    def running_info(self) -> ConsumerRunningInfo:
        """The state of this member as brokers request it."""


class ConsumerBackend(Protocol):
    """A member of a group: its life cycle, and what it does in between."""

    @property
    def client_id(self) -> str | None:
        """The id under which servers know this member; None before it is known."""

    @property
    def is_confirmed(self) -> bool:
        """False after a close whose commits or acks were not all confirmed."""

    @property
    def refused(self) -> Mapping[MessageQueue, RmqError]:
        """After a close: queues from which nothing could be received, and why."""

    @property
    def has_begun(self) -> bool:
        """Whether its threads run; then they carry out a close."""

    def start(
        self,
        *,
        timeout_ms: int,
        wait_for_cluster: bool,
        is_cancelled: Callable[[], bool],
    ) -> None:
        """Join the group, or return early when the start is cancelled. Once.

        Raises the errors of Consumer.start.
        """

    def abort(self) -> bool:
        """Begin to undo a `start` that raised; it may have failed at any point.

        Returns whether a close has begun that will end with `on_end`. If not, the
        caller calls `release`.
        """

    def begin_close(self, wait_ms: int) -> None:
        """Begin to close, once it has begun. Listeners may run for up to `wait_ms`.

        A later call may shorten the wait. Takes no lock: signal handlers call it.
        """

    def release(self) -> None:
        """Give threads and sockets back, at the end."""

    def join(self) -> None:
        """Wait for the end of the threads after `release`, but not for the caller's."""

    def is_inside(self) -> bool:
        """Whether the caller is one of the threads that a close has to end."""

    def forget_after_fork(self) -> None:
        """In a forked child: own nothing, and give the listener no more messages."""

    def pause(self) -> None:
        """Request no more messages."""

    def resume(self) -> None:
        """Request messages again."""

    def queues(self) -> list[MessageQueue]:
        """The queues of this member, sorted."""

    def offsets_for(self, method: str) -> Offsets:
        """The offsets, for a method of Consumer. Raises UnsupportedError without any.

        Raises UsageError before the start.
        """


@dataclass(slots=True, kw_only=True, eq=False)
class MemberParts:
    """What a back end is made of; it has no threads and sockets before `start`."""

    client_config: ClientConfig
    group: str
    subscriptions: Mapping[str, SubscriptionData]
    config: ConsumerConfig
    listener: Listener
    runner: JobRunner
    clock: Clock
    #: called once, at the end of a close or of a cancelled start
    on_end: Callable[[], None]


class MakeBackend(Protocol):
    """The constructor of a back end."""

    def __call__(self, parts: MemberParts, /) -> ConsumerBackend:
        """Make a back end."""


def not_started() -> UsageError:
    """The error of a call before the start."""
    return UsageError("the consumer was not started: use `with`, or call start")
