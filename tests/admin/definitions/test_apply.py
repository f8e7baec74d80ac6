"""Definitions are applied in requests of many, and each broker's outcome is told."""

from __future__ import annotations

import json
from contextlib import contextmanager

import pytest

from rmqcli import Admin
from rmqcli.admin.definitions import apply
from rmqcli.admin.definitions.apply import DefinitionResult, merged_results
from rmqcli.admin.definitions.model import parse_definitions
from rmqcli.config import ClientConfig
from rmqcli.errors import ChangeUnknownError, DeniedError, PartialError, RefusedError
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from tests.kit import raw

TOPIC = RequestCode.UPDATE_AND_CREATE_TOPIC
TOPICS = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST
GROUPS = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
REFUSED = faults.answer(16, "no permission")


@pytest.fixture
def pair(rmq_cluster_factory):
    return rmq_cluster_factory(brokers=2, queues=4)


@pytest.fixture
def admin(pair):
    with Admin(namesrv=pair.namesrv) as admin:
        yield admin


def wanted(*topics, groups=()):
    data = {"format": "rmq-definitions", "format_version": 1, "topics": topics}
    return parse_definitions(json.dumps(data | {"groups": groups}))


def named(count, **settings):
    return [{"name": f"T{n:02d}", **settings} for n in range(count)]


def outcome(found):
    return [(each.result, each.name, each.brokers) for each in found.results]


BOTH = ("broker-a", "broker-b")


def test_topics_and_groups_are_sent_in_lists_and_read_back(pair, admin, monkeypatch):
    monkeypatch.setattr(apply, "_LIST_MAX", 2)
    lists = pair.faults.observe(code=TOPICS)
    single = pair.faults.observe(code=TOPIC)
    groups = pair.faults.observe(code=GROUPS)
    some = [{"name": "G1"}, {"name": "G2"}]
    planned = admin.plan_definitions(wanted(*named(5), groups=some))
    assert [each.action for each in planned.work] == ["create"] * 7
    done = admin.apply_definitions(planned)
    assert (done.is_complete, done.errors, done.unlisted) == (True, {}, ())
    assert outcome(done) == [
        *(("created", f"T{n:02d}", BOTH) for n in range(5)),
        ("created", "G1", BOTH),
        ("created", "G2", BOTH),
    ]
    assert (lists.seen, single.seen, groups.seen) == (6, 0, 2)
    assert admin.plan_definitions(wanted(*named(5), groups=some)).changes == ()


@pytest.mark.parametrize(
    ("like", "lists", "singles"), [("5.5.0", 2, 0), ("4.9.7", 0, 4)]
)
def test_only_brokers_that_take_lists_get_them(
    rmq_cluster_factory, like, lists, singles
):
    cluster = rmq_cluster_factory(brokers=2, like=like)
    in_lists = cluster.faults.observe(code=TOPICS)
    alone = cluster.faults.observe(code=TOPIC)
    with Admin(namesrv=cluster.namesrv) as admin:
        done = admin.apply_definitions(admin.plan_definitions(wanted(*named(2))))
        assert done.is_complete
        assert (in_lists.seen, alone.seen) == (lists, singles)
        admin.apply_definitions(admin.plan_definitions(wanted(*named(2, perm="r"))))
        configs = [each.config for each in admin.topic("T00").brokers]
        assert [each and each.perm for each in configs] == [4, 4]


def test_a_list_that_a_broker_refuses_is_sent_one_by_one(pair, admin):
    pair.faults.add(faults.answer(1, "no"), code=TOPICS, broker="broker-b")
    pair.faults.add(faults.answer(1, "no room"), code=TOPIC, nth=2, times=1)
    done = admin.apply_definitions(admin.plan_definitions(wanted(*named(3))))
    assert outcome(done) == [
        ("failed", "T01", ("broker-b",)),
        ("created", "T00", BOTH),
        ("created", "T01", ("broker-a",)),
        ("created", "T02", BOTH),
    ]
    assert not done.is_complete
    assert "no room" in (done.results[0].error or "")


