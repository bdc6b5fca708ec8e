//! The suite of `OutboxOperators`: look, explain, retry, park, redrive; PENDING, FAILED and PARKED rows only, and never unseen.
use std::time::Duration;

use domain::EventType;
use ports::FailureType;
use ports::operators::{RowFilter, RowSelector};
use ports::outbox::{Disposition, Exclusion, RowId, RowStatus};

use super::given::{HOUR, P0, P1, RETRY, given, instance};
use super::operators_acts::*;
use super::worker::{ALL, exclusion, worker};
use crate::backend::Backend;

suite! { $ operators:
    rows_are_shown_in_id_order_page_by_page,
    rows_are_filtered,
    rows_are_filtered_by_age,
    a_row_is_shown_as_it_stands,
    a_row_that_does_not_exist_is_not_shown,
    sent_rows_are_shown_as_long_as_the_archive_keeps_them,
    a_standing_tells_the_row_a_row_waits_behind,
    a_keys_standing_is_its_first_row_that_has_not_left_else_its_latest,
    a_standing_tells_who_owns_the_partition,
    nothing_is_known_of_what_never_was,
    a_failed_row_is_retried_at_once_and_keeps_its_attempts,
    a_parked_row_is_retried_with_its_attempts_from_the_start,
    a_retried_row_keeps_its_place_in_its_keys_line,
    a_row_in_flight_or_sent_is_left_alone,
    a_row_that_is_missing_is_missing,
    a_pending_row_is_parked_and_its_key_waits_with_it,
    a_failed_row_is_parked_and_no_longer_comes_back,
    parking_a_later_row_does_not_hold_the_earlier_ones,
    an_operators_statement_goes_through_the_counter,
    an_operator_does_not_disturb_a_batch_in_flight,
    an_operator_needs_no_owner,
    a_dry_redrive_counts_and_changes_nothing,
    a_redrive_makes_parked_rows_due_in_id_order_and_at_most_so_many,
    a_redrive_obeys_its_filter_and_ignores_its_status,
    a_redriven_key_goes_in_order,
    what_was_done_is_kept_with_who_and_why,
}

async fn rows_are_shown_in_id_order_page_by_page<B: Backend>(backend: &B) {
    let given = given(backend);
    let placed = given.many_placed(5, P0).await;
    let page = async |after| {
        let filter = RowFilter { after, ..RowFilter::default() };
        backend.operators().rows(&filter, 2).await.expect("rows are shown")
    };

    let mut seen = page(None).await;
    for _ in 0..2 {
        seen.extend(page(seen.last().map(|row| row.id)).await);
    }

    assert!(seen.is_sorted_by(|a, b| a.id < b.id));
    assert_eq!(
        seen.iter().map(|row| row.key).collect::<Vec<_>>(),
        placed.iter().map(|order| order.id).collect::<Vec<_>>()
    );
    assert_eq!(page(seen.last().map(|row| row.id)).await, []);
}

async fn rows_are_filtered<B: Backend>(backend: &B) {
    let given = given(backend);
    let line = given.line(2, P0).await;
    let (first, second) = (given.placed(P0).await, given.placed(P0).await);
    let mut worker = worker(backend, "a", P0).await;
    let batch = worker.claim(ALL).await;
    let failed = |at: usize, fate, failure_type| Exclusion { failure_type, ..exclusion(batch.rows[at].id, fate) };
    let excluded = [
        failed(2, Disposition::Retry(RETRY), FailureType::Network),
        failed(3, Disposition::ParkKey, FailureType::System),
    ];
    worker.exclude(batch.token, &excluded).await;
    let keys = async |filter| given.rows(filter).await.into_iter().map(|row| row.key).collect::<Vec<_>>();
    let all = RowFilter::default;

    assert_eq!(keys(RowFilter { status: Some(RowStatus::InFlight), ..all() }).await, [line.id, line.id]);
    assert_eq!(keys(RowFilter { status: Some(RowStatus::Failed), ..all() }).await, [first.id]);
    assert_eq!(keys(RowFilter { status: Some(RowStatus::Parked), ..all() }).await, [second.id]);
    assert_eq!(keys(RowFilter { status: Some(RowStatus::Pending), ..all() }).await, []);
    assert_eq!(keys(RowFilter { key: Some(second.id), ..all() }).await, [second.id]);
    let changed = EventType::OrderStatusChanged.as_str().to_owned();
    assert_eq!(keys(RowFilter { kind: Some(changed.clone()), ..all() }).await, [line.id]);
    assert_eq!(keys(RowFilter { failure_type: Some(FailureType::System), ..all() }).await, [second.id]);
    assert_eq!(keys(RowFilter { kind: Some(changed), key: Some(first.id), ..all() }).await, []);
}

