"""What a session repeats by time: heartbeats, settings and routes.

The intervals are seconds to minutes, and a few milliseconds here.
"""

from __future__ import annotations

import logging
import random

import grpc
import pytest

from rmqcli import tasks
from rmqcli.errors import BodyError, ConnectError, DeadlineError, DisconnectedError
from rmqcli.model import MessageQueue
from rmqcli.proxy import rpc as calls
from rmqcli.proxy import session as session_module
from rmqcli.proxy import telemetry
from rmqcli.proxy.endpoints import endpoints_of, parse_endpoints
from rmqcli.proxy.rpc import ProxyQueue
from rmqcli.proxy.session import SIMPLE_CONSUMER
from rmqcli.testing import ManualClock
from rmqcli.transport import backoff
from rmqcli.wire.protobuf import definition_pb2 as pb
from rmqcli.wire.protobuf import service_pb2 as service
from rmqcli.wire.subscription import parse_subscription
from tests.kit.proxy.scripted import OK, ScriptedProxy, status
from tests.kit.proxy.sessions import receive_now
from tests.kit.waiting import wait_until


@pytest.fixture
def consumer(proxy, open_session):
    """`consumer(**options)`: an open consumer's session with the proxy."""

    def make(**options):
        session = open_session(
            proxy,
            client_type=SIMPLE_CONSUMER,
            group="billing",
            subscriptions={"orders": parse_subscription("orders", "*")},
            **options,
        )
        session.open(["orders"])
        return session

    return make


def another(proxy, method, count=2):
    """Wait until the proxy has been asked `count` more times."""
    before = len(proxy.asked(method))
    wait_until(lambda: len(proxy.asked(method)) >= before + count)


def logged(caplog, text):
    """The levels of the records that have the text."""
    return [each.levelno for each in caplog.records if text in each.getMessage()]


def down(_request, context):
    context.abort(grpc.StatusCode.UNAVAILABLE, "going down")


# --- heartbeats ---


def test_heartbeats_name_the_client_s_type_and_group_until_it_closes(
    proxy, consumer, monkeypatch
):
    monkeypatch.setattr(telemetry, "HEARTBEAT_MS", 5)
    session = consumer()
    another(proxy, "Heartbeat", 3)
    asked = proxy.asked("Heartbeat")[0]
    assert asked.client_type == pb.ClientType.SIMPLE_CONSUMER
    assert asked.group.name == "billing"
    session.close()
    names = [method for method, _, _ in proxy.requests]
    # One may have been under way.
    last = names[names.index("NotifyClientTermination") :]
    assert last.count("Heartbeat") <= 1


def test_settings_that_a_proxy_has_lost_are_sent_again(proxy, consumer, monkeypatch):
    monkeypatch.setattr(telemetry, "HEARTBEAT_MS", 5)
    consumer()
    another(proxy, "Heartbeat")
    assert len(proxy.telemetry) == 1
    proxy.answers["Heartbeat"] = lambda *_: service.HeartbeatResponse(
        status=status("UNRECOGNIZED_CLIENT_TYPE")
    )
    wait_until(lambda: len(proxy.telemetry) >= 2)
    assert proxy.telemetry[1].settings == proxy.telemetry[0].settings


def test_the_settings_are_sent_again_from_time_to_time(proxy, consumer, monkeypatch):
    monkeypatch.setattr(telemetry, "SETTINGS_MS", 5)
    session = consumer()
    wait_until(lambda: len(proxy.telemetry) >= 3)
    assert proxy.telemetry[2].settings == proxy.telemetry[0].settings
    session.close()
    assert proxy.streams_opened == 1


@pytest.mark.parametrize(("unanswered", "is_replaced"), [(2, False), (3, True)])
def test_three_heartbeats_without_an_answer_replace_the_connection(
    proxy, consumer, monkeypatch, caplog, unanswered, is_replaced
):
    """Fewer do not, and an answer between them begins the count again."""
    caplog.set_level(logging.INFO, "rmqcli")
    lost: list[int] = []  # one for each heartbeat that will not be answered

    def answer(request, context):
        if lost:
            lost.pop()
            down(request, context)
        return service.HeartbeatResponse(status=OK)

    def lose():
        lost.extend(range(unanswered))
        wait_until(lambda: not lost)
        another(proxy, "Heartbeat")

    proxy.answers["Heartbeat"] = answer
    monkeypatch.setattr(telemetry, "HEARTBEAT_MS", 5)
    consumer()
    another(proxy, "Heartbeat")
    lose()
    if is_replaced:
        wait_until(lambda: proxy.streams_opened == 2)
        unanswered = 2  # too few: the count began again
    lose()
    assert proxy.streams_opened == (2 if is_replaced else 1)
    is_back = f"proxy {proxy.endpoints} is back; continuing"
    wait_until(lambda: len(logged(caplog, is_back)) == 2)
    gone = logged(caplog, f"connection to proxy {proxy.endpoints} is lost; retrying")
    assert gone == logged(caplog, is_back) == [logging.WARNING] * 2


