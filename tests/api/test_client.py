"""The client fails over, keeps one deadline, checks versions, and explains errors."""

from __future__ import annotations

import json
import socket
import threading
import time

import pytest

from rmqcli.admin.brokers import lost_answer
from rmqcli.api.call import make_call, nothing
from rmqcli.api.calls.consumer import query_topics_by_consumer
from rmqcli.api.calls.namesrv import get_all_topic_list
from rmqcli.api.calls.namesrv_config import get_namesrv_config
from rmqcli.api.calls.offset import get_max_offset, query_consumer_offset
from rmqcli.api.client import Client
from rmqcli.api.runner import run_task
from rmqcli.config import ClientConfig
from rmqcli.errors import (
    BodyError,
    BrokerError,
    BusyError,
    ConfigError,
    ConnectError,
    DeadlineError,
    DeniedError,
    NoBrokerError,
    NotFoundError,
    RmqError,
    UnsupportedError,
)
from rmqcli.model import BrokerData, MessageQueue
from rmqcli.testing import ManualClock
from rmqcli.transport.tls import TlsOptions
from rmqcli.wire.acl import Credentials
from rmqcli.wire.bodies.route import ClusterInfo, parse_topic_route
from rmqcli.wire.codes import RequestCode
from tests.kit.waiting import PATIENCE_S, wait_until
from tests.transport.peer import Peer, free_port, silent
from tests.transport.test_tls import CA, server_context

TOPICS = b'{"topicList":["T"]}'


def route_body(*addresses):
    """Return a route of one broker with these addresses, whose ids count from 0."""
    table = ",".join(f'"{i}":"{a}"' for i, a in enumerate(addresses))
    return (
        '{"brokerDatas":[{"brokerAddrs":{' + table + '},"brokerName":"b-a",'
        '"cluster":"C"}],"queueDatas":[{"brokerName":"b-a","perm":6,'
        '"readQueueNums":2,"topicSysFlag":0,"writeQueueNums":2}]}'
    ).encode()


def answering(**fields):
    """Return a script for Peer that answers every request with these fields."""

    def script(connection):
        for request in connection.requests():
            connection.answer(request, **({"ext_fields": {}, "body": b""} | fields))

    return script


def client_of(*addresses, timeout_ms=5000):
    return Client(ClientConfig(namesrv=addresses, timeout_ms=timeout_ms))


def test_settings_of_tls_and_credentials_reach_the_connection():
    def script(connection):
        for request in connection.requests():
            assert request.ext_fields["AccessKey"] == "reader"
            assert "Signature" in request.ext_fields
            connection.answer(request, ext_fields={}, body=TOPICS)

    with Peer(script, tls=server_context()) as peer:
        config = ClientConfig(
            namesrv=(peer.address,),
            tls=TlsOptions(ca_file=CA),
            credentials=Credentials("reader", "secret-of-reader"),
        )
        with Client(config) as client:
            assert client.namesrv(get_all_topic_list()) == ["T"]


@pytest.mark.parametrize(("timeout_ms", "limit_ms"), [(500, 500), (60_000, 3_000)])
def test_a_connection_takes_three_seconds_or_the_timeout_if_that_is_shorter(
    monkeypatch, timeout_ms, limit_ms
):
    asked, may_end = threading.Event(), threading.Event()

    def look_up(*_, **__):
        asked.set()
        may_end.wait(PATIENCE_S)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    clock = ManualClock()
    config = ClientConfig(namesrv=("127.0.0.1:1",), timeout_ms=timeout_ms)
    with Client(config, clock=clock) as client:
        call = get_max_offset("t", 0)
        reply = client.submit("never.test:1", call, timeout_ms=600_000)
        wait_until(lambda: client.poll(0) or asked.is_set())
        for _ in range(limit_ms - 1):  # a longer step would count as a pause
            clock.advance(1)
            client.poll(0)
        assert not reply.is_done
        clock.advance(1)
        client.poll(0)
        assert isinstance(reply.outcome(), ConnectError)
    may_end.set()


def test_a_dead_name_server_is_passed_over():
    dead = f"127.0.0.1:{free_port()}"
    with (
        Peer(answering(body=TOPICS)) as peer,
        client_of(dead, peer.address) as client,
    ):
        assert client.namesrv(get_all_topic_list()) == ["T"]


def test_a_hung_name_server_leaves_the_next_its_share():
    hung_requests = []

    def hang(connection):
        hung_requests.extend(connection.requests())

    with (
        Peer(hang) as hung,
        Peer(answering(body=TOPICS)) as peer,
        client_of(hung.address, peer.address, timeout_ms=10_000) as client,
    ):
        assert client.namesrv(get_all_topic_list()) == ["T"]
        # The name server that answered is asked first from now on.
        asked_before = len(hung_requests)
        client.namesrv(get_all_topic_list())
        assert len(hung_requests) == asked_before


