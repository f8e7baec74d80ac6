"""A member is asked to consume one message, and its answer is what is reported."""

from __future__ import annotations

import json

import pytest

from rmqcli import (
    Admin,
    ClientConfig,
    Consumer,
    LocalTransactionState,
    Producer,
    ProducerMessage,
)
from rmqcli.broker.cluster.seeding import Seed
from rmqcli.cli.main import run
from rmqcli.errors import (
    BrokerError,
    ChangeUnknownError,
    NotFoundError,
    PartialError,
    RefusedError,
    UsageError,
)
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from tests.admin.reset.member import FakeMember
from tests.kit.terminal import typed
from tests.kit.waiting import wait_until

UNKNOWN = LocalTransactionState.UNKNOW


@pytest.fixture
def cluster(rmq_cluster_factory):
    cluster = rmq_cluster_factory(brokers=2, queues=1)
    cluster.create_topic("orders")
    return cluster


class Listener:
    """Fails as it is told, and remembers what it got."""

    def __init__(self):
        self.bodies = []
        self.act = lambda: None

    def __call__(self, message):
        self.bodies.append(message.body.decode())
        return self.act()


@pytest.fixture
def member(cluster):
    """A member that has consumed the only message, and its listener."""
    listener = Listener()
    cluster.send("orders", ["a"], broker="broker-b", queue_id=0)
    with Consumer(
        "G", "orders", listener, consume_from="earliest", namesrv=cluster.namesrv
    ) as consumer:
        wait_until(lambda: listener.bodies == ["a"])
        with Admin(namesrv=cluster.namesrv) as admin:
            wait_until(lambda: len(admin.group("G").members[0].brokers) == 2)
        yield consumer, listener


@pytest.fixture
def rmq(cluster, capsys):
    def rmq_(*words):
        do = ["message", "resend", "orders@broker-b:0:0", "-g", "G", *words]
        capsys.readouterr()
        code = run([*do, "-n", cluster.namesrv, "-o", "json"])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else None, err

    return rmq_


def test_a_member_consumes_the_message_again_and_nothing_else_changes(
    cluster, member, rmq
):
    consumer, listener = member
    code, (row,), err = rmq("--yes")
    assert code == 0, err
    assert (row["client_id"], row["consume_result"]) == (
        consumer.client_id,
        "CR_SUCCESS",
    )
    assert listener.bodies == ["a", "a"]
    consumer.close()
    with Admin(namesrv=cluster.namesrv) as admin:
        lag = admin.lag("G")
    offsets = [q.committed for q in lag.queues if q.topic == "orders"]
    assert sorted(offset or 0 for offset in offsets) == [0, 1]
    assert lag.total_lag == 0


def test_without_confirmation_no_listener_is_called(member, rmq):
    consumer, listener = member
    with typed("no\n"):
        code, rows, err = rmq()
    assert (code, rows) == (7, None), err
    assert err.startswith(
        f"{consumer.client_id} of group G consumes the message at orders@broker-b:0,"
        " offset 0 now. Continue? [y/N] "
    )
    assert listener.bodies == ["a"]


def test_what_the_listener_refuses_is_not_a_success(member, rmq):
    _, listener = member
    listener.act = lambda: False
    code, (row,), _ = rmq("--yes")
    assert (code, row["consume_result"]) == (1, "CR_LATER")

    def fail():
        raise ValueError("no such order" + "!" * 5_000)

    listener.act = fail
    code, (row,), _ = rmq("--yes")
    assert (code, row["consume_result"]) == (1, "CR_THROW_EXCEPTION")
    assert row["remark"].startswith("ValueError: no such order!!")
    assert len(row["remark"]) == 2_003


@pytest.mark.parametrize(
    "answer",
    [
        faults.answer(207, "consumer <G> <c> Timeout: 10000ms"),
        # of a proxy in local mode
        faults.answer(2, "call remote timeout"),
        # of a broker from which the member is cut off
        faults.answer(1, "invoke consumer <G> <c> Exception: RemotingSendRequest"),
        faults.disconnect(is_handled=True),
        faults.answer(0, body=b"{"),
    ],
)
def test_without_an_answer_it_is_not_known_whether_the_listener_was_called(
    cluster, member, answer
):
    with Admin(namesrv=cluster.namesrv) as admin:
        planned = admin.plan_resend("orders@broker-b:0:0", group="G")
        cluster.faults.next(answer, code=RequestCode.CONSUME_MESSAGE_DIRECTLY)
        with pytest.raises(
            ChangeUnknownError, match="may have consumed the message"
        ) as hit:
            admin.apply_resend(planned)
    assert "its listener would be called twice" in (hit.value.hint or "")


def test_a_member_may_take_longer_than_other_requests_because_its_broker_waits_for_it(
    cluster, member
):
    """A resend ended after the client's 5 s, while a broker waits 10 s."""
    config = ClientConfig(namesrv=(cluster.namesrv,), timeout_ms=300)
    with Admin(client=config) as admin:
        planned = admin.plan_resend("orders@broker-b:0:0", group="G")
        cluster.faults.next(
            faults.delay(600), code=RequestCode.CONSUME_MESSAGE_DIRECTLY
        )
        assert admin.apply_resend(planned).consume_result == "CR_SUCCESS"


