"""Serves a broker's folder read-only, by a name server and a broker of this process.

    with StoreServer(Path("/var/rocketmq/store")) as server:
        client(server.namesrv)

Imitated: the requests in BROKER_READS and NAMESRV_READS. All others are refused (16),
and nothing in the folder is changed, so its own broker may be running. Members of
groups are unknown, because they are in no file, and delayed messages are not delivered.
Messages that the broker writes later are served, and its tables are read again whenever
it has written them (offsets: every 5 s). A topic that has queues in the folder but is
not in the table yet is served, too.

Source: `BrokerController.initialize` for the files; `TopicConfigManager`, whose
constructor creates topics named after the broker and its cluster. RocketMQ has no
read-only broker.
"""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Final, Self, cast

from rmqcli.broker.cluster.persistence import (
    DELAYS,
    GROUPS,
    OFFSETS,
    TOPICS,
    Persistence,
)
from rmqcli.broker.cluster.storage import broker_folders
from rmqcli.broker.core import Broker
from rmqcli.broker.handlers import BROKER_REQUESTS
from rmqcli.broker.message.get import properties_of_record
from rmqcli.broker.namesrv.core import NameServer
from rmqcli.broker.namesrv.handlers import NAMESRV_REQUESTS
from rmqcli.broker.profiles import PROFILE_4_6_0, PROFILE_4_9_7, PROFILE_5_5_0
from rmqcli.broker.request import BrokerRequest, Reply, answer_to
from rmqcli.broker.requests.pull_message import FLAG_COMMIT_OFFSET
from rmqcli.broker.server.server import Server
from rmqcli.broker.settings import BrokerSettings
from rmqcli.broker.state.broker import BrokerState
from rmqcli.broker.state.topics import PERM_INHERIT, PERM_READ, PERM_WRITE, topic_with
from rmqcli.broker.topic_names import DEFAULT_TOPIC, SCHEDULE_TOPIC, is_system_topic
from rmqcli.clock import SYSTEM_CLOCK, Clock, Now
from rmqcli.dataclass import dataclass
from rmqcli.log import get_logger
from rmqcli.store.message_store import MessageStore, StoreError, store_errors
from rmqcli.store.read_only import ReadOnlyStore
from rmqcli.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from rmqcli.broker.effects import Effect, Peer
    from rmqcli.broker.profiles import VersionProfile
    from rmqcli.broker.server.connection import Core
    from rmqcli.store.config_files import ConfigFolder
    from rmqcli.wire.command import RemotingCommand


_NAME: Final = "broker-a"
_CLUSTER: Final = "DefaultCluster"
#: The most queues of a topic that is not in the table: a folder may contain anything,
#: and clients create a list of the queues.
_QUEUES_MAX: Final = 16_384
_REPLY_POSTFIX: Final = "_REPLY_TOPIC"

logger = get_logger(__name__)
_HOST: Final = "127.0.0.1"


def settings_of(
    config: ConfigFolder, *, name: str | None, address: str
) -> BrokerSettings:
    """Return the settings of a broker over the folder.

    Without `name`, the broker is named after the only topic that has one queue and the
    permission to inherit: RocketMQ creates such a topic for each broker. If there is
    none, or more than one, the broker is named broker-a. The cluster is taken from the
    only topic named CLUSTER_REPLY_TOPIC, and is else DefaultCluster.
    """
    try:
        table = config.read(TOPICS)
    except StoreError:
        table = None  # `load_tables` reports it
    found = table if isinstance(table, dict) else {}
    table = found.get("topicConfigTable")
    topics = table if isinstance(table, dict) else {}
    named = _inherited(topics)
    clusters = [
        topic.removesuffix(_REPLY_POSTFIX)
        for topic in topics
        if topic.endswith(_REPLY_POSTFIX) and topic != _REPLY_POSTFIX
    ]
    cluster = clusters[0] if len(clusters) == 1 else _CLUSTER
    names = [each for each in named if each != cluster]
    return BrokerSettings(
        cluster=cluster,
        broker_name=name or (names[0] if len(names) == 1 else _NAME),
        address=address,
        profile=_profile(config, found.get("dataVersion"), topics),
        # Readers may filter by SQL even if the folder's own broker does not allow it.
        enable_property_filter=True,
    )


def _profile(
    config: ConfigFolder, version: object, topics: Mapping[str, object]
) -> VersionProfile:
    """Return the profile of the version that wrote the tables, as far as they show it.

    5.x has state versions in its data versions. 4.x has none, and 4.6.0, unlike 4.9.7,
    has no SCHEDULE_TOPIC_XXXX in its table. The returned profile never writes messages.
    """
    if isinstance(version, dict):
        if "stateVersion" in version:
            profile = PROFILE_5_5_0
        else:
            profile = PROFILE_4_9_7 if SCHEDULE_TOPIC in topics else PROFILE_4_6_0
        logger.info(
            "folder version detected folder=%s version=%s",
            config.directory,
            profile.name,
        )
    else:
        profile = PROFILE_5_5_0
        logger.warning(
            "folder has an unknown version folder=%s; assuming version=%s",
            config.directory,
            profile.name,
        )
    return dataclasses.replace(profile, writes_offset_moved_events=False)


