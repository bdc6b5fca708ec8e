//! Cases of `OutboxOperators`: retry, park, redrive.
use domain::{EventType, Status};
use ports::FailureType;
use ports::operators::{Audit, OperatorOutcome, RowFilter};
use ports::outbox::{Disposition, Exclusion, RowId, RowStatus};
use ports::partitions::AcquireReason;

use super::given::{Given, P0, P1, RETRY, SECOND, audit, given};
use super::worker::{ALL, Worker, exclusion, ids, worker};
use crate::backend::Backend;

/// So many keys of one row each, all parked; ids in order.
async fn parked<'b, B: Backend>(given: &Given<'b, B>, keys: usize, fate: Disposition) -> (Worker<'b, B>, Vec<RowId>) {
    given.many_placed(keys, P0).await;
    let mut worker = worker(given.backend, "a", P0).await;
    let batch = worker.claim(ALL).await;
    let excluded: Vec<Exclusion> = batch.rows.iter().map(|row| exclusion(row.id, fate)).collect();
    worker.exclude(batch.token, &excluded).await;
    worker.settle(&batch).await;
    (worker, ids(&batch.rows))
}

pub(super) async fn a_failed_row_is_retried_at_once_and_keeps_its_attempts<B: Backend>(backend: &B) {
    let given = given(backend);
    let (mut worker, rows) = parked(&given, 1, Disposition::Retry(RETRY)).await;

    assert_eq!(backend.operators().retry(rows[0], &audit()).await.expect("answered"), OperatorOutcome::Done(1));

    worker.again(AcquireReason::Uncertain).await;
    let batch = worker.claim(ALL).await;
    assert_eq!((ids(&batch.rows), batch.rows[0].attempt), (rows, 2));
}

pub(super) async fn a_parked_row_is_retried_with_its_attempts_from_the_start<B: Backend>(backend: &B) {
    let given = given(backend);
    for fate in [Disposition::ParkKey, Disposition::ParkRow] {
        let (mut worker, rows) = parked(&given, 1, fate).await;

        assert_eq!(backend.operators().retry(rows[0], &audit()).await.expect("answered"), OperatorOutcome::Done(1));

        worker.again(AcquireReason::Uncertain).await;
        let batch = worker.claim(ALL).await;
        assert_eq!((ids(&batch.rows), batch.rows[0].attempt), (rows, 1), "{fate:?}");
        worker.settle(&batch).await;
    }
}

