"""What scrapers get over HTTP, and what a peer that misbehaves can and cannot do."""

from __future__ import annotations

import gzip
import http.client
import socket
import zlib
from contextlib import ExitStack

import pytest

from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.errors import ConnectError
from rmqcli.exporter.metrics import LEFT_OUT
from rmqcli.exporter.render import render
from rmqcli.exporter.server import MetricsServer, open_site
from rmqcli.exporter.site import MetricsSite, accepts_gzip, wants_open_metrics
from rmqcli.testing import ManualClock
from tests.kit.rows import each_row

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


def pages(series=3):
    return render({LEFT_OUT: {(f"g{n}",): (n,) for n in range(series)}})


STALE = render({LEFT_OUT: {}})


@pytest.fixture
def site():
    return MetricsSite(ManualClock(), stale_after_ms=90_000)


@pytest.fixture
def server(site):
    with MetricsServer(open_site("127.0.0.1", 0), site, SYSTEM_CLOCK) as server:
        yield server


def connect(server):
    host, port = server.address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=60)


def get(server, path="/metrics", method="GET", **headers):
    connection = http.client.HTTPConnection(server.address, timeout=60)
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request(method, path, headers=names)
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def test_a_scrape_of_prometheus_gets_open_metrics_compressed(server, site):
    site.update(pages(), STALE, read_ms=0)
    answer, body = get(server, Accept=PROMETHEUS, Accept_Encoding="gzip")
    assert (answer.status, answer.headers["Content-Type"]) == (200, OPEN_METRICS)
    assert answer.headers["Content-Encoding"] == "gzip"
    text = gzip.decompress(body)
    assert text.startswith(b"# HELP rocketmq_exporter_series_left_out ")
    assert text.endswith(b"# EOF\n")


@pytest.mark.parametrize("series", [3, 20_000], ids=["small", "large"])
def test_a_client_that_knows_nothing_gets_plain_text(server, site, series):
    site.update(pages(series), STALE, read_ms=0)
    answer, body = get(server)
    assert (answer.status, answer.headers["Content-Type"]) == (200, TEXT)
    assert answer.headers["Content-Encoding"] is None
    assert int(answer.headers["Content-Length"]) == len(body)
    assert body.count(b"\n") == series + 2


@pytest.mark.parametrize(
    ("request_line", "status", "text"),
    [
        ("GET /", "200 OK", "rmq exporter: /metrics /healthz /readyz\n"),
        ("GET /healthz?x=1", "200 OK", "ok\n"),
        ("GET /readyz", "200 OK", "ready\n"),
        ("GET /x", "404 Not Found", "not found; the metrics are at /metrics\n"),
        (
            "POST /",
            "405 Method Not Allowed\nAllow: GET, HEAD",
            "only GET and HEAD are allowed\n",
        ),
        ("GET / x", "400 Bad Request", "this is not a request of HTTP/1.1\n"),
    ],
)
def test_every_answer_is_a_whole_one(request_line, status, text):
    clock = ManualClock()
    site = MetricsSite(clock, stale_after_ms=90_000)
    site.update(pages(), STALE, read_ms=clock.monotonic_ms())
    with (
        MetricsServer(open_site("127.0.0.1", 0), site, SYSTEM_CLOCK) as server,
        connect(server) as sock,
    ):
        # A value may have colons, too.
        sock.sendall(f"{request_line} HTTP/1.1\r\nHost: [::1]:1\r\n\r\n".encode())
        answer = b"".join(iter(lambda: sock.recv(1 << 16), b"")).decode()
    head, _, body = answer.replace("\r\n", "\n").partition("\n\n")
    status, _, allow = status.partition("\n")
    assert head.split("\n") == [
        f"HTTP/1.1 {status}",
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(text)}",
        "Connection: close",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        *([allow] if allow else []),
    ]
    assert body == text