def test_the_time_limit_of_a_call_replaces_that_of_the_client():
    topics = get_all_topic_list()
    with (
        Peer(silent) as peer,
        client_of(peer.address, timeout_ms=60_000) as client,
    ):
        # A name server is asked for what is left of the time.
        with pytest.raises(DeadlineError, match=r"in [1-5]?\d ms"):
            client.namesrv(topics, timeout_ms=50)
        with pytest.raises(DeadlineError, match="in 50 ms"):
            client.invoke(peer.address, topics, timeout_ms=50)


def test_no_topic_is_an_answer_and_not_a_reason_to_go_on():
    with (
        Peer(answering(code=17, remark="No topic route info")) as first,
        Peer(answering(body=route_body("127.0.0.1:1"))) as second,
        client_of(first.address, second.address) as client,
    ):
        with pytest.raises(NotFoundError):
            client.route("T")
        assert second.accepted == 0


def test_when_none_answers_the_error_names_them_all():
    dead = [f"127.0.0.1:{free_port()}", "127.0.0.1:1"]
    with client_of(*dead) as client, pytest.raises(ConnectError) as caught:
        client.cluster_info()

    assert all(address in caught.value.message for address in dead)
    assert "NAMESRV_ADDR" in caught.value.hint


def test_routes_are_asked_for_together_and_again_at_the_next_name_server():
    with (
        Peer(answering(body=route_body("127.0.0.1:1"))) as peer,
        client_of("127.0.0.1:1", peer.address) as client,
    ):
        routes = client.routes(["A", "B"])

        assert [r.read_queues()[0].topic for r in routes.values()] == ["A", "B"]


def test_an_advertised_address_out_of_reach_is_explained():
    """A common problem with containers: the route has an address of their network."""
    with (
        Peer(answering(body=route_body("127.0.0.1:1"))) as peer,
        client_of(peer.address) as client,
    ):
        address = client.master_of(client.route("T"), "b-a")
        with pytest.raises(ConnectError) as caught:
            client.invoke(address, get_max_offset("T", 0))

    assert "b-a advertises 127.0.0.1:1" in caught.value.hint
    assert "brokerIP1" in caught.value.hint


def test_an_advertised_address_that_hangs_is_not_called_out_of_reach():
    with Peer(silent) as hung, Peer(answering(body=route_body(hung.address))) as peer:
        config = ClientConfig(namesrv=(peer.address,), timeout_ms=60_000)
        with Client(config) as client:
            address = client.master_of(client.route("T"), "b-a")
            with pytest.raises(DeadlineError) as caught:
                client.invoke(address, get_max_offset("T", 0), timeout_ms=500)

    assert caught.value.hint == ""


def test_a_slave_serves_while_there_is_no_master():
    body = route_body("127.0.0.1:1").replace(b'"0":', b'"3":')
    with Peer(answering(body=body)) as peer, client_of(peer.address) as client:
        assert client.reader_of(MessageQueue("T", "b-a", 1)) == "127.0.0.1:1"
        with pytest.raises(NotFoundError, match="currently has no master"):
            client.master_of(client.route("T"), "b-a")
        assert client.route("T").write_queues() == []


def test_a_code_that_an_old_broker_ignores_is_never_sent_to_it():
    asked = []

    def old_broker(connection):
        for request in connection.requests():
            asked.append(request.code)
            if request.code == 28:
                body = b'{"table":{}}'
                connection.answer(request, version=333, ext_fields={}, body=body)

    with (
        Peer(old_broker) as peer,
        client_of(peer.address) as client,
        pytest.raises(UnsupportedError, match=r"4\.6\.0.*needs 5\.0\.0"),
    ):
        client.invoke(peer.address, query_topics_by_consumer("g"))

    assert asked == [28]


def test_a_broker_that_was_too_old_is_asked_again_after_a_while():
    """Calls were refused for ever although the broker had been upgraded.

    A SimpleConsumer makes no others.
    """
    version, asked = 333, []

    def broker(connection):
        for request in connection.requests():
            asked.append(request.code)
            body = b'{"table":{}}' if request.code == 28 else b'{"topicList":["T"]}'
            connection.answer(request, version=version, body=body)

    clock = ManualClock()
    with Peer(broker) as peer:
        config = ClientConfig(namesrv=(peer.address,))
        with Client(config, clock=clock) as client:
            call = query_topics_by_consumer("g")
            for passed_ms in (0, 1_000, 28_999):
                clock.advance(passed_ms)
                with pytest.raises(UnsupportedError):
                    client.invoke(peer.address, call)
            assert asked == [28]
            clock.advance(1)
            with pytest.raises(UnsupportedError):
                client.invoke(peer.address, call)
            assert asked == [28, 28]
            version = 513
            clock.advance(30_000)
            assert client.invoke(peer.address, call) == ["T"]
    assert asked == [28, 28, 28, 343]


