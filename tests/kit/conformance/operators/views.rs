//! Cases of `OutboxOperators`: the row view, its filters, and the diagnosis of one key or event.
use crate::conformance::fixture::worker::orders_of;
use ports::orders::event_key;
use std::time::Duration;

use domain::EventType;
use ports::FailureType;
use ports::operators::{RowFilter, RowSelector, RowView};
use ports::outbox::{BatchOutcome, Disposition, Exclusion, RowId, RowStatus};
use ports::partitions::AcquireReason;

use crate::backend::Backend;
use crate::conformance::fixture::backend::{HOUR, P0, P1, RETRY, SECOND, fixture, instance};
use crate::conformance::fixture::worker::{ALL, exclusion, worker};

pub(super) async fn rows_are_listed_in_id_order_page_by_page<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let placed = fixture.place_orders(5, P0).await;
    let page = async |after| {
        let filter = RowFilter { after, ..RowFilter::default() };
        backend.operators().rows(&filter, 2).await.expect("rows are listed")
    };

    let mut seen = page(None).await;
    for _ in 0..2 {
        seen.extend(page(seen.last().map(|row| row.id)).await);
    }

    assert!(seen.is_sorted_by(|a, b| a.id < b.id));
    assert_eq!(orders_of(&seen), placed.iter().map(|order| order.id).collect::<Vec<_>>());
    assert_eq!(page(seen.last().map(|row| row.id)).await, []);
}

pub(super) async fn rows_are_filtered<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let order = fixture.order_with_rows(2, P0).await;
    let (first, second) = (fixture.place_order(P0).await, fixture.place_order(P0).await);
    let mut worker = worker(backend, "a", P0).await;
    let mut batch = worker.claim(ALL).await;
    let failed =
        |at: usize, disposition, failure_type| Exclusion { failure_type, ..exclusion(batch.rows[at].id, disposition) };
    let excluded = [
        failed(2, Disposition::Retry(RETRY), FailureType::Network),
        failed(3, Disposition::ParkKey, FailureType::System),
    ];
    worker.exclude(&excluded, &mut batch).await;
    let keys = async |filter| orders_of(&fixture.rows(filter).await);
    let all = RowFilter::default;

    assert_eq!(keys(RowFilter { status: Some(RowStatus::InFlight), ..all() }).await, [order.id, order.id]);
    assert_eq!(keys(RowFilter { status: Some(RowStatus::Failed), ..all() }).await, [first.id]);
    assert_eq!(keys(RowFilter { status: Some(RowStatus::Parked), ..all() }).await, [second.id]);
    assert_eq!(keys(RowFilter { status: Some(RowStatus::Pending), ..all() }).await, []);
    assert_eq!(keys(RowFilter { key: Some(event_key(second.id)), ..all() }).await, [second.id]);
    let changed = EventType::OrderStatusChanged.as_str().to_owned();
    assert_eq!(keys(RowFilter { event_type: Some(changed.clone()), ..all() }).await, [order.id]);
    assert_eq!(keys(RowFilter { failure_type: Some(FailureType::System), ..all() }).await, [second.id]);
    assert_eq!(keys(RowFilter { event_type: Some(changed), key: Some(event_key(first.id)), ..all() }).await, []);
}

