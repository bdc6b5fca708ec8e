//! The suite of `OutboxStore`: claim, exclude, settle, resolve, depth, sweep. Most cases stand in the files beside this one.
use std::time::Duration;

use ports::operators::RowFilter;
use ports::outbox::{Disposition, RowStatus};

use super::given::{DAY, HOUR, P0, P1, RETRY, SECOND, given};
use super::outbox_blocks::*;
use super::outbox_claims::*;
use super::outbox_deaths::*;
use super::outbox_exclusions::*;
use super::outbox_settlements::*;
use super::worker::{ALL, exclusion, worker};
use crate::backend::Backend;

suite! { $ outbox:
    rows_are_claimed_in_id_order_up_to_the_limit,
    a_claim_takes_rows_of_its_own_partition_only,
    a_claim_shows_who_has_the_rows_and_under_which_token,
    tokens_grow_and_are_never_used_again,
    a_claim_that_finds_nothing_leaves_the_counter_alone,
    a_claim_needs_the_right_owner_epoch_and_counter,
    a_claim_needs_a_lease_that_has_not_run_out,
    no_second_batch_is_claimed_while_one_is_open,
    attempts_are_counted_at_the_claim,
    a_row_without_its_payload_is_claimed_without_it,
    a_settled_row_is_sent_and_archived,
    a_settlement_remembers_positions_and_fallbacks,
    a_stale_token_changes_nothing,
    a_stale_epoch_changes_nothing,
    another_owners_statement_changes_nothing,
    a_settlement_does_not_compare_the_counter,
    a_repeated_settle_is_harmless,
    a_late_settle_does_not_touch_the_next_batch,
    a_settlement_of_one_partition_leaves_the_other_alone,
    an_excluded_row_waits_for_its_retry_by_the_stores_clock,
    an_excluded_row_keeps_its_attempt_and_says_why,
    exclusion_gives_back_the_keys_later_rows_with_their_attempt,
    exclusion_leaves_the_token_open_for_the_rest,
    a_batch_of_which_nothing_is_left_can_be_closed,
    a_repeated_exclusion_changes_nothing_more,
    several_rows_are_excluded_at_once,
    a_keys_later_rows_wait_while_its_head_waits_for_a_retry,
    rows_written_behind_a_waiting_head_wait_too,
    a_due_head_goes_without_the_rows_behind_it,
    a_head_that_is_not_sent_goes_on_blocking,
    a_head_that_is_sent_lifts_its_block,
    other_keys_go_on,
    a_parked_row_blocks_its_key_under_park_key,
    a_parked_row_lets_its_key_go_on_under_park_row,
    a_parked_row_does_not_come_back_by_itself,
    what_is_next_due_is_told,
    a_resolution_by_publication_sends_the_rows,
    a_returned_batch_is_due_again_with_its_attempt_returned,
    a_repeated_resolution_is_harmless,
    a_stale_resolution_changes_nothing,
    a_resolution_does_not_lift_the_block_of_a_head_that_did_not_go,
    depth_counts_every_state,
    the_oldest_unsent_row_ages_by_the_stores_clock_and_parked_rows_do_not_count,
    a_sweep_forgets_only_what_left_long_ago_and_at_most_so_much,
    a_sweep_never_touches_a_row_that_has_not_left,
    a_death_keeps_the_attempt_and_is_carried_by_every_row_of_the_batch,
    nobodys_death_is_carried_when_a_batch_is_returned,
    rows_that_carry_deaths_come_in_ever_smaller_pieces,
    a_row_with_three_deaths_is_never_claimed_beside_other_work,
    a_suspects_later_rows_wait_and_other_keys_go_on,
    a_trial_takes_one_suspect_and_nothing_else,
    a_trial_without_a_suspect_finds_nothing,
    a_suspect_that_survives_its_trial_is_sent,
    a_row_that_died_in_two_trials_is_parked_and_not_before,
    a_returned_trial_convicts_nobody,
    a_dead_owner_clears_the_deaths_of_rows_it_did_not_have_in_hand,
    a_live_workers_doubt_clears_nothing,
    a_service_killed_at_random_parks_nothing,
}