@pytest.mark.parametrize(
    ("code", "remark", "kind", "says"),
    [
        (1, "boom", BrokerError, "SYSTEM_ERROR: boom"),
        (1, " boom \n\tat Main\n", BrokerError, "SYSTEM_ERROR: boom"),
        (1, None, BrokerError, "SYSTEM_ERROR"),
        (
            1,
            "org.apache.rocketmq.acl.common.AclException: no",
            DeniedError,
            "SYSTEM_ERROR: org.apache.rocketmq.acl.common.AclException: no",
        ),
        (2, "[OVERLOAD]", BusyError, "SYSTEM_BUSY: [OVERLOAD]"),
        (16, "no", DeniedError, "NO_PERMISSION: no"),
        (26, "none", NotFoundError, "SUBSCRIPTION_GROUP_NOT_EXIST: none"),
        (4242, "from the future", BrokerError, "4242: from the future"),
    ],
)
def test_codes_become_errors_that_say_who_and_why(code, remark, kind, says):
    with (
        Peer(answering(code=code, remark=remark)) as peer,
        client_of(peer.address) as client,
        pytest.raises(kind) as caught,
    ):
        client.invoke(peer.address, get_max_offset("T", 0))

    error = caught.value
    assert error.message == f"max offset of T:0: {peer.address} answered {says}"
    assert (error.code, error.address) == (code, peer.address)
    assert error.remark == (remark or "")


def test_a_request_that_a_broker_does_not_know_needs_a_newer_one():
    with (
        Peer(answering(code=3, remark="request type 9 not supported")) as peer,
        client_of(peer.address) as client,
        pytest.raises(UnsupportedError, match="does not support the request") as caught,
    ):
        client.invoke(peer.address, get_max_offset("T", 0))

    assert peer.address in caught.value.message


def test_a_name_that_does_not_exist_is_named_and_the_answer_is_kept():
    with (
        Peer(answering(code=17, remark="no topic")) as peer,
        client_of(peer.address) as client,
        pytest.raises(NotFoundError) as caught,
    ):
        client.invoke(peer.address, get_max_offset("T", 0))

    error = caught.value
    assert error.message == "topic T does not exist"
    assert error.missing == ("topic", "T")
    assert (error.remark, error.address) == ("no topic", peer.address)


def test_22_means_no_offset_and_is_not_an_error():
    with Peer(answering(code=22)) as peer, client_of(peer.address) as client:
        assert client.invoke(peer.address, query_consumer_offset("g", "T", 0)) is None


def test_a_body_that_makes_no_sense_names_its_sender():
    with (
        Peer(answering(body=b"{")) as peer,
        client_of(peer.address) as client,
        pytest.raises(BodyError) as caught,
    ):
        client.namesrv(get_all_topic_list())

    assert peer.address in caught.value.hint


def test_gather_keeps_the_order_and_gives_errors_as_values():
    with (
        Peer(answering(ext_fields={"offset": "7"})) as good,
        Peer(silent) as hung,
        client_of(good.address, timeout_ms=400) as client,
    ):
        addresses = [hung.address, good.address, "127.0.0.1:1"]
        outcomes = client.gather(
            [client.submit(address, get_max_offset("T", 0)) for address in addresses]
        )

    assert isinstance(outcomes[0], DeadlineError)
    assert outcomes[1] == 7
    assert isinstance(outcomes[2], ConnectError)


def test_on_done_runs_while_polling():
    done: list[int] = []
    with (
        Peer(answering(ext_fields={"offset": "7"})) as peer,
        client_of(peer.address) as client,
    ):
        client.submit(
            peer.address,
            get_max_offset("T", 0),
            on_done=lambda pending: done.append(pending.result()),
        )
        limit = time.monotonic() + PATIENCE_S
        while not done and time.monotonic() < limit:
            client.poll(50)

    assert done == [7]