def test_a_broker_that_is_silent_gets_no_further_requests(
    rmq_cluster_factory, monkeypatch
):
    monkeypatch.setattr(apply, "_LIST_MAX", 1)
    cluster = rmq_cluster_factory(brokers=2)
    cluster.faults.add(faults.disconnect(), code=TOPICS, broker="broker-b")
    sent = cluster.faults.observe(code=TOPICS, broker="broker-b")
    with Admin(namesrv=cluster.namesrv) as admin:
        done = admin.apply_definitions(admin.plan_definitions(wanted(*named(4))))
    assert sent.seen == 1
    said = (
        f"{cluster.broker('broker-b').address} closed the connection before it answered"
    )
    assert [
        (each.result, each.name, each.brokers, each.error) for each in done.results[:4]
    ] == [
        ("failed", "T01", ("broker-b",), said),
        ("failed", "T02", ("broker-b",), said),
        ("failed", "T03", ("broker-b",), said),
        ("unknown", "T00", ("broker-b",), f"{said}; it may have been done"),
    ]
    assert {each.result for each in done.results[4:]} == {"created"}


def test_what_a_broker_has_other_than_it_was_told_is_named(pair, admin):
    admin.apply_definitions(admin.plan_definitions(wanted(*named(1))))
    pair.faults.add(faults.answer(0), code=TOPIC, broker="broker-b")
    changed = wanted(*named(1, perm="r", read_queue_nums=9))
    done = admin.apply_definitions(admin.plan_definitions(changed))
    assert outcome(done) == [
        ("failed", "T00", ("broker-b",)),
        ("changed", "T00", ("broker-a",)),
    ]
    assert done.results[0].error == (
        "the broker has another value of perm, read_queue_nums"
    )
    delete = RequestCode.DELETE_TOPIC_IN_BROKER
    pair.faults.add(faults.answer(0), code=delete, broker="broker-b")
    forgotten = pair.faults.observe(code=RequestCode.DELETE_TOPIC_IN_NAMESRV)
    done = admin.apply_definitions(admin.plan_definitions(wanted(), prune=True))
    assert outcome(done) == [
        ("failed", "T00", ("broker-b",)),
        ("deleted", "T00", ("broker-a",)),
    ]
    assert done.results[0].error == "the broker still has it"
    assert forgotten.seen == 0  # the messages on broker-b would be hidden


def test_a_deletion_that_is_not_answered_and_is_seen_to_be_done_is_finished(
    pair, admin
):
    """The name server listed the topic until its brokers registered again."""
    admin.create_topic("T00", queue_nums=2)
    lost = faults.disconnect(is_handled=True)
    delete = RequestCode.DELETE_TOPIC_IN_BROKER
    pair.faults.add(lost, code=delete, broker="broker-b")
    forgotten = pair.faults.observe(code=RequestCode.DELETE_TOPIC_IN_NAMESRV)
    done = admin.apply_definitions(admin.plan_definitions(wanted(), prune=True))
    assert outcome(done) == [("deleted", "T00", BOTH)]
    assert forgotten.seen == 1


@pytest.mark.parametrize("prune", [False, True])
def test_a_static_topic_is_not_overwritten(pair, admin, prune):
    """It was planned as a new topic, whose queues would have replaced its own."""
    body = b'{"topicConfigTable":{},"topicQueueMappingDetailMap":{"T00":{}}}'
    pair.faults.add(
        faults.answer(0, body=body),
        code=RequestCode.GET_ALL_TOPIC_CONFIG,
        broker="broker-a",
    )
    planned = admin.plan_definitions(wanted(*named(1)), prune=prune)
    (change,) = planned.changes
    assert (change.action, change.brokers) == ("skip", BOTH)
    assert change.reason == (
        "topic T00 is a static topic, and those are not supported: its queues are"
        " mapped to queues of several brokers"
    )
    assert not admin.apply_definitions(planned).is_complete


def test_a_name_server_that_does_not_delete_a_topic_is_named(pair, admin):
    admin.create_topic("T00", queue_nums=2)
    pair.faults.add(REFUSED, code=RequestCode.DELETE_TOPIC_IN_NAMESRV)
    done = admin.apply_definitions(admin.plan_definitions(wanted(), prune=True))
    assert outcome(done) == [("deleted", "T00", BOTH)]
    (error,) = done.errors.values()
    assert error.message == (
        f"it may still list topic T00: deletion of topic T00: {pair.namesrv} answered"
        " NO_PERMISSION: no permission"
    )


