"""Checks the listener calls, pulls and commits of one member while it runs.

It checks that a queue has one live pull at a time, and is pulled from the offset of a
reset; that its committed offset does not grow after the queue was dropped, and does not
go back before; and that orderly calls of a queue never overlap, unless a broker has
lost its locks or the lock has expired.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.consumer.remoting_network import RemotingNetwork
from rmqcli.engine.rebalance import UNLOCK_FORCE_MS
from rmqcli.tasks import start

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from rmqcli.api.client import Client
    from rmqcli.engine.interfaces import PullAsk
    from rmqcli.engine.member import Member
    from rmqcli.engine.message import Pulled
    from rmqcli.engine.process_queue import ProcessQueue
    from rmqcli.model import MessageQueue
    from rmqcli.tasks import Answer, Task
    from rmqcli.wire.pull_answer import PullAnswer
    from tests.simulation.checker import Checker
    from tests.simulation.schedule import Schedule

#: A lock counts as lost even if it was taken up to this long after the loss.
_LOST_LOCK_MS: Final = 5_000


class Working:
    """The running orderly calls of all members, by queue."""

    def __init__(self) -> None:
        self.calls: dict[MessageQueue, list[tuple[Watch, ProcessQueue[Pulled]]]] = {}


class Watch:
    """Watches one member. `locks_lost_ms` takes a broker name; -1 is never."""

    def __init__(
        self,
        schedule: Schedule,
        checker: Checker,
        working: Working,
        *,
        name: str,
        locks_lost_ms: Callable[[str], int],
    ) -> None:
        self.schedule = schedule
        self.checker = checker
        self.name = name
        self.is_orderly = False
        self.is_gone = False
        self._working = working
        self._locks_lost_ms = locks_lost_ms
        self._pulling: set[tuple[MessageQueue, int]] = set()
        #: queue -> the ProcessQueue that was pulled last
        self._pulled: dict[MessageQueue, object] = {}
        #: queue -> ProcessQueue (None after its drop) and offset of the last commit
        self._commits: dict[MessageQueue, tuple[ProcessQueue[Pulled] | None, int]] = {}
        #: queue -> the ProcessQueue that was reset, and where the next one must pull
        self._moves: dict[MessageQueue, tuple[ProcessQueue[Pulled], int]] = {}

    def begins(
        self,
        queue: MessageQueue,
        process_queue: ProcessQueue[Pulled],
        batch: Sequence[Pulled],
    ) -> None:
        """Check the beginning of a listener's call."""
        first = batch[0].queue_offset
        self.schedule.note(f"{self.name} call {queue} {first} {len(batch)}")
        if self.is_orderly:
            self._overlaps(queue, process_queue)
            calls = self._working.calls.setdefault(queue, [])
            calls.append((self, process_queue))
            life = self.checker.life(process_queue)
            self.checker.begun_in_order(queue, life, batch)

    def _overlaps(self, queue: MessageQueue, mine: ProcessQueue[Pulled]) -> None:
        for other, process_queue in self._working.calls.get(queue, ()):
            if other is self:
                self.checker.violation(f"{self.name} has two calls of {queue}")
                continue
            held_ms = self.schedule.now_ms - process_queue.last_lock_ms
            lost_ms = self._locks_lost_ms(queue.broker_name)
            older_ms = min(process_queue.last_lock_ms, mine.last_lock_ms)
            is_lost = lost_ms >= older_ms - _LOST_LOCK_MS
            if other.is_gone or is_lost or held_ms > UNLOCK_FORCE_MS:
                continue
            self.checker.violation(
                f"{self.name} and {other.name} both have calls of {queue}, which the"
                f" latter locked {held_ms} ms ago"
            )

    def ends(
        self,
        queue: MessageQueue,
        process_queue: ProcessQueue[Pulled],
        succeeded: Sequence[Pulled],
        failed: Sequence[Pulled],
    ) -> None:
        """Note the results of a listener's call, which returns or raises."""
        self.schedule.note(f"{self.name} end {queue} {len(succeeded)} {len(failed)}")
        if self.is_orderly:
            self._working.calls[queue].remove((self, process_queue))
        life = self.checker.life(process_queue)
        self.checker.succeeded(queue, life, succeeded, is_orderly=self.is_orderly)
        self.checker.failed(failed)

    def gone(self) -> None:
        """Forget the calls of this member, which was killed or closed."""
        self.is_gone = True
        for calls in self._working.calls.values():
            calls[:] = [each for each in calls if each[0] is not self]

    def moves(
        self, queue: MessageQueue, process_queue: ProcessQueue[Pulled], offset: int
    ) -> None:
        """Note a reset: earlier messages of the queue need not be consumed."""
        self.schedule.note(f"{self.name} move {queue} {offset}")
        self._moves[queue] = (process_queue, offset)
        self.checker.skipped_to(
            (queue.broker_name, queue.topic, queue.queue_id), offset
        )

    def pulls(self, queue: MessageQueue, process_queue: object, offset: int) -> None:
        """Check a pull that the member sends."""
        before, moved = self._moves.get(queue, (process_queue, offset))
        if before is not process_queue:
            del self._moves[queue]
            if offset != moved:
                self.checker.violation(
                    f"{self.name} pulls {queue} at {offset} instead of {moved}"
                )
        key = (queue, id(process_queue))
        if key in self._pulling:
            self.checker.violation(f"{self.name} has two pulls of {queue}")
        self._pulling.add(key)
        self._pulled[queue] = process_queue

    def asks(self, queue: MessageQueue, process_queue: object = None) -> None:
        """Note a query for a queue's offset: commits before it no longer count.

        They count if the queue is owned, except for an orderly queue that has not been
        pulled: its offset is queried again under the lock, and a late commit of the
        previous owner may have set it back.
        """
        if process_queue is None:
            self._moves.pop(queue, None)  # the queue was lost meanwhile
        life, _ = self._commits.get(queue, (None, -1))
        if life is None or (self.is_orderly and self._pulled.get(queue) is not life):
            self._commits.pop(queue, None)

    def pulled(self, queue: MessageQueue, process_queue: object) -> None:
        """Note the end of a pull."""
        self._pulling.discard((queue, id(process_queue)))

    def commits(
        self, queue: MessageQueue, process_queue: ProcessQueue[Pulled] | None, at: int
    ) -> None:
        """Check an offset that the member commits."""
        is_live = process_queue is not None and not process_queue.dropped
        life = process_queue if is_live else None
        known_life, known = self._commits.get(queue, (None, -1))
        if is_live and known_life is life and at < known:
            self.checker.violation(f"{self.name} commits {queue} {at} after {known}")
        if not is_live and known_life is None and known >= 0 and at > known:
            self.checker.violation(
                f"{self.name} commits {queue} {at} after its drop at {known}"
            )
        self._commits[queue] = (life, at)


