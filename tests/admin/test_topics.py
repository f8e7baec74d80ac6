"""Topics: their kinds, the texts for permissions and message types, their groups."""

from __future__ import annotations

from collections import deque

import pytest

from rmqcli import Admin, Consumer
from rmqcli.admin.groups import group_kind
from rmqcli.admin.topics import (
    TopicResult,
    TopicRow,
    message_type,
    perm_text,
    publish,
    topic_kind,
)
from rmqcli.api.client import Client
from rmqcli.config import ClientConfig
from rmqcli.errors import (
    ConfigError,
    DeniedError,
    NotFoundError,
    PartialError,
    RefusedError,
    UnsupportedError,
)
from rmqcli.model import BrokerData
from rmqcli.testing import faults
from rmqcli.wire.bodies.config import TopicConfig
from rmqcli.wire.bodies.route import ClusterInfo
from rmqcli.wire.codes import RequestCode
from tests.kit.rows import each_row
from tests.kit.waiting import wait_until

INFO = ClusterInfo(
    {"broker-a": BrokerData(cluster="C", broker_name="broker-a", addresses={})},
    {"C": ["broker-a"]},
)


@each_row(
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
        ("DefaultHeartBeatSyncerTopic", "system"),  # of proxies in cluster mode
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


# --- on several brokers, some of which do not answer ---

REFUSED = faults.answer(16, "no permission")


@pytest.fixture
def pair(rmq_cluster_factory):
    """Two brokers: orders is on both, with other settings, and alone on broker-b."""
    cluster = rmq_cluster_factory(brokers=2)
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.create_topic("orders", queue_nums=3, brokers=["broker-a"])
        admin.create_topic("orders", queue_nums=2, perm=4, brokers=["broker-b"])
        admin.create_topic(
            "alone",
            queue_nums=5,
            brokers=["broker-b"],
            attributes={"message.type": "FIFO"},
        )
    return cluster


@pytest.fixture
def admin(pair):
    with Admin(namesrv=pair.namesrv) as admin:
        yield admin


def rows_of(admin):
    found = admin.topics()
    rows = {row.topic: row for row in found.topics}
    assert list(rows) == sorted(rows)
    return rows["orders"], rows["alone"], found.errors


def test_a_list_adds_the_queues_of_all_brokers(admin):
    orders, alone, errors = rows_of(admin)
    assert errors == {}
    assert orders == TopicRow(
        topic="orders",
        kind="normal",
        message_type=None,
        perm="r/rw",
        read_queue_nums=5,
        write_queue_nums=5,
        order=False,
        brokers=("broker-a", "broker-b"),
    )
    assert (alone.message_type, alone.perm, alone.brokers) == (
        "FIFO",
        "rw",
        ("broker-b",),
    )


def test_the_queues_of_a_broker_that_does_not_tell_are_known_by_the_route(pair, admin):
    """They were left out, and the sum looked like that of all brokers."""
    pair.faults.add(REFUSED, code=RequestCode.GET_ALL_TOPIC_CONFIG, broker="broker-b")
    orders, alone, errors = rows_of(admin)
    assert [str(each) for each in errors] == ["broker-b"]
    assert isinstance(errors["broker-b"], DeniedError)
    assert (orders.read_queue_nums, orders.write_queue_nums) == (5, 5)
    assert (orders.perm, orders.brokers) == ("r/rw", ("broker-a", "broker-b"))
    assert alone == TopicRow(
        topic="alone",
        kind="normal",
        message_type=None,
        perm="rw",
        read_queue_nums=5,
        write_queue_nums=5,
        order=None,
        brokers=("broker-b",),
    )


def test_without_a_route_the_sum_of_the_queues_is_not_known(pair, admin):
    pair.faults.add(REFUSED, code=RequestCode.GET_ALL_TOPIC_CONFIG, broker="broker-b")
    gone = faults.answer(17, "no route")
    pair.faults.add(gone, code=RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders")
    orders, _, _ = rows_of(admin)
    assert (orders.read_queue_nums, orders.write_queue_nums) == (None, None)
    assert (orders.perm, orders.brokers) == ("rw", ("broker-a",))


def test_topics_whose_route_is_gone_are_listed_with_nothing_else(pair, admin):
    pair.faults.add(REFUSED, code=RequestCode.GET_ALL_TOPIC_CONFIG, broker="broker-b")
    gone = faults.answer(17, "no route")
    pair.faults.add(gone, code=RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="alone")
    _, alone, _ = rows_of(admin)
    assert (alone.perm, alone.read_queue_nums, alone.write_queue_nums) == (
        None,
        None,
        None,
    )
    assert alone.brokers == ()


def test_without_a_list_of_names_the_answering_brokers_topics_are_listed(pair, admin):
    """Name servers from 5.x on can refuse the list."""
    pair.faults.add(REFUSED, code=RequestCode.GET_ALL_TOPIC_CONFIG, broker="broker-b")
    code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    pair.faults.add(REFUSED, code=code)
    found = admin.topics()
    assert "alone" not in [row.topic for row in found.topics]
    assert "orders" in [row.topic for row in found.topics]
    assert list(found.errors) == ["broker-b"]


def test_a_topic_is_shown_with_its_settings_and_the_ends_of_its_queues(pair, admin):
    pair.send("orders", ["x", "y"], broker="broker-a", queue_id=2)
    detail = admin.topic("orders")
    assert (detail.topic, detail.kind, detail.message_type) == (
        "orders",
        "normal",
        None,
    )
    assert (detail.groups, detail.errors) == ([], {})
    assert [
        (each.broker_name, each.cluster, each.address, each.error)
        for each in detail.brokers
    ] == [
        ("broker-a", "DefaultCluster", pair.broker("broker-a").address, None),
        ("broker-b", "DefaultCluster", pair.broker("broker-b").address, None),
    ]
    assert [each.config and each.config.perm for each in detail.brokers] == [6, 4]
    assert [str(each.queue) for each in detail.queues] == [
        "orders@broker-a:0",
        "orders@broker-a:1",
        "orders@broker-a:2",
        "orders@broker-b:0",
        "orders@broker-b:1",
    ]
    ends = [each.offset and each.offset.max_offset for each in detail.queues]
    assert ends == [0, 0, 2, 0, 0]


@pytest.mark.parametrize(
    ("code", "queues", "has_config"),
    [
        (RequestCode.GET_TOPIC_STATS_INFO, [0, 0, 0, None, None], False),
        (RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, [0, 0, 0, 0, 0], True),
        (RequestCode.GET_TOPIC_CONFIG, [0, 0, 0, 0, 0], False),
    ],
)
def test_what_one_broker_does_not_tell_is_unknown_and_the_broker_is_named(
    pair, admin, code, queues, has_config
):
    pair.faults.add(REFUSED, code=code, broker="broker-b")
    detail = admin.topic("orders")
    assert list(detail.errors) == ["broker-b"]
    first, second = detail.brokers
    assert (first.error, first.config is not None) == (None, True)
    assert second.error is detail.errors["broker-b"]
    assert (second.config is not None) == has_config
    assert [each.offset and each.offset.max_offset for each in detail.queues] == queues


def test_a_topic_that_one_broker_does_not_have_any_more_has_no_settings_there(
    pair, admin
):
    gone = faults.answer(17, "no topic")
    pair.faults.add(gone, code=RequestCode.GET_TOPIC_CONFIG, broker="broker-b")
    detail = admin.topic("orders")
    assert detail.errors == {}
    assert [each.config is not None for each in detail.brokers] == [True, False]


def test_brokers_before_5_are_asked_for_all_topics(rmq_cluster_factory):
    cluster = rmq_cluster_factory(like="4.6.0")
    cluster.create_topic("orders", queues=3)
    seen = cluster.faults.observe(code=RequestCode.GET_TOPIC_CONFIG)
    with Admin(namesrv=cluster.namesrv) as admin:
        (broker,) = admin.topic("orders").brokers
        assert broker.config is not None
        assert broker.config.read_queue_nums == 3
        with pytest.raises(UnsupportedError) as caught:
            admin.create_topic("fifo", attributes={"message.type": "FIFO"})
    assert caught.value.message == (
        "broker-a runs RocketMQ 4.6.0, and attributes need 5.0.0"
    )
    assert seen.requests == deque()


def test_a_broker_that_names_the_topic_as_a_group_is_asked_for_its_members(
    rmq_cluster,
):
    """5.3.3 does, for groups that are online and have committed nothing."""
    rmq_cluster.create_topic("orders")
    rmq_cluster.create_group("billing")
    rmq_cluster.create_group("idle")
    listed = faults.answer(0, body=b'{"groupList":["orders","audit"]}')
    rmq_cluster.faults.add(listed, code=RequestCode.QUERY_TOPIC_CONSUME_BY_WHO)
    with (
        Consumer("billing", "orders", print, namesrv=rmq_cluster.namesrv),
        Admin(namesrv=rmq_cluster.namesrv) as admin,
    ):
        wait_until(lambda: admin.group("billing").members)
        assert admin.topic("orders").groups == ["audit", "billing"]
        rmq_cluster.create_group("orders")
        assert admin.topic("orders").groups == ["audit", "billing", "orders"]
        members = RequestCode.GET_CONSUMER_CONNECTION_LIST
        rmq_cluster.faults.add(REFUSED, code=members, times=3)
        detail = admin.topic("orders")
        assert (detail.groups, list(detail.errors)) == ([], ["broker-a"])
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        rmq_cluster.faults.add(REFUSED, code=code)
        detail = admin.topic("orders")
    assert (detail.groups, list(detail.errors)) == ([], ["broker-a"])


# --- changes ---


def results(steps):
    return [(each.server, each.result) for each in steps]


def test_a_topic_is_created_on_the_chosen_masters(pair, admin):
    assert results(admin.create_topic("one", brokers=["broker-b"])) == [
        ("broker-b", "created")
    ]
    (made, other) = admin.create_topic("both", cluster="DefaultCluster")
    assert results([made, other]) == [("broker-a", "created"), ("broker-b", "created")]
    assert made.address == pair.broker("broker-a").address
    assert made.config == TopicConfig(
        topic_name="both", read_queue_nums=8, write_queue_nums=8, perm=6
    )
    with pytest.raises(NotFoundError, match="broker broker-c does not exist"):
        admin.create_topic("none", brokers=["broker-c"])
    with pytest.raises(NotFoundError, match="cluster C does not exist") as caught:
        admin.create_topic("none", cluster="C")
    assert caught.value.hint == "use one of: DefaultCluster"
    with pytest.raises(ConfigError, match="cluster and brokers cannot be used"):
        admin.create_topic("none", cluster="DefaultCluster", brokers=["broker-a"])
    with pytest.raises(ConfigError, match="cluster and brokers cannot be used"):
        admin.update_topic("both", cluster="DefaultCluster", brokers=["broker-a"])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"queue_nums": 4}, "3 queues, not 4"),
        ({"queue_nums": 3, "perm": 2}, "permissions rw, not w"),
        ({"order": True}, "not ordered"),
        ({"queue_nums": 1, "perm": 4}, "3 queues, not 1, permissions rw, not r"),
        ({"attributes": {"message.type": "FIFO"}}, "message.type not set, not FIFO"),
    ],
)
def test_a_topic_with_other_settings_is_not_created_again(admin, change, says):
    with pytest.raises(RefusedError) as caught:
        admin.create_topic("orders", brokers=["broker-a"], **change)
    assert caught.value.message == (
        f"topic orders exists on broker-a with other settings: {says}"
    )


