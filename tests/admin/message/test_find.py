"""Finding messages: every broker is searched to the end, or named."""

from __future__ import annotations

import pytest

from rmqcli import Admin
from rmqcli.admin.message.find import (
    FoundMessages,
    find_by_index,
    missing_message,
    parse_place,
)
from rmqcli.api.client import Client
from rmqcli.broker.cluster.seeding import Seed
from rmqcli.config import ClientConfig
from rmqcli.errors import (
    ConfigError,
    DeadlineError,
    DecodeError,
    DeniedError,
    NotFoundError,
    PartialError,
    UnsupportedError,
    UsageError,
)
from rmqcli.testing import ManualClock, faults
from rmqcli.wire.codes import RequestCode

#: What a broker answers that has no index, or another kind of it.
NOT_FOUND = faults.answer(22, "can not find message, maybe time range not correct")
#: What ACL 1.0 answers, with code 1.
DENIED_BY_ACL_1 = "org.apache.rocketmq.acl.common.AclException: No default permission"


@pytest.fixture
def cluster(rmq_cluster_factory):
    cluster = rmq_cluster_factory(brokers=2, queues=2)
    cluster.create_topic("orders")
    cluster.create_topic("payments")
    return cluster


@pytest.fixture
def admin(cluster):
    with Admin(namesrv=cluster.namesrv) as admin:
        yield admin


def bodies(found):
    return [message.body.decode() for message in found.messages]


def put(cluster, topic, body, **more):
    """Store one message in queue 0 of broker-b; return its place and ids."""
    seed = Seed(body=body.encode(), **more)
    (seeded,) = cluster.send(topic, [seed], broker="broker-b", queue_id=0)
    return seeded


def test_a_message_is_found_by_each_of_its_names(cluster, admin):
    seeded = put(cluster, "orders", "a", keys=["k1", "k2"])
    put(cluster, "orders", "b", keys=["k2x"])
    for ref, topic in [
        (seeded.msg_id, None),
        (seeded.msg_id.lower(), None),
        (seeded.msg_id, "orders"),
        (seeded.offset_msg_id, None),
        (seeded.offset_msg_id.lower(), "orders"),
        ("orders@broker-b:0:0", None),
        ("k2", "orders"),
    ]:
        found = admin.find_messages(ref, topic=topic)
        assert bodies(found) == ["a"], ref
        assert found.is_complete
        (message,) = found.messages
        assert (message.topic, message.broker_name) == ("orders", "broker-b")
        assert (message.queue_id, message.queue_offset) == (0, 0)


def test_nothing_is_found_under_another_topic_place_or_id(cluster, admin):
    seeded = put(cluster, "orders", "a", keys=["k1"])
    put(cluster, "payments", "p")
    for ref, topic in [
        (seeded.msg_id, "payments"),
        (seeded.offset_msg_id, "payments"),
        ("k1", "payments"),
        ("k", "orders"),
        ("orders@broker-b:0:7", None),
        ("0" * 32, None),
    ]:
        found = admin.find_messages(ref, topic=topic)
        assert bodies(found) == [], ref
        assert found.is_complete


def test_a_key_needs_its_topic(admin):
    with pytest.raises(UsageError, match="'k1' is neither a message id nor TOPIC@"):
        admin.find_messages("k1")
    with pytest.raises(NotFoundError, match="orders-x does not exist"):
        admin.find_messages("k1", topic="orders-x")


def test_a_key_that_looks_like_an_id_keeps_its_small_letters(cluster, admin):
    key = "d41d8cd98f00b204e9800998ecf8427e"
    put(cluster, "orders", "a", keys=[key])
    put(cluster, "orders", "b", keys=[key.upper()])
    assert bodies(admin.find_messages(key, topic="orders")) == ["a"]
    assert bodies(admin.find_messages(key.upper(), topic="orders")) == ["b"]


def test_all_messages_with_the_same_id_are_found(cluster, admin):
    first = put(cluster, "orders", "a")
    for name in ("broker-a", "broker-b"):
        seed = Seed(body=b"again", properties={"UNIQ_KEY": first.msg_id})
        cluster.send("orders", [seed], broker=name, queue_id=1)
    found = admin.find_messages(first.msg_id)
    assert sorted(bodies(found)) == ["a", "again", "again"]


