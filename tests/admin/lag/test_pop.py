"""`rmq lag` of groups that consume by POP: what is handed out is not consumed."""

from __future__ import annotations

import json
import re

import pytest

from rmqcli import Admin, ClientConfig, RefusedError, SimpleConsumer
from rmqcli.admin.lag.proxied import proxy_name
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.testing import ManualClock, faults
from tests.admin.lag.test_embedded import commit, lag, pick
from tests.kit.waiting import wait_until

__all__ = ["lag"]  # the fixture


@pytest.fixture
def rmq_cluster(rmq_cluster_factory):
    """A broker, and a proxy in the same process."""
    return rmq_cluster_factory(proxy=True)


@pytest.fixture(params=["remoting", "grpc"])
def config(request, rmq_cluster):
    """How a member connects; the cluster has 100 messages in two queues."""
    rmq_cluster.create_topic("orders", queues=2)
    rmq_cluster.create_group("billing")
    rmq_cluster.send("orders", [f"m{n}" for n in range(100)])
    if request.param == "remoting":
        return ClientConfig(namesrv=(rmq_cluster.namesrv,))
    return ClientConfig(endpoints=(rmq_cluster.endpoints,), plaintext=True)


def heartbeat(
    cluster,
    client_id,
    *,
    kind="REGISTER",
    group="billing",
    consume_type="CONSUME_ACTIVELY",
):
    """Write what a proxy of 5.5.0 in cluster mode writes about a client."""
    channel = {
        "localAddress": "127.0.0.1:27552",
        "remoteAddress": "127.0.0.1:59076",
        "remoteProxyIp": "127.0.0.1",
        "type": "GRPC_V2",
    }
    record = {
        "channelData": json.dumps(channel),
        "clientId": client_id,
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "consumeType": consume_type,
        "group": group,
        "heartbeatType": kind,
        "language": "PYTHON",
        "lastUpdateTimestamp": 1795731563018,
        "localProxyId": "127.0.0.1%27553%27552",
        "messageModel": "CLUSTERING",
        "subscriptionDataSet": [
            {
                "classFilterMode": False,
                "codeSet": [],
                "expressionType": "TAG",
                "subString": "*",
                "subVersion": 1795731562990,
                "tagsSet": [],
                "topic": "orders",
            }
        ],
        "version": 513,
    }
    cluster.send("DefaultHeartBeatSyncerTopic", [json.dumps(record)])


def receive(consumer, count):
    found: list[object] = []
    while len(found) < count:
        found += consumer.receive(count - len(found))
    return found


@pytest.mark.parametrize("named", [["billing"], []])
def test_messages_that_were_handed_out_are_lag_until_they_are_acknowledged(
    rmq_cluster, config, lag, named
):
    with SimpleConsumer(
        "billing", "orders", client=config, invisible_duration_ms=3_600_000
    ) as consumer:
        found = receive(consumer, 24)
        consumer.ack(found[:5])
        group = lag(rmq_cluster, *named)[0]["billing"]
        assert group["total_lag"] == 95
        assert pick(group["pop"], "inflight", "overdue", "retry_lag", "reason") == (
            19,
            0,
            0,
            None,
        )
        assert sum(queue["inflight"] for queue in group["queues"]) == 19
        visible = {q["visible_at"] is None for q in group["queues"] if q["inflight"]}
        assert visible == {False}
        consumer.ack(found[5:])
        group = lag(rmq_cluster, *named)[0]["billing"]
        assert pick(group, "total_lag", "known_lag", "pop") == (76, 76, None)


@pytest.mark.slow
@pytest.mark.parametrize("named", [["billing"], []])
def test_messages_stay_lag_without_members_and_in_the_retry_topic(
    rmq_cluster, lag, named
):
    """None is missed while they move; some may count twice for a moment."""
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.create_group("billing")
    rmq_cluster.send("orders", ["x"] * 10)
    totals = set()

    def moved():
        group = lag(rmq_cluster, *named)[0]["billing"]
        totals.add(group["total_lag"])
        return group["pop"] is not None and group["pop"]["retry_lag"] == 6

    with SimpleConsumer(
        "billing", "orders", namesrv=rmq_cluster.namesrv, invisible_duration_ms=2_000
    ) as consumer:
        consumer.ack(receive(consumer, 10)[:4])
    wait_until(moved)
    assert totals in ({6}, {6, 12})
    group = lag(rmq_cluster, *named)[0]["billing"]
    assert pick(group, "state", "total_lag", "inflight_reason") == ("STOPPED", 6, None)
    (retry,) = [t for t in group["topics"] if t["retry"]]
    assert pick(retry, "topic", "lag") == ("%RETRY%billing_orders", 6)