def test_the_hint_names_each_setting_that_differs(admin):
    change = {"queue_nums": 3, "perm": 4, "attributes": {"message.type": "FIFO"}}
    with pytest.raises(RefusedError) as caught:
        admin.create_topic("orders", brokers=["broker-a"], **change)
    assert caught.value.hint == (
        "change them with: Admin.update_topic('orders') with perm=4,"
        " attributes={'message.type': 'FIFO'}"
    )


def test_a_topic_with_one_queue_has_one_queue_not_eight(admin):
    admin.create_topic("single", queue_nums=1, brokers=["broker-a"])
    with pytest.raises(RefusedError) as caught:
        admin.create_topic("single", queue_nums=8, brokers=["broker-a"])
    assert caught.value.message == (
        "topic single exists on broker-a with other settings: 1 queue, not 8"
    )


def test_an_ordered_topic_has_its_queues_in_each_name_server(pair, admin):
    steps = admin.create_topic("ordered", queue_nums=2, order=True)
    assert results(steps) == [
        ("broker-a", "created"),
        ("broker-b", "created"),
        (pair.namesrv, "changed"),
    ]
    (kept,) = admin.kv_values("ORDER_TOPIC_CONFIG")
    assert kept.values == {"ordered": "broker-a:2;broker-b:2"}
    with pytest.raises(RefusedError, match=r"other settings: ordered$"):
        admin.create_topic("ordered", order=False)
    steps = admin.delete_topic("ordered")
    assert results(steps) == [
        ("broker-a", "deleted"),
        ("broker-b", "deleted"),
        (pair.namesrv, "deleted"),
    ]
    assert admin.kv_values("ORDER_TOPIC_CONFIG")[0].values == {}


