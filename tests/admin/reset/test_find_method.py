"""Which members are online, and how the offsets at each broker can be set.

The brokers are of each version, and the members of each kind.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from rmqcli.admin.reset.find_method import Membership, read_members
from rmqcli.admin.reset.gather import gather_plan
from rmqcli.admin.reset.method import Mechanism
from rmqcli.admin.reset.target import ResetRequest, Shift, ToOffsets, ToPosition
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.api.client import Client
from rmqcli.broker.profiles import PROFILE_5_5_0
from rmqcli.config import ClientConfig
from rmqcli.errors import BrokerError, NotFoundError, TransportError
from rmqcli.model import MessageQueue
from rmqcli.position import AtOffset, AtTime, Earliest, Latest
from rmqcli.queue_selector import parse_queue_selector
from rmqcli.testing import Seed, faults
from rmqcli.wire.bodies.consumer import Connection, ConsumerConnection
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.subscription import SubscriptionData
from rmqcli.wire.version import V5_1_0, V5_2_0, V5_3_0
from tests.admin.reset.member import PULL, FakeMember

A, B = ("T", "broker-a"), ("T", "broker-b")
SEARCH = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
CONFIGS = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
CONNECTIONS = RequestCode.GET_CONSUMER_CONNECTION_LIST
BROKER_CONFIG = RequestCode.GET_BROKER_CONFIG
NOON_MS = 1_767_268_800_000


@pytest.fixture
def start(rmq_cluster_factory):
    """Starts clusters with the topic T, 10 messages in each queue, and the group G."""

    def start(like="5.5.0", *, queues=2, group="G", **options):
        cluster = rmq_cluster_factory(queues=queues, like=like, **options)
        cluster.create_topic("T")
        if group:
            cluster.create_group(group)
        cluster.send("T", ["x"] * 10 * queues * len(cluster.brokers))
        return cluster

    return start


@pytest.fixture
def connect():
    """Makes clients; they are closed after the test."""
    clients = []

    def connect(cluster, timeout_ms=60_000):
        config = ClientConfig(namesrv=(cluster.namesrv,), timeout_ms=timeout_ms)
        clients.append(Client(config))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


def members_of(client, group="G"):
    return read_members(client, client.route("T"), group)


def commit(cluster, client, *offsets, broker="broker-a"):
    for queue_id, offset in enumerate(offsets):
        call = update_consumer_offset("G", "T", queue_id, commit_offset=offset)
        client.invoke(cluster.broker(broker).address, call)


def plan_of(client, target, **request):
    return gather_plan(
        client, ResetRequest(group="G", topic="T", target=target, **request)
    )


# --- which members are online ---


def test_every_broker_says_who_is_online_there(start, connect):
    cluster = start(brokers=2)
    with (
        FakeMember(cluster, client_id="z@1"),
        FakeMember(cluster, client_id="a@1"),
        FakeMember(cluster, client_id="a@1", broker="broker-b"),
    ):
        members = members_of(connect(cluster))
    assert members.client_ids("T") == ("a@1", "z@1")
    assert members.is_live("broker-a", "T")
    assert members.is_live("broker-b", "T")
    assert not members.errors
    assert not members.is_broadcast
    assert members.takes_push("broker-a")


def test_who_is_not_there_reads_nothing(start, connect):
    cluster = start(brokers=2)
    with FakeMember(cluster):
        members = members_of(connect(cluster))
    assert members.is_live("broker-a", "T")
    assert not members.is_live("broker-b", "T")
    assert not members.takes_push("broker-b")
    assert members.seen["broker-b"] is None


def test_members_that_read_another_topic_are_not_in_the_way(start, connect):
    cluster = start()
    with FakeMember(cluster, topics=("U", "V"), client_id="a@1"):
        members = members_of(connect(cluster))
    assert not members.is_live("broker-a", "T")
    assert members.is_live("broker-a", "U")
    assert (members.client_ids("T"), members.client_ids("V")) == ((), ("a@1",))


def test_members_that_name_no_topic_may_read_any(start, connect):
    """Clients that choose their queues themselves send no subscription."""
    cluster = start()
    with FakeMember(cluster, topics=(), consume_type=PULL, client_id="a@1"):
        members = members_of(connect(cluster))
    assert members.is_live("broker-a", "T")
    assert members.client_ids("T") == ("a@1",)
    assert not members.takes_push("broker-a")


def test_one_broker_that_says_broadcast_is_enough(start, connect):
    cluster = start(brokers=2)
    with FakeMember(cluster, broker="broker-b", message_model="BROADCASTING"):
        members = members_of(connect(cluster))
    assert members.is_broadcast
    one = ConsumerConnection(
        connections=(),
        subscriptions={},
        consume_type=None,
        message_model="CLUSTERING",
        consume_from_where=None,
    )
    assert not Membership({"a": one, "b": None}, {}).is_broadcast
    assert not Membership({}, {}).is_broadcast


def test_a_group_that_no_broker_knows_does_not_exist(start, connect):
    cluster = start(brokers=2)
    with pytest.raises(NotFoundError) as caught:
        members_of(connect(cluster), "nobody")
    assert caught.value.message == "group nobody does not exist"
    assert (caught.value.code, caught.value.hint) == (
        26,
        "list groups with: Admin.groups()",
    )


def test_a_group_that_one_broker_knows_exists(start, connect):
    cluster = start(brokers=2, group=None)
    with FakeMember(cluster, "G", broker="broker-b"):
        members = members_of(connect(cluster))
    assert set(members.seen) == {"broker-a", "broker-b"}
    later = members_of(connect(cluster))  # broker-b still has settings
    assert later.seen == {"broker-a": None, "broker-b": None}


def test_a_group_without_settings_exists_while_it_has_members(start, connect):
    cluster = start()
    client = connect(cluster)
    with FakeMember(cluster, client_id="a@1"):
        cluster.call(lambda: cluster.broker().state.groups.delete("G"))
        assert members_of(client).client_ids("T") == ("a@1",)


@pytest.mark.parametrize("code", [CONFIGS, CONNECTIONS])
def test_a_broker_that_does_not_answer_is_an_error_of_its_own(start, connect, code):
    cluster = start(brokers=2)
    cluster.faults.add(faults.answer(1, "no"), code=code, broker="broker-a")
    members = members_of(connect(cluster))
    assert set(members.errors) == {"broker-a"}
    assert isinstance(members.errors["broker-a"], BrokerError)
    assert set(members.seen) == {"broker-b"}
    assert not members.is_live("broker-a", "T")


def test_a_broker_that_has_no_master_is_an_error_of_its_own(start, connect):
    cluster = start(brokers=2)
    cluster.add_slave("broker-a")
    cluster.fail_over("broker-a")
    members = members_of(connect(cluster))
    assert members.errors["broker-a"].message == (
        "broker broker-a of topic T currently has no master"
    )
    assert set(members.seen) == {"broker-b"}


def test_when_no_broker_answers_its_error_is_raised(start, connect):
    cluster = start()
    cluster.broker().hang()
    with pytest.raises(TransportError):
        members_of(connect(cluster, timeout_ms=200))
    cluster.broker().resume()


def test_the_group_may_exist_on_a_broker_that_does_not_answer(start, connect):
    """The error is not "does not exist", because one broker gave no answer."""
    cluster = start(brokers=2, group=None)
    cluster.faults.add(faults.answer(1, "no"), code=CONFIGS, broker="broker-b")
    with pytest.raises(BrokerError) as caught:
        members_of(connect(cluster))
    assert not isinstance(caught.value, NotFoundError)
    assert "no" in caught.value.message


def test_brokers_that_may_not_be_read_are_not_asked(start, connect):
    cluster = start(brokers=2)
    state = cluster.broker("broker-b").state
    config = cluster.call(lambda: state.topics.get("T"))
    cluster.call(lambda: state.topics.put(replace(config, perm=2)))
    asked = cluster.faults.observe(code=CONFIGS)
    assert set(members_of(connect(cluster)).seen) == {"broker-a"}
    assert {each.broker for each in asked.requests} == {"broker-a"}


# --- how offsets are set ---


@pytest.mark.parametrize("like", ["4.6.0", "4.9.7", "5.5.0"])
def test_without_members_offsets_are_committed_at_the_master(start, connect, like):
    cluster = start(like, brokers=2)
    asked = cluster.faults.observe(code=BROKER_CONFIG)
    methods = plan_of(connect(cluster), ToPosition(Earliest())).methods
    assert {key: method.mechanism for key, method in methods.items()} == {
        A: Mechanism.COMMIT,
        B: Mechanism.COMMIT,
    }
    assert methods[A].address == cluster.broker("broker-a").address
    assert methods[B].address == cluster.broker("broker-b").address
    assert not any(method.is_live or method.push for method in methods.values())
    # Only newer ones may keep positions of POP apart.
    assert len(asked.requests) == (2 if like == "5.5.0" else 0)


def test_a_commit_is_not_enough_where_pop_has_positions_of_its_own(start, connect):
    cluster = start("5.5.0")
    config = b"popConsumerKVServiceEnable=true\nuseServerSideResetOffset=%s\n"
    answers = [faults.answer(0, body=config % each) for each in (b"true", b"false")]
    rule = cluster.faults.add(answers[0], code=BROKER_CONFIG)
    method = plan_of(connect(cluster), ToPosition(Earliest())).methods[A]
    assert (method.mechanism, method.is_live) == (Mechanism.SERVER_RESET, False)
    cluster.faults.remove(rule)
    cluster.faults.add(answers[1], code=BROKER_CONFIG)
    client = connect(cluster)
    method = plan_of(client, ToPosition(Earliest())).methods[A]
    assert method.mechanism is Mechanism.COMMIT
    assert method.warning.startswith("if the group uses POP, a commit has no effect")
    offsets = cluster.broker().state.offsets
    cluster.call(lambda: offsets.commit("G", "T", 0, 3))
    cluster.create_topic("%RETRY%G_T", queues=1)
    cluster.send("%RETRY%G_T", ["again"])
    cluster.call(lambda: offsets.commit("G", "%RETRY%G_T", 0, 0))  # as a broker does
    method = plan_of(connect(cluster), ToPosition(Earliest())).methods[A]
    assert method.mechanism is Mechanism.REFUSED
    assert "would ignore a commit" in method.warning


def test_a_new_broker_resets_by_itself(start, connect):
    cluster = start("5.5.0")
    with FakeMember(cluster):
        method = plan_of(connect(cluster), ToPosition(AtOffset(3))).methods[A]
    assert (method.mechanism, method.is_live, method.push) == (
        Mechanism.SERVER_RESET,
        True,
        None,
    )


def test_each_broker_of_a_mixed_group_has_its_own_way(start, connect):
    cluster = start("5.5.0", brokers=2)
    with FakeMember(cluster, broker="broker-b"):
        methods = plan_of(connect(cluster), ToPosition(AtOffset(3))).methods
    assert [methods[A].mechanism, methods[B].mechanism] == [
        Mechanism.COMMIT,
        Mechanism.SERVER_RESET,
    ]


@pytest.mark.parametrize(
    ("version", "asked", "is_server_side"),
    [
        (V5_1_0, None, False),
        (V5_1_0, True, True),
        (V5_1_0 - 1, True, False),  # this version lacks the setting
        (V5_2_0, False, False),
        (V5_2_0, None, True),
        (V5_2_0 - 1, None, False),
    ],
)
def test_the_setting_of_the_broker_decides(
    start, connect, version, asked, is_server_side
):
    profile = replace(
        PROFILE_5_5_0, version=version, resets_at_broker=version >= V5_2_0
    )
    settings = {"profile": profile, "use_server_side_reset_offset": asked}
    cluster = start("5.5.0", settings=settings)
    client = connect(cluster)
    commit(cluster, client, 4, 4)
    with FakeMember(cluster):
        method = plan_of(client, ToPosition(AtOffset(3))).methods[A]
    expected = Mechanism.SERVER_RESET if is_server_side else Mechanism.REFUSED
    assert method.mechanism is expected


@pytest.mark.parametrize(
    ("version", "text", "is_server_side"),
    [
        (V5_1_0, "", False),  # the setting is not in the answer: default
        (V5_2_0 - 1, "", False),
        (V5_2_0, "", True),
        (V5_2_0, "useServerSideResetOffset=false", False),
        (V5_1_0, "useServerSideResetOffset=true", True),
        (V5_1_0, None, False),  # the broker does not answer
        (V5_2_0, None, True),
    ],
)
def test_what_a_broker_does_not_say_is_its_versions_default(
    start, connect, version, text, is_server_side
):
    settings = {"profile": replace(PROFILE_5_5_0, version=version)}
    cluster = start("5.5.0", settings=settings)
    client = connect(cluster)
    commit(cluster, client, 4, 4)
    action = (
        faults.disconnect() if text is None else faults.answer(0, body=text.encode())
    )
    cluster.faults.add(action, code=BROKER_CONFIG)
    with FakeMember(cluster):
        method = plan_of(client, ToPosition(AtOffset(3))).methods[A]
    expected = Mechanism.SERVER_RESET if is_server_side else Mechanism.REFUSED
    assert method.mechanism is expected


# --- pushes: old brokers accept one time for all queues ---


@pytest.fixture
def old(start, connect):
    """Starts clusters of old versions, with the group at 4 in both queues.

    Returns the cluster and a client.
    """

    def old(like="4.9.7"):
        cluster = start(like)
        client = connect(cluster)
        commit(cluster, client, 4, 4)
        return cluster, client

    return old


def push_of(client, target, **request):
    """Return the mechanism, and time and force of the push (None without a push)."""
    method = plan_of(client, target, **request).methods[A]
    assert method.is_live
    push = method.push
    return method.mechanism, push and (push.timestamp_ms, push.is_force)


@pytest.mark.parametrize(
    ("position", "push"),
    [(Earliest(), (0, True)), (Latest(), (-1, True))],
    ids=["earliest", "latest"],
)
def test_the_ends_are_times_too(old, position, push):
    cluster, client = old()
    with FakeMember(cluster):
        found = push_of(client, ToPosition(position))
    assert found == (Mechanism.CLIENT_PUSH, push)


def test_members_that_pull_for_themselves_obey_no_push(old):
    cluster, client = old()
    with FakeMember(cluster, consume_type=PULL):
        found = push_of(client, ToPosition(Earliest()))
    assert found == (Mechanism.REFUSED, None)


def test_proof_is_worth_a_commit(old):
    cluster, client = old()
    with FakeMember(cluster):
        found = push_of(client, ToPosition(AtOffset(3)), wants_proof=True)
    assert found == (Mechanism.COMMIT, None)


@pytest.fixture
def timed(rmq_cluster_factory, rmq_clock, connect):
    """A cluster of an old version and a client, with the group at 4 in both queues.

    Each queue has ten messages, stored one second apart from NOON on.
    """
    rmq_clock.now_ms = NOON_MS
    cluster = rmq_cluster_factory(queues=2, like="4.9.7", clock=rmq_clock)
    cluster.create_topic("T")
    cluster.create_group("G")
    for _ in range(10):
        for queue_id in (0, 1):
            cluster.send("T", [Seed(body=b"x")], queue_id=queue_id)
        cluster.advance(1_000)
    client = connect(cluster)
    commit(cluster, client, 4, 4)
    return cluster, client


@pytest.mark.parametrize("like_offset", [0, 3, 6, 9])
def test_the_store_time_of_the_target_is_found(timed, like_offset):
    cluster, client = timed
    with FakeMember(cluster):
        found = push_of(client, ToPosition(AtOffset(like_offset)))
    time_ms = 0 if like_offset == 0 else NOON_MS + 1_000 * like_offset
    assert found == (Mechanism.CLIENT_PUSH, (time_ms, True))


def test_the_time_that_was_asked_for_comes_before_store_times(timed):
    cluster, client = timed
    with FakeMember(cluster):
        # 4.x finds the message nearest to a time; all queues are searched for it.
        at = AtTime(NOON_MS + 3_000, "echo")
        asked = cluster.faults.observe(code=SEARCH)
        found = push_of(client, ToPosition(at))
    assert found == (Mechanism.CLIENT_PUSH, (NOON_MS + 3_000, True))
    times = {each.command.ext_fields["timestamp"] for each in asked.requests}
    assert str(NOON_MS + 3_000) in times
    assert "-1" not in times  # the end needs no search


def test_a_queue_that_stays_is_pulled_nowhere(timed):
    """A push without force moves only queues back that are ahead of its time."""
    cluster, client = timed
    commit(cluster, client, 8, 2)
    queue = MessageQueue("T", "broker-a", 0)
    with FakeMember(cluster):
        found = push_of(client, ToOffsets({queue: 5}))
    assert found == (Mechanism.CLIENT_PUSH, (NOON_MS + 5_000, False))


def test_one_queue_forward_alone_has_no_time(timed):
    cluster, client = timed
    queue = MessageQueue("T", "broker-a", 0)
    with FakeMember(cluster):
        found = push_of(client, ToOffsets({queue: 7}))
    assert found == (Mechanism.REFUSED, None)


def test_targets_outside_the_queue_are_compared_by_where_they_end(timed):
    """The plan clamps 99 to the end of the queue, and a push can go to the end."""
    cluster, client = timed
    with FakeMember(cluster):
        found = push_of(client, Shift(99))
        assert found == (Mechanism.CLIENT_PUSH, (-1, True))
        cluster.broker().trim("T", 2)
        found = push_of(client, ToPosition(AtOffset(1)))
    assert found == (Mechanism.CLIENT_PUSH, (0, True))


def test_a_queue_that_never_committed_makes_a_push_impossible(timed, connect):
    cluster, client = timed
    cluster.call(lambda: cluster.broker().state.offsets.delete_group("G"))
    commit(cluster, client, 4)
    with FakeMember(cluster):
        found = push_of(client, ToPosition(AtOffset(6)))
    assert found == (Mechanism.REFUSED, None)


def test_a_search_that_fails_proves_nothing(timed):
    cluster, client = timed
    rule = faults.answer(1, "no")
    with FakeMember(cluster):
        cluster.faults.add(rule, code=SEARCH, queue_id=1)
        found = push_of(client, ToPosition(AtOffset(6)))
        assert found == (Mechanism.REFUSED, None)
        found = push_of(client, ToPosition(Latest()))  # needs no search
    assert found == (Mechanism.CLIENT_PUSH, (-1, True))


def test_a_push_reaches_no_queue_that_is_not_written_to(timed):
    """Of the three read queues, the broker would set only the two write queues."""
    cluster, client = timed
    cluster.create_topic("T", queues=2, read_queue_nums=3)
    client.route("T", refresh=True)
    with FakeMember(cluster):
        found = push_of(client, ToPosition(Earliest()))
        assert found == (Mechanism.REFUSED, None)
        queues = {MessageQueue("T", "broker-a", each): 0 for each in (0, 1)}
        found = push_of(client, ToOffsets(queues))
    assert found == (Mechanism.CLIENT_PUSH, (0, True))


def test_a_push_reaches_queues_that_are_not_read(timed):
    """The push would also set a queue whose offset the plan did not read."""
    cluster, client = timed
    cluster.create_topic("T", queues=2, write_queue_nums=3)
    client.route("T", refresh=True)
    with FakeMember(cluster):
        found = push_of(client, ToPosition(Earliest()))
    assert found == (Mechanism.REFUSED, None)


def test_each_broker_is_pushed_by_its_own_queues(rmq_cluster_factory, connect):
    cluster = rmq_cluster_factory(queues=1, like="4.9.7", brokers=2)
    cluster.create_topic("T")
    cluster.create_group("G")
    client = connect(cluster)
    for name in ("broker-a", "broker-b"):
        cluster.send("T", ["x"] * 10, broker=name)
        commit(cluster, client, 4, broker=name)
    queue = MessageQueue("T", "broker-b", 0)
    with FakeMember(cluster), FakeMember(cluster, broker="broker-b"):
        whole = plan_of(client, ToPosition(Earliest())).methods
        half = plan_of(client, ToOffsets({queue: 0})).methods
    assert {key: method.mechanism for key, method in whole.items()} == {
        A: Mechanism.CLIENT_PUSH,
        B: Mechanism.CLIENT_PUSH,
    }
    assert list(half) == [B]
    assert half[B].mechanism is Mechanism.CLIENT_PUSH


def test_what_stops_the_push_of_one_broker_does_not_stop_another(
    rmq_cluster_factory, connect
):
    cluster = rmq_cluster_factory(queues=1, like="4.9.7", brokers=2)
    cluster.create_topic("T")
    cluster.create_group("G")
    client = connect(cluster)
    for name in ("broker-a", "broker-b"):
        cluster.send("T", ["x"] * 10, broker=name)
    commit(cluster, client, 4)  # not at broker-b, which would refuse the push
    with FakeMember(cluster), FakeMember(cluster, broker="broker-b"):
        methods = plan_of(client, ToPosition(Latest())).methods
    assert {key: method.mechanism for key, method in methods.items()} == {
        A: Mechanism.CLIENT_PUSH,
        B: Mechanism.REFUSED,
    }


def test_only_a_few_times_are_tried(rmq_cluster_factory, rmq_clock, connect):
    """Each time that is tried costs a search in every queue."""
    rmq_clock.now_ms = NOON_MS
    cluster = rmq_cluster_factory(queues=16, like="4.9.7", clock=rmq_clock)
    cluster.create_topic("T")
    cluster.create_group("G")
    for queue_id in range(16):
        for _ in range(3):
            cluster.send("T", ["x"], queue_id=queue_id)
            cluster.advance(1_000)
    client = connect(cluster)
    commit(cluster, client, *[2] * 16)
    with FakeMember(cluster):
        asked = cluster.faults.observe(code=SEARCH)
        found = push_of(client, Shift(-1))
    assert found == (Mechanism.REFUSED, None)
    times = {each.command.ext_fields["timestamp"] for each in asked.requests}
    # Twelve times: the end, 0, and the store times of ten targets.
    assert times == {"0", *(str(NOON_MS + 3_000 * n + 1_000) for n in range(10))}


# --- members behind proxies ---

GRPC = "vm@7221@1@8f872fa3"


def connection(*client_ids, topics=("T",), consume_type="CONSUME_PASSIVELY"):
    return ConsumerConnection(
        connections=tuple(Connection(client_id=each) for each in client_ids),
        subscriptions={each: SubscriptionData(topic=each) for each in topics},
        consume_type=consume_type,
        message_model="CLUSTERING",
        consume_from_where=None,
    )


def test_a_member_behind_a_proxy_consumes_at_every_broker():
    members = Membership({"a": connection("z@1"), "b": None}, {}, connection(GRPC))
    assert members.client_ids("T") == (GRPC, "z@1")
    assert members.client_ids("U") == ()
    assert [members.is_live(name, "T") for name in ("a", "b", "c")] == [True] * 3
    assert not members.is_live("b", "U")


@pytest.mark.parametrize(
    ("members", "uses_grpc", "takes_push"),
    [
        (Membership({"a": connection("z@1")}, {}), False, True),
        (Membership({"a": connection("z@1")}, {}, connection("y@1")), True, False),
        (Membership({"a": connection("z@1", GRPC)}, {}), True, False),
        (Membership({"a": connection("z@1"), "b": connection(GRPC)}, {}), True, False),
        (Membership({"a": connection("z@1"), "b": None}, {}), False, True),
        (Membership({"a": None}, {}, connection(GRPC)), True, False),
        (Membership({"a": connection("z@1", consume_type=PULL)}, {}), False, False),
    ],
)
def test_a_push_is_obeyed_only_where_no_member_is_behind_a_proxy(
    members, uses_grpc, takes_push
):
    assert members.uses_grpc is uses_grpc
    assert members.takes_push("a") is takes_push


def heartbeat(cluster, broker):
    data = {"clientId": GRPC, "group": "G", "heartbeatType": "REGISTER"}
    record = json.dumps(data | {"subscriptionDataSet": [{"topic": "T"}]})
    cluster.send("DefaultHeartBeatSyncerTopic", [record], broker=broker)


def test_members_of_proxies_that_one_broker_tells_are_known(start, connect):
    cluster = start(brokers=2)
    cluster.faults.add(
        faults.answer(16, "no permission"),
        code=RequestCode.GET_TOPIC_STATS_INFO,
        topic="DefaultHeartBeatSyncerTopic",
        broker="broker-b",
    )
    unknown = members_of(connect(cluster))
    assert unknown.proxied is None
    assert unknown.proxied_unknown is not None
    assert unknown.proxied_unknown.startswith(
        "members behind proxies are not known: broker-b: "
    )
    heartbeat(cluster, "broker-a")
    known = members_of(connect(cluster))
    assert known.client_ids("T") == (GRPC,)
    assert known.proxied_unknown is None


@pytest.mark.parametrize(
    ("version", "uses_pop", "mechanism"),
    [
        (V5_3_0, False, Mechanism.SERVER_RESET),  # it may keep positions of POP
        (V5_3_0 - 1, False, Mechanism.COMMIT),
        (V5_3_0 - 1, True, Mechanism.SERVER_RESET),
    ],
)
def test_a_broker_is_asked_for_positions_of_pop_if_it_is_new_or_the_group_uses_pop(
    start, connect, version, uses_pop, mechanism
):
    cluster = start(
        "5.5.0", settings={"profile": replace(PROFILE_5_5_0, version=version)}
    )
    config = b"popConsumerKVServiceEnable=true\nuseServerSideResetOffset=true\n"
    cluster.faults.add(faults.answer(0, body=config), code=BROKER_CONFIG)
    if uses_pop:
        cluster.create_topic("%RETRY%G_T", queues=1)
        cluster.send("%RETRY%G_T", ["again"])
        offsets = cluster.broker().state.offsets
        cluster.call(lambda: offsets.commit("G", "%RETRY%G_T", 0, 0))
    method = plan_of(connect(cluster), ToPosition(Earliest())).methods[A]
    assert (method.mechanism, method.is_live) == (mechanism, False)


@pytest.mark.parametrize(
    ("version", "mechanism"),
    [
        (V5_3_0, Mechanism.SERVER_RESET),  # it may keep positions of POP
        (V5_3_0 - 1, Mechanism.COMMIT),
    ],
)
def test_a_new_broker_that_hides_its_settings_resets_by_itself_and_the_plan_says_so(
    start, connect, version, mechanism
):
    """It would ignore a commit for POP, and the read-back would show the commit."""
    cluster = start(
        "5.5.0", settings={"profile": replace(PROFILE_5_5_0, version=version)}
    )
    client = connect(cluster)
    commit(cluster, client, 3, 3)
    cluster.faults.add(faults.answer(16, "no"), code=BROKER_CONFIG)
    plan = plan_of(client, ToPosition(Earliest()))
    assert plan.methods[A].mechanism is mechanism
    words = "broker-a did not show its settings, so that it is not known whether it"
    assert [w.startswith(words) for w in plan.warnings] == (
        [True] if mechanism is Mechanism.SERVER_RESET else []
    )


def test_a_group_that_may_use_pop_is_reset_as_one_that_does(start, connect):
    """Its broker does not tell what the group consumes."""
    cluster = start("5.5.0")
    client = connect(cluster)
    commit(cluster, client, 3, 3)
    stats = RequestCode.GET_CONSUME_STATS
    assert plan_of(client, ToPosition(Earliest())).methods[A].mechanism is (
        Mechanism.COMMIT
    )
    cluster.faults.add(faults.answer(16, "no"), code=stats)
    plan = plan_of(client, ToPosition(Earliest()))
    assert plan.methods[A].mechanism is Mechanism.SERVER_RESET
    (warning,) = plan.warnings
    assert warning.startswith(
        "messages may be handed out and not acknowledged, and are then delivered again:"
        " it is not known whether the group uses POP: consume stats of group G: "
    )


@pytest.mark.parametrize("behind_proxy", [False, True])
def test_queues_chosen_while_another_broker_is_silent_are_reset_as_those_of_pop(
    start, connect, behind_proxy
):
    """Nothing shows that the group does not use POP, and brokers forget a commit.

    Positions of POP that a broker has in memory overwrite it, after the read-back.
    """
    cluster = start(brokers=2)
    if behind_proxy:
        heartbeat(cluster, "broker-a")
    client = connect(cluster)
    commit(cluster, client, 3, 3)
    cluster.faults.add(faults.disconnect(), code=CONNECTIONS, broker="broker-b")
    chosen = (parse_queue_selector("broker-a:0"),)
    plan = plan_of(client, ToPosition(Earliest()), selectors=chosen)
    assert not plan.unknown
    method = plan.methods[A]
    assert (method.mechanism, method.is_live) == (Mechanism.SERVER_RESET, behind_proxy)
    assert plan.client_ids == ((GRPC,) if behind_proxy else ())
    assert [w for w in plan.warnings if "whether the group uses POP: broker-b" in w]