def test_a_new_connection_has_three_heartbeats_of_its_own(proxy, consumer, monkeypatch):
    """Of five without an answer, the last two do not replace it."""
    peers: list[str] = []

    def answer(request, context):
        peers.append(context.peer())
        if len(peers) <= 5:
            down(request, context)
        return service.HeartbeatResponse(status=OK)

    proxy.answers["Heartbeat"] = answer
    monkeypatch.setattr(telemetry, "HEARTBEAT_MS", 5)
    consumer()
    wait_until(lambda: len(peers) >= 8)
    first, second = peers[0], peers[3]
    assert first != second
    assert peers[:8] == [first] * 3 + [second] * 5


def test_the_first_heartbeats_are_counted_as_all_others(proxy, consumer, monkeypatch):
    lost = [1, 2]

    def answer(request, context):
        if lost:
            lost.pop()
            down(request, context)
        return service.HeartbeatResponse(status=OK)

    proxy.answers["Heartbeat"] = answer
    monkeypatch.setattr(telemetry, "HEARTBEAT_MS", 5)
    consumer()
    another(proxy, "Heartbeat", 5)
    assert proxy.streams_opened == 1


def test_a_refused_heartbeat_is_no_lost_connection(
    proxy, consumer, monkeypatch, caplog
):
    proxy.answers["Heartbeat"] = lambda *_: service.HeartbeatResponse(
        status=status("INTERNAL_SERVER_ERROR", "no")
    )
    monkeypatch.setattr(telemetry, "HEARTBEAT_MS", 5)
    session = consumer()
    wait_until(lambda: len(logged(caplog, "heartbeat failed")) >= 5)
    session.close()
    assert set(logged(caplog, "heartbeat failed")) == {logging.WARNING}
    assert not logged(caplog, "lost")
    assert proxy.streams_opened == 1


def test_a_proxy_that_is_slow_to_answer_heartbeats_is_named_as_that(
    proxy, consumer, monkeypatch, caplog
):
    monkeypatch.setattr(telemetry, "HEARTBEAT_MS", 5)
    consumer()
    proxy.answers["Heartbeat"] = lambda _request, context: context.abort(
        grpc.StatusCode.DEADLINE_EXCEEDED, ""
    )
    text = f"proxy {proxy.endpoints} does not answer; retrying"
    assert wait_until(lambda: logged(caplog, text)) == [logging.WARNING]


# --- streams that end ---


def test_a_stream_that_ends_soon_each_time_is_news_once(
    proxy, consumer, monkeypatch, caplog
):
    """One that has lasted for 10 s shows that the proxy works: its end is news."""
    caplog.set_level(logging.INFO, "rmqcli")
    monkeypatch.setattr(backoff, "FIRST_MS", 1)
    clock = ManualClock()
    lost = f"connection to proxy {proxy.endpoints} is lost; retrying"
    back = f"proxy {proxy.endpoints} is back; continuing"
    consumer(clock=clock)
    lasted_ms = (0, 0, 9_999, 10_000, 0)
    for number, each in enumerate(lasted_ms, 1):
        clock.advance(each)
        proxy.end_streams()
        wait_until(lambda: len(logged(caplog, back)) == number)  # noqa: B023  # now
    news, no_news = logging.WARNING, logging.INFO
    levels = [news, no_news, no_news, news, no_news]
    assert logged(caplog, lost) == logged(caplog, back) == levels


@pytest.mark.parametrize(
    ("lasted_ms", "delays_ms"),
    [(9_999, [100, 200, 400, 800]), (10_000, [100, 100, 100, 100])],
)
def test_streams_that_end_soon_are_opened_after_longer_and_longer_pauses(
    proxy, consumer, monkeypatch, lasted_ms, delays_ms
):
    class Least(random.Random):
        def randint(self, a, b):
            delays.append((a, b))
            return 0

    delays: list[tuple[int, int]] = []
    clock = ManualClock()
    consumer(clock=clock, rng=Least())
    for number in range(1, 5):
        clock.advance(lasted_ms)
        proxy.end_streams()
        wait_until(lambda: proxy.streams_opened > number)  # noqa: B023  # now
        wait_until(lambda: len(proxy.telemetry) > number)  # noqa: B023  # now
    assert delays == [(each, 2 * each) for each in delays_ms]


# --- routes ---


@pytest.fixture
def refreshed(proxy, monkeypatch):
    """`refreshed()`: wait until every route was requested and taken once more."""
    monkeypatch.setattr(session_module, "ROUTES_MS", 5)
    return lambda: another(proxy, "QueryRoute", 3)