def fixed(admin):
    (kept,) = admin.kv_values("ORDER_TOPIC_CONFIG")
    return kept.values


LIKE = pytest.mark.parametrize("like", ["4.9.7", "5.5.0"])


@LIKE
def test_the_fixed_queues_of_an_ordered_topic_follow_its_changes(
    rmq_cluster_factory, like
):
    cluster = rmq_cluster_factory(brokers=2, like=like)

    def ordered():
        return [broker.state.topics.get("T").order for broker in cluster.brokers]

    with Admin(namesrv=cluster.namesrv) as admin:
        admin.create_topic("T", queue_nums=4, order=True, brokers=["broker-a"])
        admin.create_topic("T", queue_nums=4, order=True, brokers=["broker-b"])
        assert fixed(admin) == {"T": "broker-a:4;broker-b:4"}
        admin.update_topic("T", queue_nums=8, brokers=["broker-b"])
        assert (fixed(admin), ordered()) == ({"T": "broker-a:4;broker-b:8"}, [True] * 2)
        admin.update_topic("T", perm=4)
        assert fixed(admin) == {"T": "broker-a:4;broker-b:8"}
        steps = admin.update_topic("T", order=False)
        assert results(steps)[:2] == [("broker-a", "changed"), ("broker-b", "changed")]
        assert (fixed(admin), ordered()) == ({}, [False, False])