def test_a_call_that_needs_a_version_can_be_submitted_from_a_callback():
    """The version is queried first, without blocking: a callback must not block."""

    def broker(connection):
        for request in connection.requests():
            body = b'{"table":{}}' if request.code == 28 else b'{"topicList":["T"]}'
            connection.answer(request, version=500, ext_fields={}, body=body)

    found: list[object] = []
    with Peer(broker) as peer, client_of(peer.address) as client:

        def ask(_: object) -> None:
            call = query_topics_by_consumer("g")
            client.submit(peer.address, call).on_done(
                lambda pending: found.append(pending.outcome())
            )

        client.submit("127.0.0.1:1", get_max_offset("T", 0), on_done=ask)
        limit = time.monotonic() + PATIENCE_S
        while not found and time.monotonic() < limit:
            client.poll(50)

    assert found == [["T"]]


@pytest.mark.injects_exceptions
def test_an_answer_that_breaks_the_parser_still_ends_the_call(caplog):
    """A defect is logged, and the waiting caller gets an RmqError."""

    def broken(_answer):
        raise ZeroDivisionError("oops")

    call = get_max_offset("T", 0)
    call.parse = broken
    with (
        Peer(answering()) as peer,
        client_of(peer.address) as client,
        pytest.raises(RmqError, match="unexpected ZeroDivisionError: oops"),
    ):
        client.invoke(peer.address, call)

    assert caplog.records[-1].exc_info


@pytest.mark.parametrize("values", [{"namesrv": ()}, {"timeout_ms": 0}])
def test_config_refuses_what_cannot_work(values):
    with pytest.raises(ValueError, match=next(iter(values))):
        ClientConfig(**values)


# --- which name server is asked, for how long, and what counts ---


def by_hand(*namesrvs, timeout_ms=9_000):
    """A client that sends nothing, and its clock; the test answers what a task asks."""
    clock = ManualClock()
    config = ClientConfig(namesrv=namesrvs, timeout_ms=timeout_ms)
    return Client(config, clock=clock, remoting=Recording()), clock  # type: ignore[arg-type]  # its part


def late(address):
    return DeadlineError("no answer", address=address)


def asked(request):
    return request.address, request.timeout_ms


def test_name_servers_share_the_time_that_is_left():
    client, clock = by_hand("a:1", "b:1", "c:1")
    task = client.ask_namesrvs(get_all_topic_list())
    assert asked(next(task)) == ("a:1", 3_000)
    clock.advance(1_000)
    assert asked(task.throw(late("a:1"))) == ("b:1", 4_000)
    clock.advance(8_001)
    assert asked(task.throw(late("b:1"))) == ("c:1", 1)
    with pytest.raises(DeadlineError) as caught:
        task.throw(late("c:1"))
    assert caught.value.message == (
        "none of 3 name servers answered: no answer; no answer; no answer"
    )
    assert caught.value.address == "c:1"


@pytest.mark.parametrize("hint", ["", "check the network"])
def test_the_only_name_server_is_named_with_what_helps(hint):
    client, _ = by_hand("a:1")
    task = client.ask_namesrvs(get_all_topic_list())
    next(task)
    error = late("a:1")
    error.hint = hint
    with pytest.raises(DeadlineError) as caught:
        task.throw(error)
    assert caught.value is error
    assert error.hint == (hint or "check the namesrv argument or NAMESRV_ADDR")


def test_the_name_server_that_answered_last_is_asked_first():
    client, _ = by_hand("a:1", "b:1", "c:1")
    task = client.ask_namesrvs(get_all_topic_list())
    next(task)
    task.throw(late("a:1"))
    task.throw(late("b:1"))
    with pytest.raises(StopIteration):
        task.send(["T"])
    again = client.ask_namesrvs(get_all_topic_list())
    assert next(again).address == "c:1"
    assert again.throw(late("c:1")).address == "a:1"
    assert again.throw(late("a:1")).address == "b:1"


@pytest.mark.parametrize("needs_all", [True, False])
def test_what_one_name_server_does_not_know_another_may_know(needs_all):
    client, _ = by_hand("a:1", "b:1", "c:1")
    task = client.ask_namesrvs(get_all_topic_list(), needs_all_for_not_found=needs_all)
    next(task)
    first, second = (NotFoundError(each, code=17, name="n") for each in "12")
    if not needs_all:
        with pytest.raises(NotFoundError) as caught:
            task.throw(first)
        assert caught.value is first
        return
    task.throw(first)
    task.throw(second)
    with pytest.raises(NotFoundError) as caught:
        task.throw(late("c:1"))
    assert caught.value is first


REFUSALS = [
    DeniedError("no", code=16, name="NO_PERMISSION"),
    BusyError("busy", code=2, name="SYSTEM_BUSY"),
    BrokerError("failed", code=1, name="SYSTEM_ERROR"),
    BodyError("not JSON"),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda each: type(each).__name__)
