"""Real brokers of which half refuse, that never become empty, or that two ask at once.

What is done is said for each broker, and nothing is half done without a word.
"""

from __future__ import annotations

import json
import uuid

import pytest

from rmqcli import Admin, ClientConfig, Credentials, Producer, ProducerMessage
from rmqcli.admin.tail.filter import TailFilter
from rmqcli.api.client import Client
from rmqcli.cli.main import run
from rmqcli.copy.copy import CopyRequest
from rmqcli.copy.library import Copy
from rmqcli.errors import RefusedError
from tests.copy.copying import stored
from tests.kit.configuration import Account, access_control
from tests.kit.waiting import wait_until

pytestmark = [
    pytest.mark.java,
    pytest.mark.real_only,
    pytest.mark.rmq_versions("4.6.0", "5.5.0"),
]

ADMIN = Account("admin", "admin-secret")
READER = Account("reader-user", "reader-secret")
READS = {"Topic:*": "Get,List", "Group:*": "Get,List", "Cluster:*": "Get,List"}
#: Of 4.x: who is no administrator may read, and change nothing.
PLAIN_ACL = f"""\
accounts:
- accessKey: {READER.name}
  secretKey: {READER.secret}
  admin: false
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: PUB|SUB
"""


@pytest.fixture(scope="module")
def cluster(rmq_version, start_shared):
    """Two brokers; broker-b lets the reader see everything, and change nothing."""
    cluster = start_shared(rmq_version, brokers=2)
    cluster.create_topic("shop", queues=2)
    cluster.stop_broker(1)
    if rmq_version == "4.6.0":
        file = cluster.tools_home() / "conf" / "plain_acl.yml"
        file.write_text(PLAIN_ACL)
        cluster.start_broker(1, conf={"aclEnable": "true"})
        return cluster
    only_accounts = "3001,3006"  # what the kit creates them with
    conf = access_control(ADMIN, folder=cluster.directory / "auth-broker-b")
    conf |= dict.fromkeys(
        ("authenticationWhitelist", "authorizationWhitelist"), only_accounts
    )
    cluster.start_broker(1, conf=conf)
    cluster.create_account(READER, READS, broker=1)
    return cluster


@pytest.fixture
def rmq(cluster, capsys, monkeypatch):
    """Run `rmq` as the reader; return its exit code, its JSON, and stderr."""
    monkeypatch.setenv("RMQ_ACCESS_KEY", READER.name)
    monkeypatch.setenv("RMQ_SECRET_KEY", READER.secret)

    def run_it(*words):
        capsys.readouterr()
        code = run([*map(str, words), "-n", cluster.namesrv, "-o", "json"])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else None, err

    return run_it


@pytest.fixture
def admin(cluster):
    config = ClientConfig(
        namesrv=(cluster.namesrv,), credentials=Credentials(READER.name, READER.secret)
    )
    with Admin(client=config) as found:
        yield found


def by_broker(rows, *names):
    return [tuple(row[name] for name in ("result", *names)) for row in rows]


def test_what_half_of_the_brokers_refuse_is_done_on_the_others_and_said(
    rmq, admin, rmq_version, tmp_path
):
    """Each change ends with 6, and a row and the reason for the broker that refused."""
    why = "Need admin permission" if rmq_version == "4.6.0" else "NO_PERMISSION"
    topic, group = (f"{kind}-{uuid.uuid4().hex[:8]}" for kind in "tg")
    changes = [
        (("topic", "create", topic), "created"),
        (("topic", "update", "shop", "--queues", "3"), "changed"),
        (("topic", "permission", "shop", "r", "--yes"), "changed"),
        (("group", "delete", group, "--remove-offsets", "--yes"), "deleted"),
    ]
    create = ("group", "create", group)
    if rmq_version == "4.6.0":
        setting = ("fileReservedTime=71", "--cluster", "DefaultCluster", "--yes")
        changes.insert(0, (create, "created"))
        changes.insert(0, (("broker", "config", "set", *setting), "changed"))
    else:  # where each account may create groups and change settings
        assert rmq(*create)[0] == 0
        attribute = ("topic", "attributes", "shop", "+message.type=NORMAL", "--yes")
        changes.insert(0, (attribute, "changed"))
    for words, done in changes:
        code, (first, second), err = rmq(*words)
        assert (code, first["result"], first["error"]) == (6, done, None), (words, err)
        assert second["result"] == "failed", words
        assert why in second["error"]
        assert "1 of 2 servers failed: broker-b: " in err
    perms = {
        each.broker_name: each.config.perm
        for each in admin.topic("shop").brokers
        if each.config is not None
    }
    assert perms == {"broker-a": 4, "broker-b": 6}
    if rmq_version == "4.6.0":
        code, rows, _ = rmq("broker", "config", "get", "fileReservedTime")
        assert (code, [row["value"] for row in rows]) == (0, ["71", "72"])

    file = tmp_path / "d.json"
    name = f"{topic}-2"
    head = {"format": "rmq-definitions", "format_version": 1}
    file.write_text(json.dumps({**head, "topics": [{"name": name}]}))
    code, rows, err = rmq("definitions", "apply", file, "--yes", "--only", "topics")
    assert (code, by_broker(rows, "brokers")) == (
        6,
        [("failed", ["broker-b"]), ("created", ["broker-a"])],
    ), err
    assert why in rows[0]["error"]
    code, rows, err = rmq("definitions", "diff", file, "--only", "topics")
    left = [(row["change"], row["brokers"]) for row in rows if row["name"] == name]
    assert (code, left) == (1, [("create", ["broker-b"])]), err


