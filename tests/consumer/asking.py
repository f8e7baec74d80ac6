"""A network that a test asks and waits for, in the test's own thread."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from rmqcli.api.client import Client
from rmqcli.config import ClientConfig
from rmqcli.consumer.remoting_network import RemotingNetwork
from rmqcli.engine.interfaces import PullAsk
from rmqcli.wire.bodies.heartbeat import ConsumerData, HeartbeatData
from rmqcli.wire.subscription import SubscriptionData
from tests.kit.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self


class Asking:
    """`asking.pull(ask)` is `network.pull(ask, done)`, driven until `done` is called.

    Errors come back as values, as the engine gets them.
    """

    def __init__(self, *namesrvs: str) -> None:
        self.client = Client(ClientConfig(namesrv=namesrvs))
        self.network = RemotingNetwork(self.client, rng=random.Random(1))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.client.close()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.network, name)

        def ask(*args: object) -> Any:
            outcomes: list[object] = []
            method(*args, outcomes.append)
            end = time.monotonic() + PATIENCE_S
            while not outcomes:
                assert time.monotonic() < end, f"{name} was never answered"
                self.client.poll(50)
            (outcome,) = outcomes
            return outcome

        return ask

    def poll_until(self, claim: Callable[[], object]) -> None:
        """Drive the sockets until `claim()`."""
        end = time.monotonic() + PATIENCE_S
        while not claim():
            assert time.monotonic() < end, "it did not come to be in time"
            self.client.poll(10)


def heartbeat_of(topic, *, client_id="c1", group="g"):
    """The heartbeat of a push consumer of one topic."""
    consumer = ConsumerData(
        group_name=group,
        consume_type="CONSUME_PASSIVELY",
        message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        subscriptions=(SubscriptionData(topic=topic),),
    )
    return HeartbeatData(client_id=client_id, consumers=(consumer,))


def pull_of(queue, **fields):
    """A pull of group g from offset 0 that is not held."""
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
