"""Groups on several brokers, with members, and with brokers that do not answer."""

from __future__ import annotations

import json

import pytest

from rmqcli import Admin
from rmqcli.admin.groups import GroupRow, chosen_member, online_members
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.api.client import Client
from rmqcli.cli.main import run
from rmqcli.config import ClientConfig
from rmqcli.errors import (
    ChangeUnknownError,
    DeniedError,
    NotFoundError,
    PartialError,
    RefusedError,
    UnsupportedError,
)
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from tests.admin.reset.member import PULL, FakeMember

REFUSED = faults.answer(16, "no permission")
SETTINGS = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
MEMBERS = RequestCode.GET_CONSUMER_CONNECTION_LIST


@pytest.fixture(params=["4.6.0", "5.5.0"])
def version(request):
    return request.param


@pytest.fixture
def pair(rmq_cluster_factory, version):
    """Two brokers: billing is on both, alone on broker-b."""
    cluster = rmq_cluster_factory(brokers=2, queues=1, like=version)
    cluster.create_topic("T")
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.create_group("billing", retry_max_times=3)
        admin.create_group("alone", brokers=["broker-b"])
    return cluster


@pytest.fixture
def admin(pair):
    with Admin(namesrv=pair.namesrv) as admin:
        yield admin


@pytest.fixture
def client(pair):
    with Client(ClientConfig(namesrv=(pair.namesrv,))) as client:
        yield client


def row(name, members, brokers, *, reason=None, consume_type=None, model=None):
    return GroupRow(
        group=name,
        kind="normal",
        members=members,
        reason=reason,
        consume_type=consume_type,
        message_model=model,
        brokers=brokers,
    )


BOTH = ("broker-a", "broker-b")


def rows_of(admin):
    found = admin.groups()
    rows = {each.group: each for each in found.groups}
    assert list(rows) == sorted(rows)
    return rows["billing"], rows["alone"], found.errors


def test_a_member_of_several_brokers_counts_once(pair, admin):
    one = FakeMember(pair, "billing", broker="broker-a", client_id="10.0.0.1@1")
    same = FakeMember(pair, "billing", broker="broker-b", client_id="10.0.0.1@1")
    other = FakeMember(pair, "billing", broker="broker-b", client_id="10.0.0.2@1")
    with one, same, other:
        billing, alone, errors = rows_of(admin)
    assert errors == {}
    kind = {"consume_type": "CONSUME_PASSIVELY", "model": "CLUSTERING"}
    assert billing == row("billing", 2, BOTH, **kind)
    assert alone == row("alone", 0, ("broker-b",))


def test_without_the_settings_of_a_broker_no_group_is_called_empty(pair, admin):
    pair.faults.add(REFUSED, code=SETTINGS, broker="broker-b")
    found = admin.groups()
    rows = {each.group: each for each in found.groups}
    why = f"broker-b: {found.errors['broker-b'].message}"
    assert rows["billing"] == row("billing", None, ("broker-a",), reason=why)
    assert "alone" not in rows
    assert list(found.errors) == ["broker-b"]
    with FakeMember(pair, "billing"):
        billing = {each.group: each for each in admin.groups().groups}["billing"]
    assert billing.members == 1


def test_where_a_broker_does_not_tell_the_members_they_are_unknown(pair, admin):
    pair.faults.add(REFUSED, code=MEMBERS, broker="broker-b")
    with FakeMember(pair, "billing"):
        billing, alone, errors = rows_of(admin)
    assert (billing.members, alone.members) == (1, None)
    assert isinstance(errors["broker-b"], DeniedError)
    billing, _, _ = rows_of(admin)
    assert billing.members is None


def commit(pair, topic):
    with Client(ClientConfig(namesrv=(pair.namesrv,))) as client:
        call = update_consumer_offset("billing", topic, 0, commit_offset=0)
        client.invoke(pair.broker("broker-b").address, call)