def test_a_broker_that_refuses_keeps_its_fixed_queues(pair, admin):
    admin.create_topic("T", queue_nums=4, order=True)
    for code in (
        RequestCode.GET_TOPIC_CONFIG,
        RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
    ):
        pair.faults.add(REFUSED, code=code, broker="broker-a")
    with pytest.raises(PartialError):
        admin.update_topic("T", queue_nums=8)
    assert fixed(admin) == {"T": "broker-a:4;broker-b:8"}


def test_a_broker_that_does_not_tell_its_figures_yet_gets_the_topic(pair):
    """As one of 5.x in the second in which it starts; the topic was on no broker."""
    code = RequestCode.GET_BROKER_RUNTIME_INFO
    pair.faults.add(faults.answer(1, "NoSuchElementException"), code=code)
    with Admin(namesrv=pair.namesrv) as admin:
        steps = admin.create_topic(
            "T", queue_nums=4, attributes={"queue.type": "BatchCQ"}
        )
    assert results(steps) == [("broker-a", "created"), ("broker-b", "created")]


def test_a_broker_that_does_not_store_a_topic_has_no_fixed_queues(pair, admin):
    code = RequestCode.UPDATE_AND_CREATE_TOPIC
    pair.faults.add(REFUSED, code=code, broker="broker-b")
    with pytest.raises(PartialError):
        admin.create_topic("T", queue_nums=4, order=True)
    assert fixed(admin) == {"T": "broker-a:4"}
    with pytest.raises(DeniedError):
        admin.create_topic("U", queue_nums=4, order=True, brokers=["broker-b"])
    assert fixed(admin) == {"T": "broker-a:4"}


def test_a_name_server_that_does_not_keep_the_fixed_queues_stops_the_change(
    pair, admin
):
    pair.faults.add(faults.answer(1, "disk full"), code=RequestCode.PUT_KV_CONFIG)
    with pytest.raises(PartialError) as caught:
        admin.create_topic("T", order=True)
    assert caught.value.message.startswith(
        f"name server {pair.namesrv} did not store the fixed queues of topic T, so"
        " no broker was changed: "
    )
    assert pair.broker().state.topics.get("T") is None