pub(super) async fn a_retried_row_keeps_its_place_in_its_keys_line<B: Backend>(backend: &B) {
    let given = given(backend);
    let line = given.line(3, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let head = worker.fail_head(line.id, Disposition::ParkKey).await;

    backend.operators().retry(head, &audit()).await.expect("answered");

    worker.again(AcquireReason::Uncertain).await;
    let gone = worker.drain(ALL).await;
    assert_eq!(gone.iter().map(|row| row.sequence).collect::<Vec<_>>(), [1, 2, 3]);
}

pub(super) async fn a_row_in_flight_or_sent_is_left_alone<B: Backend>(backend: &B) {
    let given = given(backend);
    given.many_placed(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let sent = worker.claim(1).await;
    worker.settle(&sent).await;
    let open = worker.claim(1).await;

    for (id, status) in [(sent.rows[0].id, RowStatus::Sent), (open.rows[0].id, RowStatus::InFlight)] {
        let before = given.row(id).await;
        assert_eq!(
            backend.operators().retry(id, &audit()).await.expect("answered"),
            OperatorOutcome::WrongStatus(status)
        );
        assert_eq!(
            backend.operators().park(id, &audit()).await.expect("answered"),
            OperatorOutcome::WrongStatus(status)
        );
        assert_eq!(given.row(id).await, before);
    }
    assert_eq!(worker.settle(&open).await, 1);
}

pub(super) async fn a_row_that_is_missing_is_missing<B: Backend>(backend: &B) {
    let operators = backend.operators();

    assert_eq!(operators.retry(404, &audit()).await.expect("answered"), OperatorOutcome::Missing);
    assert_eq!(operators.park(404, &audit()).await.expect("answered"), OperatorOutcome::Missing);
}

pub(super) async fn a_pending_row_is_parked_and_its_key_waits_with_it<B: Backend>(backend: &B) {
    let given = given(backend);
    let (line, other) = (given.line(2, P0).await, given.placed(P0).await);
    let head = given.rows_of(line.id).await[0].id;

    assert_eq!(backend.operators().park(head, &audit()).await.expect("answered"), OperatorOutcome::Done(1));

    let gone = worker(backend, "a", P0).await.drain(ALL).await;
    assert_eq!(gone.iter().map(|row| row.key).collect::<Vec<_>>(), [other.id]);
    assert_eq!(given.statuses(line.id).await, [RowStatus::Parked, RowStatus::Pending]);
    let told = given.rows_of(line.id).await[0].last_failure_reason.clone();
    assert_eq!(told, Some(audit().parked()), "who parked it, and why");
    let third = given.placed(P0).await;
    let row = given.rows_of(third.id).await[0].id;
    let silent = Audit { reason: String::new(), ..audit() };
    assert_eq!(backend.operators().park(row, &silent).await.expect("answered"), OperatorOutcome::Done(1));
    let told = given.rows_of(third.id).await[0].last_failure_reason.clone();
    assert_eq!(told, Some(format!("parked by {}", silent.operator)));
}

pub(super) async fn a_failed_row_is_parked_and_no_longer_comes_back<B: Backend>(backend: &B) {
    let given = given(backend);
    let line = given.line(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let head = worker.fail_head(line.id, Disposition::Retry(RETRY)).await;

    assert_eq!(backend.operators().park(head, &audit()).await.expect("answered"), OperatorOutcome::Done(1));

    worker.again(AcquireReason::Uncertain).await;
    given.advance(RETRY * 2).await;
    assert_eq!(worker.nothing().await, (None, false));
    assert_eq!(given.row(head).await.next_attempt_at, None);
}

pub(super) async fn parking_a_later_row_does_not_hold_the_earlier_ones<B: Backend>(backend: &B) {
    let given = given(backend);
    let line = given.line(3, P0).await;
    let second = given.rows_of(line.id).await[1].id;

    backend.operators().park(second, &audit()).await.expect("answered");

    let mut worker = worker(backend, "a", P0).await;
    let gone = worker.drain(ALL).await;
    assert_eq!(gone.iter().map(|row| row.sequence).collect::<Vec<_>>(), [1]);
    backend.operators().retry(second, &audit()).await.expect("answered");
    worker.again(AcquireReason::Uncertain).await;
    let gone = worker.drain(ALL).await;
    assert_eq!(gone.iter().map(|row| row.sequence).collect::<Vec<_>>(), [2, 3]);
}

pub(super) async fn an_operators_statement_goes_through_the_counter<B: Backend>(backend: &B) {
    let given = given(backend);
    let (_, rows) = parked(&given, 3, Disposition::ParkKey).await;
    let operators = backend.operators();
    let counter = async || given.view(P0).await.counter;

    let at_first = counter().await;
    operators.retry(rows[0], &audit()).await.expect("answered");
    let after_retry = counter().await;
    operators.park(rows[0], &audit()).await.expect("answered");
    let after_park = counter().await;
    operators.redrive(&RowFilter::default(), 10, true, &audit()).await.expect("answered");
    let after_redrive = counter().await;

    assert!(at_first < after_retry && after_retry < after_park && after_park < after_redrive);
}

pub(super) async fn an_operator_does_not_disturb_a_batch_in_flight<B: Backend>(backend: &B) {
    let given = given(backend);
    let (mut worker, rows) = parked(&given, 1, Disposition::ParkKey).await;
    given.placed(P0).await;
    let open = worker.claim(ALL).await;

    backend.operators().retry(rows[0], &audit()).await.expect("answered");

    assert_eq!(given.view(P0).await.in_flight, Some(open.token));
    assert_eq!(worker.settle(&open).await, 1, "the token names the batch");
    assert_eq!(ids(&worker.claim(ALL).await.rows), rows);
}

pub(super) async fn an_operator_needs_no_owner<B: Backend>(backend: &B) {
    let given = given(backend);
    let order = given.placed(P1).await;
    let row = given.rows_of(order.id).await[0].id;

    assert_eq!(backend.operators().park(row, &audit()).await.expect("answered"), OperatorOutcome::Done(1));
    assert_eq!(backend.operators().retry(row, &audit()).await.expect("answered"), OperatorOutcome::Done(1));

    assert_eq!(worker(backend, "a", P1).await.drain(ALL).await.len(), 1);
}

pub(super) async fn a_dry_redrive_counts_and_changes_nothing<B: Backend>(backend: &B) {
    let given = given(backend);
    let (mut worker, _) = parked(&given, 3, Disposition::ParkKey).await;
    let before = (given.rows(RowFilter::default()).await, given.view(P0).await);

    let counted = backend.operators().redrive(&RowFilter::default(), 2, false, &audit()).await.expect("answered");

    assert_eq!(counted, OperatorOutcome::Done(3), "all that the filter lets through, whatever the limit");
    assert_eq!((given.rows(RowFilter::default()).await, given.view(P0).await), before);
    worker.nothing().await;
}

pub(super) async fn a_redrive_makes_parked_rows_due_in_id_order_and_at_most_so_many<B: Backend>(backend: &B) {
    let given = given(backend);
    let (mut worker, rows) = parked(&given, 3, Disposition::ParkKey).await;

    backend.operators().redrive(&RowFilter::default(), 2, true, &audit()).await.expect("answered");

    assert_eq!(given.row(rows[2]).await.status, RowStatus::Parked);
    worker.again(AcquireReason::Uncertain).await;
    let batch = worker.claim(ALL).await;
    assert_eq!(ids(&batch.rows), rows[..2]);
    assert!(batch.rows.iter().all(|row| row.attempt == 1), "their attempts start from 0");
    worker.settle(&batch).await;
    let rest = backend.operators().redrive(&RowFilter::default(), 2, true, &audit()).await.expect("answered");
    assert_eq!(rest, OperatorOutcome::Done(1));
}

pub(super) async fn a_redrive_obeys_its_filter_and_ignores_its_status<B: Backend>(backend: &B) {
    let given = given(backend);
    let (mut worker, rows) = parked(&given, 3, Disposition::ParkRow).await;
    let key = given.row(rows[1]).await.key;
    let waiting = given.placed(P0).await;
    worker.fail_head(waiting.id, Disposition::Retry(RETRY)).await;

    let one = RowFilter { key: Some(key), status: Some(RowStatus::Sent), ..RowFilter::default() };
    assert_eq!(
        backend.operators().redrive(&one, 10, true, &audit()).await.expect("answered"),
        OperatorOutcome::Done(1)
    );
    let other = RowFilter { failure_type: Some(FailureType::Network), ..RowFilter::default() };
    assert_eq!(
        backend.operators().redrive(&other, 10, true, &audit()).await.expect("answered"),
        OperatorOutcome::Done(0)
    );

    worker.again(AcquireReason::Uncertain).await;
    assert_eq!(ids(&worker.drain(ALL).await), [rows[1]]);
    assert_eq!(given.statuses(waiting.id).await, [RowStatus::Failed], "only PARKED rows are redriven");
}

pub(super) async fn a_redriven_key_goes_in_order<B: Backend>(backend: &B) {
    let given = given(backend);
    let line = given.line(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let batch = worker.claim(ALL).await;
    let excluded = [0, 1].map(|at: usize| exclusion(batch.rows[at].id, Disposition::ParkKey));
    worker.exclude(batch.token, &excluded).await;
    worker.settle(&batch).await;
    given.done(given.make.change(&line, Status::Shipped, P0)).await;

    let only_second = RowFilter { kind: Some(EventType::OrderStatusChanged.as_str().into()), ..RowFilter::default() };
    backend.operators().redrive(&only_second, 10, true, &audit()).await.expect("answered");
    worker.again(AcquireReason::Uncertain).await;
    worker.nothing().await;
    backend.operators().redrive(&RowFilter::default(), 10, true, &audit()).await.expect("answered");
    worker.again(AcquireReason::Uncertain).await;

    let gone = worker.drain(ALL).await;
    assert_eq!(gone.iter().map(|row| row.sequence).collect::<Vec<_>>(), [1, 2, 3]);
    given.advance(SECOND).await;
}

pub(super) async fn what_was_done_is_kept_with_who_and_why<B: Backend>(backend: &B) {
    let given = given(backend);
    let (_, rows) = parked(&given, 2, Disposition::ParkKey).await;
    let operators = backend.operators();

    operators.redrive(&RowFilter::default(), 1, false, &audit()).await.expect("answered");
    if backend.audits().await.is_none() {
        return;
    }
    assert_eq!(backend.audits().await, Some(vec![]), "looking is not acting");
    operators.retry(rows[0], &audit()).await.expect("answered");
    operators.park(rows[0], &audit()).await.expect("answered");
    operators.redrive(&RowFilter::default(), 1, true, &audit()).await.expect("answered");

    assert_eq!(backend.audits().await, Some(vec![audit(); 3]));
}