def test_what_follows_a_request_is_not_a_part_of_it(server, site):
    site.update(pages(), STALE, read_ms=0)
    with connect(server) as sock:
        sock.sendall(
            b"GET /metrics HTTP/1.1\r\n\r\n"
            b"GET /metrics HTTP/1.1\r\nAccept-Encoding: gzip\r\n\r\n"
        )
        assert b"Content-Encoding" not in sock.recv(1 << 16)


def test_a_header_s_value_may_have_colons(server, site):
    site.update(pages(), STALE, read_ms=0)
    answer, _ = get(server, Accept_Encoding="x:y, gzip")
    assert answer.headers["Content-Encoding"] == "gzip"
    assert answer.headers["Vary"] == "Accept, Accept-Encoding"


def test_head_has_the_headers_of_get_and_no_body(server, site):
    site.update(pages(), STALE, read_ms=0)
    answer, body = get(server, method="HEAD")
    assert answer.status == 200
    assert int(answer.headers["Content-Length"]) > 0
    assert body == b""


def test_it_is_ready_between_the_first_collection_and_the_age_of_values(site):
    clock = ManualClock()
    site = MetricsSite(clock, stale_after_ms=90_000)

    def status(path):
        return site.answer(path, "").status

    assert [status(p) for p in ("/metrics", "/readyz", "/healthz")] == [503, 503, 200]
    site.update(
        pages(), STALE, read_ms=None
    )  # neither name servers nor brokers answered
    assert [status(p) for p in ("/metrics", "/readyz", "/healthz")] == [200, 503, 200]
    site.update(pages(), STALE, read_ms=clock.monotonic_ms())
    assert [status(p) for p in ("/metrics", "/readyz", "/healthz")] == [200, 200, 200]
    clock.advance(90_000)
    assert status("/readyz") == 200
    clock.advance(1)
    site.update(pages(), STALE, read_ms=None)
    assert [status(p) for p in ("/metrics", "/readyz", "/healthz")] == [200, 503, 200]
    assert site.answer("/readyz", "").data == b"nothing has been read for 1m30s\n"
    site.update(pages(), STALE, read_ms=clock.monotonic_ms())
    assert status("/readyz") == 200


def test_values_vanish_when_they_are_stale_before_the_next_collection_ends():
    """A collection that waits for a broker that hangs may take minutes."""
    clock = ManualClock()
    site = MetricsSite(clock, stale_after_ms=6_000)

    def series():
        text = zlib.decompress(site.answer("/metrics", "").data, 31)
        return text.count(b"\nrocketmq_exporter_series_left_out{")

    site.update(pages(3), STALE, read_ms=clock.monotonic_ms())
    clock.advance(6_000)
    assert series() == 3
    clock.advance(1)
    assert series() == 0
    site.update(pages(2), STALE, read_ms=None)
    assert series() == 2


@pytest.mark.parametrize(
    ("stale_after_ms", "stuck_after_ms"), [(90_000, 600_000), (300_000, 900_000)]
)
def test_values_are_withheld_when_no_collection_ends_any_more(
    stale_after_ms, stuck_after_ms
):
    clock = ManualClock()
    site = MetricsSite(clock, stale_after_ms=stale_after_ms)
    site.update(pages(), STALE, read_ms=clock.monotonic_ms())
    clock.advance(stuck_after_ms)
    assert [site.answer(path, "").status for path in ("/metrics", "/healthz")] == [
        200,
        200,
    ]
    clock.advance(1)
    for path in ("/metrics", "/readyz", "/healthz"):
        assert site.answer(path, "").status == 503


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /nothing HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
        (b"GET /metrics\r\n\r\n", 400),
        (b"\x00\xff\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000, 431),
    ],
    ids=["path", "method", "no-version", "binary", "long-head"],
)
def test_a_request_that_is_wrong_gets_a_status(server, request_, status):
    with connect(server) as sock:
        sock.sendall(request_)
        answer = b"".join(iter(lambda: sock.recv(1 << 16), b""))
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert b"\r\nContent-Type: text/plain; charset=utf-8\r\n" in answer


