"""Timer messages continue in the same folder, from a real broker to ours and back."""

from __future__ import annotations

import pytest

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from tests.broker.behaviour.stage import send_with
from tests.broker.wire_client import WireClient
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.rmq_versions("5.5.0")


@pytest.fixture
def real(fresh_cluster):
    return fresh_cluster()


class Topic:
    """A topic of one queue in a folder, on the broker that has the folder now."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.address = ""
        self._sent = 0

    def send(self, *delays_s: int) -> None:
        with WireClient(self.address) as client:
            for delay_s in delays_s:
                self._sent += 1
                properties = f"UNIQ_KEY\x01{self._sent}\x02"
                properties += f"TIMER_DELAY_SEC\x01{delay_s}\x02"
                send_with(client, self.name, properties)

    def count(self) -> int:
        with WireClient(self.address) as client:
            answer = client.ask(30, topic=self.name, queueId=0)
        return int(answer.ext_fields["offset"])

    def has(self, count: int) -> None:
        """Wait for this many deliveries; there must not be more a moment later.

        A message is sent that is due after all that a broker delivers at its start.
        """
        wait_until(lambda: self.count() >= count)
        self.send(3)
        wait_until(lambda: self.count() > count)
        assert self.count() == count + 1


def test_ours_delivers_what_a_real_broker_left_and_nothing_twice(real):
    topic = Topic(real.create_topic(queues=1))
    topic.address = real.broker_address()
    topic.send(1, 1, 1, 30)
    topic.has(3)
    real.kill_broker()
    with EmbeddedCluster(store=real.store_directory()) as ours:
        topic.address = ours.broker().address
        topic.has(4)
        wait_until(lambda: topic.count() == 6)  # the one of 30 s, too


def test_a_real_broker_delivers_what_ours_left_and_nothing_twice(real):
    """The real broker's timer wheel has messages that ours delivered meanwhile."""
    topic = Topic(real.create_topic(queues=1))
    topic.address = real.broker_address()
    topic.send(8, 1)
    topic.has(1)
    real.stop_broker()
    with EmbeddedCluster(store=real.store_directory()) as ours:
        topic.address = ours.broker().address
        wait_until(lambda: topic.count() == 3)
        topic.send(40)
    real.start_broker()
    topic.address = real.broker_address()
    topic.has(3)
    wait_until(lambda: topic.count() == 5)
