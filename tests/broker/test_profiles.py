"""Differences between the imitated versions that belong to no single request.

The expected answers are those of real brokers of 4.6.0, 4.9.7 and 5.5.0.
"""

from __future__ import annotations

import pytest

from rmqcli.broker.effects import Send
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.command import RemotingCommand
from rmqcli.wire.header import to_ext_fields
from tests.broker.driving import CLIENT, Driver
from tests.broker.pulling import (
    SUBSCRIPTION,
    driver_with_topic,
    header,
    outcome,
    pull,
    put,
)
from tests.broker.sending import like

VERSIONS = ["4.6.0", "4.9.7", "5.5.0"]


@pytest.mark.parametrize(
    ("version", "number"), [("4.6.0", 333), ("4.9.7", 407), ("5.5.0", 513)]
)
def test_each_answer_has_its_version(version, number):
    driver = driver_with_topic(like(version))
    assert pull(driver).version == number
    unknown = driver.ask(9_999)
    assert unknown is not None
    assert (unknown.code, unknown.version) == (3, number)


@pytest.mark.parametrize("version", VERSIONS)
def test_only_4_9_7_answers_in_binary(version):
    driver = Driver(like(version))
    request = RemotingCommand(int(RequestCode.GET_ALL_TOPIC_CONFIG), opaque=1)
    sends = driver.core.handle(CLIENT, request, driver.now, is_binary=True)
    (answer,) = (each for each in sends if isinstance(each, Send))
    assert answer.is_binary is (version == "4.9.7")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_pull_gets_at_least_one_message_but_4_9_7_refuses_minus_1(version):
    driver = driver_with_topic(like(version))
    put(driver, "A", "B")
    assert outcome(pull(driver, max_msg_nums=0)) == (0, "FOUND", 1)
    if version == "4.9.7":
        assert pull(driver, max_msg_nums=-1).code == 1
    else:
        assert outcome(pull(driver, max_msg_nums=-1)) == (0, "FOUND", 1)


@pytest.mark.parametrize(
    ("version", "code"), [("4.6.0", 17), ("4.9.7", 19), ("5.5.0", 19)]
)
def test_4_6_0_has_no_schedule_to_pull_from(version, code):
    driver = Driver(like(version))
    assert pull(driver, topic="SCHEDULE_TOPIC_XXXX").code == code


@pytest.mark.parametrize("version", VERSIONS)
def test_a_pull_without_its_queue_is_1(version):
    driver = driver_with_topic(like(version))
    fields = {"consumerGroup": "g", "topic": "T", "sysFlag": str(SUBSCRIPTION)}
    request = RemotingCommand(
        int(RequestCode.PULL_MESSAGE), opaque=7, ext_fields=fields
    )
    answer = driver.send(request)
    assert answer is not None
    assert answer.code == 1
    assert driver.closed == []


@pytest.mark.parametrize("version", VERSIONS)
def test_lite_pulls_are_always_served(version):
    driver = driver_with_topic(like(version))
    put(driver, "A")
    request = RemotingCommand(361, opaque=7, ext_fields=to_ext_fields(header()))
    answer = driver.send(request)
    assert answer is not None
    assert outcome(answer) == (0, "FOUND", 1)
