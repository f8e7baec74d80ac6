"""What members behind a real proxy can be asked: their stacks, and to consume again."""

from __future__ import annotations

import json
import uuid

import pytest

from rmqcli import Admin, Producer, ProducerMessage
from rmqcli.api.calls.consumer import get_consumer_running_info
from rmqcli.cli.main import run
from rmqcli.errors import BrokerError
from tests.admin.dlq.letters import client_of
from tests.kit.clients.member import GrpcMember
from tests.kit.waiting import wait_until

pytestmark = [
    pytest.mark.java,
    pytest.mark.rmq_versions("5.5.0"),
    pytest.mark.real_only,
]


@pytest.fixture
def local(local_proxy):
    return local_proxy


class Group:
    """A group with one member, which has consumed the only message of its topic."""

    def __init__(self, cluster, endpoints, who, kind, directory, capsys):
        self.namesrv, self.capsys = cluster.namesrv, capsys
        self.topic = cluster.create_topic(queues=1)
        self.name = f"g-{uuid.uuid4().hex[:12]}"
        with Admin(namesrv=self.namesrv) as admin:
            admin.create_group(self.name)
        self.member = GrpcMember(
            who,
            kind,
            endpoints=endpoints,
            group=self.name,
            topic=self.topic,
            directory=directory,
        )
        with Producer(namesrv=self.namesrv) as producer:
            producer.send(ProducerMessage(self.topic, b"hello"))
        wait_until(lambda: self.member.bodies("done") == ["hello"], "the message")

    def rmq(self, *words):
        self.capsys.readouterr()
        code = run([*words, "-n", self.namesrv, "-o", "json"])
        out, err = self.capsys.readouterr()
        return code, json.loads(out) if out else None, err

    def resend(self):
        place = f"{self.topic}@broker-a:0:0"
        return self.rmq("message", "resend", place, "--to-group", self.name, "--yes")


@pytest.fixture
def join(tmp_path, capsys):
    """`join(cluster, endpoints, who, kind)`: a Group; its member is killed at last."""
    groups = []

    def join_(cluster, endpoints, who, kind):
        groups.append(Group(cluster, endpoints, who, kind, tmp_path, capsys))
        return groups[-1]

    yield join_
    for each in groups:
        each.member.kill()


@pytest.mark.parametrize("who", ["java", "ours"])
def test_a_push_consumer_of_a_proxy_in_local_mode_consumes_a_message_again(
    local, join, who
):
    group = join(local, local.endpoints, who, "push")
    code, (row,), err = group.resend()
    assert code == 0, err
    wait_until(lambda: group.member.bodies("done") == ["hello", "hello"], "it again")
    assert (row["consume_result"], row["spent_ms"], row["remark"]) == (
        "CR_SUCCESS",
        None,
        None,
    )


def test_a_simple_consumer_does_not_consume_on_request_which_is_no_success(local, join):
    group = join(local, local.endpoints, "java", "simple")
    code, (row,), err = group.resend()
    assert (code, row["consume_result"]) == (1, None)
    assert "named no result; simple consumers, for example, do not consume" in err
    assert group.member.bodies("begin") == ["hello"]


def test_without_an_answer_of_the_client_it_is_not_known_what_happened(local, join):
    """The Python client 5.1.2 ignores the request."""
    group = join(local, local.endpoints, "python", "push")
    code, row, err = group.resend()
    assert (code, row) == (6, None), err
    assert "may have consumed the message, but its answer did not arrive" in err
    assert group.member.bodies("begin") == ["hello"]


def test_a_proxy_in_local_mode_drops_the_request_for_stacks_so_it_is_not_made(
    local, join
):
    group = join(local, local.endpoints, "java", "push")
    code, (member,), _ = group.rmq("group", "members", group.name)
    assert (code, member["language"]) == (0, "JAVA")
    assert (member["since"], member["reason"]) == (None, "only its proxy talks to it")
    code, (row,), err = group.rmq("group", "stack", group.name)
    assert (code, row["client_id"]) == (6, member["client_id"])
    refused = f"{member['client_id']} cannot be asked: proxies do not pass this request"
    assert row["error"].startswith(refused)
    assert refused in err
    # Should a proxy answer one day, its clients can be asked.
    call = get_consumer_running_info(group.name, member["client_id"], jstack=True)
    with (
        client_of(local, timeout_ms=60_000) as client,
        pytest.raises(BrokerError) as caught,
    ):
        client.invoke(local.broker_address(), call)
    assert caught.value.code == 207


def test_members_of_a_proxy_in_cluster_mode_are_listed_and_cannot_be_asked(
    real_cluster, cluster_proxy, join
):
    group = join(real_cluster, cluster_proxy.endpoints, "java", "push")
    wait_until(lambda: group.rmq("group", "members", group.name)[1], "the member")
    code, (member,), _ = group.rmq("group", "members", group.name)
    assert (code, member["proxy"]) == (0, cluster_proxy.endpoints)
    for code, rows, err in (group.resend(), group.rmq("group", "stack", group.name)):
        assert (code, rows) == (3, None)
        assert "members of proxies in cluster mode cannot be asked" in err
    assert group.member.bodies("begin") == ["hello"]
