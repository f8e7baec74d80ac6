"""A folder served without its broker: requests that read work, and nothing changes."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil

import pytest

from rmqcli import Admin
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.broker.cluster.offline import (
    ARRIVALS_INTERVAL_MS,
    FolderBroker,
    StoreServer,
)
from rmqcli.broker.effects import Peer, Send
from rmqcli.broker.namesrv.core import NameServer
from rmqcli.broker.namesrv.handlers import NAMESRV_REQUESTS
from rmqcli.clock import Now
from rmqcli.store.disk_store import DiskStore
from rmqcli.store.message_store import StoreError
from rmqcli.testing import ManualClock
from rmqcli.wire.bodies.offset import ConsumerOffsetSerializeWrapper
from rmqcli.wire.bodies.route import parse_cluster_info, parse_topic_route
from rmqcli.wire.body import decode_body
from rmqcli.wire.command import RemotingCommand
from rmqcli.wire.ids import tags_code
from rmqcli.wire.message.decode import StoredMessage, decode_messages
from tests import golden_vectors
from tests.broker.wire_client import WireClient
from tests.kit.waiting import wait_until
from tests.store import folders
from tests.store.folders import message, state_of
from tests.store.writing import fill

PULL, ROUTE, CLUSTER_INFO, MAX_OFFSET, ALL_OFFSETS, COMMIT = 11, 105, 106, 30, 43, 15
SUSPEND, COMMIT_FLAG, SUBSCRIPTION = 2, 1, 4
PULL_RETRY_IMMEDIATELY, PULL_OFFSET_MOVED = 20, 21
SEARCH_OFFSET = 29
ALL_TOPICS, ALL_GROUPS, ALL_TOPICS_OF_NAMESRV = 21, 201, 206


def route_of(server, topic):
    with WireClient(server.namesrv) as client:
        got = client.ask(ROUTE, topic=topic)
    return parse_topic_route(topic, got.body) if got.code == 0 else None


def address_of(server, name="broker-a"):
    with WireClient(server.namesrv) as client:
        info = parse_cluster_info(client.ask(CLUSTER_INFO).body)
    return info.brokers[name].addresses[0]


def pull_fields(topic, offset, *, queue_id=0, flags=SUBSCRIPTION, expression="*"):
    return {
        "consumerGroup": "TOOLS_CONSUMER",
        "topic": topic,
        "queueId": queue_id,
        "queueOffset": offset,
        "maxMsgNums": 32,
        "sysFlag": flags,
        "commitOffset": 1,
        "suspendTimeoutMillis": 20_000,
        "subscription": expression,
        "subVersion": 0,
        "expressionType": "TAG",
    }


def offsets_of(client):
    return decode_body(
        ConsumerOffsetSerializeWrapper, client.ask(ALL_OFFSETS).body
    ).by_group_and_topic()


@pytest.mark.parametrize("version", folders.VERSIONS)
def test_a_real_folder_is_served_and_left_as_it_was(version, tmp_path):
    folder = folders.unpack(version, tmp_path)
    for path in (*folder.rglob("*"), folder):
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = state_of(folder)
    with StoreServer(folder) as server:
        assert len(route_of(server, "g_orders").read_queues()) == 4
        with WireClient(address_of(server)) as client:
            got = client.ask(MAX_OFFSET, topic="g_orders", queueId=0)
            assert got.ext_fields["offset"] == "37"
            flags = SUBSCRIPTION | COMMIT_FLAG
            answer = client.ask(PULL, **pull_fields("g_orders", 30, flags=flags))
            assert len(list(decode_messages(answer.body))) == 7
            table = offsets_of(client)
    assert ("TOOLS_CONSUMER", "g_orders") not in table
    assert table["g_pull", "g_events"] == {0: 17, 1: 3}
    assert state_of(folder) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [10, 310, 320, COMMIT, 17, 25, 34, 36, 37, 38, 41, 200, 203, 207, 215, 222, 9_999],
)
def test_requests_that_change_something_are_refused(code, tmp_path):
    folder = folders.unpack("5.5.0", tmp_path)
    before = state_of(folder)
    with (
        StoreServer(folder) as server,
        WireClient(address_of(server)) as client,
    ):
        answer = client.ask(code, topic="g_orders", consumerGroup="g", queueId=0)
    assert answer.code == 16
    assert answer.remark == (
        f"request {code} is not supported when a folder is served read-only"
    )
    assert state_of(folder) == before


def test_the_name_server_of_a_folder_refuses_changes_too(tmp_path):
    with (
        StoreServer(folders.unpack("5.5.0", tmp_path)) as server,
        WireClient(server.namesrv) as client,
    ):
        assert client.ask(100, namespace="n", key="k", value="v").code == 16
        assert client.ask(103, brokerName="b").code == 16


def test_pulls_are_held_until_the_broker_writes(tmp_path):
    with EmbeddedCluster(store=tmp_path) as cluster:
        cluster.create_topic("orders", queues=1)
        cluster.send("orders", ["a"], tags="A")
        wait_until((tmp_path / "consumequeue" / "orders" / "0").exists)
        with (
            StoreServer(tmp_path) as server,
            WireClient(address_of(server)) as client,
            WireClient(address_of(server)) as picky,
        ):
            flags = SUBSCRIPTION | SUSPEND
            client.send(PULL, **pull_fields("orders", 1, flags=flags))
            wanted = pull_fields("orders", 1, flags=flags, expression="C")
            picky.send(PULL, **wanted)
            cluster.send("orders", ["b"], tags="B")
            cluster.send("orders", ["c"], tags="C")
            answer = client.receive()
            assert answer.code == 0
            (first, *_) = decode_messages(answer.body)
            assert isinstance(first, StoredMessage)
            assert first.body == b"b"
            answer = picky.receive()
            # A pull that arrives after "b" is not held: it has to be retried at once.
            while answer.code == PULL_RETRY_IMMEDIATELY:
                begin = answer.ext_fields["nextBeginOffset"]
                answer = picky.ask(PULL, **wanted | {"queueOffset": begin})
            (only,) = decode_messages(answer.body)
            assert isinstance(only, StoredMessage)
            assert only.body == b"c"


def test_a_held_pull_is_answered_by_the_first_message_that_it_wants(tmp_path):
    """The folder is polled while a pull waits, and no longer."""
    store = DiskStore(tmp_path)
    fill(store, 3, queues=1)
    store.flush()
    now = Now(1_000, 1_700_000_000_000)
    names = NameServer(now, requests=NAMESRV_REQUESTS)
    broker = FolderBroker(tmp_path, now, names, name="broker-a", address="127.0.0.1:1")
    peer = Peer(1, "127.0.0.1:2")

    def pull(expression, kind="TAG"):
        fields = pull_fields("orders", 3, flags=SUBSCRIPTION | SUSPEND)
        fields |= {"subscription": expression, "expressionType": kind}
        texts = {name: str(value) for name, value in fields.items()}
        command = RemotingCommand(code=PULL, opaque=1, ext_fields=texts)
        return broker.handle(peer, command, now)

    def answers_after(passed_ms):
        later = Now(now.monotonic_ms + passed_ms, now.epoch_ms + passed_ms)
        effects = broker.run_due(later)
        return [each.command.code for each in effects if isinstance(each, Send)]

    assert pull("A") == pull("B || C") == pull("KEYS = 'order-4'", "SQL92") == []
    at_ms = ARRIVALS_INTERVAL_MS
    assert broker.next_due_ms() == now.monotonic_ms + at_ms
    assert answers_after(at_ms) == []
    fields = dataclasses.replace(message(3), queue_id=0)
    store.append([fields], tags_codes=[tags_code("B")])
    store.flush()
    assert answers_after(2 * at_ms - 1) == []
    assert answers_after(2 * at_ms) == [0]
    store.append([fields], tags_codes=[tags_code("A")])
    store.flush()
    assert answers_after(3 * at_ms) == [0]
    store.append([dataclasses.replace(message(4), queue_id=0)], tags_codes=[0])
    store.flush()
    assert answers_after(4 * at_ms) == [0]
    assert broker.next_due_ms() != now.monotonic_ms + 5 * at_ms
    broker.close()
    store.close()


def test_new_topics_and_offsets_are_seen(tmp_path):
    with EmbeddedCluster(store=tmp_path) as cluster:
        cluster.create_topic("orders", queues=1)
        cluster.send("orders", ["a", "b"])
        with StoreServer(tmp_path) as server:
            cluster.create_topic("later", queues=3)
            cluster.send("later", ["c"])
            cluster.call(
                lambda: cluster.broker().state.offsets.commit("g", "orders", 0, 1)
            )
            cluster.broker().restart()
            with WireClient(address_of(server)) as client:
                table = wait_until(lambda: offsets_of(client))
            assert table == {("g", "orders"): {0: 1}}
            assert len(route_of(server, "later").read_queues()) == 3


def test_a_folder_of_several_brokers(tmp_path):
    with EmbeddedCluster(store=tmp_path, brokers=2) as cluster:
        cluster.create_topic("orders", queues=1)
        cluster.send("orders", ["a", "b"])
    with StoreServer(tmp_path) as server:
        queues = route_of(server, "orders").read_queues()
        assert [queue.broker_name for queue in queues] == ["broker-a", "broker-b"]


def test_a_topic_that_was_deleted_is_not_served_from_its_last_records(tmp_path):
    """Its records at the end of the log were shown as if the topic were there."""
    with EmbeddedCluster(store=tmp_path) as cluster:
        for topic in ("orders", "gone"):
            cluster.create_topic(topic, queues=1)
            cluster.send(topic, ["a"])
        with Admin(namesrv=cluster.namesrv) as admin:
            admin.delete_topic("gone")
    with StoreServer(tmp_path) as server:
        assert len(route_of(server, "orders").read_queues()) == 1
        assert route_of(server, "gone") is None


def test_topics_without_a_table_are_those_with_queues(tmp_path):
    folder = folders.unpack("4.6.0", tmp_path)
    shutil.rmtree(folder / "config")
    with StoreServer(folder) as server:
        assert len(route_of(server, "g_orders").read_queues()) == 4
        assert route_of(server, "TBW102") is None


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["damaged", "pipe", "folder", "device"])
@pytest.mark.parametrize(
    "table", ["topics", "subscriptionGroup", "consumerOffset", "delayOffset"]
)
def test_an_unreadable_table_is_logged_and_the_rest_is_served(
    tmp_path, table, kind, caplog
):
    folder = folders.unpack("5.5.0", tmp_path)
    for name in (f"{table}.json", f"{table}.json.bak"):
        path = folder / "config" / name
        path.unlink(missing_ok=True)
        if kind == "damaged":
            path.write_text('{"topicConfigTable":')
        elif kind == "pipe":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        else:
            path.symlink_to("/dev/zero")
    with StoreServer(folder) as server, WireClient(address_of(server)) as client:
        assert len(route_of(server, "g_orders").read_queues()) == 4
        answer = client.ask(PULL, **pull_fields("g_orders", 30))
        assert len(list(decode_messages(answer.body))) == 7
        if table != "consumerOffset":
            assert offsets_of(client)["g_pull", "g_events"] == {0: 17, 1: 3}
    assert f"{table}.json cannot be read" in caplog.text


@pytest.mark.parametrize("bad", ['"x":5', '"-1":5', '"0":"many"', '"0":-7', '"0":[1]'])
def test_an_unreadable_offset_is_logged_and_the_rest_is_served(tmp_path, bad, caplog):
    folder = folders.unpack("5.5.0", tmp_path)
    (folder / "config" / "consumerOffset.json").write_text(
        '{"offsetTable":{"a@g":{%s,"3":4},"b@g":17,"c@g":{"1":2}}}' % bad  # noqa: UP031  # braces
    )
    with StoreServer(folder) as server, WireClient(address_of(server)) as client:
        assert offsets_of(client) == {("g", "a"): {3: 4}, ("g", "c"): {1: 2}}
    assert caplog.text.count("skipped") == 2


def test_an_unreadable_topic_or_group_is_logged_and_the_rest_is_served(
    tmp_path, caplog
):
    folder = folders.unpack("5.5.0", tmp_path)
    long_name = "g" * 250
    for file, table, good in (
        ("topics.json", "topicConfigTable", "g_orders"),
        ("subscriptionGroup.json", "subscriptionGroupTable", "g_push"),
    ):
        path = folder / "config" / file
        data = json.loads(path.read_bytes())
        entry = data[table][good]
        name = "topicName" if file == "topics.json" else "groupName"
        data[table]["../../etc"] = entry | {name: "../../etc"}
        data[table][long_name] = entry | {name: long_name}
        data[table]["odd"] = 17
        path.write_text(json.dumps(data))
    with StoreServer(folder) as server, WireClient(address_of(server)) as client:
        assert len(route_of(server, "g_orders").read_queues()) == 4
        assert route_of(server, "../../etc") is None
        topics = client.ask(ALL_TOPICS)
        groups = client.ask(ALL_GROUPS)
        assert b"../../etc" not in topics.body + groups.body
        assert b"g_push" in groups.body
        assert long_name.encode() in topics.body
        assert long_name.encode() not in groups.body
    assert caplog.text.count("skipped") == 5


@pytest.mark.parametrize("version", folders.VERSIONS)
@pytest.mark.parametrize("offset", [1_000, -5])
def test_a_pull_at_an_illegal_offset_is_answered_as_a_broker_does(
    tmp_path, version, offset
):
    folder = folders.unpack(version, tmp_path)
    before = state_of(folder)
    with StoreServer(folder) as server, WireClient(address_of(server)) as client:
        answer = client.ask(PULL, **pull_fields("g_orders", offset))
    assert answer.code == PULL_OFFSET_MOVED
    # 4.6.0 corrects an offset beyond the end of a queue that begins at 0 to its start.
    expected = "37" if (version, offset) == ("5.5.0", 1_000) else "0"
    assert answer.ext_fields["nextBeginOffset"] == expected
    assert state_of(folder) == before


@pytest.mark.parametrize(("version", "ordinal"), [("4.6.0", 333), ("5.5.0", 513)])
def test_answers_have_the_form_of_the_version_that_wrote_the_folder(
    tmp_path, version, ordinal
):
    with (
        StoreServer(folders.unpack(version, tmp_path)) as server,
        WireClient(address_of(server)) as client,
    ):
        assert client.ask(MAX_OFFSET, topic="g_orders", queueId=0).version == ordinal


def test_a_table_of_4_x_with_the_schedule_topic_is_read_as_4_9_7(tmp_path):
    with EmbeddedCluster(store=tmp_path, like="4.9.7") as cluster:
        cluster.create_topic("orders", queues=1)
        cluster.send("orders", ["a"])
        expected = client_version(cluster.broker().address)
    with StoreServer(tmp_path) as server:
        assert client_version(address_of(server)) == expected
        with WireClient(address_of(server)) as client:
            answer = client.ask(PULL, **pull_fields("orders", 99))
    assert answer.code == PULL_OFFSET_MOVED


@pytest.mark.parametrize("version", folders.VERSIONS)
def test_offsets_by_time_are_those_that_the_broker_gave(tmp_path, version):
    cases = [
        case
        for case in golden_vectors.load(f"store-{version}-lookups")
        if case["kind"] == "by_time"
    ]
    assert len(cases) > 100
    with (
        StoreServer(folders.unpack(version, tmp_path)) as server,
        WireClient(address_of(server)) as client,
    ):
        for case in cases:
            answer = client.ask(
                SEARCH_OFFSET,
                topic=case["topic"],
                queueId=case["queue_id"],
                timestamp=case["timestamp_ms"],
            )
            assert answer.ext_fields["offset"] == str(case["expected_offset"]), case


def client_version(address):
    with WireClient(address) as client:
        return client.ask(MAX_OFFSET, topic="orders", queueId=0).version


def test_a_folder_of_unknown_version_is_read_as_the_newest_with_a_warning(
    tmp_path, caplog
):
    folder = folders.unpack("4.6.0", tmp_path)
    shutil.rmtree(folder / "config")
    with StoreServer(folder):
        pass
    assert "assuming version=5.5.0" in caplog.text


def test_queues_of_system_topics_are_listed_only_where_the_broker_lists_them(tmp_path):
    folder = folders.unpack("4.6.0", tmp_path)
    assert (folder / "consumequeue" / "SCHEDULE_TOPIC_XXXX").is_dir()
    with StoreServer(folder) as server, WireClient(server.namesrv) as client:
        listed = client.ask(ALL_TOPICS_OF_NAMESRV).body
    assert b"g_delay" in listed
    assert b"SCHEDULE_TOPIC_XXXX" not in listed


def test_a_table_that_becomes_unreadable_keeps_its_last_content(tmp_path):
    folder = folders.unpack("5.5.0", tmp_path)
    clock = ManualClock()
    with StoreServer(folder, clock=clock) as server:
        for name in ("topics.json", "topics.json.bak"):
            (folder / "config" / name).write_text("{")
        clock.advance(1_000)
        with WireClient(address_of(server)) as client:
            assert offsets_of(client)["g_pull", "g_events"] == {0: 17, 1: 3}
        assert len(route_of(server, "g_orders").read_queues()) == 4


def test_the_folder_of_a_broker_without_messages_is_served(tmp_path):
    with EmbeddedCluster(store=tmp_path) as cluster:
        cluster.create_topic("orders", queues=2)
        cluster.broker().restart()
        with StoreServer(tmp_path) as server:
            assert len(route_of(server, "orders").read_queues()) == 2


def test_other_folders_are_refused(tmp_path):
    missing = tmp_path / "none"
    with pytest.raises(StoreError, match="does not exist"):
        StoreServer(missing)
    assert not missing.exists()
    with pytest.raises(StoreError, match="is not a broker's store"):
        StoreServer(tmp_path)
    # Its storePathCommitLog is elsewhere: there are queues, but no messages.
    (tmp_path / "lock").touch()
    (tmp_path / "consumequeue").mkdir()
    with pytest.raises(StoreError, match="it has no commitlog folder"):
        StoreServer(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="is not a folder"):
        StoreServer(tmp_path / "file")
    (tmp_path / "consumequeue_rocksdb").mkdir()
    (tmp_path / "consumequeue_rocksdb" / "CURRENT").touch()
    with pytest.raises(StoreError, match="RocksDB"):
        StoreServer(tmp_path)
