"""Membership: joining a group, notices to its members, and expiry."""

from __future__ import annotations

import dataclasses

import pytest

from rmqcli.broker.effects import Peer
from rmqcli.broker.profiles import PROFILE_4_9_7, PROFILE_5_5_0
from rmqcli.broker.settings import BrokerSettings
from rmqcli.wire.bodies.config import SubscriptionGroupConfig
from rmqcli.wire.bodies.consumer import GetConsumerListByGroupResponseBody
from rmqcli.wire.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData
from rmqcli.wire.body import decode_body, encode_body
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.headers.admin import GetConsumerListByGroupRequestHeader
from rmqcli.wire.headers.client import UnregisterClientRequestHeader
from rmqcli.wire.subscription import parse_subscription
from tests.broker.driving import Driver, need

ONE = Peer(1, "127.0.0.1:40001")
TWO = Peer(2, "127.0.0.1:40002")
NOTIFY = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED


def consumer(group="g", *, topics=("orders",), version=1, tags="*"):
    return ConsumerData(
        group_name=group,
        consume_type="CONSUME_PASSIVELY",
        message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        subscriptions=tuple(
            parse_subscription(topic, tags, sub_version=version) for topic in topics
        ),
    )


def beat(driver, peer, *consumers, client_id=None, **fields):
    data = HeartbeatData(
        client_id=client_id or f"c{peer.number}", consumers=consumers, **fields
    )
    return driver.ask(RequestCode.HEART_BEAT, body=encode_body(data), peer=peer)


def notified(driver, peer):
    """Groups in the notices (code 40) that a peer got since the last call."""
    groups = [
        c.ext_fields["consumerGroup"]
        for c in driver.sent[peer.number]
        if c.code == NOTIFY and c.is_oneway
    ]
    driver.sent[peer.number].clear()
    return groups


def ids(driver, group="g"):
    answer = driver.ask(
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        GetConsumerListByGroupRequestHeader(consumer_group=group),
        peer=Peer(9, "127.0.0.1:40009"),
    )
    return answer.code, answer.remark, answer.body


def test_a_heartbeat_creates_the_group_and_its_retry_topic():
    driver = Driver()

    answer = beat(driver, ONE, consumer())

    assert (answer.code, answer.ext_fields) == (0, {})
    assert need(driver.broker.groups.get("g")).retry_max_times == 16
    retry = need(driver.broker.topics.get("%RETRY%g"))
    assert (retry.read_queue_nums, retry.write_queue_nums, retry.perm) == (1, 1, 6)


@pytest.mark.parametrize(
    ("profile", "joined"), [(PROFILE_4_9_7, ["g", "h"]), (PROFILE_5_5_0, ["h"])]
)
def test_a_member_of_a_group_that_cannot_be_created_joins_it_only_in_4_x(
    profile, joined
):
    driver = Driver(
        BrokerSettings(profile=profile, auto_create_subscription_group=False)
    )
    driver.broker.groups.put(SubscriptionGroupConfig(group_name="h"))

    assert beat(driver, ONE, consumer(), consumer("h")).code == 0

    assert driver.broker.groups.get("g") is None
    assert driver.broker.topics.get("%RETRY%g") is None
    assert driver.broker.clients.groups() == joined


def test_every_member_is_notified_of_a_new_one_the_new_one_too():
    driver = Driver()

    beat(driver, ONE, consumer())
    assert notified(driver, ONE) == ["g"]
    beat(driver, TWO, consumer())

    assert notified(driver, ONE) == ["g"]
    assert notified(driver, TWO) == ["g"]


def test_a_repeated_heartbeat_notifies_no_member():
    driver = Driver()
    beat(driver, ONE, consumer())
    notified(driver, ONE)

    beat(driver, ONE, consumer())

    assert notified(driver, ONE) == []


def test_members_are_listed_once_for_each_connection():
    driver = Driver()
    beat(driver, ONE, consumer(), client_id="same")
    beat(driver, TWO, consumer(), client_id="same")

    code, _, body = ids(driver)

    assert (
        code,
        decode_body(GetConsumerListByGroupResponseBody, body).consumer_id_list,
    ) == (0, ["same", "same"])


def test_the_members_of_an_unknown_group_are_answered_with_1():
    assert ids(Driver()) == (1, "no consumer for this group, g", b"")


def test_only_a_newer_subscription_replaces_one():
    driver = Driver()
    beat(driver, ONE, consumer(tags="A", version=5))
    beat(driver, ONE, consumer(tags="B", version=5))
    assert need(driver.broker.clients.subscription("g", "orders")).sub_string == "A"

    beat(driver, ONE, consumer(tags="C", version=6))

    assert need(driver.broker.clients.subscription("g", "orders")).sub_string == "C"


@pytest.mark.parametrize("topics", [("orders", "more"), ()])
def test_a_changed_list_of_topics_notifies_the_members(topics):
    driver = Driver()
    beat(driver, ONE, consumer())
    notified(driver, ONE)

    beat(driver, ONE, consumer(topics=topics))

    assert notified(driver, ONE) == ["g"]
    assert sorted(
        need(driver.broker.clients.consumer_group("g")).subscriptions
    ) == sorted(topics)


def test_a_heartbeat_without_subscriptions_keeps_them():
    driver = Driver()
    beat(driver, ONE, consumer())

    beat(driver, ONE, consumer(topics=()), without_sub=True)

    assert driver.broker.clients.subscription("g", "orders") is not None


