"""Locks of queues at their brokers, for orderly consumption. Pure.

A broker keeps a lock for 60 s. The member trusts it for 30 s and renews it every 20 s.
The lock of a dropped queue is not renewed, so that the queue's next owner waits for at
most 60 s.

Source: RebalanceImpl#lock, #lockAll, #unlock, #unlockAll.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from rmqcli.errors import RmqError
from rmqcli.log import get_logger
from rmqcli.tasks import All

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqcli.engine.member import Member
    from rmqcli.model import MessageQueue
    from rmqcli.tasks import Task

logger = get_logger(__name__)

RENEW_INTERVAL_MS: Final = 20_000  # ProcessQueue.REBALANCE_LOCK_INTERVAL
FIRST_RENEWAL_MS: Final = 1_000


class QueueLocks:
    """The locks of one member."""

    def __init__(self, member: Member) -> None:
        self._member = member

    def lock(self, queues: Iterable[MessageQueue]) -> Task[set[MessageQueue]]:
        """Lock queues with one request per broker; return the granted ones.

        A broker that does not answer grants nothing.
        """
        granted: set[MessageQueue] = set()
        asked_ms = self._member.now_ms()
        by_broker = queues_by_broker(queues)
        outcomes = yield All([self._lock(each) for each in by_broker.values()])
        for broker_name, outcome in zip(by_broker, outcomes, strict=True):
            if isinstance(outcome, RmqError):
                logger.info("no locks granted broker=%s: %s", broker_name, outcome)
            else:
                granted |= outcome.intersection(by_broker[broker_name])
        self._mark(granted, asked_ms)
        return granted

    def lock_all(self) -> Task[None]:
        """Renew the locks of all queues; a lock that is not granted again is lost.

        Without an answer the locks age until they are no longer trusted.
        """
        by_broker = queues_by_broker(self._member.live_queues())
        yield All([self._renew(queues) for queues in by_broker.values()])

    def _renew(self, queues: list[MessageQueue]) -> Task[None]:
        """Renew the locks of one broker, when that broker answers."""
        asked_ms = self._member.now_ms()
        try:
            granted = yield from self._lock(queues)
        except RmqError as error:
            logger.info("locks not renewed queues=%d: %s", len(queues), error)
            return
        self._mark(granted.intersection(queues), asked_ms)
        for queue in set(queues) - granted:
            process_queue = self._member.process_queues.get(queue)
            if process_queue is not None:
                logger.warning("lock lost queue=%s", queue)
                process_queue.lock_lost()

    def unlock(self, queue: MessageQueue) -> None:
        """Unlock one queue, without waiting for an answer."""
        member = self._member
        member.network.unlock_oneway(member.group, member.client_id, [queue])

    def unlock_all(self, broker_name: str) -> Task[None]:
        """Unlock all queues of one broker, and wait for its answer."""
        member = self._member
        queues = [q for q in member.process_queues if q.broker_name == broker_name]
        if not queues:
            return
        try:
            yield from member.network.unlock(member.group, member.client_id, queues)
        except RmqError as error:
            logger.info(
                "unlock failed broker=%s queues=%d: %s", broker_name, len(queues), error
            )
        for queue in queues:
            if queue in member.process_queues:
                member.process_queues[queue].lock_lost()

    def _lock(self, queues: list[MessageQueue]) -> Task[set[MessageQueue]]:
        member = self._member
        return member.network.lock(member.group, member.client_id, queues)

    def _mark(self, granted: Iterable[MessageQueue], asked_ms: int) -> None:
        """Record granted locks. A lock counts from the time of its request."""
        for queue in granted:
            process_queue = self._member.process_queues.get(queue)
            if process_queue is not None and not process_queue.dropped:
                process_queue.lock_granted(asked_ms)


def queues_by_broker(
    queues: Iterable[MessageQueue],
) -> dict[str, list[MessageQueue]]:
    """Group queues by broker name; they keep their order."""
    found: defaultdict[str, list[MessageQueue]] = defaultdict(list)
    for queue in queues:
        found[queue.broker_name].append(queue)
    return dict(found)