pub(super) async fn rows_are_filtered_by_partition<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (other, sent) = (fixture.place_order(P0).await, fixture.place_order(P1).await);
    let mut worker = worker(backend, "a", P1).await;
    let batch = worker.claim(ALL).await;
    worker.settle(&batch).await;
    let (failed, parked, claimed) =
        (fixture.place_order(P1).await, fixture.place_order(P1).await, fixture.place_order(P1).await);
    let mut batch = worker.claim(ALL).await;
    let excluded =
        [exclusion(batch.rows[0].id, Disposition::Retry(RETRY)), exclusion(batch.rows[1].id, Disposition::ParkKey)];
    worker.exclude(&excluded, &mut batch).await;
    let pending = [fixture.place_order(P1).await.id, fixture.place_order(P1).await.id];
    let keys = async |partition, status| {
        orders_of(&fixture.rows(RowFilter { partition: Some(partition), status, ..RowFilter::default() }).await)
    };

    let all = [sent.id, failed.id, parked.id, claimed.id, pending[0], pending[1]];
    assert_eq!(keys(P1, None).await, all);
    assert_eq!(keys(P1, Some(RowStatus::Sent)).await, [sent.id]);
    assert_eq!(keys(P1, Some(RowStatus::Failed)).await, [failed.id]);
    assert_eq!(keys(P1, Some(RowStatus::Parked)).await, [parked.id]);
    assert_eq!(keys(P1, Some(RowStatus::InFlight)).await, [claimed.id]);
    assert_eq!(keys(P1, Some(RowStatus::Pending)).await, pending);
    assert_eq!(keys(P0, None).await, [other.id]);
    assert_eq!(keys(P0, Some(RowStatus::Pending)).await, [other.id]);
    assert_eq!(keys(P0, Some(RowStatus::InFlight)).await, []);
    let waiting = RowFilter { partition: Some(P1), status: Some(RowStatus::Pending), ..RowFilter::default() };
    let first = fixture.rows(waiting.clone()).await.remove(0);
    assert_eq!(orders_of(&fixture.rows(RowFilter { after: Some(first.id), ..waiting.clone() }).await), [pending[1]]);
    let of_key = |key| RowFilter { key: Some(event_key(key)), ..waiting.clone() };
    assert_eq!(orders_of(&fixture.rows(of_key(pending[0])).await), [pending[0]]);
    assert_eq!(fixture.rows(of_key(other.id)).await, []);
}

pub(super) async fn rows_are_filtered_by_age<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let old = fixture.place_order(P0).await;
    fixture.advance(HOUR).await;
    let young = fixture.place_order(P0).await;
    let older_than = async |age: Duration| {
        let rows = fixture.rows(RowFilter { older_than: Some(age), ..RowFilter::default() }).await;
        orders_of(&rows)
    };

    assert_eq!(older_than(HOUR / 2).await, [old.id]);
    assert_eq!(older_than(Duration::ZERO).await, [old.id, young.id]);
    assert_eq!(older_than(HOUR * 2).await, []);
}

pub(super) async fn a_row_view_shows_the_row_as_written<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let mut creation = fixture.factory.creation("ann", P1);
    creation.events[0].event_type = EventType::OrderCancelled.as_str().into();
    let event = creation.events[0].clone();
    fixture.committed(creation).await;

    let row = fixture.rows(RowFilter { key: Some(event.key.clone()), ..RowFilter::default() }).await.remove(0);

    assert_eq!((row.event_id, &row.key, row.partition), (event.event_id, &event.key, P1));
    assert_eq!((row.event_type.as_str(), row.status), ("ORDER_CANCELLED", RowStatus::Pending));
    assert_eq!((row.retry_count, row.failure_type, row.sent_at), (0, None, None));
    assert_eq!((&row.last_failure_reason, row.next_attempt_at.is_some_and(|due| due > row.created_at)), (&None, false));
    assert_eq!(fixture.row(row.id).await, row);
}

pub(super) async fn the_last_attempt_of_a_row_is_its_last_counted_claim<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let order = fixture.order_with_rows(2, P0).await;
    let [first, second] = fixture.rows_of(order.id).await.try_into().expect("two rows");
    assert_eq!((first.last_attempt_at, second.last_attempt_at), (None, None), "no attempt was made");
    let mut worker = worker(backend, "a", P0).await;
    let last_attempt = async |row: RowId| fixture.row(row).await.last_attempt_at;

    let mut batch = worker.claim(ALL).await;
    let claimed = last_attempt(first.id).await.expect("the row is in flight");
    assert!(claimed >= first.created_at && last_attempt(second.id).await == Some(claimed), "the batch has one claim");
    worker.exclude(&[exclusion(first.id, Disposition::Retry(RETRY))], &mut batch).await;
    assert_eq!(last_attempt(first.id).await, Some(claimed), "the attempt counts");
    assert_eq!(last_attempt(second.id).await, None, "the attempt was returned");
    worker.settle(&batch).await;

    fixture.advance(RETRY + SECOND).await;
    let before = last_attempt(first.id).await.expect("one attempt was made");
    let batch = worker.claim(ALL).await;
    let again = last_attempt(first.id).await.expect("the row is in flight");
    assert!(again.since(before) >= RETRY, "{before:?} and {again:?}");
    worker.reacquire(AcquireReason::OutcomeUnknown).await.expect("the batch is open");
    worker.resolve(batch.token, BatchOutcome::NotSent).await;
    assert_eq!(last_attempt(first.id).await, Some(before), "a batch that was not sent is not an attempt");

    let batch = worker.claim(ALL).await;
    let sent_with = last_attempt(first.id).await.expect("the row is in flight");
    worker.settle(&batch).await;
    let row = fixture.row(first.id).await;
    assert_eq!((row.status, row.last_attempt_at), (RowStatus::Sent, Some(sent_with)));
    assert!(row.sent_at.is_some_and(|sent_at| sent_at >= sent_with));
}

