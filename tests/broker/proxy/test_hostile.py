"""A proxy survives other protocols on its port, floods, clients that do not read."""

from __future__ import annotations

import socket

import grpc
import pytest

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.broker.proxy.options import ProxyOptions
from rmqcli.errors import ConnectError, UsageError
from rmqcli.wire.protobuf import definition_pb2 as d
from rmqcli.wire.protobuf import service_pb2 as s
from tests.kit.proxy.raw_client import SERVICE, code_of, message, producer_settings
from tests.kit.waiting import wait_until


def address_of(cluster):
    host, _, port = cluster.endpoints.rpartition(":")
    return host, int(port)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        bytes.fromhex("160301020001000001fc0303") + b"\x00" * 500,
        b"\x00\x00\x00\x10\x00\x00\x00\x04{}{}",
        b"\x00" * 100_000,
    ],
    ids=["http/1.1", "tls", "remoting", "zeros"],
)
def test_another_protocol_ends_only_its_own_connection(cluster, client, data):
    cluster.create_topic("T")
    with socket.create_connection(address_of(cluster), 10) as sock:
        sock.sendall(data)
        sock.settimeout(30)
        while True:  # until the stream ends in any way
            try:
                if not sock.recv(4096):
                    break
            except ConnectionResetError:
                break
    assert code_of(client.send(message("T"))) == "OK"


def test_bytes_that_are_no_message_fail_only_their_call(cluster, client):
    cluster.create_topic("T")
    method = client.channel.unary_unary(f"/{SERVICE}/SendMessage")
    with pytest.raises(grpc.RpcError) as failed:
        method(b"\xff\xff\xff\xff\xff", metadata=client.metadata, timeout=20)
    assert failed.value.code() is grpc.StatusCode.INTERNAL
    assert code_of(client.send(message("T"))) == "OK"


def test_bytes_that_are_no_command_end_the_stream_with_the_reason(client):
    method = client.channel.stream_stream(f"/{SERVICE}/Telemetry")
    stream = method(iter([b"\xff" * 5]), metadata=client.metadata, timeout=20)
    with pytest.raises(grpc.RpcError) as failed:
        next(stream)
    assert failed.value.code() is grpc.StatusCode.INTERNAL
    assert "parsing message" in (failed.value.details() or "")


def test_an_unknown_field_is_ignored(cluster, client):
    cluster.create_topic("T")
    method = client.channel.unary_unary(
        f"/{SERVICE}/QueryRoute", response_deserializer=s.QueryRouteResponse.FromString
    )
    request = s.QueryRouteRequest(topic=d.Resource(name="T")).SerializeToString()
    answer = method(request + b"\xf8\x3f\x07", metadata=client.metadata, timeout=20)
    assert code_of(answer) == "OK"


def test_an_unknown_method_is_unimplemented(client):
    method = client.channel.unary_unary(f"/{SERVICE}/MakeCoffee")
    with pytest.raises(grpc.RpcError) as failed:
        method(b"", metadata=client.metadata, timeout=20)
    assert failed.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_request_over_16_mib_is_refused_unread(client):
    with pytest.raises(grpc.RpcError) as failed:
        client.send(message("T", bytes(16 * 1024 * 1024)))
    assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_settings_have_a_limit_and_are_refused_before_a_producer_joins(cluster, client):
    settings = producer_settings(*(f"topic-{n}" for n in range(30_000)))
    with pytest.raises(grpc.RpcError) as failed:
        client.telemetry(settings)
    assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert cluster.proxy.client_ids() == []


@pytest.mark.slow
def test_two_thousand_streams_of_one_client(cluster, client):
    cluster.create_topic("T")
    command = s.TelemetryCommand(settings=producer_settings("T"))
    streams = []
    for _ in range(20):  # all of them at once take a busy machine longer than 3 s
        some = [client.telemetry() for _ in range(100)]
        for stream in some:
            stream.send(command)
        assert {code_of(stream.receive()) for stream in some} == {"OK"}
        streams += some
    assert cluster.proxy.client_ids() == [client.client_id]
    assert code_of(client.send(message("T"))) == "OK"


def test_a_client_that_never_reads_holds_up_only_itself(cluster, client, connect):
    cluster.create_topic("T")
    deaf = connect(cluster)
    # Each answer is some 200 KiB; the client's library reads 64 KiB ahead.
    names = [f"topic-{n:090}" for n in range(2_000)]
    command = s.TelemetryCommand(settings=producer_settings(*names))
    stream = deaf.telemetry()
    for _ in range(200):
        stream.send(command)
    wait_until(lambda: cluster.proxy.client_ids() == [deaf.client_id])
    assert code_of(client.send(message("T"))) == "OK"


def test_a_taken_port_is_named():
    with (
        EmbeddedCluster(proxy=True) as cluster,
        pytest.raises(ConnectError, match="the port is taken"),
    ):
        EmbeddedCluster(proxy=ProxyOptions(port=address_of(cluster)[1]))


def test_old_versions_have_no_proxy():
    with pytest.raises(UsageError, match=r"RocketMQ 4\.9\.7 has no proxy"):
        EmbeddedCluster(like="4.9.7", proxy=True)


def test_a_cluster_without_a_proxy_says_so():
    with (
        EmbeddedCluster() as cluster,
        pytest.raises(UsageError, match="the cluster has no proxy"),
    ):
        assert cluster.endpoints


def test_a_certificate_needs_its_key(tmp_path):
    with pytest.raises(UsageError, match="only one was given"):
        ProxyOptions(tls_cert=tmp_path / "cert.pem")