def test_an_update_changes_only_what_is_given(admin):
    steps = admin.update_topic("orders", perm=4)
    assert results(steps) == [("broker-a", "changed"), ("broker-b", "unchanged")]
    assert [each.config and each.config.read_queue_nums for each in steps] == [3, 2]
    steps = admin.update_topic("alone", brokers=["broker-b"], order=True)
    assert results(steps)[0] == ("broker-b", "changed")
    (broker,) = admin.topic("alone").brokers
    assert broker.config is not None
    assert (broker.config.perm, broker.config.order) == (6, True)
    assert broker.config.attributes == {"message.type": "FIFO"}


def test_queues_that_would_be_lost_are_counted_on_each_broker(pair, admin):
    pair.send("orders", ["x"] * 4, broker="broker-a", queue_id=1)
    with pytest.raises(RefusedError) as caught:
        admin.update_topic("orders", queue_nums=1)
    assert "queues 1 to 2 of broker-a, with 4 messages" in caught.value.message
    assert "broker-b" not in caught.value.message  # its queue is empty
    pair.faults.add(REFUSED, code=RequestCode.GET_TOPIC_STATS_INFO, broker="broker-b")
    with pytest.raises(RefusedError) as caught:
        admin.update_topic("orders", queue_nums=1)
    said = "queue 1 of broker-b, with an unknown number of messages"
    assert said in caught.value.message


@pytest.mark.parametrize(
    ("answer", "word", "says"),
    [
        (faults.answer(17, "gone"), "failed", "broker-b does not show topic fresh"),
        (
            faults.answer(1, "busy"),
            "did not show whether it was done",
            "broker-b confirmed the settings of topic fresh, but did not show",
        ),
    ],
)
def test_settings_that_are_not_there_afterwards_are_not_called_made(
    pair, admin, answer, word, says
):
    pair.faults.add(answer, code=RequestCode.GET_TOPIC_CONFIG, broker="broker-b", nth=2)
    with pytest.raises(PartialError, match=f"1 of 2 servers {word}") as caught:
        admin.create_topic("fresh")
    assert str(caught.value.__cause__).startswith(says)


def test_a_topic_stays_in_the_route_while_a_broker_has_it(pair, admin):
    """A name server that forgot it would hide the messages that are left."""
    refused = pair.faults.add(
        REFUSED, code=RequestCode.DELETE_TOPIC_IN_BROKER, broker="broker-b"
    )
    with pytest.raises(PartialError, match="1 of 2 servers failed") as caught:
        admin.delete_topic("orders")
    assert isinstance(caught.value.__cause__, DeniedError)
    has_topic = [
        pair.broker(name).state.topics.get("orders") is not None
        for name in ("broker-a", "broker-b")
    ]
    assert has_topic == [False, True]
    assert admin.topic("orders").topic == "orders"
    pair.faults.remove(refused)
    done = [(each.server, each.result) for each in admin.delete_topic("orders")]
    assert done == [
        ("broker-a", "deleted"),
        ("broker-b", "deleted"),
        (pair.namesrv, "deleted"),
    ]


def test_a_topic_is_not_deleted_on_a_broker_of_which_a_slave_is_left(pair, admin):
    pair.add_slave("broker-b")
    pair.broker("broker-b").kill()
    with pytest.raises(PartialError) as caught:
        admin.delete_topic("orders")
    assert caught.value.message == (
        "topic orders: 1 of 2 servers failed, the first of them broker-b: broker"
        " broker-b currently has no master"
    )
    assert admin.topic("orders").topic == "orders"


def test_waiting_for_a_route_ends_with_the_time(pair):
    with Client(ClientConfig(namesrv=(pair.namesrv,))) as client:
        done = [created_on("broker-a"), created_on("broker-b")]
        assert publish(client, "orders", done, timeout_ms=0)
        assert not publish(client, "alone", done, timeout_ms=120)
        assert not publish(client, "nowhere", done[:1], timeout_ms=0)
        assert publish(client, "nowhere", [], timeout_ms=0)


def created_on(broker):
    config = TopicConfig(topic_name="orders", read_queue_nums=1, write_queue_nums=1)
    return TopicResult(server=broker, address=None, result="created", config=config)