pub(super) async fn a_missing_row_is_not_found<B: Backend>(backend: &B) {
    fixture(backend).place_order(P0).await;

    assert_eq!(backend.operators().row(RowId::MAX).await.expect("the call succeeds"), None);
    assert_eq!(backend.operators().row(-1).await.expect("the call succeeds"), None);
}

pub(super) async fn sent_rows_are_shown_until_the_archive_is_swept<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_order(P0).await;
    let sent = worker(backend, "a", P0).await.drain(ALL).await.remove(0);
    assert_eq!(fixture.row(sent.id).await.status, RowStatus::Sent);

    fixture.advance(HOUR).await;
    for _ in 0..3 {
        backend.outbox().sweep(HOUR / 2, 10).await.expect("swept");
    }

    assert_eq!(backend.operators().row(sent.id).await.expect("the call succeeds"), None);
    assert_eq!(fixture.rows(RowFilter::default()).await, []);
}

pub(super) async fn a_diagnosis_names_the_row_that_blocks_the_key<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let order = fixture.order_with_rows(3, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let head = worker.exclude_head(order.id, Disposition::Retry(RETRY)).await;
    let last = fixture.rows_of(order.id).await.remove(2);

    let diagnosis = fixture.diagnosis(RowSelector::Event(last.event_id)).await;

    assert_eq!(diagnosis.row, last);
    assert_eq!(diagnosis.head, Some(fixture.row(head).await));
    assert_eq!((diagnosis.deaths, diagnosis.sent_to, diagnosis.by_fallback), (0, None, false));
    let first = fixture.diagnosis(RowSelector::Key(event_key(order.id))).await;
    assert_eq!((first.row.id, first.head), (head, None), "no row blocks the head");
}

pub(super) async fn a_keys_diagnosis_is_its_first_unsent_row_else_its_latest<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let order = fixture.order_with_rows(3, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let rows = ids_of(&fixture.rows_of(order.id).await);

    for row in &rows {
        assert_eq!(fixture.diagnosis(RowSelector::Key(event_key(order.id))).await.row.id, *row);
        let one = worker.claim(1).await;
        worker.settle(&one).await;
    }

    let latest = fixture.diagnosis(RowSelector::Key(event_key(order.id))).await;
    assert_eq!((latest.row.id, latest.row.status, latest.head), (rows[2], RowStatus::Sent, None));
}

pub(super) fn ids_of(rows: &[RowView]) -> Vec<RowId> {
    rows.iter().map(|row| row.id).collect()
}

pub(super) async fn a_diagnosis_names_the_partitions_owner<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let order = fixture.place_order(P0).await;
    assert_eq!(fixture.diagnosis(RowSelector::Key(event_key(order.id))).await.owner, None);

    let worker = worker(backend, "a", P0).await;

    let diagnosis = fixture.diagnosis(RowSelector::Key(event_key(order.id))).await;
    assert_eq!((diagnosis.owner, diagnosis.epoch), (Some(instance("a")), worker.fence.epoch));
}

pub(super) async fn an_unknown_key_or_event_has_no_diagnosis<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (never_written, event) = fixture.factory.placed("ann");

    for selector in [RowSelector::Key(event_key(never_written.id)), RowSelector::Event(event.id)] {
        assert_eq!(backend.operators().diagnose(selector).await.expect("the call succeeds"), None);
    }
}
