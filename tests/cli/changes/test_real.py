"""Changes of real brokers and name servers: what they say, and what they then do."""

from __future__ import annotations

import json
import uuid

import pytest

from rmqcli import Admin, Producer, ProducerMessage
from rmqcli.api.calls.store import query_consume_queue
from rmqcli.api.client import Client
from rmqcli.cli.main import run
from rmqcli.config import ClientConfig
from rmqcli.errors import BrokerError
from tests.cli.changes.test_kv import KEPT
from tests.consumer.collecting import Seen, consumer
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.rmq_versions("4.6.0", "5.5.0")]


@pytest.fixture(scope="module")
def real_cluster(rmq_version, start_shared):
    """A cluster of these tests only: it is drained, and its settings are changed."""
    return start_shared(rmq_version)


@pytest.fixture
def rmq(real_cluster, capsys):
    """Run `rmq`; return its exit code, its JSON, and what it says on stderr."""

    def run_it(*arguments):
        capsys.readouterr()
        code = run([*arguments, "-n", real_cluster.namesrv, "-o", "json"])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else None, err

    return run_it


def perm_of(cluster, topic):
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        return [queue.perm for queue in client.route(topic).queues]


@pytest.mark.real_only
def test_settings_are_changed_and_read_back(rmq, real_cluster):
    on = ["--broker", real_cluster.broker_name()]

    def change(setting):
        return rmq("broker", "config", "set", setting, *on, "--yes")

    code, rows, _ = change("fileReservedTime=71")
    assert (code, rows[0]["new"], rows[0]["result"]) == (0, "71", "changed")
    code, rows, _ = change("fileReservedTime=71")
    assert (code, rows[0]["result"]) == (0, "unchanged")
    assert change("fileReservedTimes=71")[0] == 2
    # RocketMQ confirms this one.
    code, rows, err = change("fileReservedTime=soon")
    assert (code, rows[0]["new"], rows[0]["result"]) == (7, "71", "failed")
    assert "but did not accept the value 'soon'" in err
    # Java reads the request as Latin-1 with escapes.
    code, rows, _ = change("msgTraceTopicName=Grüße = \\t 日本")
    assert (code, rows[0]["new"]) == (0, "Grüße = \\t 日本")
    code, rows, _ = change("msgTraceTopicName=RMQ_SYS_TRACE_TOPIC")
    assert (code, rows[0]["result"]) == (0, "changed")


def test_name_servers_are_changed_and_read_back(rmq):
    code, rows, _ = rmq("nameserver", "config", "set", "productEnvName=east", "--yes")
    assert (code, rows[0]["new"], rows[0]["result"]) == (0, "east", "changed")
    assert rmq("nameserver", "config", "set", "productEnvNames=east")[0] == 2
    namespace = f"ns-{uuid.uuid4().hex[:8]}"
    kv = ["nameserver", "kv"]
    assert rmq(*kv, "list", namespace)[0] == 3
    code, rows, _ = rmq(*kv, "put", namespace, "k", "ü 1", "--yes")
    assert (code, rows[0]["old"], rows[0]["new"]) == (0, None, "ü 1")
    assert rmq(*kv, "list", namespace)[1][0]["value"] == "ü 1"
    assert rmq(*kv, "delete", namespace, "k", "--yes")[1][0]["result"] == "deleted"
    assert rmq(*kv, "get", namespace, "k")[0] == 3


@pytest.mark.parametrize("text", KEPT)
def test_name_servers_keep_characters_that_are_not_visible(real_cluster, text):
    namespace = f"ns-{uuid.uuid4().hex[:8]}{text}"
    with Admin(namesrv=real_cluster.namesrv) as admin:
        (done,) = admin.put_kv(namespace, f"k{text}", text)
        assert (done.result, done.new) == ("changed", text)
        assert admin.kv_values(namespace)[0].values == {f"k{text}": text}


@pytest.mark.real_only
@pytest.mark.parametrize("text", [t for t in KEPT if t.strip() == t and "\n" not in t])
def test_servers_keep_settings_with_characters_that_are_not_visible(
    rmq, real_cluster, text
):
    on = ["--broker", real_cluster.broker_name()]
    for change in (
        ["broker", "config", "set", f"msgTraceTopicName={text}", *on, "--yes"],
        ["nameserver", "config", "set", f"productEnvName={text}", "--yes"],
    ):
        code, rows, err = rmq(*change)
        assert (code, rows[0]["new"]) == (0, text), err


def test_a_broker_is_drained_and_undrained(rmq, real_cluster, new_topic):
    topic, archive = new_topic(queues=1), new_topic(queues=1)
    broker = real_cluster.broker_name()
    assert rmq("topic", "permission", archive, "r", "--yes")[0] == 0
    settle = ["--settle", "1ms", "--wait", "20s", "--skip-delayed"]
    with Admin(namesrv=real_cluster.namesrv) as admin:
        for row in admin.groups().groups:  # other tests leave messages unread
            settle += ["--skip-group", row.group]
    code, found, err = rmq("broker", "drain", broker, "--yes", *settle)
    assert (code, found["state"]) == (0, "drained"), err
    assert f"no other broker takes messages of {topic}" in err or "more" in err
    assert perm_of(real_cluster, topic) == [4]
    code, rows, _ = rmq("broker", "undrain", broker, "--yes")
    assert (code, rows[0]["result"]) == (0, "changed")
    assert perm_of(real_cluster, topic) == [6]
    assert perm_of(real_cluster, archive) == [4]
    assert rmq("broker", "undrain", broker, "--yes")[1][0]["result"] == "unchanged"