@pytest.mark.parametrize("named", [["billing"], []])
def test_members_of_a_proxy_in_cluster_mode_are_shown_with_it(rmq_cluster, lag, named):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.create_group("billing")
    rmq_cluster.send("orders", ["x"])
    commit(rmq_cluster, "billing", "orders", {0: 0})
    asked = rmq_cluster.faults.observe(code=307)
    heartbeat(rmq_cluster, "vm@7221@1@8f872fa3")
    heartbeat(rmq_cluster, "vm@7222@1@aaaaaaaa")
    heartbeat(rmq_cluster, "vm@7222@1@aaaaaaaa", kind="UNREGISTER")
    group = lag(rmq_cluster, *named, "--process-queues")[0]["billing"]
    assert pick(group, "state", "total_lag", "consume_type") == (
        "BEHIND",
        1,
        "CONSUME_ACTIVELY",
    )
    assert group["members"] == [
        {
            "client_id": "vm@7221@1@8f872fa3",
            "address": "127.0.0.1:59076",
            "version": "5.5.0",
            "language": "PYTHON",
            "queues": None,
            "proxy": "127.0.0.1:27552",
        }
    ]
    # A gRPC client could not answer what a broker asks of members.
    assert len(asked.requests) == 0
    assert group["client_reason"] == "members that use gRPC own no queues"
    assert group["notes"] == []


def test_what_a_group_is_comes_from_the_newest_heartbeat_of_its_members(
    rmq_cluster, lag
):
    """Another member's is older, and that of one which left is no member's."""
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.create_group("billing")
    commit(rmq_cluster, "billing", "orders", {0: 0})
    for number in (1, 2, 1):
        stored_ms = SYSTEM_CLOCK.epoch_ms()
        kind = "CONSUME_ACTIVELY" if number == 1 else "CONSUME_PASSIVELY"
        heartbeat(rmq_cluster, f"vm@722{number}@1@8f872fa3", consume_type=kind)
        wait_until(lambda at_ms=stored_ms: SYSTEM_CLOCK.epoch_ms() > at_ms)
    group = lag(rmq_cluster, "billing")[0]["billing"]
    assert group["consume_type"] == "CONSUME_ACTIVELY"
    heartbeat(rmq_cluster, "vm@7222@1@8f872fa3", consume_type="CONSUME_PASSIVELY")
    group = lag(rmq_cluster, "billing")[0]["billing"]
    assert group["consume_type"] == "CONSUME_PASSIVELY"
    assert len(group["members"]) == 2


@pytest.mark.parametrize(
    ("local_proxy_id", "name"),
    [
        ("127.0.0.1%27553%27552", "127.0.0.1:27552"),
        ("127.0.0.1%27552", "127.0.0.1:27552"),
        ("127.0.0.1", None),
        ("127.0.0.1%27553%", None),
        ("%27553%27552", None),
        ("", None),
        (None, None),
    ],
)
def test_a_proxy_has_the_name_of_its_grpc_port(local_proxy_id, name):
    assert proxy_name(local_proxy_id) == name


@pytest.mark.parametrize("named", [["billing"], []])
def test_a_group_is_not_called_stopped_where_members_of_proxies_are_denied(
    rmq_cluster, lag, named
):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.create_group("billing")
    rmq_cluster.send("orders", ["x"])
    commit(rmq_cluster, "billing", "orders", {0: 0})
    assert lag(rmq_cluster, *named)[0]["billing"]["state"] == "STOPPED"
    rmq_cluster.faults.add(
        faults.answer(16, "no permission"),
        code=202,
        topic="DefaultHeartBeatSyncerTopic",
    )
    group = lag(rmq_cluster, *named)[0]["billing"]
    assert pick(group, "state", "members") == ("BEHIND", None)
    reason = group["client_reason"]
    assert reason.startswith("members behind proxies are not known: broker-a: ")
    assert reason.endswith(": no permission")


