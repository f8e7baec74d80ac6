"""`rmq tail --endpoints --group`: show the messages that a member of a group receives.

A proxy gives messages only to members of a group. So the group consumes the messages
that are shown: each is acknowledged after it is written. A message that was received
but not written is delivered again when its invisible time is over.
"""

from __future__ import annotations

import threading
from dataclasses import field
from typing import TYPE_CHECKING, Final

from rmqcli.admin.tail.batch import TailCounts
from rmqcli.admin.tail.filter import TailFilter
from rmqcli.cli.ui import interrupts
from rmqcli.cli.ui.records.proxied import ProxyRecord
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.consumer.simple.consumer import MESSAGES_MAX, SimpleConsumer
from rmqcli.dataclass import dataclass
from rmqcli.errors import AckError, ExitCode, TransportError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from rmqcli.admin.tail.batch import Batcher
    from rmqcli.cli.options import Common
    from rmqcli.cli.ui.messages import Messages
    from rmqcli.cli.ui.records.output import Writer
    from rmqcli.consumer.simple.received import ReceivedMessage
    from rmqcli.wire.subscription import SubscriptionData

#: How long a receive waits for a message.
_AWAIT_MS: Final = 20_000
#: The pause after a receive that failed.
_AGAIN_MS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTailPlan:
    """The group, what it subscribes to, and when to end."""

    group: str
    subscriptions: dict[str, str | SubscriptionData] = field(hash=False)
    count: int | None = None
    timeout_ms: int | None = None
    idle_timeout_ms: int | None = None


def run_group_tail(
    common: Common, plan: GroupTailPlan, writer: Writer, *, fail_if_empty: bool
) -> int:
    """Receive, write, acknowledge; return the exit code: 0, 6 or 8."""
    consumer = SimpleConsumer(
        plan.group, plan.subscriptions, client=common.client_config()
    )
    batcher = writer.batcher(TailFilter(), TailCounts())
    tail = _GroupTail(common.messages, plan, consumer, writer, batcher)
    with consumer:
        common.messages.info(
            f"tail joined group {plan.group} through {common.endpoints[0]}: the group"
            " consumes every message that tail shows"
        )
        try:
            tail.run()
        finally:
            tail.summarise()
    if tail.lost:
        return ExitCode.PARTIAL
    if fail_if_empty and not tail.shown:
        return ExitCode.EMPTY
    return ExitCode.OK


@dataclass(slots=True, eq=False)
class _GroupTail:
    """One run. `shown` counts written messages, `lost` failed acknowledgements."""

    messages: Messages
    plan: GroupTailPlan
    consumer: SimpleConsumer
    writer: Writer
    batcher: Batcher[Any]
    shown: int = 0
    lost: int = 0
    started_ms: int = field(default_factory=SYSTEM_CLOCK.monotonic_ms)
    heard_ms: int = field(default_factory=SYSTEM_CLOCK.monotonic_ms)

    def run(self) -> None:
        """Show messages until --count, a timeout or an interrupt ends it."""
        count = self.plan.count
        try:
            while (left_ms := self._left_ms()) and self.shown != count:
                wanted = MESSAGES_MAX
                if count is not None:
                    wanted = min(wanted, count - self.shown)
                messages = self._receive(wanted, left_ms)
                if messages:
                    self._show(messages)
                    self.heard_ms = SYSTEM_CLOCK.monotonic_ms()
        except KeyboardInterrupt:
            self.writer.close()
            raise
        self.writer.close()

    def _receive(self, wanted: int, left_ms: int) -> list[ReceivedMessage]:
        """Receive messages; none if time is over or the proxy cannot be reached.

        The consumer has logged once that it cannot be reached.
        """
        try:
            return self.consumer.receive(wanted, await_ms=left_ms)
        except TransportError:
            never = threading.Event()
            SYSTEM_CLOCK.wait_ms(never, min(_AGAIN_MS, self._left_ms()))
            return []

    def _show(self, messages: Sequence[ReceivedMessage]) -> None:
        items: list[Any] = []
        for message in messages:
            record = ProxyRecord(message.content)  # type: ignore[arg-type]  # of a proxy
            items += self.batcher.items(message.message_queue, [record])
        with interrupts.deferred():  # written messages are always acknowledged
            self.writer.write(items)
            self.shown += len(messages)
            try:
                self.consumer.ack(messages)
            except AckError as error:
                self.lost += len(error.failures)
                self.messages.warn(
                    f"{error.message}; the group will receive them again although they"
                    " were shown"
                )

    def _left_ms(self) -> int:
        """How long the next receive may wait; 0 when the time is over."""
        now_ms, left_ms = SYSTEM_CLOCK.monotonic_ms(), _AWAIT_MS
        plan = self.plan
        if plan.timeout_ms is not None:
            left_ms = min(left_ms, self.started_ms + plan.timeout_ms - now_ms)
        if plan.idle_timeout_ms is not None:
            left_ms = min(left_ms, self.heard_ms + plan.idle_timeout_ms - now_ms)
        return max(0, left_ms)

    def summarise(self) -> None:
        """Show on stderr how many messages were shown and acknowledged."""
        words = f"{self.shown:,} shown, {self.shown - self.lost:,} acknowledged"
        self.messages.info(words)
