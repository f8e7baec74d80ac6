"""What a proxy's gRPC reflection answers: one table for all proxies."""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf import descriptor_pb2

from rmqcli.wire.protobuf.reflection_pb2 import (
    ServerReflectionRequest,
    ServerReflectionResponse,
)

V2 = "apache.rocketmq.v2"
_SERVICE_FILES = [
    "apache/rocketmq/v2/service.proto",
    "google/protobuf/duration.proto",
    "google/protobuf/timestamp.proto",
    "apache/rocketmq/v2/definition.proto",
]
_NO_SYMBOL = (5, "Symbol not found.")

#: Requests, and the files of the answer or its error.
TABLE: list[tuple[dict[str, Any], object]] = [
    ({"file_by_filename": "apache/rocketmq/v2/service.proto"}, _SERVICE_FILES),
    ({"file_by_filename": "nope"}, (5, "File not found.")),
    ({"file_containing_symbol": f"{V2}.MessagingService"}, _SERVICE_FILES),
    ({"file_containing_symbol": f"{V2}.MessagingService.SendMessage"}, _SERVICE_FILES),
    (
        {"file_containing_symbol": f"{V2}.Message", "host": "h"},
        [
            "apache/rocketmq/v2/definition.proto",
            "google/protobuf/timestamp.proto",
            "google/protobuf/duration.proto",
        ],
    ),
    (
        {"file_containing_symbol": "google.protobuf.Timestamp"},
        ["google/protobuf/timestamp.proto"],
    ),
    (
        {"file_containing_symbol": "grpc.reflection.v1alpha.ServerReflection"},
        ["grpc/reflection/v1alpha/reflection.proto"],
    ),
    ({"file_containing_symbol": f"{V2}.Message.body"}, _NO_SYMBOL),
    ({"file_containing_symbol": f"{V2}.Code"}, _NO_SYMBOL),
    ({"file_containing_symbol": f"{V2}.Admin"}, _NO_SYMBOL),
    (
        {
            "file_containing_extension": {
                "containing_type": f"{V2}.Message",
                "extension_number": 3,
            }
        },
        (5, "Extension not found."),
    ),
    ({"all_extension_numbers_of_type": f"{V2}.Message"}, (5, "Type not found.")),
    ({}, (12, "not implemented MESSAGEREQUEST_NOT_SET")),
]


def ask(
    endpoints: str, *requests: ServerReflectionRequest
) -> list[ServerReflectionResponse]:
    """The answers to the requests of one stream."""
    with grpc.insecure_channel(endpoints) as channel:
        method = channel.stream_stream(
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
            request_serializer=ServerReflectionRequest.SerializeToString,
            response_deserializer=ServerReflectionResponse.FromString,
        )
        return list(method(iter(requests), timeout=20))


def check_table(endpoints: str) -> None:
    """Send all requests of the table in one stream, and compare the answers."""
    requests = [ServerReflectionRequest(**fields) for fields, _ in TABLE]
    answers = ask(endpoints, *requests)
    assert [each.original_request for each in answers] == requests
    assert [each.valid_host for each in answers] == [each.host for each in requests]
    assert list(map(_said, answers)) == [expected for _, expected in TABLE]


def services(endpoints: str) -> list[str]:
    """The names of the services."""
    (answer,) = ask(endpoints, ServerReflectionRequest(list_services="*"))
    return [each.name for each in answer.list_services_response.service]


def _said(answer: ServerReflectionResponse) -> object:
    if answer.HasField("error_response"):
        return (answer.error_response.error_code, answer.error_response.error_message)
    files = answer.file_descriptor_response.file_descriptor_proto
    return [descriptor_pb2.FileDescriptorProto.FromString(each).name for each in files]
