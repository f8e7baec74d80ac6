"""Java's members and ours in one group: each queue has the owner that Java assigns."""

from __future__ import annotations

import uuid

import pytest

from tests.consumer.collecting import Seen, consumer
from tests.consumer.java.groups import ClientOf, bodies_of, held, is_committed, send
from tests.kit.java_program import JavaConsumer
from tests.kit.waiting import wait_until

pytestmark = [
    pytest.mark.rmq_versions("4.6.0", "5.5.0"),
    pytest.mark.timeout(900),  # many Java processes, perhaps on a slow machine
]

#: AllocateMessageQueueAveragely of 8 queues, by the number of members.
AVERAGELY = {
    1: [[0, 1, 2, 3, 4, 5, 6, 7]],
    2: [[0, 1, 2, 3], [4, 5, 6, 7]],
    3: [[0, 1, 2], [3, 4, 5], [6, 7]],
    4: [[0, 1], [2, 3], [4, 5], [6, 7]],
}
#: A dead member keeps its locks for a minute, and 4.6.0 retries a lock every 20 s.
CALM_S = 120


class Group:
    """A group on a topic of eight queues, and the messages that members consumed."""

    def __init__(self, cluster, *, orderly):
        self.cluster, self.orderly = cluster, orderly
        self.topic = cluster.create_topic(queues=8)
        self.name = f"g-{uuid.uuid4().hex[:12]}"
        self.seen = Seen()
        self.java = []
        self.sent = []

    def join_java(self, client):
        java = JavaConsumer(client, self.name, self.topic, orderly=self.orderly)
        self.java.append(java)
        return java.__enter__()

    def ours(self):
        return consumer(
            self.cluster, self.name, self.topic, self.seen, orderly=self.orderly
        )

    def is_averaged(self, members):
        owners = held(self.cluster, self.name, self.topic)
        return [owners[each] for each in sorted(owners)] == AVERAGELY[members]

    def calm_down(self, members):
        """Wait until the queues are shared out as Java does for this many members."""
        try:
            wait_until(lambda: self.is_averaged(members), timeout_s=CALM_S)
        except AssertionError:
            owners = held(self.cluster, self.name, self.topic)
            raise AssertionError(f"{members} members hold {owners}") from None

    def consumed(self):
        return sorted(
            self.seen.bodies + [each for java in self.java for each in bodies_of(java)]
        )

    def send_and_consume(self, prefix):
        """Send forty more messages; check that every message so far is consumed once.

        Also waits until everything is committed.
        """
        bodies = [f"{prefix}{number:02}" for number in range(40)]
        send(self.cluster, self.topic, bodies)
        self.sent = sorted(self.sent + bodies)
        wait_until(lambda: set(self.consumed()) == set(self.sent))
        wait_until(lambda: is_committed(self.cluster, self.name, self.topic))
        assert self.consumed() == self.sent


@pytest.fixture(params=[False, True], ids=["concurrent", "orderly"])
def group(request, real_cluster):
    made = Group(real_cluster, orderly=request.param)
    yield made
    for java in made.java:
        java.kill()


def test_members_of_all_versions_come_go_and_die(group, real_cluster, tmp_path):
    """Even a kill causes no duplicates, as all members are idle and have committed."""
    other = "5.5.0" if real_cluster.version == "4.6.0" else "4.6.0"
    old = group.join_java(ClientOf(real_cluster, "4.9.7", tmp_path))
    with group.ours() as ours:
        group.calm_down(2)
        group.send_and_consume("two-")
        killed = group.join_java(ClientOf(real_cluster, other, tmp_path))
        group.calm_down(3)
        group.send_and_consume("three-")
        group.join_java(real_cluster)
        group.calm_down(4)
        group.send_and_consume("four-")
        assert len(group.seen.bodies) >= 20 + 10 + 10
        old.stop()
        group.calm_down(3)
        killed.kill()
        group.calm_down(2)
        group.send_and_consume("killed-")
        owners = held(real_cluster, group.name, group.topic)
        assert owners[ours.client_id] in AVERAGELY[2]
    group.calm_down(1)
    group.send_and_consume("alone-")
