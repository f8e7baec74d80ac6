"""Sends of real clients, against what real brokers answered and stored.

`conversation` and `store-VERSION-commitlog` are of the same run of the same broker.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from rmqcli.broker.profiles import profile_of
from rmqcli.broker.settings import BrokerSettings
from rmqcli.clock import Now
from rmqcli.wire.bodies.config import TopicConfig
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.command import decode_command
from rmqcli.wire.frame import FrameBuffer
from tests.broker.driving import Driver
from tests.golden_vectors import from_base64, load

if TYPE_CHECKING:
    from rmqcli.wire.message.record import StoredMessage

VERSIONS = pytest.mark.parametrize(
    "version", sorted({case["rocketmq"] for case in load("conversation")})
)


@cache
def sends(version: str, code: int) -> list[dict[str, Any]]:
    """Requests of one code with their answers, in order."""
    return [
        case
        for case in load("conversation")
        if case["rocketmq"] == version
        and case["request"]["code"] == code
        and case.get("response_b64")
    ]


@cache
def records(version: str) -> dict[str, dict[str, Any]]:
    """Records of the commit log in order, the first of each unique key."""
    found: dict[str, dict[str, Any]] = {}
    for case in load(f"store-{version}-commitlog"):
        key = case.get("properties", {}).get("UNIQ_KEY")
        if key is not None:
            found.setdefault(key, case)
    return found


def driver_like(version: str) -> Driver:
    """A broker with the address, time and topics of the recorded one."""
    first = next(iter(records(version).values()))
    driver = Driver(
        BrokerSettings(profile=profile_of(version), address=first["store_host"]),
        now=Now(0, first["store_timestamp_ms"]),
    )
    for case in load("conversation"):
        request = case["request"]
        if (case["rocketmq"], request["code"]) != (
            version,
            RequestCode.UPDATE_AND_CREATE_TOPIC,
        ):
            continue
        fields = request["ext_fields"]
        driver.broker.topics.put(
            TopicConfig(
                topic_name=fields["topic"],
                read_queue_nums=int(fields["readQueueNums"]),
                write_queue_nums=int(fields["writeQueueNums"]),
                perm=int(fields["perm"]),
            )
        )
    return driver


def replay(driver: Driver, case: dict[str, Any]) -> tuple[int, dict[str, str]]:
    """Send a recorded request; return the answer's code and fields."""
    (frame,) = FrameBuffer().feed(from_base64(case["request_b64"]))
    answer = driver.send(decode_command(frame))
    assert answer is not None
    return answer.code, dict(answer.ext_fields)


def as_golden(message: StoredMessage) -> dict[str, Any]:
    """The parts of a stored message that do not depend on its time and origin."""
    return {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "store_size": message.store_bytes,
        "body_crc": message.body_crc,
        "born_timestamp_ms": message.born_timestamp_ms,
        "store_host": message.store_host,
        "reconsume_times": message.reconsume_times,
        "properties": message.properties,
    }


@VERSIONS
def test_single_sends_are_answered_and_stored_as_by_rocketmq(version: str) -> None:
    driver = driver_like(version)
    cases = sends(version, RequestCode.SEND_MESSAGE_V2)
    assert cases

    for case in cases:
        code, fields = replay(driver, case)
        assert (code, fields) == (
            case["response"]["code"],
            case["response"]["ext_fields"],
        )
        topic = case["request"]["ext_fields"]["b"]
        stored = driver.messages(topic, int(fields["queueId"]))[-1]
        golden = records(version)[stored.properties["UNIQ_KEY"]]
        mine = as_golden(stored)
        assert mine == {name: golden[name] for name in mine}
        assert stored.commit_log_offset == golden["commit_log_offset"]


@VERSIONS
def test_batches_are_stored_as_by_rocketmq(version: str) -> None:
    driver = driver_like(version)
    (case,) = sends(version, RequestCode.SEND_BATCH_MESSAGE)

    code, fields = replay(driver, case)

    expected = case["response"]["ext_fields"]
    assert code == 0
    assert fields.keys() == expected.keys()
    assert fields.get("transactionId") == expected.get("transactionId")
    places = [int(each[16:], 16) for each in fields["msgId"].split(",")]
    golden_places = [int(each[16:], 16) for each in expected["msgId"].split(",")]
    assert [each - places[0] for each in places] == [
        each - golden_places[0] for each in golden_places
    ]
    sent = case["request"]["ext_fields"]
    stored_messages = driver.messages(sent["b"], int(sent["e"]))
    assert len(stored_messages) == len(golden_places)
    for stored in stored_messages:
        golden = records(version)[stored.properties["UNIQ_KEY"]]
        mine = as_golden(stored)
        assert mine == {name: golden[name] for name in mine}
