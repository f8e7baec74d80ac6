"""The client fails over, keeps one deadline, checks versions, and explains errors."""

from __future__ import annotations

import threading
import time

import pytest

from rmqcli.api.calls.consumer import query_topics_by_consumer
from rmqcli.api.calls.namesrv import get_all_topic_list
from rmqcli.api.calls.offset import get_max_offset, query_consumer_offset
from rmqcli.api.client import Client
from rmqcli.config import ClientConfig
from rmqcli.errors import (
    BodyError,
    BrokerError,
    BusyError,
    ConnectError,
    DeadlineError,
    DeniedError,
    NotFoundError,
    RmqError,
    UnsupportedError,
)
from rmqcli.model import MessageQueue
from rmqcli.transport.tls import TlsOptions
from rmqcli.wire.acl import Credentials
from rmqcli.wire.bodies.route import parse_topic_route
from tests.kit.waiting import PATIENCE_S
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
        with pytest.raises(DeadlineError, match="in 50 ms"):
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


# --- brokers that leave their routes ---


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
