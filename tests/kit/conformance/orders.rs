//! The suite of `OrderStore`: order, events and idempotency record commit together or not at all, and reads show what was committed.
use self::commits::*;
use self::concurrency::*;
use self::idempotency_records::*;
use self::pages::*;

mod commits;
mod concurrency;
mod idempotency_records;
mod pages;

suite! { $ orders:
    an_order_its_events_and_its_idempotency_record_become_visible_together,
    an_order_reads_back_exactly_as_it_was_written,
    an_event_reads_back_exactly_as_it_was_written,
    a_missing_order_is_not_found,
    a_stale_version_changes_nothing,
    a_change_of_a_missing_order_changes_nothing,
    an_existing_order_is_not_inserted_again,
    a_change_replaces_the_order_at_the_expected_version,
    a_used_idempotency_key_changes_nothing_and_returns_its_record,
    another_subjects_key_is_another_idempotency_record,
    a_commit_needs_neither_events_nor_an_idempotency_record,
    the_events_of_one_commit_keep_their_order,
    the_events_of_one_key_are_claimed_in_commit_order,
    a_failing_commit_does_not_fail_concurrent_commits,
    one_of_many_concurrent_changes_of_a_version_wins,
    one_of_many_concurrent_commits_with_one_idempotency_key_wins,
    commits_with_records_in_opposite_orders_do_not_deadlock,
    orders_are_listed_newest_first,
    a_list_is_filtered_by_owner_and_by_status,
    a_page_after_an_id_is_strictly_older_for_any_id,
    keyset_pages_show_each_order_once_while_orders_arrive,
    orders_of_one_millisecond_are_paged_without_a_gap,
    a_list_of_large_orders_ends_at_its_size_and_goes_on_behind,
    a_count_applies_its_filter,
    the_oldest_orders_of_a_status_come_first,
    an_idempotency_record_is_found_until_its_retention_ends,
    a_sweep_deletes_only_old_idempotency_records_up_to_its_limit,
    a_swept_key_can_be_used_again,
}