@contextmanager
def listed_in_another_cluster(cluster, topic):
    """Create a topic, and register it for a broker of another cluster, too."""
    cluster.create_topic(topic)
    table = {"topicConfigTable": {topic: {"topicName": topic}}}
    body = json.dumps({"topicConfigSerializeWrapper": table}).encode()
    fields = {"clusterName": "Other", "brokerName": "other", "brokerId": "0"}
    fields |= {"brokerAddr": "127.0.0.1:9", "haServerAddr": "127.0.0.1:8"}
    with raw.Link(cluster.namesrv, timeout_ms=15_000) as link:
        assert link.ask(RequestCode.REGISTER_BROKER, fields, body=body).code == 0
        yield


STILL_LISTED = (
    "it still lists topic T00 on broker-a: before 4.9.7 it would forget the topic in"
    " other clusters, too"
)


@pytest.mark.parametrize(
    ("like", "left", "said"),
    [
        ("5.5.0", ["other"], []),
        (
            "4.6.0",
            ["broker-a", "other"],
            [STILL_LISTED],
        ),
    ],
)
def test_a_topic_of_another_cluster_stays_in_the_route(
    rmq_cluster_factory, like, left, said
):
    cluster = rmq_cluster_factory(queues=1, like=like)
    with listed_in_another_cluster(cluster, "T00"):
        with Admin(namesrv=cluster.namesrv) as admin:
            planned = admin.plan_definitions(
                wanted(), cluster="DefaultCluster", prune=True
            )
            done = admin.apply_definitions(planned)
            assert outcome(done) == [("deleted", "T00", ("broker-a",))]
            assert [error.message for error in done.errors.values()] == said
        with Admin(namesrv=cluster.namesrv) as admin:
            route = admin.topic("T00")
    assert sorted(broker.broker_name for broker in route.brokers) == left


@pytest.mark.parametrize("answer", [faults.answer(2, "busy"), faults.disconnect()])
def test_a_name_server_that_does_not_say_who_has_a_deleted_topic_is_named(
    rmq_cluster_factory, answer
):
    """Its error was raised, and what had become of every change was lost."""
    cluster = rmq_cluster_factory(queues=1)
    with (
        listed_in_another_cluster(cluster, "T00"),
        Admin(namesrv=cluster.namesrv) as admin,
    ):
        planned = admin.plan_definitions(wanted(), cluster="DefaultCluster", prune=True)
        code = RequestCode.GET_ROUTEINFO_BY_TOPIC
        cluster.faults.add(answer, code=code, topic="T00")
        forgotten = cluster.faults.observe(code=RequestCode.DELETE_TOPIC_IN_NAMESRV)
        done = admin.apply_definitions(planned)
    assert outcome(done) == [("deleted", "T00", ("broker-a",))]
    assert list(done.errors) == [cluster.namesrv]
    assert done.errors[cluster.namesrv].message.startswith(
        "it may still list topic T00: "
    )
    assert (forgotten.seen, done.is_complete) == (0, False)


def test_whether_a_change_was_made_is_unknown_if_the_broker_is_not_read_again(
    pair, admin
):
    planned = admin.plan_definitions(wanted(*named(1)))
    pair.faults.add(
        REFUSED, code=RequestCode.GET_ALL_TOPIC_CONFIG, broker="broker-b", nth=2
    )
    done = admin.apply_definitions(planned)
    assert outcome(done) == [
        ("unknown", "T00", ("broker-b",)),
        ("created", "T00", ("broker-a",)),
    ]
    assert (done.results[0].error or "").startswith(
        "whether it was created is not known: settings of all topics: "
    )
    cause = done.results[0].cause
    assert isinstance(cause, ChangeUnknownError)
    assert isinstance(cause.__cause__, DeniedError)
    assert (list(done.errors), done.is_complete) == (["broker-b"], False)


def test_a_plan_for_a_cluster_with_a_silent_broker_has_its_error(pair, admin):
    pair.faults.add(REFUSED, code=RequestCode.GET_ALL_TOPIC_CONFIG, broker="broker-b")
    planned = admin.plan_definitions(wanted(*named(1)))
    assert list(planned.errors) == ["broker-b"]
    assert [each.brokers for each in planned.changes] == [("broker-a",)]
    with pytest.raises(RefusedError, match="broker-b did not answer, so nothing is"):
        admin.plan_definitions(wanted(), prune=True)
    done = admin.apply_definitions(planned)
    assert outcome(done) == [("created", "T00", ("broker-a",))]
    assert not done.is_complete