@pytest.mark.parametrize(
    "remark",
    [
        "[REJECTREQUEST]system busy, start flow control for a while",
        "[OVERLOAD]system busy, start flow control for a while",
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while",
    ],
)
def test_a_request_that_a_busy_broker_refused_has_called_no_listener(
    cluster, member, remark
):
    _, listener = member
    with Admin(namesrv=cluster.namesrv) as admin:
        planned = admin.plan_resend("orders@broker-b:0:0", group="G")
        cluster.faults.next(
            faults.answer(2, remark), code=RequestCode.CONSUME_MESSAGE_DIRECTLY
        )
        with pytest.raises(BrokerError) as hit:
            admin.apply_resend(planned)
    assert (hit.value.code, hit.value.remark) == (2, remark)
    assert listener.bodies == ["a"]


def test_a_group_without_members_and_a_message_that_does_not_exist_are_not_found(
    cluster, member
):
    cluster.create_group("empty")
    with Admin(namesrv=cluster.namesrv) as admin:
        with pytest.raises(NotFoundError, match="broker-b knows no member of group"):
            admin.plan_resend("orders@broker-b:0:0", group="empty")
        with pytest.raises(NotFoundError, match="client nobody is not a member"):
            admin.plan_resend("orders@broker-b:0:0", group="G", client_id="nobody")
        with pytest.raises(NotFoundError):
            admin.plan_resend("orders@broker-b:0:7", group="G")


def test_a_client_alone_is_enough_where_one_group_of_the_topic_has_it(
    cluster, member, capsys
):
    consumer, listener = member
    place = "orders@broker-b:0:0"
    cluster.create_group("other")
    with Admin(namesrv=cluster.namesrv) as admin:
        planned = admin.plan_resend(place, client_id=consumer.client_id)
        assert planned.group == "G"
        assert admin.apply_resend(planned).is_consumed
        assert listener.bodies == ["a", "a"]
        with pytest.raises(NotFoundError, match="no group of orders with a client x"):
            admin.plan_resend(place, client_id="x")
        with pytest.raises(UsageError, match="neither a group nor a client"):
            admin.plan_resend(place)
        twin = FakeMember(
            cluster,
            "H",
            topics=("orders",),
            broker="broker-b",
            client_id=consumer.client_id,
        )
        with twin, pytest.raises(UsageError, match="is a member of G, H"):
            admin.plan_resend(place, client_id=consumer.client_id)
        refused = faults.answer(16, "no permission")
        rule = cluster.faults.add(
            refused, code=RequestCode.GET_CONSUMER_CONNECTION_LIST
        )
        with pytest.raises(PartialError, match="is not known: "):
            admin.plan_resend(place, client_id=consumer.client_id)
        cluster.faults.remove(rule)
    do = ["message", "resend", place, "-n", cluster.namesrv]
    capsys.readouterr()
    assert run(do) == 2
    assert "give --to-group GROUP, --to-client ID or both" in capsys.readouterr().err
    assert run([*do, "--to-client", consumer.client_id, "--yes"]) == 0
    assert listener.bodies == ["a", "a", "a"]


def test_a_client_of_grpc_is_chosen_only_where_the_group_has_no_other(cluster, member):
    """It was asked for being first, although it may not consume on request."""
    consumer, _ = member
    grpc = "0.0.0.0@1@0@abc"
    with Admin(namesrv=cluster.namesrv) as admin:
        both = FakeMember(cluster, "G", broker="broker-b", client_id=grpc)
        alone = FakeMember(cluster, "H", broker="broker-b", client_id=grpc)
        with both, alone:
            planned = admin.plan_resend("orders@broker-b:0:0", group="G")
            assert planned.client_id == consumer.client_id
            planned = admin.plan_resend("orders@broker-b:0:0", group="H")
            assert planned.client_id == grpc


@pytest.mark.parametrize("by", ["place", "offset id"])
def test_a_message_of_an_open_transaction_reaches_no_listener(cluster, member, by):
    _, listener = member
    with Producer("shop", namesrv=cluster.namesrv, on_check=lambda _: UNKNOWN) as shop:
        sent = shop.send_in_transaction(
            ProducerMessage("orders", b"half"), lambda *_: UNKNOWN
        )
        assert sent.queue is not None
        ref = f"RMQ_SYS_TRANS_HALF_TOPIC@{sent.queue.broker_name}:0:0"
        with Admin(namesrv=cluster.namesrv) as admin:
            if by == "offset id":
                (record,) = admin.find_messages(ref).messages
                ref = record.offset_msg_id
            with pytest.raises((RefusedError, NotFoundError)):
                admin.plan_resend(ref, group="G")
    assert listener.bodies == ["a"]


