"""Held pulls, under a clock that the test moves."""

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


def test_a_pull_that_finds_nothing_is_held_if_it_allows_that():
    driver = driver_with_topic()
    hold(driver)
    assert len(driver.broker.holds) == 1
    assert outcome(pull(driver)) == (19, "NO_MESSAGE_IN_QUEUE", 0)


def test_an_arriving_message_answers_a_held_pull_at_once():
    driver = driver_with_topic()
    hold(driver)
    put(driver, "A")
    (answer,) = answers(driver)
    assert outcome(answer) == (0, "FOUND", 1)
    assert offsets(answer) == [0]
    assert len(driver.broker.holds) == 0


def test_the_answer_to_a_held_pull_has_its_opaque():
    driver = driver_with_topic()
    hold(driver)
    hold(driver, queue_id=1)
    put(driver, "A", queue_id=1)
    put(driver, "A")
    assert [each.opaque for each in answers(driver)] == [2, 1]


def test_two_pulls_can_wait_for_one_queue():
    driver = driver_with_topic()
    hold(driver)
    hold(driver, peer=OTHER, consumer_group="h")
    hold(driver, queue_id=1)
    put(driver, "A")
    assert [len(answers(driver)), len(answers(driver, OTHER))] == [1, 1]
    assert len(driver.broker.holds) == 1


def test_a_message_of_another_tag_does_not_end_the_hold():
    driver = driver_with_topic()
    hold(driver, subscription="A")
    hold(driver, subscription="B", peer=OTHER)
    put(driver, "B")
    assert answers(driver) == []
    assert offsets(answers(driver, OTHER)[0]) == [0]
    put(driver, "A")
    assert offsets(answers(driver)[0]) == [1]


def test_the_check_of_held_pulls_ignores_tags():
    driver = driver_with_topic()
    hold(driver, subscription="A")
    put(driver, "B")
    driver.wait(4_999)
    assert answers(driver) == []
    driver.wait(1)
    assert outcome(answers(driver)[0]) == (20, "NO_MATCHED_MESSAGE", 1)


def test_a_check_each_5_s_ends_a_hold_whose_time_is_over():
    driver = driver_with_topic()
    driver.wait(2_000)
    hold(driver, suspend_timeout_millis=15_000)
    driver.wait(17_999)
    assert answers(driver) == []
    driver.wait(1)  # 15 s are over at 17 s, the check comes at 20 s
    assert outcome(answers(driver)[0]) == (19, "NO_MESSAGE_IN_QUEUE", 0)


def test_a_hold_of_0_ms_ends_at_the_next_check():
    driver = driver_with_topic()
    driver.wait(1_000)
    hold(driver, suspend_timeout_millis=0)
    driver.wait(3_999)
    assert answers(driver) == []
    driver.wait(1)
    assert len(answers(driver)) == 1


def test_without_long_polling_a_hold_takes_a_second():
    driver = driver_with_topic(BrokerSettings(long_polling_enable=False))
    driver.wait(500)
    hold(driver)
    put(driver, "A")
    assert answers(driver) == []  # arrivals wake no pull
    driver.wait(500)
    assert outcome(answers(driver)[0]) == (0, "FOUND", 1)
    hold(driver, queue_offset=1)
    driver.wait(1_000)
    assert outcome(answers(driver)[1]) == (19, "OFFSET_OVERFLOW_ONE", 1)


def test_the_check_finds_messages_that_woke_no_pull():
    driver = driver_with_topic()
    hold(driver)
    driver.broker.settings = dataclasses.replace(
        driver.broker.settings, long_polling_enable=False
    )
    put(driver, "A")
    assert answers(driver) == []
    driver.wait(5_000)
    assert outcome(answers(driver)[0]) == (0, "FOUND", 1)


def test_arrivals_wake_no_pull_on_a_slave():
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


def test_a_held_pull_learns_of_a_reset_at_its_end():
    driver = driver_with_topic()
    put(driver, "A", "B")
    hold(driver, queue_offset=2)
    driver.broker.offsets.reset("g", "T", 0, 1)
    assert answers(driver) == []
    driver.wait(20_000)
    assert outcome(answers(driver)[0]) == (21, "OFFSET_RESET", 1)
    assert driver.broker.offsets.query("g", "T", 0) == 1
    assert outcome(pull(driver, queue_offset=1)) == (0, "FOUND", 2)


def test_the_held_pulls_of_a_closed_connection_are_dropped():
    driver = driver_with_topic()
    hold(driver)
    hold(driver, queue_id=1)
    hold(driver, peer=OTHER)
    driver.disconnect(CLIENT)
    assert len(driver.broker.holds) == 1
    put(driver, "A")
    assert answers(driver) == []
    assert len(answers(driver, OTHER)) == 1


def test_with_too_many_held_pulls_the_next_is_answered_at_once(monkeypatch):
    monkeypatch.setattr("rmqcli.broker.state.holds.HELD_MAX", 1)
    driver = driver_with_topic()
    hold(driver)
    assert pull(driver, sys_flag=SUBSCRIPTION | SUSPEND).code == 19


def test_an_arriving_message_must_match_the_property_filter():
    driver = driver_with_topic(BrokerSettings(enable_property_filter=True))
    hold(driver, expression_type="SQL92", subscription="n > 1")
    put(driver, "A")
    assert answers(driver) == []
    put(driver, "AA")
    assert offsets(answers(driver)[0]) == [1]


def test_no_timer_runs_without_held_pulls():
    driver = driver_with_topic()
    planned = driver.core.next_due_ms()
    hold(driver)
    assert driver.core.next_due_ms() == 5_000
    put(driver, "A")
    driver.wait(5_000)
    assert driver.core.next_due_ms() == planned