def test_keys_with_the_same_hash_are_told_apart(cluster, admin):
    put(cluster, "orders", "Aa", keys=["Aa"])
    put(cluster, "orders", "BB", keys=["BB"])
    assert bodies(admin.find_messages("BB", topic="orders")) == ["BB"]


def test_a_key_with_spaces_is_found_where_its_words_are_adjacent(cluster, admin):
    put(cluster, "orders", "a", keys=["x", "y"])
    put(cluster, "orders", "b", keys=["x", "z", "y"])
    assert bodies(admin.find_messages("x y", topic="orders")) == ["a"]


def test_more_messages_than_a_broker_tells_at_a_time_are_found(cluster, admin):
    seeds = [Seed(body=b"%d" % n, keys=["k"]) for n in range(150)]
    cluster.send("orders", seeds[:100], broker="broker-a", queue_id=0)
    cluster.send("orders", seeds[100:], broker="broker-b", queue_id=0)
    found = admin.find_messages("k", topic="orders")
    if found.more_on:  # all were stored in one second, of which a broker tells 64
        assert found.more_on == ["broker-a"]
        assert not found.is_complete
        assert len(found.messages) >= 64 + 50
    else:
        assert sorted(map(int, bodies(found))) == list(range(150))


@pytest.mark.parametrize("is_shown", [True, False])
def test_a_broker_that_tells_few_messages_at_a_time_is_asked_for_the_rest(
    rmq_cluster_factory, is_shown
):
    """Also where the account may not read its setting maxMsgsNumBatch."""
    clock = ManualClock(now_ms=1_700_000_000_000)
    cluster = rmq_cluster_factory(queues=1, clock=clock)
    cluster.create_topic("orders")
    for n in range(25):
        cluster.send("orders", [Seed(body=b"%d" % n, keys=["k"])])
        clock.advance(1_000)
    with Admin(namesrv=cluster.namesrv) as admin:
        plan = admin.plan_broker_settings(
            {"maxMsgsNumBatch": "10"}, brokers=["broker-a"]
        )
        admin.apply_settings(plan)
        if not is_shown:
            deny = faults.answer(16, "no permission")
            cluster.faults.add(deny, code=RequestCode.GET_BROKER_CONFIG)
        found = admin.find_messages("k", topic="orders")
    assert bodies(found) == [str(n) for n in range(25)]
    assert found.is_complete


def test_more_messages_of_a_second_than_such_a_broker_tells_are_not_all_of_a_key(
    rmq_cluster_factory,
):
    cluster = rmq_cluster_factory(queues=1, clock=ManualClock(now_ms=1_700_000_000_000))
    cluster.create_topic("orders")
    cluster.send("orders", [Seed(body=b"%d" % n, keys=["k"]) for n in range(5)])
    with Admin(namesrv=cluster.namesrv) as admin:
        plan = admin.plan_broker_settings(
            {"maxMsgsNumBatch": "3"}, brokers=["broker-a"]
        )
        admin.apply_settings(plan)
        found = admin.find_messages("k", topic="orders")
        assert (bodies(found), found.more_on) == (["2", "3", "4"], ["broker-a"])


def test_messages_that_do_not_fit_into_one_answer_are_asked_for_in_more(
    rmq_cluster_factory,
):
    """The newest were left out, without a word."""
    clock = ManualClock(now_ms=1_700_000_000_000)
    cluster = rmq_cluster_factory(queues=1, clock=clock)
    cluster.create_topic("orders")
    for n in range(6):
        body = b"%d" % n + bytes(3_500_000)
        cluster.send("orders", [Seed(body=body, keys=["k"])])
        clock.advance(1_000)
    with Admin(namesrv=cluster.namesrv) as admin:
        found = admin.find_messages("k", topic="orders")
    assert [message.body[:1] for message in found.messages] == [
        b"0",
        b"1",
        b"2",
        b"3",
        b"4",
        b"5",
    ]
    assert found.is_complete