async fn rows_are_filtered_by_age<B: Backend>(backend: &B) {
    let given = given(backend);
    let old = given.placed(P0).await;
    given.advance(HOUR).await;
    let young = given.placed(P0).await;
    let older_than = async |age: Duration| {
        let rows = given.rows(RowFilter { older_than: Some(age), ..RowFilter::default() }).await;
        rows.into_iter().map(|row| row.key).collect::<Vec<_>>()
    };

    assert_eq!(older_than(HOUR / 2).await, [old.id]);
    assert_eq!(older_than(Duration::ZERO).await, [old.id, young.id]);
    assert_eq!(older_than(HOUR * 2).await, []);
}

async fn a_row_is_shown_as_it_stands<B: Backend>(backend: &B) {
    let given = given(backend);
    let mut creation = given.make.creation("ann", P1);
    creation.events[0].kind = EventType::OrderCancelled;
    let event = creation.events[0].clone();
    given.done(creation).await;

    let row = given.rows_of(event.key).await.remove(0);

    assert_eq!((row.event_id, row.key, row.partition), (event.event_id, event.key, P1));
    assert_eq!((row.kind.as_str(), row.status), ("ORDER_CANCELLED", RowStatus::Pending));
    assert_eq!((row.retry_count, row.failure_type, row.sent_at), (0, None, None));
    assert_eq!((&row.last_failure_reason, row.next_attempt_at.is_some_and(|due| due > row.created_at)), (&None, false));
    assert_eq!(given.row(row.id).await, row);
}

async fn a_row_that_does_not_exist_is_not_shown<B: Backend>(backend: &B) {
    given(backend).placed(P0).await;

    assert_eq!(backend.operators().row(RowId::MAX).await.expect("answered"), None);
    assert_eq!(backend.operators().row(-1).await.expect("answered"), None);
}

async fn sent_rows_are_shown_as_long_as_the_archive_keeps_them<B: Backend>(backend: &B) {
    let given = given(backend);
    given.placed(P0).await;
    let sent = worker(backend, "a", P0).await.drain(ALL).await.remove(0);
    assert_eq!(given.row(sent.id).await.status, RowStatus::Sent);

    given.advance(HOUR).await;
    for _ in 0..3 {
        backend.outbox().sweep(HOUR / 2, 10).await.expect("swept");
    }

    assert_eq!(backend.operators().row(sent.id).await.expect("answered"), None);
    assert_eq!(given.rows(RowFilter::default()).await, []);
}

async fn a_standing_tells_the_row_a_row_waits_behind<B: Backend>(backend: &B) {
    let given = given(backend);
    let line = given.line(3, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let head = worker.fail_head(line.id, Disposition::Retry(RETRY)).await;
    let last = given.rows_of(line.id).await.remove(2);

    let standing = given.diagnose(RowSelector::Event(last.event_id)).await;

    assert_eq!(standing.row, last);
    assert_eq!(standing.head, Some(given.row(head).await));
    assert_eq!((standing.deaths, standing.sent_to, standing.by_fallback), (0, None, false));
    let first = given.diagnose(RowSelector::Key(line.id)).await;
    assert_eq!((first.row.id, first.head), (head, None), "the head waits behind nothing");
}

async fn a_keys_standing_is_its_first_row_that_has_not_left_else_its_latest<B: Backend>(backend: &B) {
    let given = given(backend);
    let line = given.line(3, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let rows = ids_of(&given.rows_of(line.id).await);

    for row in &rows {
        assert_eq!(given.diagnose(RowSelector::Key(line.id)).await.row.id, *row);
        let one = worker.claim(1).await;
        worker.settle(&one).await;
    }

    let latest = given.diagnose(RowSelector::Key(line.id)).await;
    assert_eq!((latest.row.id, latest.row.status, latest.head), (rows[2], RowStatus::Sent, None));
}

fn ids_of(rows: &[ports::operators::RowView]) -> Vec<RowId> {
    rows.iter().map(|row| row.id).collect()
}

async fn a_standing_tells_who_owns_the_partition<B: Backend>(backend: &B) {
    let given = given(backend);
    let order = given.placed(P0).await;
    assert_eq!(given.diagnose(RowSelector::Key(order.id)).await.owner, None);

    let worker = worker(backend, "a", P0).await;

    let standing = given.diagnose(RowSelector::Key(order.id)).await;
    assert_eq!((standing.owner, standing.epoch), (Some(instance("a")), worker.fence.epoch));
}

async fn nothing_is_known_of_what_never_was<B: Backend>(backend: &B) {
    let given = given(backend);
    let (never_written, event) = given.make.placed("ann");

    for whose in [RowSelector::Key(never_written.id), RowSelector::Event(event.id)] {
        assert_eq!(backend.operators().diagnose(whose).await.expect("answered"), None);
    }
}