@pytest.mark.parametrize("ahead_ms", [-3_600_000, 3_600_000])
def test_clocks_that_are_an_hour_apart_change_neither_members_nor_what_is_overdue(
    rmq_cluster_factory, lag, ahead_ms
):
    now_ms = SYSTEM_CLOCK.epoch_ms()
    cluster = rmq_cluster_factory(clock=ManualClock(now_ms=now_ms + ahead_ms))
    cluster.create_topic("orders", queues=1)
    cluster.create_group("billing")
    cluster.send("orders", ["x"])
    heartbeat(cluster, "vm@7221@1@8f872fa3")
    config = ClientConfig(namesrv=(cluster.namesrv,))
    with SimpleConsumer("billing", "orders", client=config) as consumer:
        receive(consumer, 1)
    group = lag(cluster, "billing")[0]["billing"]
    assert [each["client_id"] for each in group["members"]] == ["vm@7221@1@8f872fa3"]
    assert pick(group, "state", "total_lag") == ("BEHIND", 1)
    assert pick(group["pop"], "inflight", "overdue") == (1, 0)
    with Admin(namesrv=cluster.namesrv) as admin:
        found = admin.group("billing")
    assert [each.connection.client_id for each in found.members] == [
        "vm@7221@1@8f872fa3"
    ]


def test_a_group_that_never_used_pop_says_nothing_of_it(rmq_cluster, lag):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.create_group("billing")
    rmq_cluster.send("orders", ["x"])
    assert lag(rmq_cluster, "billing")[0]["billing"]["pop"] is None


@pytest.mark.parametrize("topic", ["rmq_sys_REVIVE_LOG_DefaultCluster", None])
def test_what_is_handed_out_is_unknown_where_the_broker_does_not_tell(
    rmq_cluster, config, lag, topic
):
    """Then the lag is unknown, too: the offset alone would say too little."""
    if topic is None:  # the broker keeps check points elsewhere
        answer = faults.answer(0, body=b"popConsumerKVServiceEnable=true\n")
        rmq_cluster.faults.add(answer, code=26)
    heartbeat(rmq_cluster, "vm@7221@1@8f872fa3")
    with SimpleConsumer("billing", "orders", client=config) as consumer:
        receive(consumer, 24)
        if topic is not None:
            refusal = faults.answer(16, "no permission")
            rmq_cluster.faults.add(refusal, code=11, topic=topic)
        found, code = lag(rmq_cluster, "billing")
    group = found["billing"]
    assert pick(group, "state", "total_lag") == ("UNKNOWN", None)
    assert group["pop"]["inflight"] is None
    words = "no permission" if topic else "popConsumerKVServiceEnable"
    assert words in group["pop"]["reason"]
    reasons = " ".join(queue["reason"] for queue in group["queues"])
    assert sum(map(int, re.findall(r"at least (\d+) wait", reasons))) == 76
    assert code == 6


def test_a_broker_without_its_revive_topic_does_not_tell(rmq_cluster, config, lag):
    heartbeat(rmq_cluster, "vm@7221@1@8f872fa3")
    revive_topic = "rmq_sys_REVIVE_LOG_DefaultCluster"
    missing = faults.answer(17, f"topic[{revive_topic}] not exist")
    with SimpleConsumer("billing", "orders", client=config) as consumer:
        receive(consumer, 24)
        rmq_cluster.faults.add(missing, code=202, topic=revive_topic)
        group = lag(rmq_cluster, "billing")[0]["billing"]
    assert pick(group, "state", "total_lag") == ("UNKNOWN", None)
    assert revive_topic in group["pop"]["reason"]


def test_a_named_group_is_told_when_it_may_have_used_pop(rmq_cluster, lag):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.create_group("billing")
    rmq_cluster.send("orders", ["x"])
    config = ClientConfig(namesrv=(rmq_cluster.namesrv,))
    with SimpleConsumer("billing", "orders", client=config) as consumer:
        receive(consumer, 1)
    refusal = faults.answer(16, "no permission")
    revive_topic = "rmq_sys_REVIVE_LOG_DefaultCluster"
    rmq_cluster.faults.add(refusal, code=11, topic=revive_topic)
    (note,) = lag(rmq_cluster, "billing")[0]["billing"]["notes"]
    assert "what POP has handed out is not known: " in note