def test_a_message_is_not_said_to_be_nowhere_when_a_broker_did_not_tell_all():
    error = missing_message(FoundMessages(more_on=["broker-a"]), "a b", "orders")
    assert isinstance(error, PartialError)
    assert error.message == "a b was not found: broker-a did not tell all messages"


def test_a_broker_that_denied_is_not_said_to_be_silent():
    denied = DeniedError("no right", code=1, name="")
    found = FoundMessages(errors={"broker-a": denied})
    assert found.silence == "broker-a denied the look-up: no right"


def test_records_that_cannot_be_read_are_counted_by_broker(cluster, admin):
    put(cluster, "orders", "a", keys=["k"])
    damaged = faults.answer(0, body=bytes([0, 0, 0, 8, 1, 2, 3, 4]))
    cluster.faults.add(damaged, code=RequestCode.QUERY_MESSAGE, broker="broker-a")
    found = admin.find_messages("k", topic="orders")
    assert (bodies(found), found.damaged) == (["a"], {"broker-a": 1})
    assert not found.is_complete
    assert found.unsearched == "1 record on broker-a cannot be read"
    assert (
        missing_message(found, "k").message
        == "k was not found: 1 record on broker-a cannot be read"
    )
    with pytest.raises(PartialError, match="1 record on broker-a cannot be read"):
        admin.messages_by_key("orders", "k")


@pytest.mark.parametrize(
    ("messages_max", "error", "why"),
    [
        (0, ConfigError, "messages_max is 0; it must be 1 to "),
        (-1, ConfigError, "messages_max is -1; it must be 1 to "),
        (True, TypeError, "messages_max is True, a bool; it must be an int"),
    ],
)
def test_a_number_of_messages_that_cannot_be_is_refused(
    cluster, admin, messages_max, error, why
):
    put(cluster, "orders", "a", keys=["k"])
    with pytest.raises(error, match=why):
        admin.messages_by_key("orders", "k", messages_max=messages_max)


def test_the_newest_are_kept_and_the_broker_with_more_is_named(cluster):
    for n in range(5):
        put(cluster, "orders", str(n), keys=["k"])
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        found = find_by_index(client, ["orders"], "k", found_max=3)
        assert (len(found.messages), found.more_on) == (3, ["broker-b"])
        found = find_by_index(client, ["orders"], "k", found_max=5)
        assert (len(found.messages), found.more_on) == (5, [])


def test_more_messages_of_a_second_than_a_broker_tells_are_not_all_of_a_key(
    rmq_cluster_factory,
):
    cluster = rmq_cluster_factory(queues=1, clock=ManualClock(now_ms=1_700_000_000_000))
    cluster.create_topic("orders")
    seeds = [Seed(body=b"%d" % n, keys=["k"]) for n in range(70)]
    cluster.send("orders", seeds[:64])
    with Admin(namesrv=cluster.namesrv) as admin:
        assert len(admin.messages_by_key("orders", "k", messages_max=10)) == 10
        cluster.send("orders", seeds[64:])
        with pytest.raises(PartialError, match="does not tell all messages of orders"):
            admin.messages_by_key("orders", "k")


def test_times_bound_what_is_found_although_the_index_has_whole_seconds(cluster, admin):
    for n in range(3):
        put(cluster, "orders", str(n), keys=["k"])
    messages = admin.messages_by_key("orders", "k")
    first_ms, last_ms = (messages[n].store_timestamp_ms for n in (0, -1))
    only = admin.messages_by_key("orders", "k", begin_ms=first_ms, end_ms=last_ms)
    assert sorted(m.body for m in only) == [b"0", b"1", b"2"]
    assert admin.messages_by_key("orders", "k", begin_ms=last_ms + 1) == []
    assert admin.messages_by_key("orders", "k", end_ms=first_ms - 1) == []


def test_a_broker_without_an_index_is_not_one_without_the_message(cluster, admin):
    put(cluster, "orders", "a", keys=["k"])
    code = RequestCode.QUERY_MESSAGE
    cluster.faults.add(NOT_FOUND, code=code, broker="broker-b")
    found = admin.find_messages("k", topic="orders")
    assert (bodies(found), found.without_index) == ([], ["broker-b"])
    assert not found.is_complete
    with pytest.raises(UnsupportedError, match="broker-b cannot find messages by key"):
        admin.messages_by_key("orders", "k")


