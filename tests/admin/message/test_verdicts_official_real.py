"""Verdicts beside what official clients then receive: Java's and the Python gRPC one.

The members are official, too, so that nothing of a verdict rests on what only our own
consumers tell.
"""

from __future__ import annotations

import base64
import json
import uuid
from contextlib import contextmanager

import pytest

from rmqcli import Admin, Producer, ProducerMessage
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.cli.main import run
from tests.admin.dlq.letters import client_of
from tests.conftest import start_cluster
from tests.kit.clients.member import GrpcMember
from tests.kit.java_program import JavaConsumer
from tests.kit.proxy.real import RealProxy
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.real_only]


class Group:
    """A topic of one queue, and a group that begins at its first message.

    With `is_lite` they are of lite topics.
    """

    def __init__(self, cluster, capsys, *, is_lite=False):
        self.cluster, self.capsys = cluster, capsys
        number = uuid.uuid4().hex[:10]
        self.topic, self.name = f"t-{number}", f"g-{number}"
        kind = "+message.type=LITE" if is_lite else None
        attributes = {"lite.bind.topic": self.topic} if is_lite else {}
        with Admin(namesrv=cluster.namesrv) as admin:
            cluster.create_topic(self.topic, queues=1, attributes=kind)
            admin.create_group(self.name, attributes=attributes)
        if is_lite:
            return  # it has its offsets elsewhere
        with client_of(cluster, timeout_ms=30_000) as client:
            call = update_consumer_offset(self.name, self.topic, 0, commit_offset=0)
            client.invoke(cluster.broker_address(), call)

    def send(self, body, **fields):
        """Send a message; return its id."""
        with Producer(namesrv=self.cluster.namesrv) as producer:
            message = ProducerMessage(self.topic, body.encode(), **fields)
            return producer.send(message).msg_id

    def verdict(self, msg_id):
        """What `message show` says of the group, once the message is in the index."""
        words = ["message", "show", msg_id, "-t", self.topic, "-g", self.name]

        def shown():
            self.capsys.readouterr()
            code = run([*words, "-n", self.cluster.namesrv, "-o", "json"])
            out, err = self.capsys.readouterr()
            assert code in (0, 3), err
            return out if code == 0 else None

        ((found,),) = [row["groups"] for row in json.loads(wait_until(shown))]
        return found

    def becomes(self, msg_id, verdict, attempt=None):
        """Wait for a verdict: indexes and commits are a moment late."""
        last = {}

        def agrees():
            last.update(self.verdict(msg_id))
            return (last["verdict"], last["attempt"]) == (verdict, attempt)

        wait_until(agrees, f"{verdict}, {attempt}: {last}")

    @contextmanager
    def java(self, **options):
        """Start a member of Java's, and wait until it has the queue.

        Then its subscription gets the version that it keeps. Of messages that are older
        a verdict may say no more than that the filter may have been another.
        """
        with (
            JavaConsumer(self.cluster, self.name, self.topic, **options) as member,
            Admin(namesrv=self.cluster.namesrv) as admin,
        ):
            wait_until(
                lambda: any(
                    each.topic == self.topic and each.client_id
                    for each in admin.lag(self.name).queues
                )
            )
            yield member


def bodies(member):
    return [base64.b64decode(each["bodyB64"]).decode() for each in member.messages]


@pytest.fixture(scope="module")
def cluster(rmq_version, tmp_path_factory):
    directory = tmp_path_factory.mktemp("verdicts")
    with start_cluster(rmq_version, directory) as cluster:
        yield cluster