# --- what is lost ---


def reasons(planned):
    return {(each.action, each.name): each.reason for each in planned.changes}


def test_what_a_deletion_loses_is_said(pair, admin):
    admin.create_topic("full", queue_nums=2)
    admin.create_topic("empty", queue_nums=2)
    admin.create_group("G")
    pair.send("full", ["x"] * 3)
    planned = admin.plan_definitions(wanted(), prune=True)
    assert reasons(planned) == {
        ("delete", "full"): "with 3 messages",
        ("delete", "empty"): "with 0 messages",
        ("delete", "G"): "with its offsets",
    }
    pair.faults.add(
        REFUSED, code=RequestCode.GET_TOPIC_STATS_INFO, topic="full", times=1
    )
    planned = admin.plan_definitions(wanted(), prune=True)
    assert reasons(planned)["delete", "full"] == "with an unknown number of messages"


def test_what_fewer_queues_lose_is_said(pair, admin):
    admin.create_topic("T00", queue_nums=4)
    pair.send("T00", ["x"] * 2, broker="broker-b", queue_id=2)

    def said(queues):
        planned = admin.plan_definitions(wanted(*named(1, read_queue_nums=queues)))
        return reasons(planned).get(("change", "T00"))

    assert said(5) is None
    assert said(3) is None
    assert said(2) == (
        "consumers can no longer read queues 2 to 3 of broker-b, with 2 messages"
    )
    pair.faults.add(
        REFUSED, code=RequestCode.GET_TOPIC_STATS_INFO, broker="broker-a", times=1
    )
    assert said(3) == (
        "consumers can no longer read queue 3 of broker-a, with an unknown number of"
        " messages"
    )


def test_a_group_whose_members_a_broker_does_not_tell_is_not_deleted(pair, admin):
    admin.create_group("G")
    pair.faults.add(
        REFUSED, code=RequestCode.GET_CONSUMER_CONNECTION_LIST, broker="broker-b"
    )
    (change,) = admin.plan_definitions(wanted(), prune=True).changes
    assert (change.action, change.brokers) == ("skip", BOTH)
    assert (change.reason or "").startswith("broker-b did not tell its members: ")
    done = admin.apply_definitions(admin.plan_definitions(wanted(), prune=True))
    assert outcome(done) == [("skipped", "G", BOTH)]
    assert done.results[0].error == change.reason
    assert not done.is_complete
    assert list(admin.group("G").configs) == ["broker-a", "broker-b"]


def test_a_group_with_members_behind_proxies_is_not_deleted(pair, admin):
    """Brokers do not know them, and a plan was to delete the group with its offsets."""
    admin.create_group("G")
    admin.create_group("H")
    record = {"clientId": "c@1@1@a", "group": "G", "heartbeatType": "REGISTER"}
    pair.send("DefaultHeartBeatSyncerTopic", [json.dumps(record)], broker="broker-b")
    changes = admin.plan_definitions(wanted(), prune=True).changes
    assert [(each.action, each.name, each.reason) for each in changes] == [
        ("delete", "H", "with its offsets"),
        ("skip", "G", "1 member behind proxies online"),
    ]


def test_a_group_that_may_have_members_behind_proxies_is_not_deleted(pair, admin):
    admin.create_group("G")
    pair.faults.add(
        faults.answer(2, "busy"),
        code=RequestCode.GET_TOPIC_STATS_INFO,
        topic="DefaultHeartBeatSyncerTopic",
        broker="broker-b",
    )
    (change,) = admin.plan_definitions(wanted(), prune=True).changes
    assert (change.action, change.brokers) == ("skip", BOTH)
    assert (change.reason or "").startswith(
        "members behind proxies are not known: broker-b: "
    )


# --- ordered topics, and name servers ---


def orders(admin):
    (kept,) = admin.kv_values("ORDER_TOPIC_CONFIG")
    return kept.values


def apply_all(admin, definitions, **options):
    return admin.apply_definitions(admin.plan_definitions(definitions, **options))