def test_a_broker_that_does_not_answer_is_named(cluster, admin):
    put(cluster, "orders", "a", keys=["k"])
    cluster.send("orders", [Seed(body=b"x", keys=["k"])], broker="broker-a")
    cluster.broker("broker-b").hang()
    config = ClientConfig(namesrv=(cluster.namesrv,), timeout_ms=300)
    with Admin(client=config) as admin:
        found = admin.find_messages("k", topic="orders")
        assert (bodies(found), list(found.errors)) == (["x"], ["broker-b"])
        assert isinstance(found.errors["broker-b"], DeadlineError)


@pytest.mark.parametrize(
    "text",
    ["orders", "orders@broker-a:1", "a@b", "a@b:1:", "a@:1:2", "@b:1:2", "a:b:1"],
)
def test_other_texts_are_not_places(text):
    assert parse_place(text) is None


def test_an_index_is_tried_with_the_times_for_which_it_found_nothing(cluster, admin):
    """An index in RocksDB has no answer for all times, but one for the last seconds."""
    put(cluster, "orders", "a", keys=["k"])
    asked = []
    code = RequestCode.QUERY_MESSAGE
    cluster.faults.observe(
        on_request=lambda seen: asked.append(seen.command.ext_fields),
        code=code,
        broker="broker-b",
    )
    cluster.faults.add(NOT_FOUND, code=code, broker="broker-b")
    found = admin.find_messages("k", topic="orders")
    assert (bodies(found), found.without_index) == ([], ["broker-b"])
    assert [each["beginTimestamp"] for each in asked] == ["1", "1"]
    assert asked[0]["endTimestamp"] == asked[1]["endTimestamp"]


def test_a_key_that_has_only_blanks_is_refused(admin):
    with pytest.raises(UsageError, match="no message has a key that consists of"):
        admin.find_messages("  ", topic="orders")


def test_a_topic_that_stores_batches_as_one_record_is_not_searched_by_the_index(
    cluster, admin
):
    cluster.create_topic("batches", attributes={"queue.type": "BatchCQ"})
    seeds = [Seed(body=b"%d" % n, keys=["k"]) for n in range(3)]
    cluster.send("batches", seeds, broker="broker-a", queue_id=0)
    cluster.send("batches", [Seed(body=b"3", keys=["k"])], broker="broker-a")
    found = admin.find_messages("k", topic="batches")
    assert sorted(found.without_index) == ["broker-a", "broker-b"]
    assert not found.is_complete


def test_a_message_without_id_and_key_does_not_speak_for_the_index(rmq_cluster_factory):
    """It is in no index, so the one before it has to be looked up."""
    cluster = rmq_cluster_factory(brokers=2, queues=2, like="4.6.0")
    cluster.create_topic("orders")
    put(cluster, "orders", "a", keys=["k"])
    put(cluster, "orders", "b", properties={"UNIQ_KEY": ""})
    with Admin(namesrv=cluster.namesrv) as admin:
        assert admin.find_messages("x", topic="orders").is_complete
        code = RequestCode.QUERY_MESSAGE
        cluster.faults.add(NOT_FOUND, code=code, broker="broker-b")
        found = admin.find_messages("k", topic="orders")
    assert (bodies(found), found.without_index) == ([], ["broker-b"])


def test_a_place_without_a_message_is_named_with_its_queue(cluster, admin):
    put(cluster, "orders", "a")
    ref = "orders@broker-b:0:1"
    error = missing_message(admin.find_messages(ref), ref)
    assert error.message == "orders@broker-b:0 has no message at offset 1"