def _inherited(topics: dict[str, object]) -> list[str]:
    """Return the topics that may be named after the broker.

    They have one queue and the permission to inherit.
    """
    return [
        topic
        for topic, config in topics.items()
        if isinstance(config, dict)
        and config.get("perm") == PERM_READ | PERM_WRITE | PERM_INHERIT
        and config.get("readQueueNums") == 1
        and topic != DEFAULT_TOPIC
        and not is_system_topic(topic)
    ]


def load_tables(broker: BrokerState, store: ReadOnlyStore) -> None:
    """Replace the broker's tables with the folder's.

    If a file cannot be read, its table stays as it was, and a warning is logged.
    """
    for error in Persistence(broker, store.config).replace().values():
        logger.warning("table not loaded: %s", error)
    missing: dict[str, int] = {}
    for topic, queue_id in store.queues_with_files():
        if is_system_topic(topic):
            continue  # a version that shows its own topics has them in its table
        if queue_id < _QUEUES_MAX and broker.topics.get(topic) is None:
            missing[topic] = max(missing.get(topic, 0), queue_id + 1)
    broker.topics.load(
        topic_with(topic, queue_nums=queue_nums)
        for topic, queue_nums in missing.items()
    )


def tables_stamp(config: ConfigFolder) -> list[tuple[int, int] | None]:
    """Return the mtime (ns) and size of each table's file, None for one that is absent.

    They change when a table is rewritten.
    """
    return [
        _stamp(f"{config.directory}/{name}")
        for name in (TOPICS, GROUPS, OFFSETS, DELAYS)
    ]


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


_PULLS: Final = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)

BROKER_READS: Final = frozenset(
    {
        *_PULLS,
        RequestCode.CHECK_CLIENT_CONFIG,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        RequestCode.VIEW_MESSAGE_BY_ID,
        RequestCode.QUERY_MESSAGE,
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_TOPIC_STATS_INFO,
        RequestCode.GET_CONSUME_STATS,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
        RequestCode.QUERY_CONSUME_TIME_SPAN,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        RequestCode.QUERY_CONSUME_QUEUE,
        RequestCode.QUERY_TOPICS_BY_CONSUMER,
        RequestCode.GET_TOPIC_CONFIG,
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
    }
)
NAMESRV_READS: Final = frozenset(
    {
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        RequestCode.GET_KV_CONFIG,
        RequestCode.GET_KVLIST_BY_NAMESPACE,
    }
)

#: How often a folder is polled for messages while pulls are held.
ARRIVALS_INTERVAL_MS: Final = 200
#: The most new messages of a queue that one poll reads; the periodic check of held
#: pulls finds the others.
_ARRIVALS_MAX: Final = 1_000
#: The tables' files are checked no more often than this.
_TABLES_INTERVAL_MS: Final = 500


@dataclass(eq=False)
class ReadOnlyCore:
    """A core that answers only some request codes; the others are refused with 16."""

    _core: Core
    _profile: VersionProfile
    _codes: Collection[int]

    def handle(
        self, peer: Peer, command: RemotingCommand, now: Now, *, is_binary: bool = False
    ) -> list[Effect]:
        """Pass a request that reads to the core, and refuse others."""
        if command.code in self._codes and not command.is_response:
            return self._core.handle(peer, command, now, is_binary=is_binary)
        if command.is_response:
            return []
        remark = (
            f"request {command.code} is not supported when a folder is served read-only"
        )
        reply = Reply(ResponseCode.NO_PERMISSION, remark)
        request = BrokerRequest(peer, command, now, is_binary)
        answer = answer_to(request, reply, self._profile)
        return [] if answer is None else [answer]

    def closed(self, peer: Peer, now: Now) -> list[Effect]:
        """Forget what belongs to a connection that has closed."""
        return self._core.closed(peer, now)

    def run_due(self, now: Now) -> list[Effect]:
        """Run due timers."""
        return self._core.run_due(now)

    def next_due_ms(self) -> int | None:
        """When the next timer is due (monotonic ms); None if there is none."""
        return self._core.next_due_ms()


