"""A `RemotingNetwork` whose requests a test sends and awaits in its own thread."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, TypeVar

from rmqcli.api.client import Client
from rmqcli.config import ClientConfig
from rmqcli.consumer.remoting_network import RemotingNetwork
from rmqcli.engine.interfaces import PullAsk
from rmqcli.tasks import All, start
from rmqcli.wire.bodies.heartbeat import ConsumerData, HeartbeatData
from rmqcli.wire.subscription import SubscriptionData
from tests.kit.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self

    from rmqcli.api.call import Call
    from rmqcli.api.client import PendingCall
    from rmqcli.tasks import Part, Pending, Request

T = TypeVar("T")


class NotingClient(Client):
    """A client that notes the time limit of each request."""

    def __init__(self, config: ClientConfig) -> None:
        super().__init__(config)
        #: in ms; None: that of the client
        self.time_limits: list[int | None] = []

    def submit(
        self,
        address: str,
        call: Call[T],
        *,
        timeout_ms: int | None = None,
        on_done: Callable[[PendingCall[T]], None] | None = None,
    ) -> PendingCall[T]:
        """See Client."""
        self.time_limits.append(timeout_ms)
        return super().submit(address, call, timeout_ms=timeout_ms, on_done=on_done)


class Asking:
    """Runs tasks of the network to their end.

    `asking.pull(ask)` runs the task `network.pull(ask)`. Errors are returned, not
    raised. This object is the `tasks.Runner` of the tasks.
    """

    def __init__(self, *namesrvs: str) -> None:
        self.client = NotingClient(ClientConfig(namesrv=namesrvs))
        self.network = RemotingNetwork(self.client, rng=random.Random(1))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.client.close()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.network, name)

        def ask(*args: object) -> Any:
            return self.outcome(method(*args))

        return ask

    def heartbeat_all(self, heartbeat: HeartbeatData) -> dict[str, Any]:
        """Send a heartbeat to every broker; return each outcome by broker name."""
        names = self.network.brokers()
        tasks = [self.network.heartbeat(heartbeat, name) for name in names]
        return dict(zip(names, self.outcome(All(tasks)), strict=True))

    def outcome(self, part: Part) -> Any:
        """Run a part of a task to its end; return its result or its error."""
        pending = self.start(part)
        self.poll_until(lambda: pending.is_done)
        return pending.outcome()

    def start(self, part: Part) -> Pending[Any]:
        """Start a part of a task, which runs until it has to wait."""
        return start(part, self)

    def submit(self, request: Request[Any]) -> Pending[Any]:
        """See tasks.Runner."""
        return self.network.submit(request)

    def call_later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """See tasks.Runner."""
        raise AssertionError(f"no task of the network waits {delay_ms} ms: {action}")

    def poll_until(self, claim: Callable[[], object]) -> None:
        """Poll the sockets until `claim()` is true."""
        end = time.monotonic() + PATIENCE_S
        while not claim():
            assert time.monotonic() < end, "it did not come to be in time"
            self.client.poll(10)


def heartbeat_of(topic, *, client_id="c1", group="g"):
    """Return the heartbeat of a push consumer of one topic."""
    consumer = ConsumerData(
        group_name=group,
        consume_type="CONSUME_PASSIVELY",
        message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        subscriptions=(SubscriptionData(topic=topic),),
    )
    return HeartbeatData(client_id=client_id, consumers=(consumer,))


def pull_of(queue, **fields):
    """Return a pull by group g from offset 0 that the broker does not hold."""
    options: dict[str, Any] = {
        "group": "g",
        "queue_offset": 0,
        "max_msg_nums": 32,
        "commit_offset": None,
        "suspend_ms": 0,
        "timeout_ms": 5_000,
        "sub_version": 0,
        "expression": "*",
        "expression_type": "TAG",
    }
    return PullAsk(queue=queue, **(options | fields))
