"""`--like VERSION`: what was seen to differ between real brokers, row by row.

ROWS says which tests hold each; the rows that no other file holds are here.
"""

from __future__ import annotations

import ast
from pathlib import Path

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

#: What was seen -> file and test.
ROWS = {
    "version in answers": ("like", "each_answer_has_its_version"),
    "binary requests": ("like", "only_4_9_7_answers_in_binary"),
    "properties that are added": (
        "golden_sends",
        "single_sends_are_answered_and_stored_as_by_rocketmq",
    ),
    "transactionId": (
        "golden_sends",
        "single_sends_are_answered_and_stored_as_by_rocketmq",
    ),
    "sends to system topics": ("send_message", "names_by_version"),
    "empty body": ("send_message", "empty_body_by_version"),
    "illegal names of topics": ("admin_topics", "names_that_cannot_be_set"),
    "retries of producers": (
        "send_message",
        "retry_sent_as_a_producer_dies_by_version",
    ),
    "maxMsgNums": ("like", "one_message_is_the_least_but_4_9_7_refuses_minus_1"),
    "pull of the schedule": ("like", "4_6_0_has_no_schedule_to_pull_from"),
    "committed transactions": ("transactions", "commit_delivers_and_is_written_down"),
    "207 without cleanOffset": ("admin_topics", "deleting_a_group"),
    "43": ("admin_consume", "offsets_as_a_whole"),
    "TIMER_* properties": ("delayed_message", "4_x_ignores_timers"),
    "222 beyond the end": ("admin_reset", "one_queue_to_an_offset"),
    "broken frames": ("server", "garbage_is_closed_and_others_go_on"),
    "a mandatory field is absent": ("like", "a_pull_without_its_queue_is_1"),
    "361": ("like", "lite_pulls_are_always_served"),
}

#: Seen, and no row of a test, with the reason.
REASONS = {
    "orderTopicConf in the route": "off unless the name server has orderMessageEnable",
    "order of what 12 finds": "alike everywhere: test_messages_by_key_are_the_newest_*",
}


def names_of_tests(file):
    path = Path(__file__).with_name(f"test_{file}.py")
    tree = ast.parse(path.read_text())
    return {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_held_by_a_test_that_exists(row):
    file, name = ROWS[row]
    assert f"test_{name}" in names_of_tests(file)


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
    sends = driver.broker.handle(CLIENT, request, driver.now, is_binary=True)
    (answer,) = (each for each in sends if isinstance(each, Send))
    assert answer.is_binary is (version == "4.9.7")


@pytest.mark.parametrize("version", VERSIONS)
def test_one_message_is_the_least_but_4_9_7_refuses_minus_1(version):
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
