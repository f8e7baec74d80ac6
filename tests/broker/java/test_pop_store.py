"""POP continues in the same folder, from a real broker to ours and back."""

from __future__ import annotations

import pytest

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from tests.broker.behaviour.pop import Ack, Change, PopStage, Send, pop
from tests.broker.wire_client import WireClient

pytestmark = pytest.mark.rmq_versions("5.5.0")

BEFORE = (
    Send("a b c d"),
    pop("a b c d", invisibleTime=15_000),
    Ack("b"),
    Change("d", 3_600_000),
)
AFTER = (pop("a1 c1", until=True), Ack("a"), Ack("c"), pop())


@pytest.fixture
def real(fresh_cluster):
    return fresh_cluster()


def play(stage, address, steps):
    stage.client.sock.close()
    stage.client = WireClient(address)
    for step in steps:
        stage.play(step)
    stage.client.sock.close()


def test_ours_goes_on_where_a_real_broker_was(real):
    """The real broker stopped cleanly; killed, it would not know how far it popped."""
    stage = PopStage(real.broker_address())
    play(stage, real.broker_address(), BEFORE)
    real.stop_broker()
    with EmbeddedCluster(store=real.store_directory()) as ours:
        play(stage, ours.broker().address, AFTER)


def test_a_real_broker_goes_on_where_ours_was(real):
    # The first message makes the log's file, of the size that the real broker wants.
    play(PopStage(real.broker_address()), real.broker_address(), [Send("x")])
    real.stop_broker()
    with EmbeddedCluster(store=real.store_directory()) as ours:
        stage = PopStage(ours.broker().address)
        play(stage, ours.broker().address, BEFORE)
    real.start_broker()
    play(stage, real.broker_address(), AFTER)