def test_the_next_name_server_answers_where_one_refuses(refusal):
    """The first refusal ended the command, although the second server knew."""
    client, _ = by_hand("a:1", "b:1")
    task = client.ask_namesrvs(get_all_topic_list())
    next(task)
    assert task.throw(refusal).address == "b:1"
    with pytest.raises(StopIteration) as answered:
        task.send(["T"])
    assert answered.value.value == ["T"]
    assert next(client.ask_namesrvs(get_all_topic_list())).address == "b:1"


@pytest.mark.parametrize("needs_all", [True, False])
def test_a_refusal_counts_if_no_name_server_answers(needs_all):
    client, _ = by_hand("a:1", "b:1", "c:1")
    task = client.ask_namesrvs(get_all_topic_list(), needs_all_for_not_found=needs_all)
    next(task)
    denied = DeniedError("no", code=16, name="NO_PERMISSION")
    missing = NotFoundError("none", code=17, name="n")
    task.throw(denied)
    task.throw(missing if needs_all else late("b:1"))
    with pytest.raises(DeniedError) as caught:
        task.throw(late("c:1"))
    assert caught.value is denied


def changing(address):
    """What a real name server of 4.6.0 answers while its routes change."""
    return BrokerError(
        f"{address} answered SYSTEM_ERROR",
        code=1,
        name="SYSTEM_ERROR",
        remark="com.alibaba.fastjson.JSONException: write javaBean error",
    )


def test_a_name_server_whose_tables_change_is_asked_again_after_the_others():
    client, _ = by_hand("a:1", "b:1")
    task = client.ask_namesrvs(get_all_topic_list())
    assert next(task).address == "a:1"
    assert task.throw(changing("a:1")).address == "b:1"
    assert task.throw(late("b:1")).address == "a:1"
    with pytest.raises(StopIteration) as answered:
        task.send(["T"])
    assert answered.value.value == ["T"]


def test_a_name_server_that_never_writes_its_tables_is_asked_three_times():
    client, _ = by_hand("a:1")
    task = client.ask_namesrvs(get_all_topic_list())
    assert next(task).address == "a:1"
    assert task.throw(changing("a:1")).address == "a:1"
    assert task.throw(changing("a:1")).address == "a:1"
    with pytest.raises(BrokerError) as caught:
        task.throw(changing("a:1"))
    assert caught.value.code == 1


def test_a_request_that_only_some_name_servers_know_may_be_refused():
    """Of a request that all of them know, only a broker says so."""
    client, _ = by_hand("a:1")
    task = client.ask_namesrvs(get_namesrv_config())
    next(task)
    with pytest.raises(UnsupportedError):
        task.throw(UnsupportedError("unknown"))
    task = client.ask_namesrvs(get_all_topic_list(), timeout_ms=500)
    next(task)
    second = task.throw(UnsupportedError("unknown"))
    assert (second.call.what, *asked(second)) == ("runtime info", "a:1", 500)
    with pytest.raises(ConfigError, match="a:1 is a broker, not a name server"):
        task.send({})


def test_a_topic_does_not_exist_only_if_a_broker_is_registered():
    client, _ = by_hand("a:1", "b:1")
    unknown = NotFoundError("topic T does not exist", code=17, name="n")
    for info, kind in (
        (ClusterInfo(brokers={}, clusters={}), NoBrokerError),
        (ClusterInfo(brokers={"b-a": BROKER}, clusters={}), NotFoundError),
        (DeniedError("no", code=16, name="NO_PERMISSION"), NotFoundError),
    ):
        task = client.ask_route("T", timeout_ms=600)
        assert asked(next(task)) == ("a:1", 300)
        request = task.throw(unknown)
        assert (request.call.what, *asked(request)) == ("cluster info", "a:1", 300)
        if isinstance(info, RmqError):
            assert task.throw(info).address == "b:1"
        with pytest.raises(kind) as caught:
            (task.throw if isinstance(info, RmqError) else task.send)(info)
        if isinstance(caught.value, NoBrokerError):
            assert caught.value.address == "a:1;b:1"
            assert caught.value.message == (
                "no broker is registered with the name servers a:1;b:1"
            )


