"""Resets: at the broker, and by the group's members."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmqcli.broker.effects import Peer
from rmqcli.broker.profiles import PROFILE_4_9_7
from rmqcli.broker.settings import BrokerSettings
from rmqcli.broker.state.clients import ConnectedMember
from rmqcli.model import MessageQueue
from rmqcli.wire.bodies.config import TopicConfig
from rmqcli.wire.bodies.heartbeat import ConsumerData, HeartbeatData
from rmqcli.wire.bodies.offset import ResetOffsetBody
from rmqcli.wire.body import decode_body
from rmqcli.wire.headers.offset import ResetOffsetRequestHeader
from rmqcli.wire.message.encode import MessageFields
from tests.broker.driving import EPOCH_MS, Driver

if TYPE_CHECKING:
    from rmqcli.wire.command import RemotingCommand

MEMBER = Peer(7, "127.0.0.1:40007")


def filled(settings: BrokerSettings | None = None) -> Driver:
    """Topic T of two queues; queue 0 has a message each second, four in all."""
    driver = Driver(settings)
    driver.broker.topics.put(
        TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2)
    )
    driver.broker.groups.find_or_create("g")
    for number in range(4):
        fields = MessageFields(
            topic="T",
            body=b"x",
            queue_id=0,
            born_timestamp_ms=EPOCH_MS,
            store_timestamp_ms=EPOCH_MS + 1000 * number,
        )
        driver.broker.writer.put([fields], driver.now)
    return driver


def reset(
    driver: Driver,
    timestamp: int,
    *,
    queue_id: int | None = None,
    offset: int | None = None,
    group: str = "g",
    topic: str = "T",
    is_force: bool = True,
) -> RemotingCommand:
    header = ResetOffsetRequestHeader(
        topic=topic,
        group=group,
        timestamp=timestamp,
        is_force=is_force,
        queue_id=queue_id,
        offset=offset,
    )
    answer = driver.ask(222, header)
    assert answer is not None
    return answer


def targets(command: RemotingCommand) -> list[int]:
    found = decode_body(ResetOffsetBody, bytes(command.body)).offset_table
    return [found[MessageQueue("T", "broker-a", n)] for n in range(len(found))]


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (0, [0, 0]),
        (EPOCH_MS + 1, [1, 0]),
        (EPOCH_MS + 2000, [2, 0]),
        (EPOCH_MS + 3001, [4, 0]),
        (-1, [4, 0]),
    ],
)
def test_a_reset_by_time_at_the_broker(timestamp: int, expected: list[int]) -> None:
    driver = filled()
    assert targets(reset(driver, timestamp, is_force=False)) == expected
    assert driver.broker.offsets.take_pending_reset("g", "T", 0) == expected[0]
    assert driver.broker.offsets.query("g", "T", 0) == expected[0]


@pytest.mark.parametrize(
    ("offset", "code"), [(0, 0), (4, 0), (5, 0), (6, 1), (-2, 1), (-1, 0)]
)
def test_a_reset_of_one_queue_to_an_offset(offset: int, code: int) -> None:
    driver = filled()
    answer = reset(driver, 0, queue_id=0, offset=offset)
    assert answer.code == code
    if code:
        assert answer.remark == (
            f"Target offset {offset} not in consume queue range [0-4]"
        )
    assert driver.broker.offsets.query("g", "T", 1) is None


def test_a_reset_of_an_unknown_topic_or_group_is_refused() -> None:
    answer = reset(filled(), 0, topic="U")
    assert (answer.code, answer.remark) == (17, "Topic U does not exist")
    answer = reset(filled(), 0, group="h")
    assert (answer.code, answer.remark) == (26, "Group h does not exist")


def test_a_slave_refuses_a_reset() -> None:
    answer = reset(filled(BrokerSettings(broker_id=1)), 0)
    assert (answer.code, answer.remark) == (1, "Can not reset offset in slave broker")


@pytest.mark.parametrize(
    "settings",
    [
        BrokerSettings(profile=PROFILE_4_9_7),
        BrokerSettings(use_server_side_reset_offset=False),
    ],
)
def test_members_are_sent_the_reset(settings: BrokerSettings) -> None:
    driver = filled(settings)
    answer = reset(driver, 0)
    assert (answer.code, answer.remark) == (1, "THe consumer group <g> not exist")
    for queue_id, offset in ((0, 2), (1, 0)):
        driver.broker.offsets.commit("g", "T", queue_id, offset)
    answer = reset(driver, 0)
    assert answer.code == 206
    assert answer.remark == (
        "Consumer not online, so can not reset offset, Group: g Topic: T Timestamp: 0"
    )
    join(driver)
    for is_force, timestamp, expected in (
        (False, EPOCH_MS + 3000, [2, 0]),
        (True, EPOCH_MS + 3000, [3, 0]),
        (False, EPOCH_MS + 1000, [1, 0]),
        (True, -1, [4, 0]),
    ):
        driver.sent[MEMBER.number].clear()
        assert targets(reset(driver, timestamp, is_force=is_force)) == expected
        (push,) = (each for each in driver.sent[MEMBER.number] if each.code == 220)
        assert push.is_oneway
        assert push.ext_fields["timestamp"] == str(timestamp)
        assert targets(push) == expected
        assert driver.broker.offsets.query("g", "T", 0) == 2


def join(driver: Driver) -> None:
    member = ConnectedMember("me", MEMBER, 0, 407, driver.now)
    consumer = ConsumerData(
        group_name="g",
        consume_type="CONSUME_PASSIVELY",
        message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        subscriptions=(),
    )
    driver.broker.clients.heartbeat(
        member, HeartbeatData(client_id="me", consumers=(consumer,))
    )