def test_a_route_that_has_changed_is_taken_over(
    proxy, consumer, refreshed, monkeypatch
):
    """Its servers are connected, and those that no route names any more are left."""
    monkeypatch.setattr(telemetry, "HEARTBEAT_MS", 5)
    with ScriptedProxy() as first, ScriptedProxy() as second:
        proxy.answers["QueryRoute"] = lambda request, _: first.route(
            request.topic.name, queues=1
        )
        session = consumer()

        def route():
            return session.in_caller(lambda via: session.route("orders", via))

        assert [str(each.endpoints) for each in route()] == [first.endpoints]
        refreshed()
        another(first, "Heartbeat")
        proxy.answers["QueryRoute"] = lambda request, _: second.route(
            request.topic.name, queues=2
        )
        wait_until(lambda: len(route()) == 2)
        assert {str(each.endpoints) for each in route()} == {second.endpoints}
        refreshed()
        before = len(first.asked("Heartbeat"))
        another(second, "Heartbeat", 5)
        another(proxy, "Heartbeat", 5)
        # One may have been under way.
        assert len(first.asked("Heartbeat")) - before <= 1
        opened = [each.streams_opened for each in (proxy, first, second)]
        assert opened == [1, 1, 1]


def test_a_route_that_cannot_be_refreshed_stays_as_it_was(
    proxy, consumer, refreshed, caplog
):
    session = consumer()
    known = session.in_caller(lambda via: session.route("orders", via))
    proxy.answers["QueryRoute"] = lambda *_: service.QueryRouteResponse(
        status=status("TOPIC_NOT_FOUND", "no such topic")
    )
    refreshed()
    assert session.in_caller(lambda via: session.route("orders", via)) == known
    assert len(known) == 4
    session.close()
    levels = logged(caplog, "route not refreshed topic=orders error=")
    assert set(levels) == {logging.WARNING}


def test_that_routes_fail_with_their_proxy_is_no_news(
    proxy, consumer, refreshed, caplog
):
    caplog.set_level(logging.INFO, "rmqcli")
    consumer()
    proxy.answers["QueryRoute"] = down
    refreshed()
    wait_until(lambda: logged(caplog, "route not refreshed"))
    assert set(logged(caplog, "route not refreshed")) == {logging.INFO}
    lost = f"connection to proxy {proxy.endpoints} is lost; retrying"
    assert set(logged(caplog, lost)) == {logging.WARNING}


# --- what is news ---


@pytest.mark.parametrize(
    ("error", "level_before", "level_when_lost", "counts_as_lost"),
    [
        (ConnectError("no", address="it"), logging.INFO, logging.INFO, True),
        (DisconnectedError("no", address="it"), logging.INFO, logging.INFO, True),
        (DeadlineError("no", address="it"), logging.WARNING, logging.INFO, False),
        (BodyError("no"), logging.WARNING, logging.WARNING, False),
    ],
    ids=["connect", "disconnected", "deadline", "body"],
)
def test_failures_of_a_proxy_that_is_known_to_be_gone_are_no_news(
    consumer, caplog, error, level_before, level_when_lost, counts_as_lost
):
    session = consumer()
    address = session.access_point
    other = parse_endpoints(("127.0.0.1:9",))
    levels = []

    def look():
        levels.append(session.level_of(other, error))
        levels.append(session.level_of(address, error))
        levels.append(session._servers[address].is_lost)
        session._servers[address].lose(DisconnectedError("no", address="it"))
        levels.append(session.level_of(address, error))
        yield tasks.Sleep(0)

    session.run(look()).result()
    assert levels == [logging.WARNING, level_before, counts_as_lost, level_when_lost]
    assert len(logged(caplog, "is lost; retrying")) == 1


# --- the end ---


def submitted(session, call):
    yield session.submit(session.access_point, call)


def receive_of(raw):
    parsed = ProxyQueue(
        queue=MessageQueue("orders", "broker-a", 0),
        broker_id=0,
        endpoints=endpoints_of(raw.broker.endpoints),
        is_readable=True,
        is_writable=True,
        accept_message_types=frozenset(),
        raw=raw,
    )
    return calls.receive_message(
        parsed, group="billing", batch_size=1, polling_ms=5_000
    )


@pytest.mark.parametrize("way", ["none", "telemetry", "invoke", "submit", "receive"])
def test_only_a_server_that_has_answered_is_told_of_the_end(proxy, open_session, way):
    """A farewell to a server that does not answer would only delay the end."""
    if way != "telemetry":
        proxy.settings = None
    session = open_session(proxy, client_type=SIMPLE_CONSUMER, group="billing")
    session.start()
    call = calls.heartbeat(1, None)
    if way == "telemetry":
        session.open([])
    elif way == "invoke":
        session.invoke(session.access_point, call)
    elif way == "submit":
        session.run(submitted(session, call)).result()
    elif way == "receive":
        call = receive_of(proxy.queue("orders", 0))
        receive_now(session, session.access_point, call)
    session.close()
    assert len(proxy.asked("NotifyClientTermination")) == (way != "none")