@pytest.mark.parametrize(("size", "status"), [(16_384, 404), (16_385, 431)])
def test_the_head_of_a_request_may_have_16_kib(server, size, status):
    """The empty line that ends it is not counted."""
    line = b"GET /%s HTTP/1.1" % (b"x" * (size - len(b"GET / HTTP/1.1")))
    with connect(server) as sock:
        sock.sendall(line + b"\r\n\r\n")
        assert sock.recv(100).startswith(b"HTTP/1.1 %d " % status)


def test_a_request_that_comes_byte_by_byte_is_answered(server):
    with connect(server) as sock:
        for byte in b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n":
            sock.send(bytes([byte]))
        assert sock.recv(100).startswith(b"HTTP/1.1 200 OK")


def test_peers_that_say_nothing_and_read_nothing_do_not_hold_up_others(server, site):
    site.update(pages(50_000), STALE, read_ms=0)
    with ExitStack() as stack:
        silent = [stack.enter_context(connect(server)) for _ in range(40)]
        for sock in silent[:20]:  # more than a socket's buffer holds
            sock.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert get(server)[0].status == 200
    assert get(server, "/healthz")[0].status == 200


def test_connections_have_an_end(site):
    clock = ManualClock()
    listener = open_site("127.0.0.1", 0)
    with MetricsServer(listener, site, clock) as server, connect(server) as silent:
        assert get(server, "/healthz")[0].status == 200  # it was accepted before
        clock.advance(60_001)
        assert get(server, "/healthz")[0].status == 200
        assert silent.recv(1) == b""


def test_more_connections_than_there_is_room_for_wait_for_their_turn(server):
    with ExitStack() as stack:
        silent = [stack.enter_context(connect(server)) for _ in range(64)]
        waiting = stack.enter_context(connect(server))
        waiting.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        silent[30].close()
        assert waiting.recv(100).startswith(b"HTTP/1.1 200 OK")


def test_an_address_of_ipv6_is_listened_on(site):
    with MetricsServer(open_site("::1", 0), site, SYSTEM_CLOCK) as server:
        assert server.address.startswith("[::1]:")
        assert get(server, "/healthz")[0].status == 200


def test_a_peer_that_has_gone_before_it_is_accepted_is_not_waited_for():
    with open_site("127.0.0.1", 0) as listener:
        assert not listener.getblocking()


def test_a_port_that_is_taken_is_named():
    with open_site("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConnectError) as raised:
            open_site("127.0.0.1", port)
    assert raised.value.message == (
        f"cannot listen on 127.0.0.1:{port}: the port is taken"
    )


@each_row(
    ("accept", "wants"),
    [
        ("", False),
        ("*/*", False),
        (PROMETHEUS, True),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text;version=0.0.1=x", False),
        ("text/plain;version=0.0.4", False),
        ("text/plain;q=0.9, application/openmetrics-text;q=0.1", False),
        ("text/plain, application/openmetrics-text", True),
        ("text/plain;q=0.5, Application/OpenMetrics-Text ; Q=0.5", True),
        (
            "text/plain;q=0.1, text/plain;q=0.9, application/openmetrics-text;q=0.5",
            False,
        ),
        (
            "text/plain;q=0.9, text/plain;q=0.1, application/openmetrics-text;q=0.5",
            False,
        ),
        ("application/openmetrics-text;version=0.0.1", True),
        ("application/openmetrics-text;version=2.0.0", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=x", False),
        (";;;,=,q", False),
    ],
)
def test_open_metrics_is_for_those_who_prefer_it(accept, wants):
    assert wants_open_metrics(accept) is wants


@pytest.mark.parametrize(
    ("header", "accepts"),
    [
        ("", False),
        ("gzip", True),
        ("deflate, GZIP;q=0.5", True),
        ("gzip ; Q=0.1, deflate", True),
        ("gzip;q=0", False),
        ("gzip;q=x", False),
        ("x-gzip", False),
    ],
)
def test_gzip_is_for_those_who_accept_it(header, accepts):
    assert accepts_gzip(header) is accepts