class FolderBroker(ReadOnlyCore):
    """A broker over a folder. Without `name`, the folder's topics determine the name.

    Raises StoreError when the folder cannot be read.
    """

    def __init__(
        self,
        folder: Path,
        now: Now,
        namesrv: NameServer,
        *,
        name: str | None,
        address: str,
    ) -> None:
        self._store = ReadOnlyStore(folder)
        try:
            self._stamp = tables_stamp(self._store.config)
            settings = settings_of(self._store.config, name=name, address=address)
            # Requests that write are refused, so the store needs no methods that write.
            store = cast("MessageStore", self._store)
            self._state = BrokerState(settings, store, now, is_read_only=True)
            load_tables(self._state, self._store)
        except BaseException:
            self._store.close()
            raise
        super().__init__(
            Broker(self._state, BROKER_REQUESTS), settings.profile, BROKER_READS
        )
        self._namesrv = namesrv
        self._checked_ms = now.monotonic_ms
        self._is_planned = False
        #: queues that pulls wait for -> the next offset to poll
        self._awaited: dict[tuple[str, int], int] = {}
        self._register(now)

    def _register(self, now: Now) -> None:
        """Register the folder's topics with the name server.

        The broker is unregistered first: the name server ignores the topics of a known
        broker whose data version has not changed, and topics that are in the folder but
        not in the table yet do not change the version.
        """
        self._namesrv.unregister(self._state, now)
        self._namesrv.register(self._state, now)

    def close(self) -> None:
        """Close the files. Idempotent."""
        self._store.close()

    def handle(
        self, peer: Peer, command: RemotingCommand, now: Now, *, is_binary: bool = False
    ) -> list[Effect]:
        """Answer a request that reads, from the current tables of the folder."""
        self._refresh_tables(now)
        if command.code not in _PULLS or command.is_response:
            return super().handle(peer, command, now, is_binary=is_binary)
        fields = command.ext_fields
        flags = fields.get("sysFlag", "")
        if flags.isdecimal() and int(flags) & FLAG_COMMIT_OFFSET:
            fields["sysFlag"] = str(int(flags) & ~FLAG_COMMIT_OFFSET)
        before = len(self._state.holds)
        effects = super().handle(peer, command, now, is_binary=is_binary)
        if len(self._state.holds) > before:
            # A held pull has a valid header, so these are numbers.
            key = fields["topic"], int(fields["queueId"])
            self._awaited.setdefault(key, int(fields["queueOffset"]))
            self._plan_poll(now)
        return effects

    def _refresh_tables(self, now: Now) -> None:
        if now.monotonic_ms - self._checked_ms < _TABLES_INTERVAL_MS:
            return
        self._checked_ms = now.monotonic_ms
        stamp = tables_stamp(self._store.config)
        if stamp == self._stamp:
            return
        load_tables(self._state, self._store)
        self._stamp = stamp
        self._register(now)

    def _plan_poll(self, now: Now) -> None:
        if not self._is_planned:
            self._is_planned = True
            at_ms = now.monotonic_ms + ARRIVALS_INTERVAL_MS
            self._state.timers.at(at_ms, self._poll)

    def _poll(self, now: Now) -> None:
        """Wake pulls that wait for messages written since the last poll."""
        self._is_planned = False
        for (topic, queue_id), known in list(self._awaited.items()):
            end = (self._store.queue_bounds(topic, queue_id) or (0, 0))[1]
            count = min(end - known, _ARRIVALS_MAX)
            units = self._store.units(topic, queue_id, known, count)
            for offset, unit in enumerate(units, known):
                record = self._store.read(unit.commit_log_offset, unit.size_bytes)
                self._state.holds.arrived(
                    topic,
                    queue_id,
                    offset,
                    unit.tags_code,
                    {} if record is None else properties_of_record(record),
                    now,
                )
            self._awaited[topic, queue_id] = max(end, known)
        if len(self._state.holds):
            self._plan_poll(now)
        else:
            self._awaited.clear()


class StoreServer:
    """Serves a folder on free local ports until it is closed.

    `folder` is a broker's storePathRootDir, or contains those of several brokers, as
    `rmq serve --brokers` creates them. Raises StoreError for any other folder.
    """

    def __init__(self, folder: Path, *, clock: Clock = SYSTEM_CLOCK) -> None:
        folders = _checked(folder)
        self._server = Server(clock=clock)
        self._brokers: list[FolderBroker] = []
        try:
            now = self._server.now()
            namesrv = NameServer(now, requests=NAMESRV_REQUESTS)
            self._namesrv = self._server.open("namesrv", host=_HOST, port=0)
            self._namesrv.core = ReadOnlyCore(namesrv, namesrv.profile, NAMESRV_READS)
            for name, each in folders.items():
                port = self._server.open(each.name, host=_HOST, port=0)
                broker = FolderBroker(
                    each, now, namesrv, name=name, address=port.address
                )
                self._brokers.append(broker)
                port.core = broker
            self._server.start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def namesrv(self) -> str:
        """`host:port` of the name server: all that a client needs."""
        return self._namesrv.address

    def close(self) -> None:
        """Close ports and files. Idempotent."""
        self._server.close()
        for broker in self._brokers:
            broker.close()


def _checked(folder: Path) -> dict[str | None, Path]:
    """Return folders by broker name, which is None if the tables determine it.

    Raises StoreError for a folder that does not exist or cannot be read.
    """
    with store_errors(f"{folder} cannot be read"):
        if not folder.exists():
            raise StoreError(f"folder {folder} does not exist")
        if not folder.is_dir():
            raise StoreError(f"{folder} is not a folder")
        several = broker_folders(folder)
    return dict(several.items()) if several else {None: folder}