def test_a_group_is_shown_with_what_each_broker_and_member_says(pair, admin):
    for topic in ("U", "%RETRY%billing"):
        pair.create_topic(topic)
        commit(pair, topic)
    one = FakeMember(pair, "billing", topics=("T", "%RETRY%billing"))
    two = FakeMember(
        pair, "billing", broker="broker-b", client_id="10.0.0.2@1", consume_type=PULL
    )
    with one, two:
        detail = admin.group("billing")
    assert (detail.group, detail.kind, detail.errors) == ("billing", "normal", {})
    assert detail.consume_type == "CONSUME_PASSIVELY"
    assert detail.message_model == "CLUSTERING"
    assert detail.consume_from_where == "CONSUME_FROM_FIRST_OFFSET"
    assert {n: c.retry_max_times for n, c in detail.configs.items()} == {
        "broker-a": 3,
        "broker-b": 3,
    }
    assert [(m.connection.client_id, m.brokers, m.proxy) for m in detail.members] == [
        ("10.0.0.1@1", ("broker-a",), None),
        ("10.0.0.2@1", ("broker-b",), None),
    ]
    for member in detail.members:  # they have not answered in time
        assert (member.subscriptions, member.started_ms) == (None, None)
        assert member.reason is not None
    assert [each.topic for each in detail.subscriptions] == ["%RETRY%billing", "T"]
    assert detail.topics == ["T", "U"]


#: The request for the topics of a group, by the version of the broker.
TOPICS = {
    "4.6.0": RequestCode.GET_ALL_CONSUMER_OFFSET,
    "5.5.0": RequestCode.QUERY_TOPICS_BY_CONSUMER,
}


@pytest.mark.parametrize("code", [SETTINGS, MEMBERS, None])
def test_a_broker_that_does_not_tell_something_of_a_group_is_named(
    pair, admin, version, code
):
    code = code or TOPICS[version]
    pair.faults.add(REFUSED, code=code, broker="broker-b")
    detail = admin.group("billing")
    assert list(detail.errors) == ["broker-b"]
    assert isinstance(detail.errors["broker-b"], DeniedError)
    assert "broker-a" in detail.configs
    # It may be a group of the broker that says nothing.
    detail = admin.group("nobody")
    assert (detail.configs, list(detail.errors)) == ({}, ["broker-b"])


def test_a_group_that_no_broker_knows_does_not_exist(admin):
    with pytest.raises(NotFoundError, match="group nobody does not exist"):
        admin.group("nobody")


def test_members_are_found_with_one_broker_each(pair, client):
    one = FakeMember(pair, "billing", broker="broker-a")
    same = FakeMember(pair, "billing", broker="broker-b")
    other = FakeMember(pair, "billing", broker="broker-b", client_id="10.0.0.2@1")
    with one, same, other:
        found, _ = online_members(client, "billing")
        on_b, _ = online_members(client, "billing", broker_name="broker-b")
        pair.faults.add(REFUSED, code=MEMBERS, broker="broker-b")
        left, errors = online_members(client, "billing")
    assert {c: (m.client_id, m.broker_name, m.address) for c, m in found.items()} == {
        "10.0.0.1@1": ("10.0.0.1@1", "broker-a", pair.broker("broker-a").address),
        "10.0.0.2@1": ("10.0.0.2@1", "broker-b", pair.broker("broker-b").address),
    }
    assert {m.broker_name for m in on_b.values()} == {"broker-b"}
    assert list(on_b) == ["10.0.0.1@1", "10.0.0.2@1"]
    assert list(left) == ["10.0.0.1@1"]
    assert list(errors) == ["broker-b"]


