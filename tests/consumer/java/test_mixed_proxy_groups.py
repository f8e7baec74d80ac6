"""Official clients and ours in one group behind a proxy: each message is consumed once.

Members leave and are killed. The messages that a killed member held are delivered again
when its lease or its connection has ended, and no message is lost. A FIFO group keeps
the order of each message group throughout.
"""

from __future__ import annotations

import itertools
import os
import uuid
from collections import Counter

import pytest

from rmqcli import Admin, ClientConfig, Producer, ProducerMessage
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from tests.conftest import start_cluster
from tests.kit.artefacts import UnavailableError
from tests.kit.clients.member import GrpcMember
from tests.kit.embedded import EMBEDDED
from tests.kit.waiting import wait_until

pytestmark = [
    pytest.mark.rmq_versions("5.5.0"),
    pytest.mark.slow,
    pytest.mark.timeout(1_800),  # leases of killed members must expire
]

MESSAGE_GROUPS = ("a", "b", "c", "d")
#: After this long without a heartbeat a broker forgets a member, and its proxy renews
#: the leases of the member's messages no longer. Members send one each 10 s; by default
#: brokers wait for two minutes.
CONF = {"channelExpiredTimeout": 40_000}


@pytest.fixture(scope="module")
def cluster(rmq_version, tmp_path_factory):
    """A proxy: a real one with a broker inside, or the embedded one."""
    if rmq_version == EMBEDDED:
        with EmbeddedCluster(proxy=True) as made:
            yield made
        return
    directory = tmp_path_factory.mktemp("proxy")
    with start_cluster(rmq_version, directory, proxy=True, conf=CONF) as made:
        yield made


class Group:
    """A group of two members, and the messages that were sent to it."""

    def __init__(self, cluster, directory, official, kind):
        self.cluster, self.directory = cluster, directory
        self.official, self.kind = official, kind
        mark = uuid.uuid4().hex[:12]
        self.topic, self.name = f"T-{mark}", f"g-{mark}"
        self.is_fifo = kind == "orderly"
        with Admin(namesrv=cluster.namesrv) as admin:
            attributes = {"message.type": "FIFO"} if self.is_fifo else None
            admin.create_topic(self.topic, queue_nums=4, attributes=attributes)
            admin.create_group(self.name, consume_message_orderly=self.is_fifo)
        config = ClientConfig(
            endpoints=(cluster.endpoints,), plaintext=True, timeout_ms=60_000
        )
        self._producer = Producer(client=config)
        self._producer.start()
        self._numbers = itertools.count()
        self.sent: list[str] = []
        self.members: list[GrpcMember] = []

    def close(self):
        self._producer.close()
        for each in self.members:
            each.kill()

    def join(self, who):
        try:
            member = GrpcMember(
                who,
                self.kind,
                endpoints=self.cluster.endpoints,
                group=self.name,
                topic=self.topic,
                directory=self.directory,
            )
        except UnavailableError as error:
            if os.environ.get("RMQ_REQUIRE_JAVA"):
                pytest.fail(f"official clients are demanded: {error}")
            pytest.skip(f"no official client: {error}")
        self.members.append(member)
        return member

    def send(self, count=24):
        """Send messages; in a FIFO topic their first letter is the message group."""
        for _ in range(count):
            number = next(self._numbers)
            key = MESSAGE_GROUPS[number % len(MESSAGE_GROUPS)]
            body = f"{key}{number:05}"
            message_group = key if self.is_fifo else None
            self._producer.send(
                ProducerMessage(self.topic, body.encode(), message_group=message_group)
            )
            self.sent.append(body)

    def events(self, name):
        found = [
            each
            for member in self.members
            for each in list(member.events)
            if each.name == name
        ]
        return sorted(found, key=lambda each: each.time_ns)

    def bodies(self, name):
        return [each.body for each in self.events(name)]

    def wait_until_consumed(self):
        """Wait until every message so far has been consumed at least once."""
        wait_until(lambda: set(self.bodies("done")) == set(self.sent), "all consumed")

    def share(self, *members):
        """Send messages until each of these members has consumed at least one more."""
        before = [len(each.bodies("done")) for each in members]

        def have_shared():
            self.send()
            self.wait_until_consumed()
            return all(
                len(each.bodies("done")) > count
                for each, count in zip(members, before, strict=True)
            )

        wait_until(have_shared, "each member consumes")

    def kill_one_that_holds(self, victim):
        """Kill a member that holds messages without finishing them."""
        victim.hold()

        def is_holding():
            self.send(4)
            wait_until(
                lambda: (
                    victim.bodies("holding")
                    or set(self.bodies("done")) == set(self.sent)
                )
            )
            return victim.bodies("holding")

        wait_until(is_holding, f"{victim.who} holds a message")
        victim.kill()
        self.send()
        self.wait_until_consumed()

    def check_order(self):
        """Check that the messages of each message group began in their order."""
        for key in MESSAGE_GROUPS:
            begun = [each for each in self.bodies("begin") if each[0] == key]
            assert begun == sorted(begun), f"message group {key}"


@pytest.mark.parametrize(
    ("official", "kind"),
    [("java", "simple"), ("python", "simple"), ("java", "push"), ("java", "orderly")],
)
def test_members_share_leave_and_die(cluster, tmp_path, official, kind):
    group = Group(cluster, tmp_path, official, kind)
    try:
        ours, theirs = group.join("ours"), group.join(official)
        group.share(ours, theirs)
        theirs.stop()
        group.share(ours)
        theirs = group.join(official)
        group.share(ours, theirs)
        ours.stop()
        group.share(theirs)
        undisturbed = list(group.sent)
        ours = group.join("ours")
        group.share(ours, theirs)
        group.kill_one_that_holds(ours)
        group.share(group.join("ours"), theirs)
        if not isinstance(cluster, EmbeddedCluster) or kind == "simple":
            # The embedded proxy keeps renewing the leases of their push consumers for
            # two minutes.
            group.kill_one_that_holds(theirs)
        # An unacknowledged message would have been delivered again by now.
        times = Counter(group.bodies("begin"))
        assert {each: times[each] for each in undisturbed} == dict.fromkeys(
            undisturbed, 1
        )
        if group.is_fifo:
            group.check_order()
    finally:
        group.close()
