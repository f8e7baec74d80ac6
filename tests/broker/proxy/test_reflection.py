"""Reflection: programs such as grpcurl can ask the proxy what it serves."""

from __future__ import annotations

import grpc
import pytest
from google.protobuf import descriptor_database, descriptor_pb2, descriptor_pool

from rmqcli.broker.proxy.options import ProxyOptions
from rmqcli.wire.protobuf.reflection_pb2 import ServerReflectionRequest
from tests.broker.proxy.reflection import V2, ask, check_table, services


def test_the_table(cluster):
    check_table(cluster.endpoints)


def test_the_services(cluster):
    assert services(cluster.endpoints) == [
        "grpc.reflection.v1alpha.ServerReflection",
        "apache.rocketmq.v2.MessagingService",
    ]


def test_the_files_are_complete(cluster):
    request = ServerReflectionRequest(file_containing_symbol=f"{V2}.MessagingService")
    (answer,) = ask(cluster.endpoints, request)
    files = descriptor_database.DescriptorDatabase()
    for part in answer.file_descriptor_response.file_descriptor_proto:
        files.Add(descriptor_pb2.FileDescriptorProto.FromString(part))
    pool = descriptor_pool.DescriptorPool(files)
    service = pool.FindServiceByName(f"{V2}.MessagingService")
    method = service.methods_by_name["SendMessage"]
    assert method.input_type.full_name == f"{V2}.SendMessageRequest"


def test_no_account_is_needed(start):
    cluster = start(proxy=ProxyOptions(accounts={"user": "secret"}))
    check_table(cluster.endpoints)


def test_bytes_that_are_no_request_end_the_stream(cluster):
    with grpc.insecure_channel(cluster.endpoints) as channel:
        method: grpc.StreamStreamMultiCallable[bytes, bytes]
        method = channel.stream_stream(
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
        )
        with pytest.raises(grpc.RpcError) as caught:
            list(method(iter([b"\xff"]), timeout=20))
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    check_table(cluster.endpoints)
