"""The queues that consumers hold, and what is wrong with them. Pure.

A push consumer stops pulling a queue while it caches too many messages, too many MiB,
or (if it consumes concurrently) too wide a span of offsets. A wide span means that the
message at the head is not finished while later ones are. The limits are the client's
own where it reports them.

Source: ProcessQueue, ProcessQueueInfo, DefaultMQPushConsumerImpl#pullMessage in
apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from rmqcli.dataclass import dataclass
from rmqcli.units import read_count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.model import MessageQueue
    from rmqcli.wire.bodies.consumer import (
        ConsumerRunningInfo,
        ConsumeStatus,
        ProcessQueueInfo,
    )
    from rmqcli.wire.subscription import SubscriptionData

MAX_SPAN_DEFAULT = 2000  # DefaultMQPushConsumer.consumeConcurrentlyMaxSpan
COUNT_LIMIT_DEFAULT = 1000  # DefaultMQPushConsumer.pullThresholdForQueue
SIZE_LIMIT_MIB_DEFAULT = 100  # DefaultMQPushConsumer.pullThresholdSizeForQueue
LOCK_MAX_LIVE_MS = 30_000  # ProcessQueue.REBALANCE_LOCK_MAX_LIVE_TIME

#: A queue is stuck when it has messages and none was finished for this time: several
#: times what a healthy consumer needs, and less than Java's consumeTimeout of 15 min.
STUCK_AFTER_MS = 60_000
#: After this time without a pull, Java considers a queue expired and drops it.
PULL_MAX_IDLE_MS = 120_000  # ProcessQueue.PULL_MAX_IDLE_TIME

FLOW_CONTROL = "FLOW_CONTROL"
STUCK_HEAD = "STUCK_HEAD"
EXPIRED_LOCK = "EXPIRED_LOCK"
DROPPED = "DROPPED"
PULL_STOPPED = "PULL_STOPPED"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """The limits above which a consumer stops pulling a queue."""

    count: int = COUNT_LIMIT_DEFAULT
    size_mib: int = SIZE_LIMIT_MIB_DEFAULT
    span: int = MAX_SPAN_DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldQueue:
    """One queue that a consumer holds.

    The offsets of cached or taken messages are None while there are none, and
    `cached_size_mib` for a client that does not report it. `span` is the last cached
    offset minus the first. `taken_*` are about the messages that an orderly consumer is
    processing now. `locked` and `last_lock_ms` are None for a consumer that needs no
    lock of the broker, whatever it reports: only orderly ones in a clustering group do.
    Times are epoch ms by the consumer's clock, None for never.
    """

    queue: MessageQueue
    client_id: str
    commit_offset: int
    cached_count: int
    cached_size_mib: int | None
    cached_min_offset: int | None
    cached_max_offset: int | None
    span: int
    span_limit: int
    limits: QueueLimits
    taken_count: int
    taken_min_offset: int | None
    taken_max_offset: int | None
    locked: bool | None
    last_lock_ms: int | None
    dropped: bool
    last_pull_ms: int | None
    last_consume_ms: int | None
    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientQueues:
    """What one consumer reported about itself, or why it did not (`failure`).

    `started_ms` is when it started (epoch ms, by its own clock), if it says so.
    """

    client_id: str
    failure: str | None = None
    started_ms: int | None = None
    is_orderly: bool = False
    queues: tuple[HeldQueue, ...] = ()
    subscriptions: tuple[SubscriptionData, ...] = ()
    #: topic -> how fast it consumes
    statuses: Mapping[str, ConsumeStatus] = field(default_factory=dict)
    #: threads that run its listener; None if it did not report them
    threads: int | None = None

    def held_queues(self) -> list[MessageQueue]:
        """Return the consumer's queues without those that a rebalance took away."""
        return [held.queue for held in self.queues if not held.dropped]


