"""Topics: their kinds, the texts for permissions and message types, their groups."""

from __future__ import annotations

import pytest

from rmqcli import Admin
from rmqcli.admin.groups import group_kind
from rmqcli.admin.topics import message_type, perm_text, topic_kind
from rmqcli.model import BrokerData
from rmqcli.wire.bodies.config import TopicConfig
from rmqcli.wire.bodies.route import ClusterInfo

INFO = ClusterInfo(
    {"broker-a": BrokerData(cluster="C", broker_name="broker-a", addresses={})},
    {"C": ["broker-a"]},
)


@pytest.mark.parametrize(
    ("topic", "kind"),
    [
        ("orders", "normal"),
        ("REPLY_TOPIC", "normal"),
        ("other_REPLY_TOPIC", "normal"),
        ("C_REPLY_TOPIC", "system"),
        ("broker-a", "system"),
        ("C", "system"),
        ("TBW102", "system"),
        ("rmq_sys_wheel_timer", "system"),
        ("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "system"),  # 5.5.0
        ("%RETRY%orders", "retry"),
        ("%DLQ%orders", "dlq"),
    ],
)
def test_topic_kind(topic, kind):
    assert topic_kind(topic, INFO) == kind


def test_group_kind():
    assert group_kind("billing") == "normal"
    assert group_kind("TOOLS_CONSUMER") == "system"
    assert group_kind("CID_RMQ_SYS_TRANS") == "system"


@pytest.mark.parametrize(
    ("perms", "text"),
    [([6], "rw"), ([7], "rw"), ([4], "r"), ([2, 6], "rw/w"), ([0], "none"), ([], None)],
)
def test_perm_text(perms, text):
    assert perm_text(perms) == text


def test_message_type_is_unknown_where_no_broker_says_it():
    plain = TopicConfig(topic_name="T")
    fifo = TopicConfig(topic_name="T", attributes={"message.type": "FIFO"})
    assert message_type([plain]) is None
    assert message_type([plain, fifo]) == "FIFO"


def test_the_groups_of_a_topic_are_also_those_of_its_lite_topics(rmq_cluster):
    rmq_cluster.create_topic("chats", attributes={"message.type": "LITE"})
    rmq_cluster.create_group("readers", attributes={"lite.bind.topic": "chats"})
    rmq_cluster.create_group("others", attributes={"lite.bind.topic": "calls"})
    rmq_cluster.create_group("plain")
    with Admin(namesrv=rmq_cluster.namesrv) as admin:
        found = admin.topic("chats")
        assert (found.groups, found.errors) == (["readers"], {})
        offsets = rmq_cluster.broker().state.offsets
        rmq_cluster.call(lambda: offsets.commit("readers", "%LMQ%$chats$a", 0, 1))
        assert admin.group("readers").topics == ["chats"]