def test_a_place_with_a_damaged_message_is_not_empty(cluster, admin):
    put(cluster, "orders", "a")
    answer = faults.answer(
        0,
        ext_fields={
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": "1",
            "minOffset": "0",
            "maxOffset": "1",
        },
        body=bytes([0, 0, 0, 8, 1, 2, 3, 4]),
    )
    cluster.faults.add(answer, code=RequestCode.PULL_MESSAGE)
    with pytest.raises(DecodeError, match="the message at orders@broker-b:0:0 is dam"):
        admin.find_messages("orders@broker-b:0:0")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (faults.answer(2, "no"), "did not answer: "),
        (faults.answer(215, "flow control"), "did not answer: "),
        (faults.answer(16, "no"), "denied the look-up: "),
        (faults.answer(1, DENIED_BY_ACL_1), "denied the look-up: "),
    ],
)
def test_a_broker_that_refuses_to_read_an_offset_id_is_named(
    cluster, admin, answer, words
):
    """It is busy, or denies it: that does not say that there is no such message."""
    seeded = put(cluster, "orders", "a")
    cluster.faults.add(answer, code=RequestCode.VIEW_MESSAGE_BY_ID)
    found = admin.find_messages(seeded.offset_msg_id)
    error = missing_message(found, seeded.offset_msg_id)
    assert isinstance(error, PartialError)
    assert f"was not found: broker-b {words}" in error.message
    with pytest.raises(PartialError, match=f"was not found: broker-b {words}"):
        admin.message_by_id("orders", seeded.offset_msg_id)
    assert (bodies(found), list(found.errors)) == ([], ["broker-b"])


def test_one_message_has_an_id_of_remoting_or_grpc_in_any_case(cluster, admin):
    grpc_id = "01FE80000000000000000000000000ABCD"
    put(cluster, "orders", "grpc", properties={"UNIQ_KEY": grpc_id})
    remoting = put(cluster, "orders", "remoting")
    for message_id, body in [
        (grpc_id, b"grpc"),
        (grpc_id.lower(), b"grpc"),
        (remoting.msg_id.lower(), b"remoting"),
        (remoting.offset_msg_id.lower(), b"remoting"),
    ]:
        assert admin.message_by_id("orders", message_id).body == body


def test_one_message_is_read_from_a_slave_whose_master_is_down(rmq_cluster_factory):
    cluster = rmq_cluster_factory(queues=1)
    cluster.create_topic("orders")
    (seeded,) = cluster.send("orders", ["a"])
    cluster.add_slave()
    cluster.broker("broker-a").kill()
    with Admin(namesrv=cluster.namesrv) as admin:
        assert admin.message_by_id("orders", seeded.msg_id).body == b"a"


def test_one_message_is_not_taken_from_the_brokers_that_answer(cluster, admin):
    seeded = put(cluster, "orders", "a")
    busy = faults.answer(2, "busy")
    cluster.faults.add(busy, code=RequestCode.QUERY_MESSAGE, broker="broker-a")
    with pytest.raises(
        PartialError,
        match=f"others may have the id {seeded.msg_id}: broker-a did not answer",
    ):
        admin.message_by_id("orders", seeded.msg_id)


def test_one_message_is_found_by_its_id_only(cluster, admin):
    key = "D41D8CD98F00B204E9800998ECF8427E"
    put(cluster, "orders", "a", keys=[key])
    with pytest.raises(NotFoundError, match=f"no broker has a message {key}"):
        admin.message_by_id("orders", key)
    with pytest.raises(UsageError, match="'k1' is not a message id"):
        admin.message_by_id("orders", "k1")


def test_a_broker_that_refuses_to_search_by_time_is_named(cluster, admin):
    """Its index may have a gap at the time of the id."""
    seeded = put(cluster, "orders", "a")
    absent = f"{seeded.msg_id[:-4]}FFFF"
    assert admin.find_messages(absent, topic="orders").is_complete
    refuse = faults.answer(16, "no")
    cluster.faults.add(refuse, code=RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
    found = admin.find_messages(absent, topic="orders")
    assert (bodies(found), sorted(found.errors)) == ([], ["broker-a", "broker-b"])


def test_an_id_is_not_nowhere_when_a_broker_did_not_tell_its_topics(cluster, admin):
    put(cluster, "orders", "a")
    cluster.faults.add(
        faults.answer(1, "no"),
        code=RequestCode.GET_ALL_TOPIC_CONFIG,
        broker="broker-b",
    )
    ref = "0" * 32
    found = admin.find_messages(ref)
    error = missing_message(found, ref)
    assert (list(found.errors), found.is_complete) == (["broker-b"], False)
    assert isinstance(error, PartialError)
    assert error.message.startswith(f"{ref} was not found: broker-b")