@pytest.mark.parametrize(
    ("brokers", "missing"), [(("b-a",), NotFoundError), ((), NoBrokerError)]
)
def test_of_many_topics_that_are_missing_the_brokers_are_asked_for_once(
    brokers, missing
):
    asked_codes = []

    def script(connection):
        for request in connection.requests():
            asked_codes.append(request.code)
            topic = request.ext_fields.get("topic")
            if request.code == RequestCode.GET_BROKER_CLUSTER_INFO:
                connection.answer(request, ext_fields={}, body=cluster_of(*brokers))
            elif topic == "T":
                connection.answer(request, ext_fields={}, body=route_body("h:1"))
            else:
                code = 16 if topic == "denied" else 17
                connection.answer(request, code=code, remark="no")

    with Peer(script) as peer, client_of(peer.address) as client:
        found = run_task(client, client.ask_routes(["T", "U", "denied", "V"]))
    assert list(found) == ["T", "U", "denied", "V"]
    assert found["T"].brokers[0].addresses == {0: "h:1"}
    assert isinstance(found["denied"], DeniedError)
    assert [type(found[each]) for each in ("U", "V")] == [missing] * 2
    assert asked_codes.count(RequestCode.GET_BROKER_CLUSTER_INFO) == 1
    assert len(asked_codes) == 5


BROKER = BrokerData(cluster="C", broker_name="b-a", addresses={0: "h:1", 1: "h:2"})


def cluster_of(*names):
    """The body of an answer: brokers with a master at NAME:1 and a slave at NAME:2."""
    brokers = {
        name: {
            "brokerName": name,
            "cluster": "C",
            "brokerAddrs": {"0": f"{name}:1", "1": f"{name}:2"},
        }
        for name in names
    }
    return json.dumps({"brokerAddrTable": brokers, "clusterAddrTable": {}}).encode()


@pytest.mark.parametrize(
    ("silent_names", "message"),
    [
        ("a", None),
        ("ab", "no broker answers: a (a:1), b (b:1)"),
    ],
)
def test_no_broker_answers_only_if_none_of_the_cluster_does(silent_names, message):
    errors = [late(f"{name}:1") for name in silent_names]
    with (
        Peer(answering(body=cluster_of("a", "b"))) as peer,
        client_of(peer.address) as client,
    ):
        client.raise_if_none_answers([])
        client.raise_if_none_answers([DeniedError("no", code=16, name="n")])
        if message is None:
            client.raise_if_none_answers(errors)
            return
        with pytest.raises(NoBrokerError) as caught:
            client.raise_if_none_answers(errors)
    error = caught.value
    assert (error.message, error.address) == (message, "a:1;b:1")
    assert (error.hint, error.__cause__) == ("check that the brokers run", errors[0])


@pytest.mark.parametrize(
    ("names", "end"), [("abc", "c (c:1)"), ("abcd", "c (c:1) and 1 more")]
)
def test_of_many_silent_brokers_three_are_named(names, end):
    with (
        Peer(answering(body=cluster_of(*names))) as peer,
        client_of(peer.address) as client,
        pytest.raises(NoBrokerError) as caught,
    ):
        client.raise_if_none_answers(late(f"{name}:1") for name in names)
    assert caught.value.message == f"no broker answers: a (a:1), b (b:1), {end}"


def test_a_broker_without_a_master_has_no_master_address():
    body = cluster_of("b", "a").replace(b'"0": "b:1", ', b"")
    with Peer(answering(body=body)) as peer, client_of(peer.address) as client:
        assert client.masters() == {"a": "a:1"}


def test_all_brokers_are_asked_for_once_and_again_to_refresh():
    bodies = [cluster_of("a", "b"), cluster_of("a")]

    def script(connection):
        for request in connection.requests():
            connection.answer(request, ext_fields={}, body=bodies.pop(0))

    with Peer(script) as peer, client_of(peer.address) as client:
        assert sorted(client.cluster_info().brokers) == ["a", "b"]
        assert sorted(client.cluster_info().brokers) == ["a", "b"]
        assert sorted(client.cluster_info(refresh=True).brokers) == ["a"]
        assert sorted(client.cluster_info().brokers) == ["a"]


def test_a_route_is_asked_for_once_and_again_to_refresh():
    bodies = [route_body("h:1"), route_body("h:2"), route_body("h:3")]

    def script(connection):
        for request in connection.requests():
            connection.answer(request, ext_fields={}, body=bodies.pop(0))

    with Peer(script) as peer, client_of(peer.address) as client:
        assert client.reader_of(MessageQueue("T", "b-a", 0)) == "h:1"
        assert client.reader_of(MessageQueue("T", "b-a", 0)) == "h:1"
        client.route("T", refresh=True)
        assert client.reader_of(MessageQueue("T", "b-a", 0)) == "h:2"
        routes = client.routes(["T", "U", "T"])
        assert list(routes) == ["T", "U"]
        assert bodies == []
        with pytest.raises(NotFoundError, match="broker b-b of topic T is not in"):
            client.reader_of(MessageQueue("T", "b-b", 0))


# --- silent brokers and versions ---


