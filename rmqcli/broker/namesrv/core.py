"""The name server's key-value store. In memory only.

Source: `KVConfigManager` in apache/rocketmq, which also writes kvConfig.json.

A name server without sockets, threads or clock: the same shape as `core.Broker`.

Brokers of this process are told to it by `register`; others, real ones too, register
over the wire. Not imitated: several name servers, KV on disk, controllers, zones.

Source: `NamesrvController` and `DefaultRequestProcessor` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.broker.answers import answer_to
from rmqcli.broker.effects import Close, Effect, Peer
from rmqcli.broker.namesrv.handlers import NAMESRV_REQUESTS
from rmqcli.broker.namesrv.routes import BrokerId, Registration, Routes
from rmqcli.broker.profiles import Manners
from rmqcli.broker.request import Refusal, Request
from rmqcli.timers import Agenda
from rmqcli.wire.codes import ResponseCode

if TYPE_CHECKING:
    from rmqcli.broker.core import Broker
    from rmqcli.clock import Now
    from rmqcli.wire.command import RemotingCommand


ENTRIES_MAX: Final = 10_000
ENTRY_CHARS_MAX: Final = 64 * 1024


class KVConfig:
    """Texts by namespace and key."""

    def __init__(self) -> None:
        self._tables: dict[str, dict[str, str]] = {}
        self._count = 0

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set one value. Raises Refusal(1) for too much of it."""
        if len(namespace) + len(key) + len(value) > ENTRY_CHARS_MAX:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"config item has more than {ENTRY_CHARS_MAX} characters",
            )
        is_new = key not in self._tables.get(namespace, {})
        if is_new and self._count >= ENTRIES_MAX:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"more than {ENTRIES_MAX} config items"
            )
        self._count += is_new
        self._tables.setdefault(namespace, {})[key] = value

    def get(self, namespace: str, key: str) -> str | None:
        """One value; None without it."""
        return self._tables.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        """Remove one value."""
        table = self._tables.get(namespace, {})
        if table.pop(key, None) is not None:
            self._count -= 1
            if not table:
                del self._tables[namespace]

    def table(self, namespace: str) -> dict[str, str] | None:
        """A namespace's values; None when it has none."""
        found = self._tables.get(namespace)
        return None if found is None else dict(found)


#: NamesrvConfig.scanNotActiveBrokerInterval.
SCAN_INTERVAL_MS: Final = 5_000


class NameServer:
    """State of one name server. Call it from one thread at a time."""

    def __init__(self, now: Now, *, manners: Manners | None = None) -> None:
        self.manners = manners or Manners()
        self.routes = Routes()
        self.kv = KVConfig()
        self.agenda = Agenda()
        self._out: list[Effect] = []
        self.agenda.every(SCAN_INTERVAL_MS, now, self._expire)

    def register(self, broker: Broker, now: Now) -> None:
        """Take what a broker of this process is and has. It stays until `unregister`.

        Call it again when its topics changed.
        """
        registration = Registration(
            broker=_id_of(broker),
            data_version=broker.topics.data_version,
            topics=broker.topics.all(),
        )
        self.routes.register(registration, now, None)

    def unregister(self, broker: Broker, now: Now) -> None:
        """Forget a broker of this process at once."""
        self.routes.unregister(_id_of(broker))

    def handle(
        self, peer: Peer, command: RemotingCommand, now: Now, *, is_binary: bool = False
    ) -> list[Effect]:
        """Take one command; answers to requests, which it never makes, are ignored."""
        if not command.is_response:
            request = Request(peer, command, now, is_binary)
            reply = NAMESRV_REQUESTS.reply_to(self, request)
            answer = None if reply is None else answer_to(request, reply, self.manners)
            if answer is not None:
                self._out.append(answer)
        return self._taken()

    def closed(self, peer: Peer, now: Now) -> list[Effect]:
        """A connection is gone, and with it the brokers it registered."""
        self.routes.closed(peer)
        return self._taken()

    def run_due(self, now: Now) -> list[Effect]:
        """Forget brokers that were silent for too long."""
        self.agenda.run_due(now)
        return self._taken()

    def next_due_ms(self) -> int | None:
        """When `run_due` has something to do (monotonic ms)."""
        return self.agenda.next_ms()

    def _expire(self, now: Now) -> None:
        self._out += map(Close, dict.fromkeys(self.routes.expire(now)))

    def _taken(self) -> list[Effect]:
        out, self._out = self._out, []
        return out


def _id_of(broker: Broker) -> BrokerId:
    settings = broker.settings
    return BrokerId(
        cluster=settings.cluster,
        broker_name=settings.broker_name,
        broker_id=settings.broker_id,
        address=settings.address,
    )