def test_what_arrives_at_a_drained_broker_is_seen(rmq, real_cluster, new_topic):
    """The broker itself takes what arrives, and nothing of its own is counted."""
    topic, broker = new_topic(queues=1), real_cluster.broker_name()
    with Admin(namesrv=real_cluster.namesrv) as admin:
        first = admin.drain_progress(broker)
        second = admin.drain_progress(broker, since=first)
        assert (second.arrived, second.is_write_off) == (0, False)
        assert rmq("send", topic, "x")[0] == 0
        looks = [second]

        def arriving():
            looks.append(admin.drain_progress(broker, since=looks[-1]))
            return looks[-1].arriving

        assert wait_until(arriving) == {topic: 1}


def test_a_group_is_paused_and_resumed(rmq, real_cluster):
    group = f"g-{uuid.uuid4().hex[:8]}"
    assert rmq("group", "create", group)[0] == 0
    code, rows, _ = rmq("group", "pause", group, "--yes")
    assert (code, rows[0]["result"], rows[0]["consume_enable"]) == (0, "changed", False)
    with Admin(namesrv=real_cluster.namesrv) as admin:
        (config,) = admin.group(group).configs.values()
        assert config.consume_enable is False
        assert [r.result for r in admin.resume_group(group)] == ["changed"]


def test_a_member_of_a_paused_group_gets_nothing_until_it_is_resumed(
    real_cluster, new_topic, caplog
):
    """The pull that waits at the broker is refused when a message comes."""
    topic, group = new_topic(queues=1), f"g-{uuid.uuid4().hex[:8]}"
    seen = Seen()
    soon = {"pull_time_delay_when_exception_ms": 100}
    with (
        Admin(namesrv=real_cluster.namesrv) as admin,
        Producer(namesrv=real_cluster.namesrv) as producer,
        consumer(real_cluster, group, topic, seen, **soon) as member,
    ):
        producer.send(ProducerMessage(topic, b"before"))
        seen.wait_for(1)
        assert [row.result for row in admin.pause_group(group)] == ["changed"]
        producer.send(ProducerMessage(topic, b"while-paused"))
        wait_until(lambda: f"pull failed queue={topic}" in caplog.text)
        assert seen.bodies == ["before"]
        assert [queue.topic for queue in member.queues()].count(topic) == 1
        assert len(admin.group(group).members) == 1
        assert [row.result for row in admin.resume_group(group)] == ["changed"]
        assert seen.wait_for(2) == ["before", "while-paused"]


def test_permissions_and_attributes_are_changed(rmq, new_topic, rmq_version):
    topic = new_topic(queues=1)
    code, rows, _ = rmq("topic", "permission", topic, "r", "--yes")
    assert (code, rows[0]["perm"], rows[0]["result"]) == (0, "r", "changed")
    set_it = ["topic", "attributes", topic, "+message.type=FIFO", "--yes"]
    code, rows, err = rmq(*set_it)
    if rmq_version == "4.6.0":
        assert code == 1
        assert "attributes need 5.0.0" in err
        return
    assert (code, rows[0]["result"]) == (0, "changed"), err
    assert rmq("topic", "attributes", topic)[1][0]["value"] == "FIFO"
    remove = ["topic", "attributes", topic, "--remove", "message.type", "--yes"]
    code, rows, err = rmq(*remove)
    assert (code, rows[0]["result"]) == (0, "changed"), err
    assert rmq("topic", "attributes", topic)[1] == []


def test_clean_ups_are_made(rmq):
    code, rows, err = rmq("broker", "clean-expired-queues", "--yes")
    assert (code, rows) == (0, [])
    assert "there are no expired queues" in err
    assert rmq("broker", "clean-unused-topics", "--yes")[0] == 0


def test_only_the_remark_says_that_a_queue_does_not_exist(real_cluster):
    topic = f"gone-{uuid.uuid4().hex[:8]}"
    call = query_consume_queue(topic, 3, 0, count=1)
    with (
        Client(ClientConfig(namesrv=(real_cluster.namesrv,))) as client,
        pytest.raises(BrokerError) as caught,
    ):
        client.invoke(real_cluster.broker_address(), call)
    assert (caught.value.code, caught.value.remark) == (1, f"3@{topic} is not exist!")


@pytest.mark.real_only
def test_a_queue_whose_messages_have_expired_is_found_and_removed(
    fresh_cluster, capsys
):
    """The log loses its first file, and with it all messages of one topic."""
    cluster = fresh_cluster(conf={"mappedFileSizeCommitLog": 1 << 20})
    old, busy = cluster.create_topic(queues=1), cluster.create_topic(queues=1)
    names = ["-n", cluster.namesrv, "-o", "json"]
    assert run(["send", old, "x", "--count", "3", *names]) == 0
    assert run(["send", busy, "y" * 100_000, "--count", "40", *names]) == 0
    # Delete files as the broker does when they have expired, without waiting for it.
    cluster.stop_broker()
    for file in sorted((cluster.store_directory() / "commitlog").iterdir())[:2]:
        file.unlink()
    cluster.start_broker()
    clean = ["broker", "clean-expired-queues", *names]
    capsys.readouterr()

    def said():
        run(clean)  # not confirmed: it only shows
        return capsys.readouterr().err

    wait_until(lambda: f"queue 0 of {old}, which ends at 3" in said())
    assert busy not in said()
    assert run([*clean, "--yes"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["topic"], row["queue_id"], row["result"]) == (old, 0, "removed")
    with Admin(namesrv=cluster.namesrv) as admin:
        (queue,) = admin.topic(old).queues
        assert queue.offset is not None
        assert queue.offset.max_offset == 0
