"""One broker of an embedded cluster: its core, its port, its store, its misfortunes.

Methods may be called from any thread: they run in the server's.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from rmqcli.broker.core import Broker
from rmqcli.broker.replication import Replication
from rmqcli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.broker.server import Server
    from rmqcli.broker.server_port import Port
    from rmqcli.broker.settings import BrokerSettings
    from rmqcli.store.message_store import MessageStore
    from rmqcli.wire.bodies_config import TopicConfig

_FLUSH_INTERVAL_MS: Final = 500  # MessageStoreConfig.flushIntervalCommitLog


class EmbeddedBroker:
    """A broker that can be hung, killed, restarted and made to lose its old messages.

    `open_store` is called at every start; `announce` tells the name server what the
    broker has, `retract` that it is gone.
    """

    def __init__(
        self,
        server: Server,
        port: Port,
        settings: BrokerSettings,
        *,
        open_store: Callable[[], MessageStore],
        announce: Callable[[Broker], None],
        retract: Callable[[Broker], None],
    ) -> None:
        self._server = server
        self._port = port
        self._open_store = open_store
        self._announce = announce
        self._retract = retract
        self.settings = settings
        self._replication: Replication | None = None
        self._core: Broker | None = None
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
        core = Broker(self.settings, self._open_store(), now)
        restore(core, before)
        core.on_topics_changed = lambda: self._announce(core)
        self._core = core
        self._port.core = core
        self._port.flush = core.store.flush if self.settings.flush_disk_sync else None
        if not self.settings.flush_disk_sync:
            core.agenda.every(_FLUSH_INTERVAL_MS, now, lambda _: core.store.flush())
        if self._replication is not None:
            self._replication.attach(core, now)
        self.is_running = True
        self._announce(core)

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
        if not self.is_running:
            return
        self.is_running = False
        self._server.drop(self._port)
        self._port.core = None
        self._retract(self.core)
        self.core.store.close()

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
            self.core.store.flush()
            self._kill()

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


def restore(core: Broker, before: Broker | None) -> None:
    """Give a new core what the one before it, in memory, had stored of its tables."""
    if before is None:
        return
    core.topics.load(before.topics.all().values())
    core.groups.load(before.groups.all().values())
    core.offsets.load(before.offsets.table())
    core.schedule.load(before.schedule.offsets)