class WatchedNetwork(RemotingNetwork):
    """The network of a member; its requests are reported to a `Watch`."""

    def __init__(self, client: Client, *, rng: random.Random, watch: Watch) -> None:
        super().__init__(client, rng=rng)
        self._watch = watch
        self.member: Member

    def pull(self, ask: PullAsk) -> Answer[PullAnswer]:
        """See RemotingNetwork."""
        process_queue = self.member.process_queues.get(ask.queue)
        self._watch.pulls(ask.queue, process_queue, ask.queue_offset)
        if ask.commit_offset is not None:
            self._watch.commits(ask.queue, process_queue, ask.commit_offset)
        pull = start(super().pull(ask), self.member)
        pull.on_done(lambda _: self._watch.pulled(ask.queue, process_queue))
        return pull

    def query_offset(self, group: str, queue: MessageQueue) -> Task[int | None]:
        """See RemotingNetwork."""
        self._watch.asks(queue, self.member.process_queues.get(queue))
        return super().query_offset(group, queue)

    def update_offset(self, group: str, queue: MessageQueue, offset: int) -> Task[None]:
        """See RemotingNetwork."""
        self._commits(queue, offset)
        return super().update_offset(group, queue, offset)

    def update_offset_oneway(
        self, group: str, queue: MessageQueue, offset: int
    ) -> None:
        """See RemotingNetwork."""
        self._commits(queue, offset)
        super().update_offset_oneway(group, queue, offset)

    def _commits(self, queue: MessageQueue, offset: int) -> None:
        process_queue = self.member.process_queues.get(queue)
        self._watch.commits(queue, process_queue, offset)
