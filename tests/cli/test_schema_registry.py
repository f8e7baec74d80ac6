"""`--decode registry:URL` asks a registry over HTTP, and no registry does harm.

The registry is an HTTP server of this process. One that is slow, wrong or hostile costs
a record its value, and nothing else.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from rmqcli.cli.main import run
from rmqcli.cli.schema_registry import SchemaRegistry
from rmqcli.decode import parse_decode
from rmqcli.errors import DecodeError
from rmqcli.testing import ManualClock
from tests.kit.records import body_of, checked_records

CERTS = Path(__file__).parents[1] / "transport" / "certs"
WHOLE = ["--from", "earliest", "--to", "latest", "-o", "jsonl"]
JSON = {"schema": '{"type": "object"}', "schemaType": "JSON"}
#: How long is waited for an answer that does not come.
IMPATIENT_MS = 3_000


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """Say nothing of clients that hang up."""


class Server:
    """Answers `answers[path]`: bytes, JSON, or what is called with the handler."""

    def __init__(self, certificate=None):
        self.answers: dict[str, Any] = {}
        #: the path of each request, and its Authorization
        self.asked: list[tuple[str, str | None]] = []
        #: set when the test is over
        self.ended = threading.Event()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                owner.asked.append((self.path, self.headers["Authorization"]))
                answer = owner.answers.get(self.path)
                if callable(answer):
                    answer(self)
                    return
                found = answer is not None
                if not found:
                    answer = {"error_code": 40403, "message": "Schema not found"}
                data = answer if isinstance(answer, bytes) else json.dumps(answer)
                data = data if isinstance(data, bytes) else data.encode()
                self.send_response(200 if found else 404)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self._server = _Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            files = CERTS / f"{certificate}.pem", CERTS / f"{certificate}.key"
            context.load_cert_chain(*files)
            # The thread of a connection shakes hands, not the one that accepts it.
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
            self.url = f"https://localhost:{self._server.server_port}"

    @property
    def paths(self):
        return [path for path, _ in self.asked]

    @contextmanager
    def running(self):
        thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield self
        finally:
            self.ended.set()
            self._server.shutdown()
            self._server.server_close()
            thread.join()


@pytest.fixture
def server():
    with Server().running() as found:
        yield found


def framed(schema_id, body=b"{}"):
    return b"\0" + schema_id.to_bytes(4, "big") + body


def decoder(server, **settings):
    def open_registry(url):
        return SchemaRegistry(url, **settings)

    return parse_decode(f"registry:{server.url}", open_registry)


def error_of(decode, body):
    with pytest.raises(DecodeError) as caught:
        decode.value(body)
    return caught.value.message


def test_a_registry_with_a_certificate_of_a_private_authority_is_asked(monkeypatch):
    with Server("local").running() as server:
        server.answers["/schemas/ids/7"] = JSON
        said = error_of(decoder(server), framed(7))
        assert "TLS handshake with localhost:" in said
        assert "unable to get local issuer certificate" in said
        assert server.asked == []
        monkeypatch.setenv("SSL_CERT_FILE", str(CERTS / "ca.pem"))
        assert decoder(server).value(framed(7, b'{"a": 1}')) == {"a": 1}
        assert server.paths == ["/schemas/ids/7"]


def test_a_registry_with_a_certificate_for_another_name_is_not_asked(monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTS / "ca.pem"))
    with Server("elsewhere").running() as server:
        server.answers["/schemas/ids/7"] = JSON
        assert "TLS handshake with localhost:" in error_of(decoder(server), framed(7))
        assert server.asked == []


# --- the commands


@pytest.fixture
def rmq(rmq_cluster, capfdbinary):
    def call(*arguments, code=0):
        returned = run([*arguments, "-n", rmq_cluster.namesrv])
        out, err = capfdbinary.readouterr()
        assert returned == code, err.decode()
        return out.decode(), err.decode()

    return call


def test_each_command_has_the_values_and_asks_once_for_a_schema(
    rmq, rmq_cluster, server
):
    server.answers["/schemas/ids/7"] = JSON
    bodies = [framed(7, b'{"a": 1}'), framed(8), b"plain", framed(7, b"2"), framed(8)]
    topic = rmq_cluster.create_topic("T", queues=1)
    rmq_cluster.send(topic, bodies)
    decode = ["--decode", f"registry:{server.url}"]
    out, _ = rmq("tail", topic, *WHOLE, *decode)
    records = checked_records(out.splitlines())
    assert [body_of(each) for each in records] == bodies
    missing = "schema 8: the schema registry answered with HTTP 404 (Schema not found)"
    unframed = (
        "not framed for a schema registry: the body does not begin with byte 0 and a"
        " schema ID"
    )
    assert [(each["value"], each.get("decode_error")) for each in records] == [
        ({"a": 1}, None),
        (None, missing),
        (None, unframed),
        (2, None),
        (None, missing),
    ]
    assert {each["value_format"] for each in records} == {"registry"}
    assert server.paths == ["/schemas/ids/7", "/schemas/ids/8"]
    flags = ["-o", "jsonl", *decode]
    out, _ = rmq("message", "show", f"{topic}@broker-a:0:0", *flags)
    assert json.loads(out)["value"] == {"a": 1}
    out, _ = rmq("message", "find", topic, "--where", "value.a = 1", *flags)
    assert [each["queue_offset"] for each in checked_records(out.splitlines())] == [0]
    out, _ = rmq("consume", topic, "-g", "g", "--from", "first", "--count", "1", *flags)
    assert checked_records(out.splitlines())[0]["value"] == {"a": 1}
    dead = rmq_cluster.create_topic("%DLQ%g", queues=1)
    rmq_cluster.send(dead, bodies[:1])
    out, _ = rmq("dlq", "show", "g", *flags)
    assert json.loads(out)["value"] == {"a": 1}


def test_a_url_with_a_password_is_refused_and_the_password_is_not_shown(rmq):
    _, err = rmq("tail", "T", "--decode", "registry:http://me:hunter2@a", code=2)
    assert "the URL has a user or a password, which other users could see" in err
    assert "RMQ_REGISTRY_USER" in err
    assert "hunter2" not in err


def test_the_login_is_that_of_the_environment(rmq, rmq_cluster, server, monkeypatch):
    monkeypatch.setenv("RMQ_REGISTRY_USER", "me")
    monkeypatch.setenv("RMQ_REGISTRY_PASSWORD", "hunter2")
    server.answers["/schemas/ids/7"] = JSON
    topic = rmq_cluster.create_topic("T", queues=1)
    rmq_cluster.send(topic, [framed(7)])
    rmq("tail", topic, *WHOLE, "--decode", f"registry:{server.url}")
    login = base64.b64encode(b"me:hunter2").decode()
    assert server.asked == [("/schemas/ids/7", f"Basic {login}")]


def test_no_login_and_no_key_of_the_cluster_is_sent_without_one(server, monkeypatch):
    monkeypatch.setenv("RMQ_ACCESS_KEY", "me")
    monkeypatch.setenv("RMQ_SECRET_KEY", "hunter2")
    server.answers["/schemas/ids/7"] = JSON
    assert decoder(server).value(framed(7)) == {}
    assert server.asked == [("/schemas/ids/7", None)]


# --- RocketMQ's registry, with what a real one of 0.1.1 answered

#: Its URL of the subject orders, without the server.
SUBJECT = "/schema-registry/v1/subject/orders"
#: Made by GenericAvroSerde and JsonSerializer of its Java client: {"id": 7}, and
#: {"id": 7, "note": "café"}.
ORDER_AVRO = bytes.fromhex("100904241a578000010e")
ORDER_JSON = bytes.fromhex(
    "0904241a578000017b226964223a372c226e6f7465223a22636166c3a9227d"
)
ORDER_ID = 649683941803950081
ORDER_ANSWER = (
    rb'{"subjectFullName":"default/default/orders","schemaFullName":"default/Order",'
    rb'"version":1,"recordId":649683941803950081,"idl":"{\"type\":\"record\",'
    rb"\"name\":\"Order\",\"namespace\":\"shop\",\"fields\":[{\"name\":\"id\","
    rb'\"type\":\"long\"}]}","dependency":null,"type":"AVRO"}'
)


def real_registry_answer(status, content):
    """Return what sends an answer as that registry does, with its odd status."""

    def answer(handler):
        handler.wfile.write(
            b"HTTP/1.1 %d \r\nContent-Type: application/json;charset=UTF-8\r\n"
            b"Content-Length: %d\r\nConnection: close\r\n\r\n%s"
            % (status, len(content), content)
        )

    return answer


def test_bodies_of_rocketmq_s_own_registry_are_read():
    pytest.importorskip("fastavro")
    with Server().running() as server:
        path = f"{SUBJECT}/recordId/{ORDER_ID}/schema"
        server.answers[path] = real_registry_answer(200, ORDER_ANSWER)
        decode = parse_decode(f"registry:{server.url}{SUBJECT}", SchemaRegistry)
        assert decode.value(ORDER_AVRO) == {"id": 7}
        assert decode.value(ORDER_JSON) == {"id": 7, "note": "café"}
        assert set(server.paths) == {path}


def test_a_record_that_rocketmq_s_registry_lacks_does_not_cost_others_their_values(
    server,
):
    """Its statuses have five digits, which is no reason not to ask it any more."""
    pytest.importorskip("fastavro")
    server.answers |= {
        f"{SUBJECT}/recordId/{ORDER_ID + 3}/schema": real_registry_answer(
            50001,
            b'{"status":50001,"message":"Schema: (cluster=default, tenant=default,'
            b' subject=orders, name=null, version=4) not exist"}',
        ),
        f"{SUBJECT}/recordId/{ORDER_ID}/schema": real_registry_answer(
            200, ORDER_ANSWER
        ),
    }
    decode = parse_decode(f"registry:{server.url}{SUBJECT}", SchemaRegistry)
    assert error_of(decode, bytes.fromhex("100904241a578000040e")) == (
        "schema record 649683941803950084: the schema registry answered with HTTP 50001"
        " (Schema: (cluster=default, tenant=default, subject=orders, name=null,"
        " version=4) not exist)"
    )
    assert decode.value(ORDER_AVRO) == {"id": 7}


def test_a_login_that_rocketmq_s_registry_refuses_is_not_tried_for_every_record(server):
    refusal = real_registry_answer(40101, b'{"status":40101,"message":"no"}')
    path = f"{SUBJECT}/recordId/{ORDER_ID}/schema"
    server.answers[path] = refusal
    decode = parse_decode(f"registry:{server.url}{SUBJECT}", SchemaRegistry)
    for body in (ORDER_AVRO, bytes.fromhex("100904241a578000040e")):
        assert "answered with HTTP 40101 (no)" in error_of(decode, body)
    assert server.paths == [path]


# --- a registry that is slow, wrong or hostile


def test_a_registry_that_is_down_is_not_asked_for_every_message(rmq, rmq_cluster):
    with Server().running() as server:
        pass
    topic = rmq_cluster.create_topic("T", queues=1)
    bodies = [framed(number) for number in range(50)]
    rmq_cluster.send(topic, bodies)
    out, _ = rmq("tail", topic, *WHOLE, "--decode", f"registry:{server.url}")
    records = checked_records(out.splitlines())
    assert [body_of(each) for each in records] == bodies
    address = server.url.removeprefix("http://")
    assert records[49]["decode_error"] == (
        f"schema 49: schema registry: cannot connect to {address}: connection refused"
    )


@pytest.mark.slow
def test_after_an_answer_that_does_not_come_others_are_asked_for_later(server):
    clock = ManualClock()
    server.answers["/schemas/ids/1"] = lambda _: server.ended.wait()
    server.answers["/schemas/ids/2"] = JSON
    decode = decoder(server, timeout_ms=IMPATIENT_MS, clock=clock)
    for schema_id in (1, 1, 2):
        error = error_of(decode, framed(schema_id))
        assert "schema registry: no answer from" in error
    assert server.paths == ["/schemas/ids/1"]
    clock.advance(30_000)
    assert decode.value(framed(2)) == {}
    assert server.paths == ["/schemas/ids/1", "/schemas/ids/2"]


def test_a_schema_that_is_missing_is_asked_for_again_later(server):
    clock = ManualClock()
    decode = decoder(server, clock=clock)
    assert "HTTP 404" in error_of(decode, framed(1))
    server.answers["/schemas/ids/1"] = JSON
    clock.advance(29_999)
    assert "HTTP 404" in error_of(decode, framed(1))
    clock.advance(1)
    assert decode.value(framed(1)) == {}
    clock.advance(1_000_000)
    assert decode.value(framed(1)) == {}
    assert server.paths == ["/schemas/ids/1"] * 2


@pytest.mark.parametrize("status", [401, 403, 429, 503])
def test_a_registry_that_refuses_is_not_asked_for_other_schemas(server, status):
    server.answers["/schemas/ids/1"] = lambda handler: handler.send_error(status)
    decode = decoder(server)
    for schema_id in (1, 2, 3):
        error = error_of(decode, framed(schema_id))
        assert error == (
            f"schema {schema_id}: the schema registry answered with HTTP {status}"
        )
    assert server.paths == ["/schemas/ids/1"]


def endless(head, piece):
    """Return what sends `head`, and `piece` again and again."""

    def answer(handler):
        handler.wfile.write(head)
        while True:  # until the client hangs up
            handler.wfile.write(piece)

    return answer


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n",
        b"HTTP/1.1 404 Not Found\r\n\r\n",
    ],
)
def test_an_answer_without_an_end_is_cut_off(server, head):
    server.answers["/schemas/ids/1"] = endless(head, b"x" * 10_000)
    server.answers["/schemas/ids/2"] = JSON
    decode = decoder(server)
    assert "is larger than 1,048,576 bytes" in error_of(decode, framed(1))
    assert decode.value(framed(2)) == {}  # other schemas are still asked for


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"a: b\r\n"),
        (b"HTTP/1.1 200 OK\r\n", b"a" * 1000),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"zz\r\n"),
        (b"", b"\x16\x03\x01"),
    ],
)
def test_what_is_not_http_is_an_error(server, head, piece):
    server.answers["/schemas/ids/1"] = endless(head, piece)
    error = error_of(decoder(server), framed(1))
    assert error.startswith("schema 1: schema registry: ")
    assert "no answer of HTTP" in error or "is larger than" in error


@pytest.mark.slow
def test_a_byte_now_and_then_does_not_prolong_the_time(server):
    """It would without a limit for the whole answer: each byte comes in time."""

    def answer(handler):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while not server.ended.wait(IMPATIENT_MS / 5_000):
            handler.wfile.write(b" ")

    server.answers["/schemas/ids/1"] = answer
    decode = decoder(server, timeout_ms=IMPATIENT_MS)
    assert "schema registry: no answer from" in error_of(decode, framed(1))


def test_an_answer_that_ends_too_early_is_an_error(server):
    def answer(handler):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}")

    server.answers["/schemas/ids/1"] = answer
    assert "no answer of HTTP" in error_of(decoder(server), framed(1))


def test_redirects_are_not_followed(server):
    with Server().running() as other:
        other.answers["/schemas/ids/1"] = JSON

        def answer(handler):
            handler.send_response(302)
            handler.send_header("Location", f"{other.url}/schemas/ids/1")
            handler.send_header("Content-Length", "0")
            handler.end_headers()

        server.answers["/schemas/ids/1"] = answer
        assert error_of(decoder(server, login=("me", "hunter2")), framed(1)) == (
            "schema 1: the schema registry answered with HTTP 302, a redirect, which"
            " is not followed"
        )
        assert other.asked == []


def test_a_schema_of_10_mb_or_nested_deeply_costs_the_record_its_value(
    rmq, rmq_cluster, server
):
    pytest.importorskip("fastavro")
    deep = '{"type": "array", "items": ' * 10_000 + '"int"' + "}" * 10_000
    itself = '{"type": "record", "name": "A", "fields": [{"name": "a", "type": "A"}]}'
    server.answers |= {
        "/schemas/ids/1": {"schema": " " * 10_000_000 + '"int"'},
        "/schemas/ids/2": {"schema": deep},
        "/schemas/ids/3": b"[" * 10_000,
        "/schemas/ids/4": {"schema": itself},
        "/schemas/ids/5": {"schema": '"int"'},
    }
    topic = rmq_cluster.create_topic("T", queues=1)
    rmq_cluster.send(topic, [framed(number, b"\x02") for number in range(1, 6)])
    out, err = rmq("tail", topic, *WHOLE, "--decode", f"registry:{server.url}")
    records = checked_records(out.splitlines())
    address = server.url.removeprefix("http://")
    assert [each.get("decode_error", "")[:70] for each in records] == [
        f"schema 1: schema registry: the answer of {address} is larger than 1,048,"[
            :70
        ],
        "schema 2: the Avro schema is not valid JSON: maximum recursion depth e",
        "schema 3: the JSON is nested deeper than 200 levels",
        "schema 4: field a of A contains itself (A)",
        "",
    ]
    assert records[4]["value"] == 1
    assert "Traceback" not in err


def test_what_is_kept_has_a_bound(server):
    """The oldest schemas are asked for again when newer ones need their place."""
    large = JSON | {"schema": "x" * 1_000_000}
    server.answers = {f"/schemas/ids/{number}": large for number in range(20)}
    decode = decoder(server)
    for number in range(20):
        assert decode.value(framed(number)) == {}
    asked = len(server.asked)
    decode.value(framed(19))
    assert len(server.asked) == asked
    decode.value(framed(0))
    assert len(server.asked) == asked + 1


def test_threads_that_need_the_same_schema_ask_once(server):
    """All four wait at once for an answer that comes when all have begun."""
    begun = threading.Barrier(4)
    server.answers["/schemas/ids/1"] = JSON
    decode = decoder(server)
    values = []

    def read():
        begun.wait()
        values.append(decode.value(framed(1, b"5")))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values == [5, 5, 5, 5]
    assert server.paths == ["/schemas/ids/1"]


def test_an_interrupt_leaves_nothing_behind():
    """Another thread, or a later call, asks again instead of waiting for ever."""
    registry = SchemaRegistry("http://127.0.0.1:1")

    def interrupted(_get):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        registry.once(1, interrupted)
    assert registry.once(1, lambda _get: len)(b"ab") == 2
