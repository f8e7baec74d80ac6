"""Names that cannot be stored are refused when they are first used.

So are groups whose retry or dead letter topic could not be stored.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.broker.cluster.storage import broker_folder
from rmqcli.errors import ConfigError
from rmqcli.store.config_files import ConfigFolder
from tests.broker.driving import Driver
from tests.broker.sending import like, send
from tests.broker.wire_client import WireClient

PULL, SEND_BACK, HEARTBEAT, DELETE_TOPIC, UPDATE_TOPIC = 11, 36, 34, 215, 17
UPDATE_GROUP, SHOW_GROUP = 200, 352
GROUP_UNKNOWN = 26

#: With `%RETRY%` before them, these are 255 and 256 bytes.
LONGEST, TOO_LONG = "g" * 248, "g" * 249
BAD_GROUPS = [TOO_LONG, "g" * 252, "a/b", "../g", "é" * 125]


def pull_fields(group):
    return {
        "consumerGroup": group,
        "topic": "orders",
        "queueId": 0,
        "queueOffset": 0,
        "maxMsgNums": 32,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "subVersion": 0,
    }


def heartbeat(group):
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": [],
        "unitMode": False,
    }
    data = {"clientID": "c", "consumerDataSet": [consumer], "producerDataSet": []}
    return json.dumps(data).encode()


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.6.0", "4.9.7", "5.5.0"])
@pytest.mark.parametrize("group", BAD_GROUPS)
def test_a_group_whose_topics_cannot_be_stored_is_unknown_from_its_first_use_on(
    tmp_path, version, group
):
    with EmbeddedCluster(store=tmp_path, like=version) as cluster:
        cluster.create_topic("orders", queues=1)
        cluster.send("orders", ["a"])
        with (
            WireClient(cluster.broker().address) as member,
            WireClient(cluster.broker().address) as client,
        ):
            member.send(HEARTBEAT, body=heartbeat(group))
            member.receive()
            pulled = client.ask(PULL, **pull_fields(group))
            back = client.ask(
                SEND_BACK, group=group, offset=0, delayLevel=-1, maxReconsumeTimes=0
            )
            set_ = client.ask(
                UPDATE_GROUP, body=json.dumps({"groupName": group}).encode()
            )
        assert (pulled.code, back.code, set_.code) == (GROUP_UNKNOWN, GROUP_UNKNOWN, 1)
        topics = cluster.call(lambda: cluster.broker().state.topics.all())
        assert not [topic for topic in topics if group in topic]
    with EmbeddedCluster(store=tmp_path) as cluster:
        cluster.send("orders", ["b"])


def test_the_longest_group_is_retried_dead_lettered_and_opened_again(tmp_path):
    with EmbeddedCluster(store=tmp_path) as cluster:
        cluster.create_topic("orders", queues=1)
        cluster.send("orders", ["a"])
        with (
            WireClient(cluster.broker().address) as member,
            WireClient(cluster.broker().address) as client,
        ):
            member.send(HEARTBEAT, body=heartbeat(LONGEST))
            member.receive()
            for level in (-1, 1):
                answer = client.ask(
                    SEND_BACK, group=LONGEST, offset=0, delayLevel=level
                )
                assert answer.code == 0
    with EmbeddedCluster(store=tmp_path) as cluster:
        dead = cluster.call(
            lambda: cluster.broker().store.queue_bounds("%DLQ%" + LONGEST, 0)
        )
        assert dead == (0, 1)


@pytest.mark.parametrize("version", ["4.6.0", "4.9.7", "5.5.0"])
@pytest.mark.parametrize("topic", ["..", "../../outside", "a/b", "."])
def test_a_topic_named_like_a_path_is_neither_created_nor_deleted(
    tmp_path, version, topic
):
    store = tmp_path / "deep" / "store"
    (tmp_path / "deep" / "outside").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (store / "consumequeue").mkdir(parents=True)
    (store / "outside").mkdir()
    code = 29 if version == "5.5.0" else 1
    with (
        EmbeddedCluster(store=store, like=version) as cluster,
        WireClient(cluster.broker().address) as client,
    ):
        assert client.ask(DELETE_TOPIC, topic=topic).code == code
        made = client.ask(
            UPDATE_TOPIC,
            topic=topic,
            defaultTopic="TBW102",
            readQueueNums=1,
            writeQueueNums=1,
            perm=6,
            topicFilterType="SINGLE_TAG",
            topicSysFlag=0,
            order="false",
        )
        assert made.code == code
    for folder in (tmp_path / "deep" / "outside", tmp_path / "outside"):
        assert folder.is_dir()
    assert (store / "outside").is_dir()
    assert (store / "consumequeue").is_dir()


@pytest.mark.parametrize("topic", ["..", "a/b", "a\0b"])
def test_a_send_to_a_topic_named_like_a_path_is_illegal_in_4_6_0(topic):
    assert send(Driver(like("4.6.0")), topic).code == 13


def test_names_in_a_folder_s_tables_are_checked_too(tmp_path, caplog):
    with EmbeddedCluster(store=tmp_path) as cluster:
        cluster.create_topic("orders", queues=1)
        cluster.create_group("g")
    config = ConfigFolder(tmp_path / "config")
    for file, table, known, name in (
        ("topics.json", "topicConfigTable", "orders", "topicName"),
        ("subscriptionGroup.json", "subscriptionGroupTable", "g", "groupName"),
    ):
        data = config.read(file)
        assert isinstance(data, dict)
        data[table]["../x"] = data[table][known] | {name: "../x"}
        config.write(file, json.dumps(data))
    with EmbeddedCluster(store=tmp_path) as cluster:
        state = cluster.call(lambda: cluster.broker().state)
        assert state.topics.get("orders") is not None
        assert state.groups.get("g") is not None
        assert state.topics.get("../x") is None
        assert state.groups.get("../x") is None
    assert caplog.text.count("skipped") == 2


def test_the_cluster_s_methods_refuse_such_names_too():
    with EmbeddedCluster() as cluster:
        with pytest.raises(ValueError, match="slash"):
            cluster.create_topic("a/b")
        with pytest.raises(ValueError, match="has 256 bytes"):
            cluster.create_group(TOO_LONG)


@pytest.mark.parametrize("name", ["..", "a/b", "b" * 256])
def test_a_broker_whose_name_no_folder_can_have_is_refused(tmp_path, name):
    with pytest.raises(ConfigError, match="cannot have a folder"):
        broker_folder(tmp_path, name=name, broker_id=0, brokers=2)


@pytest.mark.parametrize("brokers", [1, 2])
def test_a_cluster_does_not_write_into_a_folder_of_another_owner(tmp_path, brokers):
    folder = Path("/")
    if os.geteuid() == 0:
        folder = tmp_path / "theirs"
        folder.mkdir()
        os.chown(folder, 12_345, -1)
    with pytest.raises(ConfigError, match="belongs to user"):
        EmbeddedCluster(store=folder, brokers=brokers)