def test_unregistering_notifies_the_other_members():
    driver = Driver()
    beat(driver, ONE, consumer())
    beat(driver, TWO, consumer())
    notified(driver, ONE), notified(driver, TWO)

    answer = driver.ask(
        RequestCode.UNREGISTER_CLIENT,
        UnregisterClientRequestHeader(client_id="c2", consumer_group="g"),
        peer=TWO,
    )

    assert need(answer).code == 0
    assert (notified(driver, ONE), notified(driver, TWO)) == (["g"], [])
    assert decode_body(
        GetConsumerListByGroupResponseBody, ids(driver)[2]
    ).consumer_id_list == ["c1"]


def test_a_closed_connection_notifies_the_other_members():
    driver = Driver()
    beat(driver, ONE, consumer())
    beat(driver, TWO, consumer())
    notified(driver, ONE)

    driver.disconnect(TWO)

    assert notified(driver, ONE) == ["g"]
    assert decode_body(
        GetConsumerListByGroupResponseBody, ids(driver)[2]
    ).consumer_id_list == ["c1"]


def test_a_group_is_forgotten_with_its_last_member():
    driver = Driver()
    beat(driver, ONE, consumer())

    driver.disconnect(ONE)

    assert driver.broker.clients.consumer_group("g") is None
    assert driver.broker.clients.groups() == []
    assert driver.broker.groups.get("g") is not None


def test_120_s_of_silence_close_the_connection_without_notices():
    driver = Driver()
    beat(driver, ONE, consumer())
    beat(driver, TWO, consumer())
    for _ in range(4):
        driver.wait(30_000)
        beat(driver, ONE, consumer())
    notified(driver, ONE)
    assert driver.closed == []

    driver.wait(10_000)

    assert driver.closed == [TWO]
    driver.disconnect(TWO)
    assert notified(driver, ONE) == []
    assert decode_body(
        GetConsumerListByGroupResponseBody, ids(driver)[2]
    ).consumer_id_list == ["c1"]


def test_a_silent_producer_is_closed_too():
    driver = Driver()
    beat(driver, ONE, producers=(ProducerData(group_name="pg"),))
    assert [m.client_id for m in driver.broker.clients.producers("pg")] == ["c1"]

    driver.wait(130_000)

    assert driver.closed == [ONE]
    assert driver.broker.clients.producer_groups() == []


def test_groups_of_one_heartbeat_stay_as_long_as_one_of_them_is_named():
    driver = Driver()
    producers = (ProducerData(group_name="pg"), ProducerData(group_name="other"))
    beat(driver, ONE, consumer(), producers=producers)
    for _ in range(10):
        driver.wait(30_000)
        beat(driver, ONE, consumer())

    assert driver.closed == []
    assert driver.broker.clients.producer_groups() == ["pg", "other"]


def test_a_later_group_that_is_no_longer_named_closes_its_connection():
    """As at real brokers: a proxy has a connection of its own for such groups."""
    driver = Driver()
    beat(driver, ONE, consumer())
    beat(driver, ONE, producers=(ProducerData(group_name="pg"),))
    for _ in range(4):
        driver.wait(30_000)
        beat(driver, ONE, consumer())
    assert driver.closed == []

    driver.wait(10_000)

    assert driver.closed == [ONE]
    assert driver.broker.clients.producer_groups() == []


def test_producers_are_called_in_turn():
    driver = Driver()
    beat(driver, ONE, producers=(ProducerData(group_name="pg"),))
    beat(driver, TWO, producers=(ProducerData(group_name="pg"),))

    found = {driver.broker.clients.any_producer_peer("pg") for _ in range(2)}

    assert found == {ONE, TWO}
    assert driver.broker.clients.any_producer_peer("other") is None


def test_a_group_can_switch_notifications_off():
    driver = Driver()
    config = need(driver.broker.groups.find_or_create("g"))
    driver.broker.groups.put(
        dataclasses.replace(config, notify_consumer_ids_changed_enable=False)
    )

    beat(driver, ONE, consumer())

    assert notified(driver, ONE) == []


def test_too_many_groups_of_one_connection_are_refused():
    driver = Driver()

    answer = beat(driver, ONE, *(consumer(f"g{i}", topics=()) for i in range(1_001)))

    assert (answer.code, answer.remark) == (
        1,
        "a connection can have at most 1000 consumer groups and 1000 producer groups",
    )
    assert driver.broker.clients.groups() == []
    assert driver.broker.groups.get("g0") is None


@pytest.mark.parametrize("kind", ["consumers", "producers"])
def test_the_groups_of_earlier_heartbeats_count_for_their_connection(kind):
    driver = Driver()

    def join(*groups):
        if kind == "consumers":
            return beat(driver, ONE, *(consumer(each, topics=()) for each in groups))
        producers = tuple(ProducerData(group_name=each) for each in groups)
        return beat(driver, ONE, producers=producers)

    assert join(*(f"g{i}" for i in range(1_000))).code == 0
    assert join("g0").code == 0
    assert join("over").code == 1


def test_a_group_subscribes_to_at_most_10_000_topics():
    driver = Driver()
    topics = [f"t{i}" for i in range(10_001)]

    assert beat(driver, ONE, consumer(topics=topics[1:])).code == 0
    answer = beat(driver, ONE, consumer(topics=topics, version=2))

    assert (answer.code, answer.remark) == (
        1,
        "group g subscribes to more than 10000 topics",
    )
    assert driver.broker.clients.subscription("g", "t0") is None


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"clientID":null}'])
def test_an_unreadable_heartbeat_is_answered_with_1(body):
    answer = need(Driver().ask(RequestCode.HEART_BEAT, body=body))

    assert answer.code == ResponseCode.SYSTEM_ERROR
