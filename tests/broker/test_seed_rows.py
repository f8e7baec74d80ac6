"""Which tests hold the seeds' statements on the broker.

A row is a statement of a seed, numbered S<seed>-<statement>; here are all whose subject
is the broker. Where the seed is wrong or imprecise the note says what is held instead.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

#: Row -> where and by which tests it is held.
ROWS: dict[str, tuple[str, ...]] = {
    # 000: overview
    "S0-28": ("send_back", "s0_28_failed_message_is_stored_again_for_its_group"),
    # of the three locks of orderly consumers this is the broker's
    "S0-34": ("queue_locks", "a_queue_has_one_owner", "only_the_owner_unlocks"),
    # 001: handling of messages
    "S1-12": ("seed_pull", "s1_12_a_pull_without_messages_is_held_for_15_s"),
    "S1-13": ("seed_pull", "s1_13_what_comes_during_the_hold_is_the_answer"),
    # 002: pulling, long polling
    "S2-20": ("consumer_offsets", "s2_20_the_last_write_wins_a_smaller_one_too"),
    "S2-21": ("consumer_offsets", "s2_21_offsets_are_kept_by_topic_group_and_queue"),
    # wrong in the seed: nothing is said of the smallest offset; 0 while the queue
    # begins at 0 and its first message is in memory, else code 22
    "S2-22": (
        "pull_message",
        "s2_22_without_record_an_old_queue_has_no_first_offset",
        "s2_22_without_record_a_queue_on_disk_has_no_first_offset",
    ),
    "S2-23": ("seed_pull", "s2_23_checks_come_in_order_then_the_store"),
    "S2-24": ("seed_pull", "s2_24_each_queue_of_each_topic_has_its_own_offsets"),
    "S2-25": ("seed_pull", "s2_25_offsets_are_places_in_the_queue"),
    # 16,000 is of bytes: 800 entries
    "S2-26": ("pull_message", "s2_26_one_pull_looks_at_800_entries"),
    "S2-27": ("pull_message", "s2_27_tags_are_compared_by_hash_alone"),
    "S2-28": ("seed_pull", "s2_28_records_are_those_of_the_log"),
    "S2-29": ("pull_message", "s2_29_properties_are_the_second_filter"),
    "S2-30": (
        "seed_pull",
        "s2_30_the_batch_ends_behind_the_last_message_of_it",
        "s2_25_offsets_are_places_in_the_queue",
    ),
    "S2-31": (
        "hold_service",
        "s2_31_the_check_knows_no_tag",
        "s2_37_checks_come_each_5_s_and_s2_40_end_a_hold",
    ),
    "S2-32": ("seed_pull", "s2_32_a_held_pull_holds_up_nothing_of_its_client"),
    "S2-34": ("hold_service", "s2_34_nothing_found_is_held_when_it_may_be"),
    "S2-35": ("hold_service", "s2_35_without_long_polling_a_hold_takes_a_second"),
    "S2-36": ("hold_service", "s2_36_two_pulls_wait_for_one_queue"),
    "S2-37": ("hold_service", "s2_37_checks_come_each_5_s_and_s2_40_end_a_hold"),
    "S2-38": ("hold_service", "s2_38_the_check_finds_what_nobody_told_of"),
    "S2-39": ("hold_service", "s2_39_another_tag_does_not_wake_and_s2_41_waits_on"),
    "S2-40": ("hold_service", "s2_37_checks_come_each_5_s_and_s2_40_end_a_hold"),
    "S2-41": ("hold_service", "s2_39_another_tag_does_not_wake_and_s2_41_waits_on"),
    "S2-42": ("seed_pull", "s2_42_what_is_woken_in_vain_is_not_held_again"),
    "S2-43": ("hold_service", "s2_43_arrival_answers_at_once"),
    # newer than 4.6.0: notifyMessageArrive4MultiQueue; lite queues are not imitated
    "S2-44": ("hold_service", "s2_44_arrivals_wake_nobody_on_a_slave"),
    # 003: what a broker does with failed messages
    "S3-19": ("send_back", "s3_19_every_retry_waits_longer_until_the_message_is_dead"),
    # 004: push consumers
    "S4-11": ("seed_pull", "s4_11_what_makes_an_offset_illegal"),
    "S4-26": ("send_back", "s4_26_level_below_0_is_a_dead_letter"),
    "S4-27": ("send_back", "s4_27_expired_messages_come_back_with_level_3"),
    "S4-28": (
        "queue_locks",
        "s4_28_renewing_keeps_it",
        "a_lock_lives_60_s_and_not_a_ms_less",
    ),
    # imprecise in the seed: group and queue are the key, the client is the owner
    "S4-29": ("queue_locks", "s4_29_the_key_is_group_and_queue_the_owner_a_client"),
}

#: Rows that look like the broker's and have no test, with the reason.
REASONS = {
    "S2-10": "where a group stands is asked by clients: the broker's part is S2-20",
    "S2-14": "clients clear the flag; a slave's own part is test_commits_at_a_slave",
    "S2-16": "class filters are dead: no broker since 4.3 has a filter server",
    "S2-18": "four results are the client's names for codes 0, 19, 20 and 21: S2-23",
    "S2-33": "times of clients",
    "S2-45": "who pulls for the first time asks: the answer is S2-20 and S2-22",
    "S4-12": "why clients wait when a broker is recovering: no behaviour of the broker",
}

#: Every row whose source is a broker's or store's file, or that sends something there.
BROKER_ROWS = {
    "S0": (28, 34),
    "S1": (12, 13),
    "S2": (10, 14, 16, 18, *range(20, 46)),
    "S3": (19,),
    "S4": (11, 12, 26, 27, 28, 29),
}


def names_of_tests(file):
    path = Path(__file__).with_name(f"test_{file}.py")
    tree = ast.parse(path.read_text())
    return {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_held_by_tests_that_exist(row):
    file, *names = ROWS[row]
    wanted = {f"test_{name}" for name in names}
    assert wanted
    assert wanted <= names_of_tests(file)


def test_every_row_has_tests_or_a_reason():
    rows = [f"{seed}-{n:02}" for seed, numbers in BROKER_ROWS.items() for n in numbers]
    assert sorted(rows) == sorted([*ROWS, *REASONS])