@pytest.mark.slow
def test_a_key_that_may_name_another_message_too_is_not_resent(cluster, member):
    _, listener = member
    seed = Seed(body=b"b", keys=["k"])
    cluster.send("orders", [seed], broker="broker-b", queue_id=0)
    wait_until(lambda: listener.bodies == ["a", "b"])
    cluster.faults.add(
        faults.answer(22, "no"), code=RequestCode.QUERY_MESSAGE, broker="broker-a"
    )
    cluster.send("orders", [Seed(body=b"c", keys=["k"])], broker="broker-a")
    with Admin(namesrv=cluster.namesrv) as admin:
        with pytest.raises(PartialError) as caught:
            admin.plan_resend("k", topic="orders", group="G")
        assert caught.value.message.startswith(
            "other messages may have k: broker-a cannot look it up: "
        )
        cluster.broker("broker-a").hang()
        config = ClientConfig(namesrv=(cluster.namesrv,), timeout_ms=500)
        with (
            Admin(client=config) as brief,
            pytest.raises(PartialError, match="may have k: broker-a did not answer"),
        ):
            brief.plan_resend("k", topic="orders", group="G")


@pytest.mark.slow
def test_several_messages_of_a_key_are_named_by_their_places(cluster, member):
    _, listener = member
    seeds = [Seed(body=b"b", keys=["k"]) for _ in range(4)]
    sent = cluster.send("orders", seeds, broker="broker-b", queue_id=0)
    wait_until(lambda: len(listener.bodies) == 5)
    with Admin(namesrv=cluster.namesrv) as admin:
        with pytest.raises(UsageError) as caught:
            admin.plan_resend("k", topic="orders", group="G")
        assert caught.value.message.startswith("4 messages have k: orders@broker-b:0:")
        assert caught.value.message.count("orders@broker-b:0:") == 3
    # An id is that of one message, whether or not every broker answers.
    cluster.broker("broker-a").hang()
    config = ClientConfig(namesrv=(cluster.namesrv,), timeout_ms=500)
    with Admin(client=config) as brief:
        planned = brief.plan_resend(sent[2].msg_id, topic="orders", group="G")
    assert (planned.message.queue_offset, planned.broker_name) == (3, "broker-b")
    assert planned.address == cluster.broker("broker-b").address


@pytest.mark.parametrize(("length", "end"), [(2_000, "x"), (2_001, "x...")])
def test_what_the_member_answers_is_reported(cluster, member, length, end):
    body = {
        "order": False,
        "autoCommit": True,
        "consumeResult": "CR_COMMIT",
        "remark": "x" * length,
        "spentTimeMills": 12,
    }
    with Admin(namesrv=cluster.namesrv) as admin:
        planned = admin.plan_resend("orders@broker-b:0:0", group="G")
        cluster.faults.next(
            faults.answer(0, body=json.dumps(body).encode()),
            code=RequestCode.CONSUME_MESSAGE_DIRECTLY,
        )
        found = admin.apply_resend(planned)
    assert (found.consume_result, found.is_consumed) == ("CR_COMMIT", True)
    assert found.spent_ms == 12
    assert found.remark == "x" * 1_999 + end
    assert found.plan is planned


def test_a_member_that_names_no_result_is_warned_about(cluster, member, rmq):
    consumer, _ = member
    body = {"order": False, "autoCommit": True, "spentTimeMills": 12}
    cluster.faults.next(
        faults.answer(0, body=json.dumps(body).encode()),
        code=RequestCode.CONSUME_MESSAGE_DIRECTLY,
    )
    code, (row,), err = rmq("--yes")
    assert (code, row["consume_result"]) == (1, None)
    assert err == (
        f"warning: {consumer.client_id} named no result; simple consumers, for example,"
        " do not consume on request\n"
    )


def test_of_a_client_of_grpc_only_its_result_is_believed(cluster, member):
    """Its proxy answers the same words and 0 ms, whatever happened."""
    grpc = "0.0.0.0@1@0@abc"
    body = {
        "order": False,
        "autoCommit": True,
        "consumeResult": "CR_SUCCESS",
        "remark": "from gRPC client",
        "spentTimeMills": 0,
    }
    with (
        Admin(namesrv=cluster.namesrv) as admin,
        FakeMember(cluster, "H", broker="broker-b", client_id=grpc),
    ):
        planned = admin.plan_resend("orders@broker-b:0:0", group="H")
        cluster.faults.next(
            faults.answer(0, body=json.dumps(body).encode()),
            code=RequestCode.CONSUME_MESSAGE_DIRECTLY,
        )
        found = admin.apply_resend(planned)
    assert (found.consume_result, found.remark, found.spent_ms) == (
        "CR_SUCCESS",
        None,
        None,
    )


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (faults.answer(1, "the disk is broken"), BrokerError),
        (faults.answer(206, "the consumer <c> is offline"), BrokerError),
        (faults.disconnect(), ChangeUnknownError),
    ],
)
def test_a_broker_that_refuses_did_not_call_the_listener(
    cluster, member, answer, error
):
    with Admin(namesrv=cluster.namesrv) as admin:
        planned = admin.plan_resend("orders@broker-b:0:0", group="G")
        cluster.faults.next(answer, code=RequestCode.CONSUME_MESSAGE_DIRECTLY)
        with pytest.raises(error) as caught:
            admin.apply_resend(planned)
    assert isinstance(caught.value, ChangeUnknownError) == (error is ChangeUnknownError)
