"""Values that every layer shares. The module imports no layer and does no I/O.

Offsets are always qualified: `queue_offset` counts messages in a queue,
`commit_log_offset` counts bytes in a broker's log. Ranges are half-open.
"""

from __future__ import annotations

import dataclasses
from dataclasses import field
from typing import Protocol

from rmqcli.dataclass import dataclass
from rmqcli.errors import BodyError

#: Java keeps queue ids in an int; no topic has more queues on a broker than this.
QUEUE_NUMS_MAX = 65_535
#: Most queues of one topic on all brokers. A larger count would only use up memory.
TOPIC_QUEUES_MAX = 1 << 20
#: Broker id of a master; every other id is a slave.
MASTER_ID = 0  # MixAll.MASTER_ID

RETRY_GROUP_TOPIC_PREFIX = "%RETRY%"  # MixAll.RETRY_GROUP_TOPIC_PREFIX
DLQ_GROUP_TOPIC_PREFIX = "%DLQ%"  # MixAll.DLQ_GROUP_TOPIC_PREFIX
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"  # RMQ_SYS_SCHEDULE_TOPIC

#: The built-in group under which tools pull. The broker would create, and keep, any
#: other group that it does not know.
TOOLS_CONSUMER_GROUP = "TOOLS_CONSUMER"  # MixAll.TOOLS_CONSUMER_GROUP

#: The built-in groups of brokers, of all versions. Source: MixAll,
#: `SubscriptionGroupManager#init` and `BrokerController`.
SYSTEM_GROUPS = frozenset(
    (
        TOOLS_CONSUMER_GROUP,
        "CID_DefaultHeartBeatSyncerTopic",
        "CID_ONS-HTTP-PROXY",
        "CID_SYS_RMQ_TRANS",
        "CLIENT_INNER_PRODUCER",
        "DEFAULT_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SCHEDULE_CONSUMER",
        "SELF_TEST_C_GROUP",
        "SELF_TEST_P_GROUP",
        "__MONITOR_CONSUMER",
    )
)
SYSTEM_GROUP_PREFIXES = ("CID_RMQ_SYS_", "CID_ONSAPI_")

PERM_READ = 4  # PermName.PERM_READ
PERM_WRITE = 2  # PermName.PERM_WRITE


def retry_topic(group: str) -> str:
    """The topic that holds the messages of `group` that wait for a retry."""
    return RETRY_GROUP_TOPIC_PREFIX + group


def pop_retry_topics(group: str, topic: str) -> tuple[str, str]:
    """The topics in which POP keeps retries of `topic` for `group`: V2's and V1's.

    Source: KeyBuilder.buildPopRetryTopicV2 and buildPopRetryTopicV1.
    """
    return f"{retry_topic(group)}+{topic}", f"{retry_topic(group)}_{topic}"


def is_pop_retry(topic: str, group: str) -> bool:
    """Return whether a topic is one in which POP keeps retries for `group`."""
    return topic.startswith(pop_retry_topics(group, ""))


def dlq_topic(group: str) -> str:
    """The topic that holds the messages that `group` gave up on."""
    return DLQ_GROUP_TOPIC_PREFIX + group


def is_system_group(group: str) -> bool:
    """Whether the group belongs to RocketMQ itself, not to an application."""
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIXES)


# Compared and hashed in bulk, for which compiled methods are quicker.
@dataclasses.dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    """One queue of one topic on one broker group: the unit of assignment.

    Ordering is by topic, then broker name, then queue id. Rebalancing depends on
    it: every member of a group must sort the same list the same way.
    Source: `MessageQueue#compareTo` in apache/rocketmq.
    """

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker_name}:{self.queue_id}"