def test_a_group_is_shown_with_the_members_of_proxies_and_what_pop_holds(
    rmq_cluster, config
):
    heartbeat(rmq_cluster, "vm@7221@1@8f872fa3")
    with SimpleConsumer("billing", "orders", client=config) as consumer:
        consumer.ack(receive(consumer, 24)[:5])
        with Admin(namesrv=rmq_cluster.namesrv) as admin:
            found = admin.group("billing")
            (row,) = [each for each in admin.groups().groups if each.group == "billing"]
            with pytest.raises(RefusedError, match="has members online"):
                admin.delete_group("billing")
            plan = admin.plan_reset("billing", "orders", to="earliest")
    assert found.pop is not None
    assert (found.pop.inflight, found.pop.retry_lag) == (19, 0)
    proxied = [each for each in found.members if each.proxy is not None]
    assert [(each.connection.client_id, each.proxy) for each in proxied] == [
        ("vm@7221@1@8f872fa3", "127.0.0.1:27552")
    ]
    assert row.members == len(found.members)
    assert "vm@7221@1@8f872fa3" in plan.plan.client_ids
    assert any("19 messages are handed out" in each for each in plan.plan.warnings)


def test_what_pop_has_handed_out_survives_a_reset(rmq_cluster, config, lag):
    """Back to the beginning, nothing counts twice; at the end, nothing is forgotten."""
    heartbeat(rmq_cluster, "vm@7221@1@8f872fa3")
    with SimpleConsumer(
        "billing", "orders", client=config, invisible_duration_ms=3_600_000
    ) as consumer:
        consumer.ack(receive(consumer, 24)[:5])
        with Admin(namesrv=rmq_cluster.namesrv) as admin:
            for target, total in (("earliest", 100), ("latest", 19)):
                plan = admin.plan_reset("billing", "orders", to=target)
                assert admin.apply_reset(plan).is_complete
                group = lag(rmq_cluster, "billing")[0]["billing"]
                assert pick(group, "total_lag", "state") == (total, "BEHIND")
                assert group["pop"]["inflight"] == 19


@pytest.mark.parametrize("named", [["billing"], []])
def test_what_is_handed_out_to_an_orderly_group_is_lag_but_not_counted(
    rmq_cluster, lag, named
):
    """Its offset moves when a batch is acknowledged, and there are no check points."""
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.create_group("billing", consume_message_orderly=True)
    rmq_cluster.send("orders", ["x"] * 10)
    heartbeat(rmq_cluster, "vm@7221@1@8f872fa3")
    config = ClientConfig(endpoints=(rmq_cluster.endpoints,), plaintext=True)
    with SimpleConsumer("billing", "orders", client=config) as consumer:
        receive(consumer, 4)
        found, code = lag(rmq_cluster, *named)
    group = found["billing"]
    assert pick(group, "state", "total_lag") == ("BEHIND", 10)
    assert pick(group["pop"], "inflight", "overdue") == (None, None)
    assert "orderly group" in group["pop"]["reason"]
    assert group["queues"][0]["inflight"] is None
    assert code == 0


def test_an_explanation_tells_what_is_handed_out_from_what_nobody_received(
    rmq_cluster, config, lag
):
    with SimpleConsumer(
        "billing", "orders", client=config, invisible_duration_ms=3_600_000
    ) as consumer:
        consumer.ack(receive(consumer, 24)[:5])
        words = lag(rmq_cluster, "billing", "--explain")[0]["billing"]["explain"]
    assert words[0].startswith(
        "billing has 95 messages to read; the oldest has waited at least"
    )
    assert words[1].startswith(
        "19 messages are handed out and not acknowledged; the first is delivered again"
        " in "
    )


def test_the_retries_of_another_group_are_not_those_of_pop_by_their_name(
    rmq_cluster, lag
):
    """POP's older name for a retry topic is also that of the group billing_orders."""
    rmq_cluster.create_topic("orders", queues=1)
    for group in ("billing", "billing_orders", "audit"):
        rmq_cluster.create_group(group)
    rmq_cluster.create_topic("%RETRY%billing_orders", queues=1)
    rmq_cluster.send("orders", ["x"] * 3)
    for _ in range(5):
        rmq_cluster.send("%RETRY%billing_orders", ["y"])
    commit(rmq_cluster, "billing", "orders", {0: 1})
    config = ClientConfig(namesrv=(rmq_cluster.namesrv,))
    with SimpleConsumer("audit", "orders", client=config) as consumer:
        receive(consumer, 1)  # some group consumes by POP here
    assert lag(rmq_cluster, "billing")[0]["billing"]["total_lag"] == 2
    assert lag(rmq_cluster)[0]["billing"]["total_lag"] == 2
    assert lag(rmq_cluster, "billing_orders")[0]["billing_orders"]["total_lag"] == 5
