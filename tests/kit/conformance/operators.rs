//! The suite of `OutboxOperators`: list, diagnose, retry, park and redrive PENDING, FAILED and PARKED rows, each with an audit row.
use self::actions::*;
use self::audits::*;
use self::redrive::*;
use self::views::*;

mod actions;
mod audits;
mod fixture;
mod redrive;
mod views;
pub mod webhooks;

suite! { $ operators:
    rows_are_listed_in_id_order_page_by_page,
    rows_are_filtered,
    rows_are_filtered_by_age,
    rows_are_filtered_by_partition,
    a_row_view_shows_the_row_as_written,
    the_last_attempt_of_a_row_is_its_last_counted_claim,
    a_missing_row_is_not_found,
    sent_rows_are_shown_until_the_archive_is_swept,
    a_diagnosis_names_the_row_that_blocks_the_key,
    a_keys_diagnosis_is_its_first_unsent_row_else_its_latest,
    a_diagnosis_names_the_partitions_owner,
    an_unknown_key_or_event_has_no_diagnosis,
    a_failed_row_is_retried_at_once_and_keeps_its_attempts,
    a_parked_row_is_retried_with_its_attempts_reset,
    a_retried_row_keeps_its_position_in_its_key,
    an_operator_cannot_change_an_in_flight_or_sent_row,
    an_operation_on_a_missing_row_reports_missing,
    a_parked_pending_row_blocks_its_key,
    a_parked_failed_row_is_not_retried,
    a_row_that_is_parked_again_names_the_last_operator,
    parking_a_later_row_does_not_block_earlier_rows,
    a_retried_row_behind_a_parked_one_is_not_the_oldest_that_waits,
    an_operators_statement_raises_the_counter,
    an_operators_statement_keeps_the_open_batch,
    an_operators_statement_needs_no_owner,
    a_dry_redrive_counts_and_changes_nothing,
    a_redrive_makes_parked_rows_due_in_id_order_up_to_its_limit,
    a_redrive_applies_its_filter_except_the_status,
    a_redriven_key_is_sent_in_order,
    a_parked_row_is_redriven_alone,
    each_operation_leaves_an_audit_row,
    the_audit_table_is_read_newest_first_page_by_page,
    audit_entries_are_filtered_by_row_action_and_operator,
    an_event_is_read_as_a_claim_returns_it,
    a_sent_event_is_read_until_the_archive_is_swept,
}