@pytest.mark.parametrize("like", ["4.9.7", "5.5.0"])
def test_the_queues_of_ordered_topics_are_kept_in_name_servers(
    rmq_cluster_factory, like
):
    cluster = rmq_cluster_factory(brokers=2, like=like)
    with Admin(namesrv=cluster.namesrv) as admin:
        two = named(1, order=True, write_queue_nums=2, read_queue_nums=2)
        assert apply_all(admin, wanted(*two)).is_complete
        assert orders(admin) == {"T00": "broker-a:2;broker-b:2"}
        three = [
            {**two[0], "brokers": ["broker-a"]},
            {**two[0], "brokers": ["broker-b"], "write_queue_nums": 3},
        ]
        apply_all(admin, wanted(*three))
        assert orders(admin) == {"T00": "broker-a:2;broker-b:3"}
        one = [{**three[0], "order": False}, three[1]]
        apply_all(admin, wanted(*one))
        assert orders(admin) == {"T00": "broker-b:3"}
        apply_all(admin, wanted(*[{**each, "order": False} for each in one]))
        assert orders(admin) == {}


def test_the_order_of_a_deleted_topic_is_forgotten(pair, admin):
    apply_all(admin, wanted(*named(1, order=True)))
    assert orders(admin) == {"T00": "broker-a:8;broker-b:8"}
    seen = pair.faults.observe(code=RequestCode.DELETE_TOPIC_IN_NAMESRV)
    apply_all(admin, wanted(), prune=True)
    assert (orders(admin), seen.seen) == ({}, 1)


def test_a_topic_that_a_broker_still_has_stays_in_name_servers(pair, admin):
    apply_all(admin, wanted(*named(2)))
    delete = RequestCode.DELETE_TOPIC_IN_BROKER
    pair.faults.add(REFUSED, code=delete, broker="broker-b", topic="T00")
    seen = pair.faults.observe(code=RequestCode.DELETE_TOPIC_IN_NAMESRV)
    apply_all(admin, wanted(), prune=True)
    assert [each.command.ext_fields["topic"] for each in seen.requests] == ["T01"]


def test_a_name_server_that_does_not_keep_the_order_stops_the_change(pair, admin):
    pair.faults.add(faults.answer(1, "disk full"), code=RequestCode.PUT_KV_CONFIG)
    planned = admin.plan_definitions(wanted(*named(1, order=True)))
    with pytest.raises(PartialError) as caught:
        admin.apply_definitions(planned)
    assert caught.value.message.startswith(
        f"name server {pair.namesrv} did not store the fixed queues of topic T00, so"
        " no broker was changed: "
    )
    assert pair.broker("broker-a").state.topics.get("T00") is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "unlisted"),
    [
        (faults.answer(0, body=b'{"topicList":["T01"]}'), ("T00",)),
        (faults.answer(1, "disable"), ()),  # enableAllTopicList=false of 5.x
        (faults.answer(2, "busy"), ("T00", "T01")),
        (faults.disconnect(), ("T00", "T01")),
    ],
)
def test_new_topics_that_no_name_server_lists_in_time_are_named(pair, answer, unlisted):
    """A busy name server listed all topics, and one that was gone hid the results."""
    pair.faults.add(answer, code=RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    config = ClientConfig(namesrv=(pair.namesrv,), timeout_ms=2_000)
    with Admin(client=config) as admin:
        done = apply_all(admin, wanted(*named(2)))
    assert (done.unlisted, done.is_complete) == (unlisted, True)


@pytest.mark.parametrize("answer", [faults.answer(2, "busy"), faults.disconnect()])
def test_a_name_server_that_does_not_answer_at_once_is_asked_again(pair, admin, answer):
    code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    pair.faults.add(answer, code=code, times=1)
    asked = pair.faults.observe(code=code)
    assert apply_all(admin, wanted(*named(1))).unlisted == ()
    assert asked.seen >= 2


def test_equal_results_of_brokers_are_one_and_failures_come_first():
    def made(result, name, broker, error=None):
        return DefinitionResult(
            result=result, kind="topic", name=name, brokers=(broker,), error=error
        )

    found = merged_results(
        [
            made("created", "a", "y"),
            made("skipped", "c", "x", "no"),
            made("created", "a", "x"),
            made("failed", "b", "y", "one"),
            made("failed", "b", "x", "two"),
        ]
    )
    assert [(each.result, each.name, each.brokers, each.error) for each in found] == [
        ("failed", "b", ("y",), "one"),
        ("failed", "b", ("x",), "two"),
        ("skipped", "c", ("x",), "no"),
        ("created", "a", ("x", "y"), None),
    ]
