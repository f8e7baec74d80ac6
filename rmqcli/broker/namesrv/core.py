"""A name server without sockets, threads or clock, in the same shape as `core.Broker`.

The brokers of this process call `register`; others, including real ones, register over
the wire. Not imitated: several name servers, KV on disk, controllers, zones.

Source: `NamesrvController` and `DefaultRequestProcessor` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.broker.effects import Close, Effect, Peer
from rmqcli.broker.namesrv.routes import BrokerId, Registration
from rmqcli.broker.namesrv.state import ORDER_NAMESPACE, NamesrvState
from rmqcli.broker.request import BrokerRequest, answer_to
from rmqcli.timers import Timers

if TYPE_CHECKING:
    from rmqcli.broker.dispatch import HandlerTable
    from rmqcli.broker.profiles import VersionProfile
    from rmqcli.broker.state.broker import BrokerState
    from rmqcli.clock import Now
    from rmqcli.wire.command import RemotingCommand

#: NamesrvConfig.scanNotActiveBrokerInterval.
SCAN_INTERVAL_MS: Final = 5_000


class NameServer(NamesrvState):
    """One name server. Call it from one thread at a time.

    `requests` is the table of handlers, `handlers.NAMESRV_REQUESTS`.
    """

    def __init__(
        self,
        now: Now,
        *,
        requests: HandlerTable[NamesrvState],
        profile: VersionProfile | None = None,
    ) -> None:
        super().__init__(profile=profile)
        self._requests = requests
        self.timers = Timers()
        self._out: list[Effect] = []
        self.timers.every(SCAN_INTERVAL_MS, now, self._expire)

    def register(self, broker: BrokerState, now: Now) -> None:
        """Register a broker of this process and its topics, until `unregister`.

        Call this again when its topics have changed.
        """
        registration = Registration(
            broker=_id_of(broker),
            data_version=broker.topics.data_version,
            topics=broker.topics.all(),
        )
        self.routes.register(registration, now, None)
        ordered = self.kv.table(ORDER_NAMESPACE)
        if ordered is not None:
            broker.topics.take_order(ordered)

    def unregister(self, broker: BrokerState, now: Now) -> None:
        """Forget a broker of this process at once."""
        self.routes.unregister(_id_of(broker))

    def handle(
        self, peer: Peer, command: RemotingCommand, now: Now, *, is_binary: bool = False
    ) -> list[Effect]:
        """Process one command; answers are ignored, because this sends no requests."""
        if not command.is_response:
            request = BrokerRequest(peer, command, now, is_binary)
            reply = self._requests.reply_to(self, request)
            answer = None if reply is None else answer_to(request, reply, self.profile)
            if answer is not None:
                self._out.append(answer)
        return self._taken()

    def closed(self, peer: Peer, now: Now) -> list[Effect]:
        """Forget the brokers that a closed connection registered."""
        self.routes.closed(peer)
        return self._taken()

    def run_due(self, now: Now) -> list[Effect]:
        """Run due timers: forget brokers that have sent nothing for too long."""
        self.timers.run_due(now)
        return self._taken()

    def next_due_ms(self) -> int | None:
        """When the next timer is due (monotonic ms)."""
        return self.timers.next_ms()

    def _expire(self, now: Now) -> None:
        self._out += map(Close, dict.fromkeys(self.routes.expire(now)))

    def _taken(self) -> list[Effect]:
        out, self._out = self._out, []
        return out


def _id_of(broker: BrokerState) -> BrokerId:
    settings = broker.settings
    return BrokerId(
        cluster=settings.cluster,
        broker_name=settings.broker_name,
        broker_id=settings.broker_id,
        address=settings.address,
    )