class Message(Protocol):
    """What listeners get, and what is received or read, whatever the protocol.

    Treat as immutable. Over remoting it is a `PulledMessage`, which has more fields;
    through a proxy it is a `ProxyMessage`; and `SimpleConsumer` receives
    `ReceivedMessage`s.
    """

    @property
    def topic(self) -> str:
        """The topic to which it was first sent, also for a retry."""

    @property
    def message_queue(self) -> MessageQueue:
        """The queue from which it came; for a retry perhaps one of a retry topic."""

    @property
    def broker_name(self) -> str:
        """The name of the broker from which it came."""

    @property
    def queue_id(self) -> int:
        """The id of the queue from which it came."""

    @property
    def queue_offset(self) -> int | None:
        """Its offset in the queue; None when a proxy does not report it."""

    @property
    def body(self) -> bytes:
        """The body as its producer gave it; decompressed at each access.

        Raises DecodeError when it is damaged, or decompresses to more than 16 MiB.
        """

    @property
    def raw_body(self) -> bytes:
        """The body as it was received, possibly compressed or damaged."""

    @property
    def properties(self) -> dict[str, str]:
        """Its properties; always the same dict, which must not be changed.

        Over remoting they include those that brokers and the producer's client add.
        """

    @property
    def tags(self) -> str | None:
        """Its tag, or None."""

    @property
    def keys(self) -> str | None:
        """Its keys, separated by spaces, or None."""

    @property
    def msg_id(self) -> str | None:
        """The id that its producer gave it (UNIQ_KEY), or None."""

    @property
    def reconsume_times(self) -> int:
        """How often it was delivered before; 0 the first time."""

    @property
    def born_timestamp_ms(self) -> int:
        """When its producer created it, by the producer's clock, in epoch ms."""

    @property
    def born_host(self) -> str:
        """The host of its producer."""

    @property
    def store_timestamp_ms(self) -> int | None:
        """When it was stored, in epoch ms; None when a proxy does not report it."""

    @property
    def store_host(self) -> str:
        """The broker that stored it."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets `start <= o < end` of one queue."""

    queue: MessageQueue
    start: int
    end: int

    def __len__(self) -> int:
        return max(0, self.end - self.start)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerData:
    """One broker group in a route: a master and its slaves.

    `addresses` maps broker id to `host:port` as the broker advertises itself, which
    need not be reachable from here.
    """

    cluster: str
    broker_name: str
    addresses: dict[int, str] = field(hash=False)
    #: whether a route may show a slave as the master, while there is none (5.0)
    enable_acting_master: bool = False

    @property
    def master_address(self) -> str | None:
        """The master's address, or None while no master is registered."""
        return self.addresses.get(MASTER_ID)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueData:
    """How many queues a topic has on one broker group, and their permissions."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0

    @property
    def is_readable(self) -> bool:
        return bool(self.perm & PERM_READ)

    @property
    def is_writable(self) -> bool:
        return bool(self.perm & PERM_WRITE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRoute:
    """Where a topic's queues are, as reported by a name server.

    Source: TopicRouteData in apache/rocketmq.
    """

    topic: str
    brokers: tuple[BrokerData, ...]
    queues: tuple[QueueData, ...]
    order_topic_conf: str | None = None

    @property
    def may_have_acting_master(self) -> bool:
        """Whether a slave may be shown as the master of its broker.

        Then name servers take away the permission to write, which an operator may do,
        too. Source: RouteInfoManager (pickupTopicRouteData, isPrimeSlave).
        """
        acting = {b.broker_name for b in self.brokers if b.enable_acting_master}
        return any(
            not queues.is_writable and queues.broker_name in acting
            for queues in self.queues
        )

    def broker(self, broker_name: str) -> BrokerData | None:
        """The broker group of that name, or None when the route has none."""
        for broker in self.brokers:
            if broker.broker_name == broker_name:
                return broker
        return None

    def read_queues(self) -> list[MessageQueue]:
        """Every queue a consumer may read, sorted."""
        return sorted(
            MessageQueue(self.topic, data.broker_name, queue_id)
            for data in self.queues
            if data.is_readable
            for queue_id in range(data.read_queue_nums)
        )

    def unread_queues(self) -> list[MessageQueue]:
        """Every queue that may have messages and that no consumer may read, sorted.

        All queues of a write-only broker, and those beyond its number of read queues.
        """
        return sorted(
            MessageQueue(self.topic, data.broker_name, queue_id)
            for data in self.queues
            for queue_id in range(
                data.read_queue_nums if data.is_readable else 0,
                max(data.read_queue_nums, data.write_queue_nums),
            )
        )

    def write_queues(self) -> list[MessageQueue]:
        """Every queue a producer may write to, in the order that their numbers mean.

        Sorted, and only of brokers with a master. Of a topic whose queues a name server
        has fixed (`order_topic_conf`), these, whatever its brokers have: a key goes to
        the same queue even while one of them is away. Raises BodyError for a list that
        cannot be read. Source: MQClientInstance (topicRouteData2TopicPublishInfo).
        """
        if self.order_topic_conf:
            return self._fixed_queues(self.order_topic_conf)
        masters = {b.broker_name for b in self.brokers if MASTER_ID in b.addresses}
        return sorted(
            MessageQueue(self.topic, data.broker_name, queue_id)
            for data in self.queues
            if data.is_writable and data.broker_name in masters
            for queue_id in range(data.write_queue_nums)
        )

    def _fixed_queues(self, text: str) -> list[MessageQueue]:
        queues: list[MessageQueue] = []
        for part in text.rstrip(";").split(";"):
            name, _, count = part.partition(":")
            is_number = count.isascii() and count.isdigit() and len(count) <= 5
            if not name or not is_number or int(count) > QUEUE_NUMS_MAX:
                raise BodyError(
                    f"topic {self.topic} has fixed queues that are not"
                    f" BROKER:NUMBER;...: {text[:200]!r}"
                )
            queues += [MessageQueue(self.topic, name, n) for n in range(int(count))]
            if len(queues) > TOPIC_QUEUES_MAX:
                raise BodyError(f"route with more than {TOPIC_QUEUES_MAX} fixed queues")
        return queues