def read_running_info(
    client_id: str, info: ConsumerRunningInfo, *, now_ms: int
) -> ClientQueues:
    """Return the queues that a consumer holds, with flags for what is wrong.

    `now_ms` should be near the consumer's clock.
    """
    is_orderly = info.properties.get("PROP_CONSUMEORDERLY", "").lower() == "true"
    is_broadcast = info.properties.get("messageModel") == "BROADCASTING"
    properties = info.properties
    limits = QueueLimits(
        count=_number(properties, "pullThresholdForQueue", COUNT_LIMIT_DEFAULT),
        size_mib=_number(
            properties, "pullThresholdSizeForQueue", SIZE_LIMIT_MIB_DEFAULT
        ),
        span=_number(properties, "consumeConcurrentlyMaxSpan", MAX_SPAN_DEFAULT),
    )
    return ClientQueues(
        client_id=client_id,
        started_ms=_number(info.properties, "PROP_CONSUMER_START_TIMESTAMP", 0) or None,
        is_orderly=is_orderly,
        subscriptions=info.subscriptions,
        queues=tuple(
            _held_queue(
                queue,
                item,
                client_id=client_id,
                limits=limits,
                # In a broadcast group every member has all queues, so there is no lock.
                is_orderly=is_orderly and not is_broadcast,
                now_ms=now_ms,
            )
            for queue, item in sorted(info.process_queues.items())
        ),
        statuses=info.statuses,
        threads=_number(info.properties, "PROP_THREADPOOL_CORE_SIZE", 0) or None,
    )


def _number(properties: Mapping[str, str], name: str, default: int) -> int:
    # A client may send anything here; 0 and very long numbers are ignored.
    return read_count(properties.get(name), digits_max=14) or default


def _held_queue(
    queue: MessageQueue,
    item: ProcessQueueInfo,
    *,
    client_id: str,
    limits: QueueLimits,
    is_orderly: bool,
    now_ms: int,
) -> HeldQueue:
    has_cached = item.cached_msg_count > 0
    has_taken = item.transaction_msg_count > 0
    return HeldQueue(
        queue=queue,
        client_id=client_id,
        commit_offset=item.commit_offset,
        cached_count=item.cached_msg_count,
        cached_size_mib=item.cached_msg_size_in_mib,
        cached_min_offset=item.cached_msg_min_offset if has_cached else None,
        cached_max_offset=item.cached_msg_max_offset if has_cached else None,
        span=_span(item),
        span_limit=limits.span,
        limits=limits,
        taken_count=item.transaction_msg_count,
        taken_min_offset=item.transaction_msg_min_offset if has_taken else None,
        taken_max_offset=item.transaction_msg_max_offset if has_taken else None,
        locked=item.locked if is_orderly else None,
        last_lock_ms=(item.last_lock_timestamp or None) if is_orderly else None,
        dropped=item.droped,
        last_pull_ms=item.last_pull_timestamp or None,
        last_consume_ms=item.last_consume_timestamp or None,
        flags=queue_flags(item, limits=limits, is_orderly=is_orderly, now_ms=now_ms),
    )


def queue_flags(
    item: ProcessQueueInfo, *, limits: QueueLimits, is_orderly: bool, now_ms: int
) -> tuple[str, ...]:
    """Return flags for what is wrong with a held queue; empty when nothing is.

    FLOW_CONTROL: a limit is exceeded, so the queue is not pulled. STUCK_HEAD: there are
    messages and none was finished for a minute, or the first one holds back a span
    above the limit. EXPIRED_LOCK: an orderly consumer has no lock that was renewed in
    the last 30 s, so it waits. DROPPED: the consumer lost the queue in a rebalance.
    PULL_STOPPED: the queue was not pulled for two minutes.
    """
    flags = []
    is_span_over = not is_orderly and _span(item) > limits.span
    if (
        item.cached_msg_count > limits.count
        or (item.cached_msg_size_in_mib or 0) > limits.size_mib
        or is_span_over
    ):
        flags.append(FLOW_CONTROL)
    is_idle = now_ms - item.last_consume_timestamp > STUCK_AFTER_MS
    has_work = item.cached_msg_count > 0 or item.transaction_msg_count > 0
    if is_span_over or (has_work and is_idle):
        flags.append(STUCK_HEAD)
    lock_age_ms = now_ms - item.last_lock_timestamp
    if is_orderly and (not item.locked or lock_age_ms > LOCK_MAX_LIVE_MS):
        flags.append(EXPIRED_LOCK)
    if item.droped:
        flags.append(DROPPED)
    elif now_ms - item.last_pull_timestamp > PULL_MAX_IDLE_MS:
        flags.append(PULL_STOPPED)
    return tuple(flags)


def _span(item: ProcessQueueInfo) -> int:
    if item.cached_msg_count <= 0:
        return 0
    return max(0, item.cached_msg_max_offset - item.cached_msg_min_offset)
