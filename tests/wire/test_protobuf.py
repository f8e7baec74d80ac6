"""The generated messages of apache.rocketmq.v2, their field numbers and their pool."""

from __future__ import annotations

import subprocess
import sys

from rmqcli.wire.protobuf import definition_pb2, service_pb2


def test_a_message_has_the_field_numbers_of_the_protocol():
    message = definition_pb2.Message(
        topic=definition_pb2.Resource(name="orders"),
        user_properties={"a": "b"},
        system_properties=definition_pb2.SystemProperties(tag="t", queue_id=3),
        body=b"hello",
    )
    assert message.SerializeToString(deterministic=True) == (
        b"\x0a\x08\x12\x06orders"  # 1: topic, with 2: name
        b"\x12\x06\x0a\x01a\x12\x01b"  # 2: user properties
        b"\x1a\x05\x0a\x01t\x68\x03"  # 3: system properties, with 1 and 13
        b"\x22\x05hello"  # 4: body
    )


def test_codes_have_their_names():
    assert definition_pb2.Code.Name(40402) == "TOPIC_NOT_FOUND"
    assert definition_pb2.INVALID_RECEIPT_HANDLE == 40013


def test_times_of_a_message_convert():
    message = definition_pb2.Message()
    message.system_properties.born_timestamp.FromMilliseconds(1_700_000_000_123)
    again = definition_pb2.Message.FromString(message.SerializeToString())
    assert again.system_properties.born_timestamp.ToMilliseconds() == 1_700_000_000_123


def test_all_requests_of_the_service_exist():
    calls = service_pb2.DESCRIPTOR.services_by_name["MessagingService"].methods
    assert [call.name for call in calls] == [
        "QueryRoute",
        "Heartbeat",
        "SendMessage",
        "QueryAssignment",
        "ReceiveMessage",
        "AckMessage",
        "ForwardMessageToDeadLetterQueue",
        "PullMessage",
        "UpdateOffset",
        "GetOffset",
        "QueryOffset",
        "EndTransaction",
        "Telemetry",
        "NotifyClientTermination",
        "ChangeInvisibleDuration",
        "RecallMessage",
        "SyncLiteSubscription",
    ]


def test_another_definition_of_the_same_names_may_be_loaded_beside_it():
    # RocketMQ's official Python client does this with an older definition.
    program = """
from google.protobuf import descriptor_pb2, descriptor_pool
other = descriptor_pb2.FileDescriptorProto(
    name="definition.proto", package="apache.rocketmq.v2", syntax="proto3")
other.message_type.add(name="Message")
descriptor_pool.Default().Add(other)
from rmqcli.wire.protobuf import service_pb2
print(service_pb2.SendMessageRequest.DESCRIPTOR.full_name)
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert run.stderr == ""
    assert run.stdout == "apache.rocketmq.v2.SendMessageRequest\n"