def test_a_drain_that_never_ends_says_why_and_leaves_what_it_says(cluster, rmq, admin):
    """A group without members never reads what it has on the broker."""
    topic, group = (f"{kind}-{uuid.uuid4().hex[:8]}" for kind in "tg")
    cluster.create_topic(topic, queues=1, brokers=[0])
    assert rmq("group", "create", group, "--broker", "broker-a")[0] == 0
    with Producer(namesrv=cluster.namesrv) as producer:
        for body in (b"1", b"2"):
            producer.send(ProducerMessage(topic, body))
    wait_until(lambda: sum(map(len, stored(cluster, topic).values())) == 2)
    reset = ("reset-offset", group, topic, "--to", "earliest", "--execute", "--yes")
    assert rmq(*reset)[0] == 0
    wait_until(lambda: admin.lag(group).total_lag == 2)
    words = ("broker", "drain", "broker-a", "--yes", "--settle", "1ms")
    code, found, err = rmq(*words, "--wait", "3s")
    assert (code, found["state"]) == (6, "draining"), err
    said = f"{group} has 2 messages to read there, of {topic}, and no member is online"
    assert said in found["blockers"]
    assert {"group": group, "lag": 2} in [
        {name: each[name] for name in ("group", "lag")} for each in found["unread"]
    ]
    assert '"message": "broker-a is not drained: ' in err
    assert "to undo: rmq broker undrain broker-a" in err
    assert "run the same command again to go on waiting" in err

    def perm():
        with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
            return [queue.perm for queue in client.route(topic).queues]

    assert perm() == [4]
    code, rows, err = rmq("broker", "undrain", "broker-a", "--yes")
    assert (code, rows[0]["result"]) == (0, "changed"), err
    assert perm() == [6]


def test_definitions_of_a_newer_format_change_nothing(rmq, admin, tmp_path):
    file = tmp_path / "new.json"
    head = {"format": "rmq-definitions", "format_version": 2}
    name = f"t-{uuid.uuid4().hex[:8]}"
    file.write_text(json.dumps({**head, "topics": [{"name": name}], "lite": []}))
    for words in (("diff", file), ("apply", file, "--yes")):
        code, rows, err = rmq("definitions", *words)
        assert (code, rows) == (2, None)
        assert "the file has format version 2, and only versions up to 1" in err
        assert "use the version that wrote it, or a newer one" in err
    assert name not in {row.topic for row in admin.topics().topics}


def test_of_two_copies_at_once_the_second_sends_nothing(cluster, tmp_path):
    source, target = (f"{kind}-{uuid.uuid4().hex[:8]}" for kind in "st")
    for topic in (source, target):
        cluster.create_topic(topic, queues=1, brokers=[0])
    with Producer(namesrv=cluster.namesrv) as producer:
        for number in range(30):
            producer.send(ProducerMessage(source, b"%d" % number))
    wait_until(lambda: sum(map(len, stored(cluster, source).values())) == 30)
    config = ClientConfig(namesrv=(cluster.namesrv,))
    request = CopyRequest(source_topic=source, target_topic=target, filter=TailFilter())
    refused = []

    def begin_another(_):
        with pytest.raises(RefusedError, match="another ") as caught:
            Copy(config, request, log=tmp_path / "log").execute()
        refused.append(caught.value)

    first = Copy(config, request, log=tmp_path / "log")
    report = first.execute(on_plan=begin_another)
    assert (len(refused), report.copied) == (1, 30)
    wait_until(lambda: stored(cluster, target) == stored(cluster, source))
