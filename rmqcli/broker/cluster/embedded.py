"""A RocketMQ cluster in this process: name server and brokers on free ports.

    with EmbeddedCluster(brokers=2, queues=4) as cluster:
        cluster.create_topic("orders")
        cluster.send("orders", ["a", "b"], tags="NEW")
        client_under_test(cluster.namesrv)

To real clients and mqadmin it is a cluster of version `like`. One thread,
`rmq-broker-io`, does all its work; every method may be called from any other thread.
With `proxy` it also has a proxy for clients of the gRPC protocol, which runs in its own
thread.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Self, TypedDict, TypeVar, Unpack

from rmqcli.broker.cluster.broker import EmbeddedBroker
from rmqcli.broker.cluster.seeding import Seed, Seeded, Seeder
from rmqcli.broker.cluster.storage import broker_folder, storage_in
from rmqcli.broker.core import Broker
from rmqcli.broker.faults import Faults
from rmqcli.broker.handlers import BROKER_REQUESTS
from rmqcli.broker.namesrv.core import NameServer
from rmqcli.broker.namesrv.handlers import NAMESRV_REQUESTS
from rmqcli.broker.profiles import profile_of
from rmqcli.broker.proxy.options import ProxyOptions
from rmqcli.broker.server.server import Server
from rmqcli.broker.settings import BrokerSettings
from rmqcli.broker.state.topics import PERM_READ
from rmqcli.checked import check_fields, check_int, check_type
from rmqcli.clock import SYSTEM_CLOCK, Clock
from rmqcli.dataclass import dataclass
from rmqcli.errors import ConfigError, UsageError
from rmqcli.model import QUEUE_NUMS_MAX, MessageQueue
from rmqcli.wire.bodies.config import SubscriptionGroupConfig, TopicConfig
from rmqcli.wire.version import V5_0_0

if TYPE_CHECKING:
    from rmqcli.broker.proxy.proxy import Proxy
    from rmqcli.broker.server.connection import Port, ServerLimits

T = TypeVar("T")

#: The name server's name in faults.
NAMESRV_NAME: Final = "namesrv"
#: Option -> the lowest and the highest value, both allowed.
_RANGES: Final = {
    "brokers": (1, 26),
    "queues": (1, QUEUE_NUMS_MAX),
    "namesrv_port": (0, 65_535),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """Options of a cluster. The defaults are RocketMQ's, with any free ports."""

    brokers: int = 1
    #: number of queues that `create_topic` creates on each broker
    queues: int = 4
    #: RocketMQ version to imitate: 4.6.0, 4.9.7 or 5.5.0
    like: str = "5.5.0"
    #: folder for messages and tables, with a folder for each broker if there are
    #: several; None keeps everything in memory
    store: Path | None = None
    flush: Literal["async", "sync"] = "async"
    host: str = "127.0.0.1"
    #: 0 means any free port
    namesrv_port: int = 0
    #: one for each broker, in order; 0 or a missing entry means any free port
    broker_ports: Sequence[int] = ()
    #: also listen on each broker's port minus 2, as old Java clients expect
    vip_channel: bool = False
    clock: Clock = SYSTEM_CLOCK
    limits: ServerLimits | None = None
    #: also serve gRPC: True, or the proxy's options; for versions from 5.0 on
    proxy: ProxyOptions | bool = False
    #: other fields of BrokerSettings
    settings: Mapping[str, object] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise TypeError or ConfigError for a value that cannot be used."""
        check_fields(self, ranges=_RANGES, types={"Path": Path})
        if self.flush not in ("async", "sync"):
            raise ConfigError(f"flush is {self.flush!r}; it must be 'async' or 'sync'")


class ClusterArguments(TypedDict, total=False):
    """The fields of ClusterOptions, as arguments."""

    brokers: int
    queues: int
    like: str
    store: Path | None
    flush: Literal["async", "sync"]
    host: str
    namesrv_port: int
    broker_ports: Sequence[int]
    vip_channel: bool
    clock: Clock
    limits: ServerLimits | None
    proxy: ProxyOptions | bool
    settings: Mapping[str, object]


class TopicArguments(TypedDict, total=False):
    """The fields of TopicConfig, as arguments."""

    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_filter_type: str
    topic_sys_flag: int
    order: bool
    attributes: dict[str, str]


class GroupArguments(TypedDict, total=False):
    """The fields of SubscriptionGroupConfig, as arguments."""

    consume_enable: bool
    consume_from_min_enable: bool
    consume_broadcast_enable: bool
    consume_message_orderly: bool
    retry_queue_nums: int
    retry_max_times: int
    broker_id: int
    which_broker_when_consume_slowly: int
    notify_consumer_ids_changed_enable: bool
    group_sys_flag: int
    consume_timeout_minute: int
    attributes: dict[str, str]


class EmbeddedCluster:
    """A running cluster. The constructor starts it, in about 10 ms; `close` stops it.

    Raises ConnectError when a port is taken, ConfigError for a folder that belongs to
    another user or a different number of brokers and for delay levels that cannot be
    read, and StoreError for a folder that cannot be used.
    """

    def __init__(
        self,
        options: ClusterOptions | None = None,
        *,
        faults: Faults | None = None,
        **fields: Unpack[ClusterArguments],
    ) -> None:
        self.options = dataclasses.replace(options or ClusterOptions(), **fields)
        self.profile = profile_of(self.options.like)
        self.faults = faults if faults is not None else Faults()
        self._server = Server(clock=self.options.clock, limits=self.options.limits)
        self._seeder = Seeder(self._server)
        self._brokers: list[EmbeddedBroker] = []
        self._proxy: Proxy | None = None
        self._next_queue = itertools.count()
        self._names = NameServer(
            self._server.now(), requests=NAMESRV_REQUESTS, profile=self.profile
        )
        try:
            self._namesrv_port = self._open(NAMESRV_NAME, self.options.namesrv_port)
            self._namesrv_port.core = self._names
            self._server.start()
            for number in range(self.options.brokers):
                name = f"broker-{chr(ord('a') + number)}"
                broker = self._make_broker(name, 0, number=number)
                self._brokers.append(broker)
                broker.start()
            if self.options.proxy:
                self._proxy = self._start_proxy()
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        brokers = [broker.name for broker in self._brokers]
        return f"EmbeddedCluster(namesrv={self.namesrv!r}, brokers={brokers})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop gracefully; no thread and no socket is left. Idempotent.

        Raises StoreError when something could not be written; even then, everything is
        closed.
        """
        try:
            if self._proxy is not None:
                self._proxy.close()
            if not self._server.is_closed:
                with ExitStack() as stack:
                    for broker in self._brokers:
                        stack.callback(broker.close)
        finally:
            self._server.close()

    # --- addresses and brokers ---

    @property
    def namesrv(self) -> str:
        """`host:port` of the name server: all that a client needs."""
        return self._namesrv_port.address

    @property
    def endpoints(self) -> str:
        """`host:port` of the proxy: all that a gRPC client needs.

        Raises UsageError for a cluster without one.
        """
        return self.proxy.address

    @property
    def proxy(self) -> Proxy:
        """The proxy, which can query its clients. Raises UsageError without one."""
        if self._proxy is None:
            raise UsageError(
                "the cluster has no proxy", hint="start it with proxy=True"
            )
        return self._proxy

    @property
    def brokers(self) -> tuple[EmbeddedBroker, ...]:
        """All brokers, including killed ones; masters first."""
        return tuple(self._brokers)

    def broker(self, name: str = "broker-a", broker_id: int = 0) -> EmbeddedBroker:
        """One broker. Raises UsageError for an unknown name or id."""
        for broker in self._brokers:
            if (broker.name, broker.broker_id) == (name, broker_id):
                return broker
        known = ", ".join(f"{b.name}:{b.broker_id}" for b in self._brokers)
        raise UsageError(
            f"broker {name}:{broker_id} does not exist", hint=f"use one of {known}"
        )

    def call(self, function: Callable[[], T]) -> T:
        """Run `function` in the I/O thread, where it may read and change cores."""
        return self._server.call(function)

    # --- topics and messages ---

    def create_topic(
        self,
        topic: str,
        *,
        queues: int | None = None,
        **fields: Unpack[TopicArguments],
    ) -> str:
        """Create or replace a topic on all running masters; return its name.

        `fields` are other settings of the topic, such as perm=6 or
        attributes={"message.type": "FIFO"}.
        """
        count = self.options.queues if queues is None else queues
        check_int(count, "queues", 0, QUEUE_NUMS_MAX)
        config = TopicConfig(
            topic_name=topic, read_queue_nums=count, write_queue_nums=count
        )
        config = dataclasses.replace(config, **fields)

        def create() -> str:
            for broker in self._running_masters():
                broker.state.topics.put(config)
            return topic

        return self._server.call(create)

    def create_group(self, group: str, **fields: Unpack[GroupArguments]) -> str:
        """Create or replace a consumer group on all running masters; return its name.

        Consumers create their groups themselves; tools that only commit offsets do not.
        `fields` are settings of the group, such as retry_max_times=2.
        """
        config = SubscriptionGroupConfig(group_name=group)
        config = dataclasses.replace(config, **fields)

        def create() -> str:
            for broker in self._running_masters():
                broker.state.groups.put(config)
            return group

        return self._server.call(create)

    def send(
        self,
        topic: str,
        messages: Iterable[Seed | bytes | str],
        *,
        queue_id: int | None = None,
        broker: str | None = None,
        tags: str | None = None,
    ) -> list[Seeded]:
        """Store messages without a client; return their places, in the same order.

        Bytes and texts are bodies, and get `tags`. Without `queue_id`, messages go in
        turn to the topic's queues on `broker`, or on all running masters, continuing
        where the last call ended. An unknown topic is created. Raises BrokerError with
        the code of a refusal; messages stored before it stay.
        """
        check_type(messages, Iterable, "messages")
        seeds = [_seed(message, tags) for message in messages]
        return self._server.call(lambda: self._send(topic, seeds, queue_id, broker))

    def _send(
        self, topic: str, seeds: list[Seed], queue_id: int | None, name: str | None
    ) -> list[Seeded]:
        masters = [self.broker(name)] if name else self._running_masters()
        places: list[tuple[EmbeddedBroker, int]] = []
        for master in masters:
            config = master.state.topics.get(topic)
            count = self.options.queues if config is None else config.write_queue_nums
            ids = range(count) if queue_id is None else (queue_id,)
            places += [(master, each) for each in ids]
        if not places:
            raise UsageError(f"topic {topic} has no writable queue")
        turns: dict[int, list[int]] = {}
        for index in range(len(seeds)):
            place = next(self._next_queue) % len(places)
            turns.setdefault(place, []).append(index)
        found: dict[int, Seeded] = {}
        for place, indexes in turns.items():
            master, queue = places[place]
            put = self._seeder.put(
                Broker(master.state, BROKER_REQUESTS),
                master.name,
                topic,
                queue,
                [seeds[i] for i in indexes],
            )
            found.update(zip(indexes, put, strict=True))
        return [found[index] for index in range(len(seeds))]

    def advance(self, by_ms: int) -> None:
        """Move a ManualClock, and run the timers that become due before returning."""
        clock = self.options.clock
        move = getattr(clock, "advance", None)
        if move is None:
            raise UsageError("the clock of the cluster is not a ManualClock")
        self._server.call(lambda: move(by_ms))
        self._server.call(lambda: None)

    # --- slaves and failures ---

    def add_slave(self, name: str = "broker-a", *, behind: int = 0) -> EmbeddedBroker:
        """Add a slave with the log of its master except the last `behind` messages."""
        master = self.broker(name)
        ids = [b.broker_id for b in self._brokers if b.name == name]
        slave = self._make_broker(name, max(ids) + 1, number=None)
        slave.follow(master, behind=behind)
        slave.start()
        self._brokers.append(slave)
        return slave

    def fail_over(self, name: str = "broker-a") -> EmbeddedBroker:
        """Kill a master and return its first slave.

        As in a cluster without a controller, clients can read from the slave but not
        write to it. Raises UsageError for a master without slaves.
        """
        slaves = [b for b in self._brokers if b.name == name and b.broker_id]
        if not slaves:
            raise UsageError(
                f"broker {name} has no slave", hint="add one with add_slave()"
            )
        self.broker(name).kill()
        return slaves[0]

    # --- construction ---

    def _running_masters(self) -> list[EmbeddedBroker]:
        return [b for b in self._brokers if b.is_running and not b.broker_id]

    def _start_proxy(self) -> Proxy:
        if self.profile.version < V5_0_0:
            raise UsageError(
                f"RocketMQ {self.profile.name} has no proxy", hint="use like='5.5.0'"
            )
        from rmqcli.broker.proxy.proxy import Proxy  # loads gRPC

        wanted = self.options.proxy
        return Proxy(
            wanted if isinstance(wanted, ProxyOptions) else ProxyOptions(),
            host=self.options.host,
            server=self._server,
            namesrv=self.namesrv,
        )

    def _open(self, name: str, number: int) -> Port:
        return self._server.call(
            lambda: self._server.open(
                name, host=self.options.host, port=number, faults=self.faults
            )
        )

    def _make_broker(
        self, name: str, broker_id: int, *, number: int | None
    ) -> EmbeddedBroker:
        ports = self.options.broker_ports
        wanted = ports[number] if number is not None and number < len(ports) else 0
        port = self._open(name, wanted)
        if self.options.vip_channel:
            vip = port.numbers[0] - 2
            self._server.call(lambda: self._server.listen(port, vip))
        settings = BrokerSettings(
            broker_name=name,
            broker_id=broker_id,
            address=port.address,
            profile=self.profile,
            flush_disk_sync=self.options.flush == "sync",
        )
        settings = dataclasses.replace(settings, **self.options.settings)  # type: ignore[arg-type]  # TypeError names a wrong one
        return EmbeddedBroker(
            self._server,
            port,
            settings,
            storage=storage_in(self._folder(name, broker_id)),
            announce=lambda state: self._names.register(state, self._server.now()),
            retract=lambda state: self._names.unregister(state, self._server.now()),
            find_queues=self._find_queues,
        )

    def _folder(self, name: str, broker_id: int) -> Path | None:
        store = self.options.store
        if store is None:
            return None
        return broker_folder(
            store, name=name, broker_id=broker_id, brokers=self.options.brokers
        )

    def _find_queues(self, topic: str) -> list[MessageQueue] | None:
        """Return a topic's readable queues on all brokers; None if it is unknown."""
        route = self._names.routes.route(topic)
        if route is None:
            return None
        return [
            MessageQueue(topic, queues.broker_name, queue_id)
            for queues in route.queues
            if queues.perm & PERM_READ
            for queue_id in range(queues.read_queue_nums)
        ]


def _seed(message: Seed | bytes | str, tags: str | None) -> Seed:
    if isinstance(message, Seed):
        return message
    body = message.encode("utf-8") if isinstance(message, str) else message
    return Seed(body=body, tags=tags)
