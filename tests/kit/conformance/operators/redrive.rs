//! Cases of `OutboxOperators`: redrive by filter, and the audit table.
use domain::{EventType, Status};
use ports::FailureType;
use ports::operators::{AuditFilter, OperatorOutcome, RedriveMode, RowFilter};
use ports::outbox::{Disposition, RowStatus};
use ports::partitions::AcquireReason;

use crate::backend::Backend;
use crate::conformance::fixture::backend::{P0, P1, RETRY, SECOND, audit, fixture};
use crate::conformance::fixture::worker::{ALL, exclusion, ids, worker};
use crate::conformance::operators::fixture::parked;

pub(super) async fn a_dry_redrive_counts_and_changes_nothing<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (mut worker, _) = parked(&fixture, 3, Disposition::ParkKey).await;
    let before = (fixture.rows(RowFilter::default()).await, fixture.view(P0).await);

    let counted = backend
        .operators()
        .redrive(&RowFilter::default(), 2, RedriveMode::DryRun, &audit())
        .await
        .expect("the call succeeds");

    assert_eq!(counted, OperatorOutcome::Done(3), "a dry run counts every matching row, without the limit");
    assert_eq!((fixture.rows(RowFilter::default()).await, fixture.view(P0).await), before);
    worker.expect_nothing_due().await;
}

pub(super) async fn a_redrive_makes_parked_rows_due_in_id_order_up_to_its_limit<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (mut worker, rows) = parked(&fixture, 3, Disposition::ParkKey).await;

    backend
        .operators()
        .redrive(&RowFilter::default(), 2, RedriveMode::Execute, &audit())
        .await
        .expect("the call succeeds");

    assert_eq!(fixture.row(rows[2]).await.status, RowStatus::Parked);
    worker.reacquire(AcquireReason::OutcomeUnknown).await;
    let batch = worker.claim(ALL).await;
    assert_eq!(ids(&batch.rows), rows[..2]);
    assert!(batch.rows.iter().all(|row| row.attempt == 1), "the attempts start again from 0");
    worker.settle(&batch).await;
    let rest = backend
        .operators()
        .redrive(&RowFilter::default(), 2, RedriveMode::Execute, &audit())
        .await
        .expect("the call succeeds");
    assert_eq!(rest, OperatorOutcome::Done(1));
}

pub(super) async fn a_redrive_applies_its_filter_except_the_status<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (mut worker, rows) = parked(&fixture, 3, Disposition::ParkRow).await;
    let key = fixture.row(rows[1]).await.key;
    let waiting = fixture.place_order(P0).await;
    worker.exclude_head(waiting.id, Disposition::Retry(RETRY)).await;

    let one = RowFilter { key: Some(key), status: Some(RowStatus::Sent), ..RowFilter::default() };
    assert_eq!(
        backend.operators().redrive(&one, 10, RedriveMode::Execute, &audit()).await.expect("the call succeeds"),
        OperatorOutcome::Done(1)
    );
    let other = RowFilter { failure_type: Some(FailureType::Network), ..RowFilter::default() };
    assert_eq!(
        backend.operators().redrive(&other, 10, RedriveMode::Execute, &audit()).await.expect("the call succeeds"),
        OperatorOutcome::Done(0)
    );
    let elsewhere = RowFilter { partition: Some(P1), ..RowFilter::default() };
    assert_eq!(
        backend.operators().redrive(&elsewhere, 10, RedriveMode::DryRun, &audit()).await.expect("the call succeeds"),
        OperatorOutcome::Done(0)
    );

    worker.reacquire(AcquireReason::OutcomeUnknown).await;
    assert_eq!(ids(&worker.drain(ALL).await), [rows[1]]);
    assert_eq!(fixture.statuses(waiting.id).await, [RowStatus::Failed], "only PARKED rows are redriven");
}

pub(super) async fn a_redriven_key_is_sent_in_order<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let order = fixture.order_with_rows(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let mut batch = worker.claim(ALL).await;
    let excluded = [0, 1].map(|at: usize| exclusion(batch.rows[at].id, Disposition::ParkKey));
    worker.exclude(&excluded, &mut batch).await;
    worker.settle(&batch).await;
    fixture.committed(fixture.factory.change(&order, Status::Shipped, P0)).await;

    let only_second =
        RowFilter { event_type: Some(EventType::OrderStatusChanged.as_str().into()), ..RowFilter::default() };
    backend.operators().redrive(&only_second, 10, RedriveMode::Execute, &audit()).await.expect("the call succeeds");
    worker.reacquire(AcquireReason::OutcomeUnknown).await;
    worker.expect_nothing_due().await;
    backend
        .operators()
        .redrive(&RowFilter::default(), 10, RedriveMode::Execute, &audit())
        .await
        .expect("the call succeeds");
    worker.reacquire(AcquireReason::OutcomeUnknown).await;

    let sent = worker.drain(ALL).await;
    assert_eq!(sent.iter().map(|row| row.sequence).collect::<Vec<_>>(), [1, 2, 3]);
    fixture.advance(SECOND).await;
}

pub(super) async fn a_parked_row_is_redriven_alone<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (mut worker, rows) = parked(&fixture, 3, Disposition::ParkRow).await;
    let waiting = fixture.place_order(P0).await;
    worker.exclude_head(waiting.id, Disposition::Retry(RETRY)).await;
    let failed = fixture.rows_of(waiting.id).await[0].id;
    let (operators, audit) = (backend.operators(), audit());

    let redriven = operators.redrive_row(rows[1], &audit).await.expect("the call succeeds");
    let refused = operators.redrive_row(failed, &audit).await.expect("the call succeeds");

    assert_eq!((redriven, refused), (OperatorOutcome::Done(1), OperatorOutcome::WrongStatus(RowStatus::Failed)));
    let missing = operators.redrive_row(i64::MAX, &audit).await.expect("the call succeeds");
    assert_eq!(missing, OperatorOutcome::Missing);
    let entries = operators.audit_entries(&AuditFilter::default(), 10).await.expect("the audit table is read");
    let entries: Vec<_> = entries.iter().map(|entry| (entry.action.as_str(), entry.row)).collect();
    assert_eq!(entries, [("redrive", Some(rows[1]))]);
    worker.reacquire(AcquireReason::OutcomeUnknown).await;
    assert_eq!(ids(&worker.drain(ALL).await), [rows[1]]);
}

pub(super) async fn each_operation_leaves_an_audit_row<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (_, rows) = parked(&fixture, 2, Disposition::ParkKey).await;
    let operators = backend.operators();

    operators.redrive(&RowFilter::default(), 1, RedriveMode::DryRun, &audit()).await.expect("the call succeeds");
    assert_eq!(backend.audits().await, [], "a dry run leaves no audit row");
    operators.retry(rows[0], &audit()).await.expect("the call succeeds");
    operators.park(rows[0], &audit()).await.expect("the call succeeds");
    operators.redrive(&RowFilter::default(), 1, RedriveMode::Execute, &audit()).await.expect("the call succeeds");

    assert_eq!(backend.audits().await, [audit(), audit(), audit()]);
}