def test_a_silent_broker_is_asked_once_if_that_is_wanted():
    requests = []

    def hang(connection):
        for request in connection.requests():
            requests.append(request)  # noqa: PERF402  # it does not end

    call = get_max_offset("T", 0)
    with (
        Peer(hang) as peer,
        client_of("a:1", timeout_ms=100) as client,
        client.ask_silent_once(),
    ):
        with pytest.raises(DeadlineError):
            client.invoke(peer.address, call, timeout_ms=50)  # a limit of its own
        with pytest.raises(DeadlineError) as first:
            client.invoke(peer.address, call)
        with pytest.raises(DeadlineError) as second:
            client.invoke(peer.address, call)
    assert second.value.message == first.value.message
    assert len(requests) == 1


def test_the_question_for_the_version_has_the_time_limit_of_the_call():
    with (
        Peer(silent) as peer,
        client_of("a:1", timeout_ms=60_000) as client,
        pytest.raises(DeadlineError, match="in 50 ms"),
    ):
        client.invoke(peer.address, query_topics_by_consumer("g"), timeout_ms=50)


def test_a_change_whose_broker_did_not_tell_its_version_was_not_made():
    """It was said that it may have been done, although nothing had been sent."""
    with Peer(silent) as peer, client_of("1.1.1.1:1", timeout_ms=50) as client:
        call = make_call(3001, nothing, what="create user alice", needs_version=500)
        with pytest.raises(DeadlineError) as caught:
            client.invoke(peer.address, call)
    assert lost_answer(caught.value) is caught.value
    assert not caught.value.may_be_done


def test_a_change_that_is_not_sent_to_a_silent_broker_was_not_made():
    """It had the error of the change before, which may have been made."""
    changes = [make_call(18, nothing, what=f"change {number}") for number in (1, 2)]
    with (
        Peer(silent) as peer,
        client_of("1.1.1.1:1", timeout_ms=50) as client,
        client.ask_silent_once(),
    ):
        errors = []
        for each in changes:
            with pytest.raises(DeadlineError) as caught:
                client.invoke(peer.address, each)
            errors.append(caught.value)
    assert [each.may_be_done for each in errors] == [True, False]


def test_the_oldest_version_that_answers_a_request_is_asked_and_its_version_kept():
    codes = []

    def broker(connection):
        for request in connection.requests():
            codes.append(request.code)
            body = b'{"table":{}}' if request.code == 28 else TOPICS
            connection.answer(request, version=413, ext_fields={}, body=body)

    with Peer(broker) as peer, client_of("a:1") as client:
        assert client.known_version(peer.address) is None
        assert client.broker_version(peer.address) == 413
        assert client.broker_version(peer.address) == 413
        assert client.invoke(peer.address, query_topics_by_consumer("g")) == ["T"]
    assert codes == [28, 343]


def test_requests_reach_the_address_to_which_one_is_mapped():
    with Peer(answering(ext_fields={"offset": "7"})) as peer:
        config = ClientConfig(
            namesrv=("a:1",), address_map={"inner:10911": peer.address}
        )
        with Client(config) as client:
            assert client.invoke("inner:10911", get_max_offset("T", 0)) == 7


def test_a_mapped_address_out_of_reach_is_explained_by_the_map():
    with Peer(answering(body=route_body("inner:10911"))) as peer:
        config = ClientConfig(
            namesrv=(peer.address,), address_map={"inner:10911": "127.0.0.1:1"}
        )
        with Client(config) as client:
            client.route("T")
            with pytest.raises(ConnectError) as caught:
                client.invoke("inner:10911", get_max_offset("T", 0))
    assert caught.value.hint == "b-a advertises inner:10911; check address_map"


def test_a_one_way_request_has_its_fields_and_body():
    seen: list[object] = []
    arrived = threading.Event()

    def note(connection):
        for request in connection.requests():
            seen.append((request.code, request.ext_fields, request.body))
            arrived.set()

    call = make_call(35, nothing, what="test", body=b"b")
    call.ext_fields["k"] = "v"
    with Peer(note) as peer, client_of("a:1") as client:
        client.send_oneway(peer.address, call)
        limit = time.monotonic() + PATIENCE_S
        while not arrived.is_set() and time.monotonic() < limit:
            client.poll(50)
    assert seen == [(35, {"k": "v"}, b"b")]


def test_a_remark_is_cut_and_its_first_line_is_shown():
    remark = "first\nsecond\nthird " + "x" * 600
    with (
        Peer(answering(code=1, remark=remark)) as peer,
        client_of(peer.address) as client,
        pytest.raises(BrokerError) as caught,
    ):
        client.invoke(peer.address, get_max_offset("T", 0))
    error = caught.value
    assert error.message == (
        f"max offset of T:0: {peer.address} answered SYSTEM_ERROR: first"
    )
    assert error.remark == remark[:500]