async fn depth_counts_every_state<B: Backend>(backend: &B) {
    let given = given(backend);
    given.many_placed(5, P0).await;
    given.placed(P1).await;
    let mut worker = worker(backend, "a", P0).await;
    let sent = worker.claim(1).await;
    worker.settle(&sent).await;
    let batch = worker.claim(3).await;
    let row = |at: usize, fate| exclusion(batch.rows[at].id, fate);
    worker.exclude(batch.token, &[row(0, Disposition::Retry(RETRY)), row(1, Disposition::ParkRow)]).await;

    let depth = given.depth().await;

    let counts = (depth.pending, depth.in_flight, depth.failed, depth.parked, depth.sent);
    assert_eq!(counts, (2, 1, 1, 1, 1));
    assert_eq!(given.view(P0).await.depth, 4, "rows of the partition that have not left");
}

async fn the_oldest_unsent_row_ages_by_the_stores_clock_and_parked_rows_do_not_count<B: Backend>(backend: &B) {
    let given = given(backend);
    assert_eq!(given.depth().await.oldest_unsent, None);
    let parked = given.placed(P0).await;
    let mut worker = worker(backend, "a", P0).await;
    given.advance(HOUR).await;
    let old = given.depth().await.oldest_unsent.expect("a row waits");
    assert!(old >= HOUR && old < HOUR + SECOND * 30, "{old:?}");

    worker.fail_head(parked.id, Disposition::ParkKey).await;
    assert_eq!(given.depth().await.oldest_unsent, None);

    given.placed(P0).await;
    let young = given.depth().await.oldest_unsent.expect("a row waits");
    assert!(young < SECOND * 30, "{young:?}");
}

async fn a_sweep_forgets_only_what_left_long_ago_and_at_most_so_much<B: Backend>(backend: &B) {
    let given = given(backend);
    let mut worker = worker(backend, "a", P0).await;
    given.many_placed(3, P0).await;
    // One by one: an archive may be kept by batch.
    worker.drain(1).await;
    given.advance(DAY + SECOND).await;
    let young = given.placed(P0).await;
    worker.drain(ALL).await;
    given.advance(HOUR).await;

    backend.outbox().sweep(DAY, 2).await.expect("swept");
    assert!(given.depth().await.sent >= 2, "at most two were forgotten");
    let mut rounds = 0;
    while backend.outbox().sweep(DAY, 2).await.expect("swept") > 0 {
        rounds += 1;
        assert!(rounds < 20, "a sweep that never ends");
    }

    let sent = given.rows(RowFilter { status: Some(RowStatus::Sent), ..RowFilter::default() }).await;
    assert_eq!(sent.iter().map(|row| row.key).collect::<Vec<_>>(), [young.id]);
}

async fn a_sweep_never_touches_a_row_that_has_not_left<B: Backend>(backend: &B) {
    let given = given(backend);
    let mut worker = worker(backend, "a", P0).await;
    let (waits, parked) = (given.line(2, P0).await, given.placed(P0).await);
    let batch = worker.claim(ALL).await;
    let fates = [(waits.id, Disposition::Retry(DAY * 50)), (parked.id, Disposition::ParkKey)];
    let excluded =
        fates.map(|(key, fate)| exclusion(batch.rows.iter().find(|row| row.key == key).expect("claimed").id, fate));
    worker.exclude(batch.token, &excluded).await;
    worker.settle(&batch).await;
    given.many_placed(3, P0).await;
    worker.drain(ALL).await;
    given.advance(DAY * 40).await;
    given.placed(P0).await;

    for _ in 0..5 {
        backend.outbox().sweep(Duration::ZERO, 100).await.expect("swept");
    }

    use RowStatus::{Failed, Parked, Pending};
    assert_eq!(given.statuses(waits.id).await, [Failed, Pending]);
    assert_eq!(given.statuses(parked.id).await, [Parked]);
    given.advance(DAY * 11).await;
    let gone = worker.drain(ALL).await;
    assert_eq!(gone.len(), 3);
    assert!(gone.iter().all(|row| row.payload.is_some()), "their payloads were kept");
}
