//! Cases of `OutboxOperators`: the audit table, and the event of a row.
use ports::operators::{Audit, AuditEntry, AuditFilter, OperatorAction, RedriveMode, RowFilter};
use ports::outbox::{ClaimedRow, Disposition, RowId};

use crate::backend::Backend;
use crate::conformance::fixture::backend::{HOUR, P0, RETRY, audit, fixture};
use crate::conformance::fixture::worker::{ALL, exclusion, worker};
use crate::conformance::operators::fixture::parked;

async fn entries<B: Backend>(backend: &B, filter: AuditFilter, limit: u32) -> Vec<AuditEntry> {
    backend.operators().audit_entries(&filter, limit).await.expect("the audit table is read")
}

fn actions_and_rows(entries: &[AuditEntry]) -> Vec<(&str, Option<RowId>)> {
    entries.iter().map(|entry| (entry.action.as_str(), entry.row)).collect()
}

pub(super) async fn the_audit_table_is_read_newest_first_page_by_page<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (_, rows) = parked(&fixture, 2, Disposition::ParkKey).await;
    let operators = backend.operators();
    operators.retry(rows[0], &audit()).await.expect("the call succeeds");
    operators.park(rows[0], &audit()).await.expect("the call succeeds");
    operators.redrive(&RowFilter::default(), 10, RedriveMode::Execute, &audit()).await.expect("the call succeeds");

    let mut seen = entries(backend, AuditFilter::default(), 3).await;
    let after = seen.last().map(|entry| entry.id);
    seen.extend(entries(backend, AuditFilter { after, ..AuditFilter::default() }, 3).await);

    let [first, second] = [Some(rows[0]), Some(rows[1])];
    let expected = [("redrive", second), ("redrive", first), ("park", first), ("retry", first)];
    assert_eq!(actions_and_rows(&seen), expected);
    assert!(seen.iter().all(|entry| entry.audit == audit()));
    assert!(seen.is_sorted_by(|newer, older| newer.id > older.id && newer.at >= older.at));
    let created_at = fixture.row(rows[0]).await.created_at;
    assert!(seen[3].at >= created_at && seen[0].at.since(created_at) < HOUR, "the time is the store's: {seen:?}");
    let after = seen.last().map(|entry| entry.id);
    assert_eq!(entries(backend, AuditFilter { after, ..AuditFilter::default() }, 3).await, []);
}

pub(super) async fn audit_entries_are_filtered_by_row_action_and_operator<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (_, rows) = parked(&fixture, 2, Disposition::ParkKey).await;
    let operators = backend.operators();
    let other = Audit { operator: "otto".to_owned(), reason: String::new() };
    operators.retry(rows[0], &audit()).await.expect("the call succeeds");
    operators.retry(rows[1], &other).await.expect("the call succeeds");
    operators.park(rows[1], &audit()).await.expect("the call succeeds");
    let (first, second) = (Some(rows[0]), Some(rows[1]));

    let all = AuditFilter::default;
    let of_row = entries(backend, AuditFilter { row: second, ..all() }, 10).await;
    assert_eq!(actions_and_rows(&of_row), [("park", second), ("retry", second)]);
    let retries = entries(backend, AuditFilter { action: Some(OperatorAction::Retry), ..all() }, 10).await;
    assert_eq!(actions_and_rows(&retries), [("retry", second), ("retry", first)]);
    let by_otto = entries(backend, AuditFilter { operator: Some("otto".into()), ..all() }, 10).await;
    assert_eq!((actions_and_rows(&by_otto), &by_otto[0].audit), (vec![("retry", second)], &other));
    let none = AuditFilter { row: first, operator: Some("otto".into()), ..all() };
    assert_eq!(entries(backend, none, 10).await, []);
}

pub(super) async fn an_event_is_read_as_a_claim_returns_it<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let order = fixture.place_order(P0).await;
    let row = fixture.rows_of(order.id).await[0].id;
    let event = async || backend.operators().event(row).await.expect("the event is read").expect("there is one");
    let form = |row: &ClaimedRow| format!("{row:?}");

    let pending = event().await;
    let mut worker = worker(backend, "a", P0).await;
    let mut batch = worker.claim(ALL).await;
    assert_eq!(form(&pending), form(&batch.rows[0]), "the first attempt");
    worker.exclude(&[exclusion(row, Disposition::Retry(RETRY))], &mut batch).await;
    worker.settle(&batch).await;
    fixture.advance(RETRY * 2).await;
    let batch = worker.claim(ALL).await;

    assert_eq!(batch.rows[0].attempt, 2);
    assert_eq!(form(&event().await), form(&batch.rows[0]), "the second attempt");
    assert!(backend.operators().event(RowId::MAX).await.expect("the call succeeds").is_none());
}

pub(super) async fn a_sent_event_is_read_until_the_archive_is_swept<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let order = fixture.place_order(P0).await;
    let row = fixture.rows_of(order.id).await[0].id;
    let claimed = worker(backend, "a", P0).await.drain(ALL).await.remove(0);

    let event = backend.operators().event(row).await.expect("the event is read").expect("there is one");

    assert_eq!(format!("{event:?}"), format!("{claimed:?}"));
}
