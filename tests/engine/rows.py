"""Which tests hold the seeds' statements, the traps and the acceptance cases.

S0-01 to S4-29 are statements of the five seeds, T1 to T35 traps, A01 to A46 failures of
other clients. What a seed has wrong or imprecise is held as it is right: the test says
what that is.
"""

from __future__ import annotations

from typing import Final

_BROKER: Final = "the broker's: tests/broker/test_seed_rows.py"

#: Row -> why no test of a consumer holds it.
REASONS: dict[str, str] = {
    "S0-22": "nothing rejects: requests wait in a queue without end",
    "S0-33": "advice to who writes a listener",
    "S2-16": "class filters are dead: no broker since 4.3 has a filter server",
    "A11": "POP, and a view of the lag: the command that shows it tells of it",
    "A23": "POP is not there yet",
    "A33": "resets look at what they did: tests/cli/reset_offset/test_reset_offset.py",
    "A34": "resets show before and after: tests/cli/reset_offset/test_reset_offset.py",
    "A37": "times are read by the commands: tests/cli",
    "A38": "the commands never print an unknown number as one: tests/cli/test_lag.py",
    "A43": "POP is not there yet",
}
REASONS |= {
    f"S2-{number}": _BROKER
    for number in (*range(20, 27), *range(28, 45))
    if number != 33
}