def test_without_members_it_is_said_whether_that_is_known(pair, client):
    for broker_name, words in (
        (None, "no broker knows a member of group billing that is online"),
        ("broker-b", "broker-b knows no member of group billing that is online"),
    ):
        with pytest.raises(NotFoundError) as caught:
            online_members(client, "billing", broker_name=broker_name)
        assert caught.value.message == words
    with pytest.raises(NotFoundError, match="group nobody does not exist"):
        online_members(client, "nobody")
    pair.faults.add(REFUSED, code=MEMBERS, broker="broker-b")
    with pytest.raises(PartialError, match="is not known: broker-b: "):
        online_members(client, "billing")


@pytest.mark.parametrize(
    ("count", "names"),
    [
        (1, "c1"),
        (3, "c1, c2, c3"),
        (4, "c1, c2, c3 and 1 more"),
        (9, "c1, c2, c3 and 6 more"),
    ],
)
def test_a_client_that_is_no_member_is_told_some_that_are(count, names):
    members: dict[str, object] = {f"c{n}": n for n in range(count, 0, -1)}
    assert chosen_member(members, "G", "c1") == 1  # type: ignore[arg-type, comparison-overlap]  # not looked at
    with pytest.raises(NotFoundError) as caught:
        chosen_member(members, "G", "other")  # type: ignore[arg-type]  # not looked at
    assert caught.value.message == (
        f"client other is not a member of group G; its members are {names}"
    )


# --- changes ---


def results(steps):
    return [(each.name, each.server, each.result) for each in steps]


def test_order_needs_brokers_of_5(admin, version):
    if version == "4.6.0":
        with pytest.raises(UnsupportedError, match=r"broker-a runs RocketMQ 4\.6\.0"):
            admin.update_group("billing", consume_message_orderly=True)
    else:
        steps = admin.update_group("billing", consume_message_orderly=True)
        assert [each.result for each in steps] == ["changed", "changed"]


@pytest.mark.parametrize("answer", [faults.answer(0), faults.answer(1, "busy")])
def test_a_broker_that_does_not_change_is_a_failure_of_its_own(pair, admin, answer):
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    pair.faults.add(answer, code=code, broker="broker-b")
    with pytest.raises(PartialError, match="1 of 2 servers failed"):
        admin.update_group("billing", retry_max_times=5)
    configs = admin.group("billing").configs
    assert {n: c.retry_max_times for n, c in configs.items()} == {
        "broker-a": 5,
        "broker-b": 3,
    }


def test_settings_that_are_not_shown_afterwards_are_not_called_changed(pair, admin):
    pair.faults.add(faults.answer(1, "busy"), code=SETTINGS, broker="broker-b", nth=2)
    unknown = "1 of 2 servers did not show whether it was done"
    with pytest.raises(ChangeUnknownError, match=unknown) as caught:
        admin.update_group("billing", retry_max_times=5)
    assert str(caught.value.__cause__).startswith(
        "broker-b confirmed the settings of group billing, but did not show them"
    )


def test_a_group_is_deleted_where_it_is(pair, admin):
    steps = admin.delete_group("alone", remove_offsets=True)
    assert results(steps) == [
        ("alone", "broker-a", "unchanged"),
        ("alone", "broker-b", "deleted"),
    ]
    code = RequestCode.DELETE_SUBSCRIPTIONGROUP
    pair.faults.add(REFUSED, code=code, broker="broker-b")
    with pytest.raises(PartialError, match="1 of 2 servers failed"):
        admin.delete_group("billing", remove_offsets=True)
    assert list(admin.group("billing").configs) == ["broker-b"]


def test_a_group_whose_broker_hides_its_stats_may_use_pop(rmq_cluster, capsys):
    rmq_cluster.create_group("G")
    rmq_cluster.faults.add(REFUSED, code=RequestCode.GET_CONSUME_STATS)
    with Admin(namesrv=rmq_cluster.namesrv) as admin:
        pop = admin.group("G").pop
    assert pop is not None
    assert (pop.inflight, pop.retry_lag) == (None, None)
    words = "it is not known whether the group uses POP: consume stats of group G: "
    assert (pop.reason or "").startswith(words)
    assert run(["group", "show", "G", "-n", rmq_cluster.namesrv]) == 6
    out, err = capsys.readouterr()
    assert f"\nPOP: {words}" in out
    assert f"error: POP: {words}" in err
    assert run(["group", "members", "G", "-n", rmq_cluster.namesrv]) == 0