# --- brokers that leave their routes ---


def test_the_version_of_a_broker_that_is_gone_is_forgotten():
    with (
        Peer(answering(version=413, ext_fields={"offset": "7"})) as peer,
        client_of("a:1") as client,
    ):
        client.remember("T", route_to("T", peer.address))
        client.invoke(peer.address, get_max_offset("T", 0))
        assert client.known_version(peer.address) == 413
        client.forget("T")
        assert client.known_version(peer.address) is None


def test_the_list_of_all_brokers_counts_as_a_route():
    bodies = [cluster_of("a", "b"), cluster_of("a")]

    def script(connection):
        for request in connection.requests():
            connection.answer(request, ext_fields={}, body=bodies.pop(0))

    with (
        Peer(script) as peer,
        Peer(answering(version=413, ext_fields={"offset": "7"})) as broker,
    ):
        bodies[0] = bodies[0].replace(b"b:1", broker.address.encode())
        with client_of(peer.address) as client:
            client.cluster_info()
            client.remember("T", route_to("T", broker.address))
            client.invoke(broker.address, get_max_offset("T", 0))
            client.forget("T")
            assert client.known_version(broker.address) == 413
            client.cluster_info(refresh=True)
            assert client.known_version(broker.address) is None


class Recording:
    """Stands in for a RemotingClient, and records the addresses that are forgotten."""

    def __init__(self):
        self.forgotten = []

    def forget(self, addresses):
        self.forgotten.append(sorted(addresses))

    def close(self):
        pass


def route_to(topic, *addresses):
    return parse_topic_route(topic, route_body(*addresses))


@pytest.fixture
def knowing():
    """A client that knows topics T and U, and a list of the addresses it forgets."""
    recording = Recording()
    config = ClientConfig(namesrv=("127.0.0.1:9876",), timeout_ms=5000)
    client = Client(config, remoting=recording)  # type: ignore[arg-type]  # its part
    client.remember("T", route_to("T", "h:1", "h:2"))
    client.remember("U", route_to("U", "h:2"))
    return client, recording.forgotten


def test_brokers_that_are_in_no_route_any_more_are_forgotten(knowing):
    client, forgotten = knowing
    client.remember("T", route_to("T", "h:3"))
    assert forgotten == [["h:1"]]
    client.remember("U", route_to("U", "h:3"))
    assert forgotten == [["h:1"], ["h:2"]]


def test_the_same_route_again_forgets_no_broker(knowing):
    client, forgotten = knowing
    client.remember("T", route_to("T", "h:1", "h:2"))
    client.remember("T", client.route("T"))
    assert forgotten == []


def test_the_brokers_of_a_forgotten_topic_are_forgotten(knowing):
    client, forgotten = knowing
    client.forget("T")
    client.forget("T")
    assert forgotten == [["h:1"]]


def test_a_name_server_is_not_forgotten_with_a_route_that_named_it(knowing):
    client, forgotten = knowing
    client.remember("V", route_to("V", "127.0.0.1:9876"))
    client.remember("V", route_to("V", "h:1"))
    assert forgotten == []


def test_a_connection_to_a_broker_that_left_the_route_ends():
    ended = threading.Event()

    def until_it_ends(connection):
        for request in connection.requests():
            connection.answer(request, ext_fields={}, body=TOPICS)
        ended.set()

    with Peer(until_it_ends) as old, client_of("127.0.0.1:1") as client:
        client.remember("T", route_to("T", old.address))
        client.invoke(old.address, get_all_topic_list())
        client.remember("T", route_to("T", "127.0.0.1:1"))
        client.poll(0)
        assert ended.wait(PATIENCE_S)


def test_what_was_not_answered_in_a_block_is_not_asked_again_there():
    asked = []

    def hang(connection):
        asked.extend(connection.requests())

    with Peer(hang) as peer, client_of("127.0.0.1:9", timeout_ms=600) as client:
        with client.ask_silent_once():
            # An answer to a question with a limit of its own may only be late.
            for queue_id in (0, 0, 1):
                call = get_max_offset("T", queue_id)
                with pytest.raises(DeadlineError):
                    client.invoke(peer.address, call, timeout_ms=30)
            for queue_id in (2, 3, 4):
                with pytest.raises(DeadlineError):
                    client.invoke(peer.address, get_max_offset("T", queue_id))
        with pytest.raises(DeadlineError):
            client.invoke(peer.address, get_max_offset("T", 5), timeout_ms=30)
    queues = [each.ext_fields["queueId"] for each in asked]
    assert queues == ["0", "1", "2", "5"]
