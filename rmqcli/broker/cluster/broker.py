"""One broker of an embedded cluster: its core, its port and its store.

It can be hung, killed, restarted and followed by slaves. Its methods may be called from
any thread; they run in the server's thread.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from rmqcli.broker.cluster.replication import Replication
from rmqcli.broker.core import Broker
from rmqcli.broker.handlers import BROKER_REQUESTS
from rmqcli.broker.request import Refusal
from rmqcli.broker.state.broker import BrokerState
from rmqcli.errors import RmqError, UsageError
from rmqcli.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.broker.cluster.storage import BrokerStorage
    from rmqcli.broker.server.connection import Port
    from rmqcli.broker.server.server import Server
    from rmqcli.broker.settings import BrokerSettings
    from rmqcli.model import MessageQueue
    from rmqcli.store.message_store import MessageStore
    from rmqcli.wire.bodies.config import TopicConfig

logger = get_logger(__name__)

_EXPIRE_INTERVAL_MS: Final = 10_000  # MessageStoreConfig.cleanResourceInterval
_FLUSH_INTERVAL_MS: Final = 500  # MessageStoreConfig.flushIntervalCommitLog


class EmbeddedBroker:
    """A broker that can be hung, killed, restarted and made to lose its old messages.

    `storage` outlives the core. `announce` registers the broker and its topics with the
    name server, and `retract` unregisters it. `find_queues` returns the readable queues
    of a topic on all brokers.
    """

    def __init__(
        self,
        server: Server,
        port: Port,
        settings: BrokerSettings,
        *,
        storage: BrokerStorage,
        announce: Callable[[BrokerState], None],
        retract: Callable[[BrokerState], None],
        find_queues: Callable[[str], list[MessageQueue] | None] | None = None,
    ) -> None:
        self._server = server
        self._port = port
        self._storage = storage
        self._announce = announce
        self._retract = retract
        self._find_queues = find_queues
        self.settings = settings
        self._replication: Replication | None = None
        self._state: BrokerState | None = None
        self._topics_are_new = False
        self.is_running = False

    @property
    def name(self) -> str:
        """The broker's name, such as broker-a; a slave has its master's name."""
        return self.settings.broker_name

    @property
    def broker_id(self) -> int:
        """0 for a master."""
        return self.settings.broker_id

    @property
    def address(self) -> str:
        """The `host:port` that the broker advertises."""
        return self.settings.address

    @property
    def state(self) -> BrokerState:
        """The broker's state, which can also be read after the broker was killed.

        Use it only inside `EmbeddedCluster.call`. Raises UsageError before the first
        start.
        """
        if self._state is None:
            raise UsageError(f"broker {self.name} was never started")
        return self._state

    @property
    def store(self) -> MessageStore:
        """The broker's store; like `state`, for the I/O thread only."""
        return self.state.store

    def start(self) -> None:
        """Open the store and begin to answer. The port must already listen."""
        self._server.call(self._start)

    def _start(self) -> None:
        now = self._server.now()
        before = self._state
        store = self._storage.open()
        try:
            state = BrokerState(
                self.settings,
                store,
                now,
                on_topics_changed=self._topics_changed,
                find_queues=self._find_queues,
            )
            self._storage.load(state, before)
            if not state.settings.broker_id:
                state.check_points.recover(now)
                state.timer_messages.recover(now)
        except BaseException:
            self._storage.abandon()
            raise
        self._state = state
        self._port.core = Broker(state, BROKER_REQUESTS)
        self._port.version = state.profile.version
        self._port.flush = self._before_answers
        self._port.settle = self._announce_topics
        if not self.settings.flush_disk_sync:
            state.timers.every(_FLUSH_INTERVAL_MS, now, lambda _: flush(state))
        state.timers.every(
            _EXPIRE_INTERVAL_MS, now, lambda now: self._storage.expire(now.epoch_ms)
        )
        if self._replication is not None:
            self._replication.attach(state, now)
        self.is_running = True
        self._announce(state)

    def _before_answers(self) -> None:
        self._storage.save_changes()
        if self.settings.flush_disk_sync:
            self.store.flush()

    def _topics_changed(self) -> None:
        self._topics_are_new = True
        self._port.was_used = True  # for a change without a request, too

    def _announce_topics(self) -> None:
        """Register all topics if any changed, once for all changes of a turn."""
        if not self._topics_are_new:
            return
        self._topics_are_new = False
        if self.is_running:
            try:
                self._announce(self.state)
            except Refusal as refusal:
                logger.warning("registration refused broker=%s: %s", self.name, refusal)

    def follow(self, master: EmbeddedBroker, *, behind: int) -> None:
        """Become a slave: copy the master's log except for its last `behind` messages.

        Call this before `start`.
        """
        self._replication = Replication(lambda: master.state, behind=behind)

    def set_behind(self, behind: int) -> None:
        """Keep a slave `behind` messages behind its master from now on.

        Raises UsageError for a broker that is not a slave.
        """
        replication = self._replication
        if replication is None:
            raise UsageError(f"broker {self.name}:{self.broker_id} is not a slave")
        self._server.call(lambda: replication.set_behind(behind, self.state))

    def hang(self) -> None:
        """Keep all connections and answer nothing until `resume`."""
        self._server.call(lambda: self._server.hang(self._port))

    def resume(self) -> None:
        """Answer again, beginning with the requests that arrived meanwhile."""
        self._server.call(lambda: self._server.resume(self._port))

    def kill(self) -> None:
        """Stop as by SIGKILL: connections end abruptly, and the store stays.

        The name server forgets the broker at once, as when its connection ends. Unlike
        SIGKILL, this first saves topics, groups and offsets.
        """
        self._server.call(self._kill)

    def _kill(self) -> None:
        if self.is_running:
            self._storage.save(self.state)
            self._leave()
            self._storage.abandon()

    def _leave(self) -> None:
        self.is_running = False
        self._topics_are_new = False
        if self._replication is not None:
            self._replication.detach(self.state)
        self._server.drop(self._port)
        self._port.core = None
        self._retract(self.state)

    def restart(self) -> None:
        """Kill the broker if it runs, and start it at the same address with its store.

        Clients, locks and held pulls are lost; topics, groups and offsets stay.
        """
        self._server.call(self._restart)

    def _restart(self) -> None:
        self._kill()
        for number in self._port.numbers:
            self._server.listen(self._port, number)
        self._start()

    def close(self) -> None:
        """Stop gracefully and flush everything that is stored. Idempotent."""
        self._server.call(self._close)

    def _close(self) -> None:
        if self.is_running:
            self._leave()
            try:
                self._storage.save(self.state)
            finally:
                self._storage.close()

    def trim(self, topic: str, before: int) -> None:
        """Delete the messages below queue offset `before`, in every queue."""
        self._server.call(lambda: self.store.trim(topic, before))

    def set_queues(
        self, topic: str, *, read: int | None = None, write: int | None = None
    ) -> TopicConfig:
        """Change a topic's numbers of queues on this broker, as updateTopic does.

        None keeps a number. Returns the topic's new settings. The messages of removed
        queues stay. Raises UsageError for an unknown topic.
        """

        def change() -> TopicConfig:
            config = self.state.topics.get(topic)
            if config is None:
                raise UsageError(f"topic {topic} does not exist on broker {self.name}")
            changed = dataclasses.replace(
                config,
                read_queue_nums=config.read_queue_nums if read is None else read,
                write_queue_nums=config.write_queue_nums if write is None else write,
            )
            self.state.topics.put(changed)
            return changed

        return self._server.call(change)


def flush(state: BrokerState) -> None:
    """Flush a broker's store.

    A failure is only logged, because the messages were already acknowledged.
    """
    try:
        state.store.flush()
    except RmqError as error:
        logger.error(  # noqa: TRY400  # the message says all
            "flush failed broker=%s: %s", state.settings.broker_name, error.message
        )