def quick_admin(pair):
    return Admin(client=ClientConfig(namesrv=(pair.namesrv,), timeout_ms=500))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (faults.answer(2, "busy"), "busy"),
        (faults.drop_request(), "no answer from"),
    ],
)
def test_a_group_whose_members_a_broker_does_not_tell_is_not_deleted(
    pair, fault, words
):
    """The broker that has the member did not name it, and the group was deleted."""
    pair.faults.add(fault, code=MEMBERS, broker="broker-b", times=1)
    with (
        quick_admin(pair) as admin,
        FakeMember(pair, "billing", broker="broker-b"),
    ):
        with pytest.raises(PartialError) as caught:
            admin.delete_group("billing")
        assert caught.value.message.startswith(
            "whether group billing has members online is not known: broker-b: "
        )
        assert words in caught.value.message
        assert caught.value.message.endswith("; nothing was deleted")
        assert caught.value.hint == "try again, or add force=True"
        assert list(admin.group("billing").configs) == ["broker-a", "broker-b"]
        pair.faults.add(fault, code=MEMBERS, broker="broker-b", times=1)
        # No member is known at broker-a, and force overrides what is not known.
        steps = admin.delete_group("billing", brokers=["broker-a"])
        assert results(steps) == [("billing", "broker-a", "deleted")]
        pair.faults.add(fault, code=MEMBERS, broker="broker-b", times=1)
        steps = admin.delete_group("billing", brokers=["broker-b"], force=True)
        assert results(steps) == [("billing", "broker-b", "deleted")]


def test_a_group_is_not_called_deleted_of_a_broker_that_may_not_have_had_it(
    pair, admin
):
    """A broker that refused to list its groups confirms every deletion."""
    pair.faults.add(REFUSED, code=SETTINGS, broker="broker-a")
    with pytest.raises(PartialError, match="1 of 2 servers failed") as caught:
        admin.delete_group("alone", force=True)
    error = caught.value.__cause__
    assert str(error).startswith(
        "broker-a confirmed that it does not have group alone, but refused to tell"
        " whether it had it: "
    )


@pytest.mark.slow
def test_a_group_whose_settings_a_broker_does_not_tell_at_first_is_not_deleted(pair):
    """The broker was not asked for members then, but deleted the group."""
    pair.faults.add(faults.drop_request(), code=SETTINGS, broker="broker-b", times=1)
    with (
        quick_admin(pair) as admin,
        FakeMember(pair, "billing", broker="broker-b"),
    ):
        with pytest.raises(PartialError, match="is not known: broker-b: no answer"):
            admin.delete_group("billing")
        assert list(admin.group("billing").configs) == ["broker-a", "broker-b"]


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (faults.answer(2, "busy"), RequestCode.GET_TOPIC_STATS_INFO),
        (faults.drop_request(), SETTINGS),
    ],
)
def test_a_group_that_may_have_members_behind_proxies_is_not_deleted(pair, fault, code):
    """broker-b has what proxies write of their members, and is not to be changed."""
    record = {"clientId": "c@1@1@a", "group": "billing", "heartbeatType": "REGISTER"}
    pair.send("DefaultHeartBeatSyncerTopic", [json.dumps(record)], broker="broker-b")
    pair.faults.add(fault, code=code, broker="broker-b", times=1)
    with quick_admin(pair) as admin:
        with pytest.raises(PartialError, match="online is not known: broker-b"):
            admin.delete_group("billing", brokers=["broker-a"])
        with pytest.raises(RefusedError, match="has members online: c@1@1@a"):
            admin.delete_group("billing", brokers=["broker-a"])
