"""Calls of a consumer send what Java's push consumer sent in a recording."""

from __future__ import annotations

import pytest

from rmqcli.api.calls.client import (
    consumer_send_msg_back,
    lock_batch_mq,
    unlock_batch_mq,
    unregister_client,
)
from rmqcli.api.calls.pull import pull_for_group
from rmqcli.model import MessageQueue
from rmqcli.wire.bodies.heartbeat import LockBatchRequestBody
from rmqcli.wire.body import decode_body
from rmqcli.wire.command import decode_command
from rmqcli.wire.frame import FrameBuffer
from rmqcli.wire.headers.client import ConsumerSendMsgBackRequestHeader
from tests.golden_vectors import from_base64, load

CONVERSATION = load("conversation")


def recording(name, version="5.5.0"):
    """Return the first recorded request of Java's client with this name."""
    return next(
        case
        for case in CONVERSATION
        if (case["rocketmq"], case["name"]) == (version, name)
    )


def recorded(name, version="5.5.0"):
    """Decode the request from the bytes that were recorded."""
    (frame,) = FrameBuffer().feed(from_base64(recording(name, version)["request_b64"]))
    return decode_command(frame)


def noted(name, version="5.5.0"):
    """Return the request's fields as the recorder wrote them beside the bytes."""
    return recording(name, version)["request"]["ext_fields"]


PULLED = noted("push consumer 11 1")
QUEUE = MessageQueue(PULLED["topic"], PULLED["bname"], int(PULLED["queueId"]))


def pull(**fields):
    options = {
        "commit_offset": None,
        "max_msg_nums": int(PULLED["maxMsgNums"]),
        "suspend_ms": int(PULLED["suspendTimeoutMillis"]),
        "sub_version": int(PULLED["subVersion"]),
        "expression": None,
        "expression_type": "TAG",
    }
    group, offset = PULLED["consumerGroup"], int(PULLED["queueOffset"])
    return pull_for_group(group, QUEUE, offset, **(options | fields))


def test_a_pull_of_a_group_is_as_javas():
    java = recorded("push consumer 11 1")
    ours = pull()
    assert (ours.code, ours.ext_fields) == (java.code, java.ext_fields)


@pytest.mark.parametrize(
    ("fields", "flag", "commit", "expression"),
    [
        ({}, "2", "0", None),
        ({"commit_offset": 7}, "3", "7", None),
        ({"expression": "a > 1", "expression_type": "SQL92"}, "6", "0", "a > 1"),
        ({"commit_offset": 7, "expression": "A"}, "7", "7", "A"),
    ],
    ids=["plain", "commit", "expression", "both"],
)
def test_the_flags_say_what_a_pull_carries(fields, flag, commit, expression):
    sent = pull(**fields).ext_fields
    assert (sent["sysFlag"], sent["commitOffset"]) == (flag, commit)
    assert sent.get("subscription") == expression


@pytest.mark.parametrize("version", ["4.6.0", "5.5.0"])
@pytest.mark.parametrize(
    ("make", "name"),
    [(lock_batch_mq, "push consumer 41 1"), (unlock_batch_mq, "push consumer 42 1")],
    ids=["lock", "unlock"],
)
def test_locks_are_asked_for_as_java_does(make, name, version):
    java = recorded(name, version)
    body = decode_body(LockBatchRequestBody, java.body)
    ours = make(body.consumer_group, body.client_id, body.mq_set)
    assert ours.code == java.code
    assert decode_body(LockBatchRequestBody, ours.body) == body


def test_a_send_back_is_as_javas():
    java = recorded("push consumer 36 1", "4.6.0")
    fields = noted("push consumer 36 1", "4.6.0")
    ours = consumer_send_msg_back(
        ConsumerSendMsgBackRequestHeader(
            offset=int(fields["offset"]),
            group=fields["group"],
            delay_level=int(fields["delayLevel"]),
            origin_msg_id=fields["originMsgId"],
            origin_topic=fields["originTopic"],
            max_reconsume_times=int(fields["maxReconsumeTimes"]),
        )
    )
    assert (ours.code, ours.ext_fields) == (java.code, java.ext_fields)


def test_a_goodbye_names_client_and_group():
    call = unregister_client("192.0.2.2@c", consumer_group="g_push")
    assert call.code == 35
    assert call.ext_fields == {"clientID": "192.0.2.2@c", "consumerGroup": "g_push"}
