"""Drives one core by hand: advances the time, sends requests, keeps the effects."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeVar

from rmqcli.broker.core import Broker
from rmqcli.broker.effects import Peer, Send
from rmqcli.broker.handlers import BROKER_REQUESTS
from rmqcli.broker.settings import BrokerSettings
from rmqcli.broker.state.broker import BrokerState
from rmqcli.clock import Now
from rmqcli.store.memory import MemoryStore
from rmqcli.wire.command import ONEWAY_FLAG, RemotingCommand
from rmqcli.wire.header import to_ext_fields
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.record import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rmqcli.broker.effects import Effect
    from rmqcli.store.message_store import MessageStore
    from rmqcli.wire.header import Header

T = TypeVar("T")

EPOCH_MS = 1_700_000_000_000
START = Now(0, EPOCH_MS)
CLIENT = Peer(1, "127.0.0.1:40001")


def need(value: T | None) -> T:
    """Return `value`, which must not be None."""
    assert value is not None
    return value


class Driver:
    """A broker and its time. `sent`: all commands that each peer number received."""

    def __init__(
        self,
        settings: BrokerSettings | None = None,
        *,
        store: MessageStore | None = None,
        now: Now = START,
        on_topics_changed: Callable[[], None] | None = None,
    ) -> None:
        self.now = now
        self.store = MemoryStore() if store is None else store
        self.broker = BrokerState(
            settings or BrokerSettings(),
            self.store,
            now,
            on_topics_changed=on_topics_changed,
        )
        self.core = Broker(self.broker, BROKER_REQUESTS)
        self.sent: dict[int, list[RemotingCommand]] = defaultdict(list)
        self.closed: list[Peer] = []
        self._opaque = 0

    def ask(
        self,
        code: int,
        header: Header | None = None,
        *,
        body: bytes = b"",
        peer: Peer = CLIENT,
        version: int = 513,
        oneway: bool = False,
    ) -> RemotingCommand | None:
        """Send a request; return its answer, or None when there is none yet."""
        self._opaque += 1
        request = RemotingCommand(
            code=int(code),
            language=0,
            version=version,
            opaque=self._opaque,
            flag=ONEWAY_FLAG if oneway else 0,
            ext_fields={} if header is None else to_ext_fields(header),
            body=body,
        )
        return self.send(request, peer=peer)

    def send(
        self, command: RemotingCommand, *, peer: Peer = CLIENT
    ) -> RemotingCommand | None:
        """Send a command as it is; return its answer, or None if there is none yet."""
        effects = self.core.handle(peer, command, self.now)
        self._keep(effects)
        for effect in effects:
            if (
                isinstance(effect, Send)
                and effect.peer == peer
                and effect.command.is_response
                and effect.command.opaque == command.opaque
            ):
                return effect.command
        return None

    def disconnect(self, peer: Peer) -> None:
        """End a client's connection."""
        self._keep(self.core.closed(peer, self.now))

    def wait(self, interval_ms: int) -> None:
        """Let time pass; timers run at the times for which they are set."""
        end_ms = self.now.monotonic_ms + interval_ms
        while True:
            due_ms = self.core.next_due_ms()
            if due_ms is None or due_ms > end_ms:
                break
            self._at(max(due_ms, self.now.monotonic_ms))
            self._keep(self.core.run_due(self.now))
        self._at(end_ms)

    def messages(self, topic: str, queue_id: int = 0) -> list[StoredMessage]:
        """The messages that are stored in a queue, decoded."""
        bounds = self.store.queue_bounds(topic, queue_id)
        if bounds is None:
            return []
        units = self.store.units(topic, queue_id, bounds[0], bounds[1] - bounds[0])
        found = decode_messages(self.store.read_units(units))
        return [each for each in found if isinstance(each, StoredMessage)]

    def _at(self, monotonic_ms: int) -> None:
        passed_ms = monotonic_ms - self.now.monotonic_ms
        self.now = Now(monotonic_ms, self.now.epoch_ms + passed_ms)

    def _keep(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self.sent[effect.peer.number].append(effect.command)
            else:
                self.closed.append(effect.peer)
