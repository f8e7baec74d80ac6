"""One broker of an embedded cluster: its core, its port, its store, its misfortunes.

Methods may be called from any thread: they run in the server's.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from rmqcli.broker.cluster.replication import Replication
from rmqcli.broker.core import Broker
from rmqcli.broker.handlers import BROKER_REQUESTS
from rmqcli.broker.request import Refusal
from rmqcli.errors import RmqError, UsageError
from rmqcli.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.broker.cluster.storage import Storage
    from rmqcli.broker.server.connection import Port
    from rmqcli.broker.server.server import Server
    from rmqcli.broker.settings import BrokerSettings
    from rmqcli.clock import Now
    from rmqcli.store.message_store import MessageStore
    from rmqcli.wire.bodies.config import TopicConfig

logger = get_logger(__name__)

_EXPIRE_INTERVAL_MS: Final = 10_000  # MessageStoreConfig.cleanResourceInterval
_FLUSH_INTERVAL_MS: Final = 500  # MessageStoreConfig.flushIntervalCommitLog


class EmbeddedBroker:
    """A broker that can be hung, killed, restarted and made to lose its old messages.

    `storage` outlives its core; `announce` tells the name server what the
    broker has, `retract` that it is gone.
    """

    def __init__(
        self,
        server: Server,
        port: Port,
        settings: BrokerSettings,
        *,
        storage: Storage,
        announce: Callable[[Broker], None],
        retract: Callable[[Broker], None],
    ) -> None:
        self._server = server
        self._port = port
        self._storage = storage
        self._announce = announce
        self._retract = retract
        self.settings = settings
        self._replication: Replication | None = None
        self._core: Broker | None = None
        self._has_news = False
        self.is_running = False

    @property
    def name(self) -> str:
        """The broker's name, such as broker-a; a slave has its master's."""
        return self.settings.broker_name

    @property
    def broker_id(self) -> int:
        """0 for a master."""
        return self.settings.broker_id

    @property
    def address(self) -> str:
        """`host:port` that it advertises."""
        return self.settings.address

    @property
    def core(self) -> Broker:
        """Its state, for a look with `EmbeddedCluster.call`: never touch it elsewhere.

        Also that of a broker that was killed.
        """
        if self._core is None:
            raise UsageError(f"broker {self.name} was never started")
        return self._core

    @property
    def store(self) -> MessageStore:
        """What it keeps; as `core`, for the I/O thread."""
        return self.core.store

    def start(self) -> None:
        """Open the store and answer. The port listens already."""
        self._server.call(self._start)

    def _start(self) -> None:
        now = self._server.now()
        before = self._core
        store = self._storage.open()
        try:
            core = Broker(
                self.settings,
                store,
                now,
                requests=BROKER_REQUESTS,
                on_topics_changed=self._topics_changed,
            )
            self._storage.load(core, before)
        except BaseException:
            self._storage.abandon()
            raise
        self._core = core
        self._port.core = core
        self._port.flush = self._before_answers
        self._port.settle = self._announce_news
        if not self.settings.flush_disk_sync:
            core.timers.every(_FLUSH_INTERVAL_MS, now, lambda _: flush(core))
        core.timers.every(_EXPIRE_INTERVAL_MS, now, self._expire)
        if self._replication is not None:
            self._replication.attach(core, now)
        self.is_running = True
        self._announce(core)

    def _before_answers(self) -> None:
        self._storage.save_changes()
        if self.settings.flush_disk_sync:
            self.store.flush()

    def _topics_changed(self) -> None:
        self._has_news = True
        self._port.was_used = True  # also by a change that nobody asked for by wire

    def _announce_news(self) -> None:
        """Register all topics: once, however many of them a turn has changed."""
        if not self._has_news:
            return
        self._has_news = False
        if self.is_running:
            try:
                self._announce(self.core)
            except Refusal as refusal:
                logger.warning("%s cannot register: %s", self.name, refusal)

    def follow(self, master: EmbeddedBroker, *, behind: int) -> None:
        """Be a slave: copy what the master has, but for the last `behind` messages."""
        self._replication = Replication(lambda: master.core, behind=behind)

    def set_behind(self, behind: int) -> None:
        """Let a slave be so many messages behind its master from now on."""
        replication = self._replication
        if replication is None:
            raise UsageError(f"broker {self.name}:{self.broker_id} is no slave")
        self._server.call(lambda: replication.set_behind(behind, self.core))

    def hang(self) -> None:
        """Keep all connections and answer nothing until `resume`."""
        self._server.call(lambda: self._server.hang(self._port))

    def resume(self) -> None:
        """Answer again, first what came meanwhile."""
        self._server.call(lambda: self._server.resume(self._port))

    def kill(self) -> None:
        """Die as by SIGKILL: connections end without goodbye; the store stays.

        The name server sees its connection end and forgets the broker at once.
        """
        self._server.call(self._kill)

    def _kill(self) -> None:
        if self.is_running:
            self._storage.save(self.core)
            self._leave()
            self._storage.abandon()

    def _leave(self) -> None:
        self.is_running = False
        self._has_news = False
        self._server.drop(self._port)
        self._port.core = None
        self._retract(self.core)

    def restart(self) -> None:
        """Kill it when it runs, and start it at the same address with what it stored.

        Clients, locks and held pulls are forgotten; topics, groups, offsets stay.
        """
        self._server.call(self._restart)

    def _restart(self) -> None:
        self._kill()
        for number in self._port.numbers:
            self._server.listen(self._port, number)
        self._start()

    def close(self) -> None:
        """Stop in order: everything stored is flushed. Idempotent."""
        self._server.call(self._close)

    def _close(self) -> None:
        if self.is_running:
            self._leave()
            try:
                self._storage.save(self.core)
            finally:
                self._storage.close()

    def _expire(self, now: Now) -> None:
        self._storage.expire(now.epoch_ms)

    def trim(self, topic: str, before: int) -> None:
        """Let the messages below queue offset `before` be gone, in every queue."""
        self._server.call(lambda: self.store.trim(topic, before))

    def set_queues(
        self, topic: str, *, read: int | None = None, write: int | None = None
    ) -> TopicConfig:
        """Shrink or expand a topic here: as updateTopic does; None leaves one as it is.

        Returns the settings. The queues' messages stay. Raises UsageError without such
        a topic.
        """

        def change() -> TopicConfig:
            config = self.core.topics.get(topic)
            if config is None:
                raise UsageError(f"topic {topic} is not on broker {self.name}")
            changed = dataclasses.replace(
                config,
                read_queue_nums=config.read_queue_nums if read is None else read,
                write_queue_nums=config.write_queue_nums if write is None else write,
            )
            self.core.topics.put(changed)
            return changed

        return self._server.call(change)


def flush(core: Broker) -> None:
    """Flush what was answered already: a disk that fails can only be told of."""
    try:
        core.store.flush()
    except RmqError as error:
        logger.error(  # noqa: TRY400  # the message says all
            "%s: messages are not flushed: %s", core.settings.broker_name, error.message
        )
