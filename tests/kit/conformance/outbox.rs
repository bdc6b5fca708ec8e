//! The suite of `OutboxStore`: claim, exclude, settle, resolve, depth and sweep, each fenced by owner, epoch and counter.
use self::blocks::*;
use self::claims::*;
use self::deaths::*;
use self::depth::*;
use self::exclusions::*;
use self::external_events::*;
use self::poison::*;
use self::resolutions::*;
use self::settled_claims::*;
use self::settlements::*;

mod blocks;
mod claims;
mod deaths;
mod depth;
pub mod event_store;
mod exclusions;
mod external_events;
mod poison;
mod resolutions;
mod settled_claims;
mod settlements;

suite! { $ outbox:
    rows_are_claimed_in_id_order_up_to_the_limit,
    a_claim_takes_rows_of_its_own_partition_only,
    a_claim_records_owner_and_token_in_its_rows,
    tokens_grow_and_are_never_reused,
    an_empty_claim_leaves_the_counter_unchanged,
    a_claim_returns_the_time_by_the_stores_clock,
    a_claim_needs_the_right_owner_epoch_and_counter,
    a_claim_needs_an_unexpired_lease,
    no_second_batch_is_claimed_while_one_is_open,
    attempts_are_counted_at_the_claim,
    a_row_without_payload_is_claimed_and_not_skipped,
    a_settled_row_is_sent_and_archived,
    a_settlement_records_positions_and_fallbacks,
    a_stale_token_changes_nothing,
    a_stale_epoch_changes_nothing,
    another_owners_statement_changes_nothing,
    a_settlement_does_not_compare_the_counter,
    a_repeated_settlement_changes_nothing,
    a_late_settlement_does_not_change_the_next_batch,
    a_settlement_changes_only_its_own_partition,
    a_settlement_and_the_claim_after_it_are_one_call,
    a_stale_settlement_claims_nothing,
    rows_that_a_settlement_unblocks_are_part_of_its_claim,
    a_statement_before_the_settlement_does_not_stop_its_claim,
    an_excluded_row_waits_for_its_retry_by_the_stores_clock,
    an_excluded_row_keeps_its_attempt_and_failure_reason,
    an_exclusion_sets_the_attempts_of_its_row,
    a_stored_failure_reason_has_at_most_256_characters_and_no_nul,
    exclusion_returns_the_keys_later_rows_and_their_attempts,
    exclusion_gives_the_rest_of_the_batch_a_new_token,
    the_token_before_an_exclusion_changes_nothing,
    the_next_owner_resolves_the_token_of_the_last_exclusion,
    a_batch_without_remaining_rows_can_be_closed,
    a_repeated_exclusion_is_stale,
    an_exclusion_of_rows_that_left_keeps_the_token,
    several_rows_are_excluded_in_one_call,
    exclusion_returns_a_later_head_of_the_key_to_pending,
    a_keys_later_rows_wait_while_its_head_waits_for_a_retry,
    rows_written_behind_a_waiting_head_wait_too,
    a_due_head_is_claimed_without_the_rows_behind_it,
    a_head_blocks_its_key_until_it_is_sent,
    a_sent_head_unblocks_its_key,
    a_blocked_key_does_not_block_other_keys,
    a_parked_row_blocks_its_key_under_park_key,
    a_parked_row_does_not_block_its_key_under_park_row,
    a_parked_row_is_never_claimed_again,
    an_empty_claim_returns_the_time_until_the_next_due_row,
    a_batch_resolved_as_published_is_sent,
    a_batch_resolved_as_not_sent_is_due_with_attempts_returned,
    a_repeated_resolution_changes_nothing,
    a_stale_resolution_changes_nothing,
    a_head_resolved_as_not_sent_still_blocks_its_key,
    an_event_of_another_service_is_claimed_as_it_was_written,
    later_rows_of_a_text_key_wait_for_their_head,
    operators_find_rows_by_text_key_and_by_any_type,
    the_outbox_contains_its_own_events_sent_or_not,
    depth_counts_every_status,
    oldest_unsent_uses_the_stores_clock_and_ignores_parked_rows,
    oldest_unsent_ignores_rows_behind_a_parked_one,
    a_sweep_deletes_only_old_sent_rows_up_to_its_limit,
    a_sweep_never_deletes_an_unsent_row,
    a_death_counts_for_every_row_and_keeps_the_attempts,
    a_batch_resolved_as_not_sent_counts_no_death,
    rows_with_deaths_are_claimed_in_ever_smaller_batches,
    a_row_with_three_deaths_is_never_in_an_ordinary_claim,
    a_suspect_blocks_its_key_and_no_other,
    a_trial_claims_one_suspect_and_nothing_else,
    a_trial_without_a_suspect_finds_nothing,
    a_suspect_that_survives_its_trial_is_sent,
    a_second_death_in_a_trial_parks_the_row,
    a_trial_resolved_as_not_sent_counts_no_death,
    a_row_parked_as_poison_blocks_its_key_under_block_key,
    a_row_parked_as_poison_does_not_block_its_key_under_skip_row,
    skip_row_of_a_topic_comes_before_block_key_of_the_event_type,
    block_key_of_a_topic_comes_before_skip_row_of_the_event_type,
    a_resolution_returns_the_rows_that_it_parked,
    a_repeated_resolution_returns_no_parked_rows,
    an_owners_death_clears_the_deaths_of_rows_not_in_flight,
    reacquiring_with_an_unknown_outcome_clears_no_deaths,
    a_service_killed_at_random_parks_no_row,
}