@pytest.fixture
def group(cluster, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Group(cluster, capsys)


def test_what_waits_comes_to_java_and_what_is_consumed_or_filtered_does_not(group):
    first = group.send("first", tags="New")
    group.becomes(first, "waiting")
    with group.java(subExpression="New || Old") as member:
        member.wait_for(1)
        # From here on the broker knows the member, and its filter.
        consumed = group.send("consumed", tags="Old")
        filtered = group.send("filtered", tags="Paid")
        member.wait_for(2)
        group.becomes(consumed, "consumed", 1)
        group.becomes(filtered, "filtered")
        group.send("last", tags="New")
        member.wait_for(3)
        assert bodies(member) == ["first", "consumed", "last"]


def test_what_is_in_flight_is_in_the_hands_of_java(group):
    with group.java(block=True) as member:
        msg_id = group.send("m")
        member.wait_until(lambda: member.is_blocked, what="call of the listener")
        group.becomes(msg_id, "in_flight")
        member.release()
        member.wait_for(1)
        group.becomes(msg_id, "consumed", 1)
        assert bodies(member) == ["m"]


def test_what_is_in_retry_comes_to_java_in_that_attempt(group):
    with group.java(failTimes=1, delayLevel=5) as member:  # after a minute
        msg_id = group.send("m")
        member.wait_for(1)
        group.becomes(msg_id, "in_retry", 2)
        member.wait_for(2, timeout_ms=600_000)
        group.becomes(msg_id, "consumed", 2)
        assert [each["reconsumeTimes"] for each in member.messages] == [0, 1]


def test_what_is_dead_never_comes_to_java(group):
    with group.java(failTimes=1, maxReconsumeTimes=0) as member:
        msg_id = group.send("m")
        wait_until(lambda: group.verdict(msg_id)["verdict"] == "dead")
        count = bodies(member).count("m")
    with group.java() as member:
        group.send("last")
        member.wait_until(lambda: "last" in bodies(member), what="last")
        assert "m" not in bodies(member)
    assert count <= 1


@pytest.mark.rmq_versions("5.5.0")
def test_verdicts_are_what_the_python_grpc_client_then_receives(
    rmq_version, tmp_path, capsys, monkeypatch
):
    """One simple consumer acknowledges, and dies with a message; the next goes on."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with start_cluster(rmq_version, tmp_path / "c", proxy=True) as cluster:
        group = Group(cluster, capsys)

        def join():
            return GrpcMember(
                "python",
                "simple",
                endpoints=cluster.endpoints,
                group=group.name,
                topic=group.topic,
                directory=tmp_path,
                lease_s=10,
            )

        member = join()
        consumed = group.send("consumed")
        wait_until(lambda: "consumed" in member.bodies("done"))
        group.becomes(consumed, "consumed", 1)
        member.hold()
        held = group.send("held")
        wait_until(lambda: "held" in member.bodies("holding"))
        assert group.verdict(held)["verdict"] == "in_flight"
        member.kill()
        group.becomes(held, "in_retry", 2)
        waiting = group.send("waiting")
        group.becomes(waiting, "waiting")
        member = join()
        wait_until(lambda: {"held", "waiting"} <= set(member.bodies("done")))
        group.becomes(held, "consumed", 2)
        group.becomes(waiting, "consumed", 1)
        assert "consumed" not in member.bodies("begin")
        member.stop()


@pytest.mark.rmq_versions("5.5.0")
def test_verdicts_in_lite_topics_name_the_offset_that_the_python_grpc_client_moves(
    rmq_version, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    conf = {"enableLmq": "true", "enableMultiDispatch": "true"}
    with (
        start_cluster(rmq_version, tmp_path / "c", conf=conf) as cluster,
        RealProxy(cluster) as proxy,
    ):
        group = Group(cluster, capsys, is_lite=True)
        lmq = f"%LMQ%${group.topic}$a"

        def send(body):
            return group.send(body, properties={"__LITE_TOPIC": "a"})

        def becomes(msg_id, reason):
            last = {}

            def agrees():
                last.update(group.verdict(msg_id))
                assert last["verdict"] == "unknown"
                return last["reason"].startswith(reason)

            wait_until(agrees, [reason, last])

        first = send("first")
        becomes(first, f"no offset was ever committed in {lmq}")
        member = GrpcMember(
            "python",
            "lite",
            endpoints=proxy.endpoints,
            group=group.name,
            topic=group.topic,
            directory=tmp_path,
            lite_topics=("a",),
        )
        wait_until(lambda: "first" in member.bodies("done"))
        becomes(first, f"the group is past it in {lmq}, at 1, and may have begun")
        member.hold()
        held = send("held")
        wait_until(lambda: "held" in member.bodies("begin"))
        becomes(held, f"the group is not past it in {lmq}, at 1, and POP keeps what")
        member.kill()
