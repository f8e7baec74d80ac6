"""What all tables, services and handlers of one broker share.

Settings, version profile, store and timers, and the effects that the parts produce:
answers, requests to clients, closed connections. The core returns the effects to its
caller.

Source: `BrokerController` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.broker.effects import Close, Effect, Peer, Send
from rmqcli.broker.request import BrokerRequest, Reply, answer_to
from rmqcli.timers import Timers
from rmqcli.wire.codes import LanguageCode
from rmqcli.wire.command import ONEWAY_FLAG, RemotingCommand
from rmqcli.wire.header import Header, to_ext_fields

if TYPE_CHECKING:
    from rmqcli.broker.settings import BrokerSettings
    from rmqcli.clock import Now
    from rmqcli.store.message_store import MessageStore


class BrokerContext:
    """Settings, store, timers and effects of one broker. Use it from one thread.

    `timers` runs actions that clients wait for. `background` runs the broker's own
    work: deliveries, checks and expiries.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        now: Now,
        *,
        is_read_only: bool = False,
    ) -> None:
        self.settings = settings
        self.profile = settings.profile
        self.store = store
        self.started = now
        self.timers = Timers()
        # A broker that only reads a folder must not deliver or check anything, so these
        # timers never run.
        self.background = Timers() if is_read_only else self.timers
        self._effects: list[Effect] = []
        self._opaque = 0

    def answer(self, request: BrokerRequest, reply: Reply) -> None:
        """Answer a request, now or later; a one-way request gets no answer."""
        send = answer_to(request, reply, self.profile)
        if send is not None:
            self._effects.append(send)

    def push(
        self,
        peer: Peer,
        code: int,
        header: Header | None = None,
        *,
        ext_fields: dict[str, str] | None = None,
        body: bytes = b"",
        oneway: bool = True,
    ) -> int:
        """Send a request from the broker to a client; return its opaque.

        `ext_fields` are added to the header's.
        """
        fields = {} if header is None else to_ext_fields(header)
        fields |= ext_fields or {}
        self._opaque += 1
        self._effects.append(
            Send(
                peer,
                RemotingCommand(
                    code=int(code),
                    language=int(LanguageCode.JAVA),
                    version=self.profile.version,
                    opaque=self._opaque,
                    flag=ONEWAY_FLAG if oneway else 0,
                    ext_fields=fields,
                    body=body,
                ),
            )
        )
        return self._opaque

    def close(self, peer: Peer) -> None:
        """Close a client's connection, after what was sent before."""
        self._effects.append(Close(peer))

    def take_effects(self) -> list[Effect]:
        """Return the effects since the last call, in order."""
        effects, self._effects = self._effects, []
        return effects
