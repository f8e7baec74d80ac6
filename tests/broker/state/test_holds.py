"""Pulls that wait, under a clock that is moved by hand."""

from __future__ import annotations

import dataclasses

from rmqcli.broker.effects import Peer
from rmqcli.broker.settings import BrokerSettings
from tests.broker.driving import CLIENT
from tests.broker.pulling import (
    COMMIT,
    SUBSCRIPTION,
    SUSPEND,
    driver_with_topic,
    hold,
    offsets,
    outcome,
    pull,
    put,
)

OTHER = Peer(2, "127.0.0.1:40002")


def answers(driver, peer=CLIENT):
    return driver.sent[peer.number]


def test_s2_34_nothing_found_is_held_when_it_may_be():
    driver = driver_with_topic()
    hold(driver)
    assert len(driver.broker.holds) == 1
    assert outcome(pull(driver)) == (19, "NO_MESSAGE_IN_QUEUE", 0)


def test_s2_43_arrival_answers_at_once():
    driver = driver_with_topic()
    hold(driver)
    put(driver, "A")
    (answer,) = answers(driver)
    assert outcome(answer) == (0, "FOUND", 1)
    assert offsets(answer) == [0]
    assert len(driver.broker.holds) == 0


def test_s2_42_the_answer_keeps_the_opaque_of_its_request():
    driver = driver_with_topic()
    hold(driver)
    hold(driver, queue_id=1)
    put(driver, "A", queue_id=1)
    put(driver, "A")
    assert [each.opaque for each in answers(driver)] == [2, 1]


def test_s2_36_two_pulls_wait_for_one_queue():
    driver = driver_with_topic()
    hold(driver)
    hold(driver, peer=OTHER, consumer_group="h")
    hold(driver, queue_id=1)
    put(driver, "A")
    assert [len(answers(driver)), len(answers(driver, OTHER))] == [1, 1]
    assert len(driver.broker.holds) == 1


def test_s2_39_another_tag_does_not_wake_and_s2_41_waits_on():
    driver = driver_with_topic()
    hold(driver, subscription="A")
    hold(driver, subscription="B", peer=OTHER)
    put(driver, "B")
    assert answers(driver) == []
    assert offsets(answers(driver, OTHER)[0]) == [0]
    put(driver, "A")
    assert offsets(answers(driver)[0]) == [1]


def test_s2_31_the_check_knows_no_tag():
    driver = driver_with_topic()
    hold(driver, subscription="A")
    put(driver, "B")
    driver.wait(4_999)
    assert answers(driver) == []
    driver.wait(1)
    assert outcome(answers(driver)[0]) == (20, "NO_MATCHED_MESSAGE", 1)


def test_s2_37_checks_come_each_5_s_and_s2_40_end_a_hold():
    driver = driver_with_topic()
    driver.wait(2_000)
    hold(driver, suspend_timeout_millis=15_000)
    driver.wait(17_999)
    assert answers(driver) == []
    driver.wait(1)  # 15 s are over at 17 s, the check comes at 20 s
    assert outcome(answers(driver)[0]) == (19, "NO_MESSAGE_IN_QUEUE", 0)


def test_a_hold_of_no_time_waits_for_the_check():
    driver = driver_with_topic()
    driver.wait(1_000)
    hold(driver, suspend_timeout_millis=0)
    driver.wait(3_999)
    assert answers(driver) == []
    driver.wait(1)
    assert len(answers(driver)) == 1


def test_s2_35_without_long_polling_a_hold_takes_a_second():
    driver = driver_with_topic(BrokerSettings(long_polling_enable=False))
    driver.wait(500)
    hold(driver)
    put(driver, "A")
    assert answers(driver) == []  # arrivals wake nobody
    driver.wait(500)
    assert outcome(answers(driver)[0]) == (0, "FOUND", 1)
    hold(driver, queue_offset=1)
    driver.wait(1_000)
    assert outcome(answers(driver)[1]) == (19, "OFFSET_OVERFLOW_ONE", 1)


def test_s2_38_the_check_finds_what_nobody_told_of():
    driver = driver_with_topic()
    hold(driver)
    driver.broker.settings = dataclasses.replace(
        driver.broker.settings, long_polling_enable=False
    )
    put(driver, "A")
    assert answers(driver) == []
    driver.wait(5_000)
    assert outcome(answers(driver)[0]) == (0, "FOUND", 1)


def test_s2_44_arrivals_wake_nobody_on_a_slave():
    settings = BrokerSettings(broker_id=1, slave_read_enable=True)
    driver = driver_with_topic(settings)
    driver.broker.profile = dataclasses.replace(
        driver.broker.profile, slave_sends_to_master=False
    )
    hold(driver)
    driver.broker.holds.arrived("T", 0, 0, 0, {}, driver.now)
    assert len(driver.broker.holds) == 1


def test_a_held_pull_commits_at_once_and_not_again():
    driver = driver_with_topic()
    offsets_of = driver.broker.offsets
    hold(driver, sys_flag=COMMIT | SUSPEND | SUBSCRIPTION, commit_offset=7)
    assert offsets_of.query("g", "T", 0) == 7
    offsets_of.commit("g", "T", 0, 9)
    put(driver, "A")
    assert len(answers(driver)) == 1
    assert offsets_of.query("g", "T", 0) == 9


def test_a_refusal_when_woken_is_answered():
    driver = driver_with_topic()
    hold(driver)
    driver.broker.topics.delete("T")
    driver.wait(20_000)
    assert [each.code for each in answers(driver)] == [17]


def test_a_reset_is_told_at_the_end_of_the_hold():
    driver = driver_with_topic()
    put(driver, "A", "B")
    hold(driver, queue_offset=2)
    driver.broker.offsets.reset("g", "T", 0, 1)
    assert answers(driver) == []
    driver.wait(20_000)
    assert outcome(answers(driver)[0]) == (21, "OFFSET_RESET", 1)
    assert driver.broker.offsets.query("g", "T", 0) == 1
    assert outcome(pull(driver, queue_offset=1)) == (0, "FOUND", 2)


def test_what_a_client_waits_for_goes_with_it():
    driver = driver_with_topic()
    hold(driver)
    hold(driver, queue_id=1)
    hold(driver, peer=OTHER)
    driver.disconnect(CLIENT)
    assert len(driver.broker.holds) == 1
    put(driver, "A")
    assert answers(driver) == []
    assert len(answers(driver, OTHER)) == 1


def test_when_too_many_wait_the_next_is_answered(monkeypatch):
    monkeypatch.setattr("rmqcli.broker.state.holds.HELD_MAX", 1)
    driver = driver_with_topic()
    hold(driver)
    assert pull(driver, sys_flag=SUBSCRIPTION | SUSPEND).code == 19


def test_a_property_filter_is_asked_of_an_arrival():
    driver = driver_with_topic(BrokerSettings(enable_property_filter=True))
    hold(driver, expression_type="SQL92", subscription="n > 1")
    put(driver, "A")
    assert answers(driver) == []
    put(driver, "AA")
    assert offsets(answers(driver)[0]) == [1]


def test_nothing_is_planned_while_nobody_waits():
    driver = driver_with_topic()
    planned = driver.broker.next_due_ms()
    hold(driver)
    assert driver.broker.next_due_ms() == 5_000
    put(driver, "A")
    driver.wait(5_000)
    assert driver.broker.next_due_ms() == planned