#: A row, then a test of it a line: file::name without test_; folder/ unless engine.
_TABLE: Final = """
S0-01 orderly::messages_come_in_their_order_one_call_at_a_time
S0-02 rebalance::queues_are_shared_by_the_strategy
S0-03 pull::each_queue_has_one_pull
S0-04 pull::each_queue_has_one_pull
      rebalance::the_broker_knows_of_a_change_before_the_first_pull
S0-05 lifecycle::a_start_asks_in_order
      pull::each_queue_has_one_pull
S0-06 pull::queues_do_not_wait_for_each_other
S0-07 pull::each_queue_has_one_pull
S0-08 pull::what_was_found_is_cached_consumed_and_followed_by_a_pull
S0-09 pull::one_over_a_thousand_cached_messages_are_too_many
      pull::bodies_of_more_whole_mib_than_set_are_too_many
S0-10 pull::one_over_a_thousand_cached_messages_are_too_many
S0-11 pull::bodies_of_more_whole_mib_than_set_are_too_many
S0-12 pull::settings_changed_by_a_rebalance_count_at_the_next_look
      pull::without_a_subscription_it_is_looked_again_after_a_second
S0-13 pull::messages_know_the_bounds_of_their_queue_then
      pull::tags_are_compared_as_text_once_more
S0-14 pull::found_but_all_of_other_tags_is_pulled_on_at_once
S0-15 pull::messages_know_the_bounds_of_their_queue_then
S0-16 pull::what_was_found_is_cached_consumed_and_followed_by_a_pull
S0-17 pull::what_was_found_is_cached_consumed_and_followed_by_a_pull
      pull::pull_interval_is_waited_for_once
S0-18 pull::what_a_pull_asks_for
S0-19 pull::what_a_pull_asks_for
S0-20 pull_answers::a_failed_pull_is_tried_again_after_a_second
      pull_answers::a_pull_that_cannot_even_be_asked_is_tried_again
S0-21 concurrently::a_pull_is_shown_in_slices
S0-23 concurrently::a_slow_request_is_shared
S0-24 concurrently::what_a_listener_does_to_its_list_is_its_own
      concurrently::anything_else_is_a_failure_and_sent_back
S0-25 concurrently::a_listener_that_took_too_long_has_done_it_none_the_less
S0-26 concurrently::done_moves_the_offset_and_tells_the_broker_nothing_else
      concurrently::anything_else_is_a_failure_and_sent_back
S0-27 concurrently::results_after_a_drop_are_void
S0-28 concurrently::done_moves_the_offset_and_tells_the_broker_nothing_else
      concurrently::anything_else_is_a_failure_and_sent_back
S0-29 concurrently::done_moves_the_offset_and_tells_the_broker_nothing_else
      concurrently::the_offset_is_that_of_the_lowest_that_is_left
S0-30 pull::the_check_is_before_the_pull_and_never_at_the_put
S0-31 concurrently::whatever_waits_for_a_thread_waits_there
S0-32 pull::no_message_is_dropped_by_flow_control
S0-34 orderly::a_lock_that_is_30_s_old_is_not_trusted
      orderly::a_lock_that_somebody_else_has_ends_the_work_between_two_calls
S1-01 pull_answers::a_failed_pull_is_tried_again_after_a_second
      pull_answers::a_broker_that_asks_for_patience_is_asked_after_20_ms
S1-02 pull::what_was_found_is_cached_consumed_and_followed_by_a_pull
      pull::tags_are_compared_as_text_once_more
S1-03 pull::what_was_found_is_cached_consumed_and_followed_by_a_pull
S1-04 pull::what_was_found_is_cached_consumed_and_followed_by_a_pull
S1-05 concurrently::a_pull_is_shown_in_slices
S1-06 concurrently::the_context_has_the_queue_that_was_pulled
      concurrently::a_retry_has_the_topic_it_was_sent_to
S1-07 concurrently::done_moves_the_offset_and_tells_the_broker_nothing_else
      offsets::offsets_are_stored_after_10_s_and_then_each_5_s
S1-08 concurrently::done_moves_the_offset_and_tells_the_broker_nothing_else
      concurrently_send_back::what_no_broker_takes_back_is_tried_here_again_after_5_s
S1-09 pull::what_was_found_is_cached_consumed_and_followed_by_a_pull
S1-10 pull_answers::nothing_new_and_nothing_that_fits_are_one
S1-11 pull_answers::nothing_new_and_nothing_that_fits_are_one
S1-12 pull::a_client_waits_longer_than_a_broker_holds
      broker/seed_pull::s1_12_a_pull_without_messages_is_held_for_15_s
S1-13 pull_answers::nothing_new_and_nothing_that_fits_are_one
S1-14 orderly::a_queue_that_is_being_consumed_is_not_begun_again
S1-15 orderly::a_queue_that_is_being_consumed_is_not_begun_again
      orderly::two_queues_are_consumed_side_by_side
S1-16 orderly::messages_come_in_their_order_one_call_at_a_time
S1-17 orderly::messages_come_in_their_order_one_call_at_a_time
S1-18 orderly::messages_come_in_their_order_one_call_at_a_time
S1-19 orderly::what_fails_waits_a_second_and_comes_again_before_what_follows
      orderly::nothing_is_a_failure_where_that_is_said
S1-20 orderly::messages_come_in_their_order_one_call_at_a_time
S1-21 orderly::a_queue_that_is_being_consumed_is_not_begun_again
S1-22 orderly::what_fails_waits_a_second_and_comes_again_before_what_follows
S1-23 orderly::pulls_go_on_while_a_queue_is_suspended
      pull::what_was_found_is_cached_consumed_and_followed_by_a_pull
S1-24 concurrently::a_listener_that_failed_does_not_cost_a_thread
      orderly::what_fails_waits_a_second_and_comes_again_before_what_follows
S1-25 concurrently::anything_else_is_a_failure_and_sent_back
      concurrently::a_listener_that_failed_does_not_cost_a_thread
S2-01 pull::a_client_waits_longer_than_a_broker_holds
S2-02 orderly::messages_come_in_their_order_one_call_at_a_time
S2-03 pull::each_queue_has_one_pull
S2-04 pull_answers::a_failed_pull_is_tried_again_after_a_second
      pull_answers::nothing_new_and_nothing_that_fits_are_one
S2-05 pull::a_dropped_queue_is_not_pulled_any_more
      pull::an_answer_for_a_dropped_queue_is_nothing
S2-06 pull::nothing_is_touched_when_a_pull_is_of_a_dropped_queue
S2-07 pull::a_member_that_does_not_run_looks_again_after_a_second
      pull::a_pause_looks_again_after_a_second
S2-08 pull::one_over_a_thousand_cached_messages_are_too_many
      pull::bodies_of_more_whole_mib_than_set_are_too_many
S2-09 from_where::what_was_committed_counts_whatever_the_policy
      from_where::without_an_offset_the_policy_decides
S2-10 from_where::what_was_committed_counts_whatever_the_policy
      from_where::broadcasting_begins_at_its_file
S2-11 pull::without_a_subscription_it_is_looked_again_after_a_second
      pull::subscription_is_the_newest_one
S2-12 consumer/remoting_network::a_broker_in_no_route_is_looked_for_and_then_an_error
S2-13 lifecycle::a_broker_reads_what_is_not_of_tags_before_anything_else
S2-14 consumer/remoting_network::a_suggested_slave_is_asked_and_not_to_commit
S2-15 pull::what_a_pull_asks_for
      pull::posted_subscription_travels_with_the_pull
S2-17 pull_answers::a_pull_that_cannot_even_be_asked_is_tried_again
S2-18 pull::what_was_found_is_cached_consumed_and_followed_by_a_pull
S2-19 pull::what_was_found_is_cached_consumed_and_followed_by_a_pull
S2-27 broker/pull_message::s2_27_tags_are_compared_by_hash_alone
      pull::tags_are_compared_as_text_once_more
S2-33 pull::what_a_pull_asks_for
S2-45 from_where::what_was_committed_counts_whatever_the_policy
S3-01 process_queue::it_does_what_java_did
S3-02 rebalance::everything_is_looked_at_again_each_20_s
S3-03 rebalance::queues_are_shared_by_the_strategy
S3-04 rebalance::queues_are_shared_by_the_strategy
      rebalance::a_queue_that_is_lost_is_dropped_stored_and_forgotten
S3-05 rebalance::a_forgotten_pull_begins_anew_after_two_minutes
S3-06 from_where::a_policy_that_cannot_be_asked_about_decides_nothing
      rebalance::a_queue_whose_offset_is_not_known_is_left_alone_and_asked_for_again
S3-07 rebalance::only_new_queues_are_begun
S3-08 from_where::a_policy_that_cannot_be_asked_about_decides_nothing
      from_where::a_broker_that_tells_of_a_negative_offset_is_not_believed
S3-09 rebalance::only_new_queues_are_begun
S3-10 pull::tags_are_compared_as_text_once_more
      consumer/consumer::tags_are_chosen_and_compared_as_text
S3-11 pull::what_was_found_is_cached_consumed_and_followed_by_a_pull
S3-12 pull::what_was_found_is_cached_consumed_and_followed_by_a_pull
S3-13 pull::what_was_found_is_cached_consumed_and_followed_by_a_pull
S3-14 pull::found_but_all_of_other_tags_is_pulled_on_at_once
S3-15 concurrently::a_request_of_a_dropped_queue_is_not_shown
S3-16 concurrently::the_context_has_the_queue_that_was_pulled
      concurrently::what_a_listener_does_to_its_list_is_its_own
S3-17 concurrently::done_moves_the_offset_and_tells_the_broker_nothing_else
      concurrently::results_after_a_drop_are_void
S3-18 concurrently::broadcasting_forgets_what_failed
      lifecycle::broadcasting_has_no_retry_topic
S3-19 concurrently::anything_else_is_a_failure_and_sent_back
      concurrently::the_delay_that_a_listener_wants_is_the_broker_s_to_give
S3-20 concurrently::ack_index_says_how_much_of_a_batch_was_done
      consumer/consumer::a_batch_may_succeed_in_part
S3-21 concurrently::anything_else_is_a_failure_and_sent_back
      concurrently::ack_index_says_how_much_of_a_batch_was_done
S3-22 concurrently::done_moves_the_offset_and_tells_the_broker_nothing_else
      concurrently::the_offset_is_that_of_the_lowest_that_is_left
S3-23 concurrently::done_moves_the_offset_and_tells_the_broker_nothing_else
      concurrently::results_after_a_drop_are_void
S3-24 pull::one_over_a_thousand_cached_messages_are_too_many
S3-25 pull::bodies_of_more_whole_mib_than_set_are_too_many
S3-26 pull::cached_offsets_further_apart_than_2000_are_too_far
      pull::orderly_queues_have_no_span
S3-27 pull::an_orderly_queue_without_its_lock_looks_again_after_a_second
S3-28 process_queue::it_does_what_java_did
      pull::what_was_found_is_cached_consumed_and_followed_by_a_pull
S4-01 lifecycle::two_members_share_and_one_that_leaves_gives_its_queues_back
      rebalance::queues_are_shared_by_the_strategy
S4-02 lifecycle::a_start_asks_in_order
      lifecycle::what_a_heartbeat_says
S4-03 pull::one_over_a_thousand_cached_messages_are_too_many
S4-04 rebalance::a_topic_s_limit_is_shared_by_all_queues
      rebalance::the_retry_queue_counts_too
S4-05 rebalance::a_topic_s_limit_is_shared_by_all_queues
S4-06 pull::bodies_of_more_whole_mib_than_set_are_too_many
      rebalance::a_topic_s_size_limit_is_shared_by_all_queues
S4-07 pull::cached_offsets_further_apart_than_2000_are_too_far
      pull::orderly_queues_have_no_span
S4-08 pull::cached_offsets_further_apart_than_2000_are_too_far
S4-09 pull_answers::the_commit_does_not_move_over_what_is_still_cached
      pull_answers::neither_pull_nor_commit_move_back_when_nothing_is_found
S4-10 pull_answers::an_illegal_offset_is_corrected_at_once
      pull_answers::as_before_5_2_a_corrected_queue_rests_for_10_s
S4-11 broker/seed_pull::s4_11_what_makes_an_offset_illegal
      pull_answers::an_illegal_offset_is_corrected_at_once
S4-12 pull_answers::work_that_ends_late_cannot_undo_a_correction
      pull_answers::as_before_5_2_a_corrected_queue_rests_for_10_s
S4-13 orderly::messages_come_in_their_order_one_call_at_a_time
S4-14 pull::each_queue_has_one_pull
S4-15 rebalance::only_new_queues_are_begun
S4-16 pull_answers::a_failed_pull_is_tried_again_after_a_second
      pull::pull_interval_is_waited_for_once
S4-17 orderly::messages_come_in_their_order_one_call_at_a_time
      orderly::two_queues_are_consumed_side_by_side
S4-18 concurrently::a_pull_is_shown_in_slices
S4-19 orderly::a_queue_that_is_being_consumed_is_not_begun_again
      process_queue::only_the_first_put_begins
S4-20 concurrently::a_request_of_a_dropped_queue_is_not_shown
      concurrently::a_queue_dropped_while_a_listener_works_ends_it
S4-21 concurrently::a_pull_is_shown_in_slices
      orderly::messages_come_in_their_order_one_call_at_a_time
S4-22 orderly::messages_come_in_their_order_one_call_at_a_time
      orderly::a_queue_that_is_being_consumed_is_not_begun_again
S4-23 orderly::two_owners_in_a_row_never_work_at_once
      orderly::work_of_a_moved_queue_goes_on_with_the_new_one
S4-24 concurrently::broadcasting_forgets_what_failed
      concurrently_send_back::what_no_broker_takes_back_is_tried_here_again_after_5_s
S4-25 orderly::commit_and_rollback_mean_success_where_commits_are_automatic
      orderly::a_rollback_brings_everything_back_that_was_not_committed
S4-26 orderly::without_a_limit_a_message_is_tried_for_ever
      orderly::after_its_tries_a_message_is_a_dead_letter_and_the_queue_goes_on
S4-27 concurrently_send_back::after_15_minutes_messages_are_sent_back_with_level_3
      concurrently_send_back::a_sweep_that_cannot_send_back_keeps_what_it_has
S4-28 orderly::locks_are_renewed_after_1_s_and_then_each_20_s
      orderly::a_renewal_that_is_refused_takes_the_lock
S4-29 broker/queue_locks::s4_29_the_key_is_group_and_queue_the_owner_a_client
T1 pull_answers::a_failed_pull_is_tried_again_after_a_second
      pull_answers::the_delay_after_a_failure_is_a_setting
T2 concurrently::whatever_waits_for_a_thread_waits_there
T3 concurrently::whatever_waits_for_a_thread_waits_there
T4 rebalance::a_topic_s_limit_is_shared_by_all_queues
      rebalance::a_topic_s_size_limit_is_shared_by_all_queues
T5 from_where::what_was_committed_counts_whatever_the_policy
T6 from_where::only_a_broker_that_knows_of_no_offset_means_that_there_is_none
      rebalance::a_queue_whose_offset_is_not_known_is_left_alone_and_asked_for_again
T7 rebalance::new_orderly_queues_are_locked_in_one_request_a_broker
T8 orderly::broadcasting_needs_no_lock
      orderly::a_failure_repeats_when_broadcasting_too
T9 concurrently_send_back::a_head_that_was_not_begun_ends_a_sweep_and_the_next_one_comes
      lifecycle::each_periodic_task_survives_whatever_its_step_raises
T10 concurrently_send_back::what_was_swept_is_not_sent_back_again
T11 pull_answers::an_illegal_offset_is_corrected_at_once
      pull_answers::work_that_ends_late_cannot_undo_a_correction
T12 pull_answers::a_correction_back_to_the_start_is_followed
T13 rebalance::a_topic_that_is_not_subscribed_any_more_is_given_up_in_good_order
T14 rebalance::an_orderly_queue_whose_listener_works_is_given_up_when_that_ends
      rebalance::a_queue_lost_and_regained_while_its_listener_works_begins_once_it_ended
T15 rebalance::not_being_among_the_members
      rebalance::no_queues_at_all_changes_nothing
T16 rebalance::not_being_among_the_members
T17 concurrently::results_after_a_drop_are_void
      concurrently_send_back::a_retry_here_ends_with_its_queue
T18 orderly::a_batch_of_which_one_is_to_be_tried_again_comes_again_as_a_whole
T19 orderly::a_listener_that_never_commits_stops_the_pulls
T20 concurrently_send_back::the_way_round_a_broker_that_refuses
      concurrently_send_back::the_first_id_of_a_retry_stays
T21 concurrently_send_back::sending_back_holds_up_no_thread_and_no_other_message
T22 lifecycle::what_is_done_again_and_again
      lifecycle::one_answer_that_does_not_come_starves_no_heartbeat
T23 lifecycle::a_close_waits_no_longer_than_it_may
T24 resets::a_reset_counts_whatever_is_being_done
      process_queue::orderly_trace_of_4_6
T25 local_offsets::java_s_text_is_read_and_written
      wire/fastjson::object_keys_hold_their_object
T26 wire/ids::string_hash
      allocate::hashes_are_java_s
T27 traps::a_broker_that_knows_of_another_subscription_is_told_of
T28 rebalance::a_storm_of_changes_is_one_rebalance_a_second
      rebalance::one_rebalance_at_a_time
T29 concurrently::ack_index_says_how_much_of_a_batch_was_done
T30 rebalance::the_broker_knows_of_a_change_before_the_first_pull
      rebalance::every_change_is_a_newer_version_of_the_subscription
T31 pull::found_but_all_of_other_tags_is_pulled_on_at_once
T32 pull_answers::an_offset_of_0_is_committed_by_the_timer_only
T33 offsets::a_member_only_moves_forward_where_order_does_not_matter
T34 pull::a_client_waits_longer_than_a_broker_holds
T35 traps::two_consumers_of_one_process_are_two_members
      identity::client_id
A01 consumer/chaos::who_is_killed_or_stopped_loses_nothing
      traps::a_member_that_restarts_finds_its_offset
A02 pull_answers::a_queue_that_is_shared_again_has_one_pull
      rebalance::a_queue_lost_and_regained_while_its_listener_works_begins_once_it_ended
A03 from_where::only_a_broker_that_knows_of_no_offset_means_that_there_is_none
      rebalance::a_queue_whose_offset_is_not_known_is_left_alone_and_asked_for_again
A04 concurrently::anything_else_is_a_failure_and_sent_back
      concurrently_send_back::what_no_broker_takes_back_is_tried_here_again_after_5_s
A05 from_where::without_an_offset_the_policy_decides
      from_where::a_queue_that_is_empty_begins_at_0
A06 from_where::what_is_sent_between_two_starts_is_not_lost
      from_where::what_is_sent_while_a_queue_is_being_locked_is_not_lost
A07 from_where::broadcasting_members_keep_where_they_began
      offsets::a_route_that_comes_and_goes_costs_broadcasting_no_offset
A08 offsets::broadcasting_stores_what_a_broker_corrects
A09 pull_answers::a_correction_back_to_the_start_is_followed
      pull_answers::a_correction_outside_the_bounds_is_not_followed
      pull_answers::a_correction_is_told
A10 pull_answers::corrections_without_end_do_not_spin
A12 pull_answers::a_correction_is_told
A13 lifecycle::each_periodic_task_survives_whatever_its_step_raises
      lifecycle::a_start_survives_whatever_a_step_raises
      lifecycle::a_strategy_that_fails_once_stops_no_rebalance
      lifecycle::samples_of_rates_and_looks_at_slow_listeners_survive_an_exception
      pull_answers::an_answer_that_cannot_be_handled_begins_its_queue_anew
      lifecycle::pulls_survive_whatever_a_broker_says
A14 testing/simulation::after_a_broker_restarts_its_queues_have_owners_in_time
      consumer/members::after_a_broker_restarts_each_of_its_queues_has_an_owner
A15 consumer/members::a_hundred_groups_are_not_affected_by_a_broker_that_hangs
      consumer/hung_broker::a_start_consumes_from_the_healthy_broker
      lifecycle::one_answer_that_does_not_come_starves_no_heartbeat
A16 rebalance::a_forgotten_pull_begins_anew_after_two_minutes
A17 concurrently_send_back::a_queue_whose_work_is_slow_stays_ours
A18 rebalance::new_orderly_queues_are_locked_in_one_request_a_broker
A19 orderly::locks_that_are_renewed_each_20_s_are_trusted_for_as_long_as_that_takes
      consumer/members::a_close_gives_the_locks_back_at_once
A20 traps::a_dropped_member_s_work_may_be_done_twice_and_never_lost
A21 orderly::after_its_tries_a_message_is_a_dead_letter_and_the_queue_goes_on
A22 orderly::after_its_tries_a_message_is_a_dead_letter_and_the_queue_goes_on
A24 consumer/members::a_second_consumer_with_the_same_client_id_is_refused
      consumer/members::a_message_that_always_fails_is_tried_16_times_again
      traps::an_id_that_is_told_twice_is_one_member
A25 consumer/members::a_client_id_names_host_process_and_a_number_of_its_own
      traps::two_consumers_of_one_process_are_two_members
A26 consumer/leaks::consumers_that_start_and_close_leave_nothing_behind
      lifecycle::nothing_happens_after_a_close
      lifecycle::a_close_before_the_start_is_done_ends_it
A27 consumer/leaks::an_orderly_consumer_of_an_empty_topic_does_not_grow
      lifecycle::a_day_without_messages_keeps_the_plans_few
A28 consumer/leaks::ten_thousand_reconnects_cost_no_memory
A29 consumer/cached_bytes::64_full_queues_hold_64_mib_and_all_of_it_is_consumed
      pull::64_queues_whose_pulls_are_all_answered_at_once_hold_64_mib
      pull::a_message_larger_than_the_limit_is_consumed
A30 lifecycle::a_close_ends_in_order
      lifecycle::a_close_waits_for_what_was_begun_and_commits_it
A31 lifecycle::a_close_waits_for_what_was_begun_and_commits_it
      lifecycle::a_close_waits_no_longer_than_it_may
A32 resets::a_reset_counts_whatever_is_being_done
      resets::a_hundred_resets_while_consuming_all_count
A35 cli/position_boundaries::a_reset_goes_there_in_the_topic_and_in_the_retry_topic
      cli/position_boundaries::tail_begins_at_the_first_message_not_older
      cli/position_boundaries::a_reset_to_now_leaves_nothing_to_consume_and_is_not_one_short
      cli/position_boundaries::on_a_real_broker_every_boundary_of_its_own_store_times
A36 wire/ids::unique_id_says_who_made_it_and_when
      wire/ids::unique_id_of_last_month
A39 traps::a_broker_that_knows_of_another_subscription_is_told_of
    subscription_check::another_member_s_subscriptions_are_told_before_each_heartbeat
    admin/subscriptions::members_that_differ_are_warned_and_shown
A40 pull::tags_are_compared_as_text_once_more
A41 consumer/members::no_queue_waits_longer_for_its_turn_than_the_others_take
      pull::a_queue_of_large_messages_is_not_passed_over
A42 traps::queues_of_all_topics_are_pulled
      consumer/many_queues::a_consumer_gets_a_message_of_any_of_64_queues_by_its_own_pull
      consumer/many_queues::tail_shows_a_message_of_any_of_64_queues_by_its_own_pull
A44 wire/fastjson::random_bytes_raise_only_body_error
A45 pull_answers::a_bad_message_is_told_and_its_neighbours_are_consumed
      pull_answers::a_bad_message_that_nobody_took_is_not_passed
A46 from_where::retries_begin_at_0_whatever_the_policy
"""


def _parse(table: str) -> dict[str, list[str]]:
    rows: dict[str, list[str]] = {}
    tests: list[str] = []
    for line in table.strip().splitlines():
        row, _, test = line.partition(" ")
        if row:
            tests = rows[row] = []
        if test:
            tests.append(test.strip())
    return rows


#: Row -> the tests that hold it.
ROWS: Final = _parse(_TABLE)
