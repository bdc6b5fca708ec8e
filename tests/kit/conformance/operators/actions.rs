//! Cases of `OutboxOperators`: retry and park of one row.
use crate::conformance::fixture::worker::keys;
use ports::operators::{Audit, OperatorOutcome, RedriveMode, RowFilter};
use ports::outbox::{Disposition, RowStatus};
use ports::partitions::AcquireReason;

use crate::backend::Backend;
use crate::conformance::fixture::backend::{P0, P1, RETRY, audit, fixture};
use crate::conformance::fixture::worker::{ALL, ids, worker};
use crate::conformance::operators::fixture::parked;

pub(super) async fn a_failed_row_is_retried_at_once_and_keeps_its_attempts<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (mut worker, rows) = parked(&fixture, 1, Disposition::Retry(RETRY)).await;

    assert_eq!(
        backend.operators().retry(rows[0], &audit()).await.expect("the call succeeds"),
        OperatorOutcome::Done(1)
    );

    worker.reacquire(AcquireReason::OutcomeUnknown).await;
    let batch = worker.claim(ALL).await;
    assert_eq!((ids(&batch.rows), batch.rows[0].attempt), (rows, 2));
}

pub(super) async fn a_parked_row_is_retried_with_its_attempts_reset<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    for disposition in [Disposition::ParkKey, Disposition::ParkRow] {
        let (mut worker, rows) = parked(&fixture, 1, disposition).await;

        assert_eq!(
            backend.operators().retry(rows[0], &audit()).await.expect("the call succeeds"),
            OperatorOutcome::Done(1)
        );

        worker.reacquire(AcquireReason::OutcomeUnknown).await;
        let batch = worker.claim(ALL).await;
        assert_eq!((ids(&batch.rows), batch.rows[0].attempt), (rows, 1), "{disposition:?}");
        worker.settle(&batch).await;
    }
}

pub(super) async fn a_retried_row_keeps_its_position_in_its_key<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let order = fixture.order_with_rows(3, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let head = worker.exclude_head(order.id, Disposition::ParkKey).await;

    backend.operators().retry(head, &audit()).await.expect("the call succeeds");

    worker.reacquire(AcquireReason::OutcomeUnknown).await;
    let sent = worker.drain(ALL).await;
    assert_eq!(sent.iter().map(|row| row.sequence).collect::<Vec<_>>(), [1, 2, 3]);
}

pub(super) async fn an_operator_cannot_change_an_in_flight_or_sent_row<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_orders(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let sent = worker.claim(1).await;
    worker.settle(&sent).await;
    let open = worker.claim(1).await;

    for (id, status) in [(sent.rows[0].id, RowStatus::Sent), (open.rows[0].id, RowStatus::InFlight)] {
        let before = fixture.row(id).await;
        assert_eq!(
            backend.operators().retry(id, &audit()).await.expect("the call succeeds"),
            OperatorOutcome::WrongStatus(status)
        );
        assert_eq!(
            backend.operators().park(id, &audit()).await.expect("the call succeeds"),
            OperatorOutcome::WrongStatus(status)
        );
        assert_eq!(fixture.row(id).await, before);
    }
    assert_eq!(worker.settle(&open).await, 1);
}

pub(super) async fn an_operation_on_a_missing_row_reports_missing<B: Backend>(backend: &B) {
    let operators = backend.operators();

    assert_eq!(operators.retry(404, &audit()).await.expect("the call succeeds"), OperatorOutcome::Missing);
    assert_eq!(operators.park(404, &audit()).await.expect("the call succeeds"), OperatorOutcome::Missing);
}

pub(super) async fn a_parked_pending_row_blocks_its_key<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (order, other) = (fixture.order_with_rows(2, P0).await, fixture.place_order(P0).await);
    let head = fixture.rows_of(order.id).await[0].id;

    assert_eq!(backend.operators().park(head, &audit()).await.expect("the call succeeds"), OperatorOutcome::Done(1));

    let sent = worker(backend, "a", P0).await.drain(ALL).await;
    assert_eq!(keys(&sent), [other.id]);
    assert_eq!(fixture.statuses(order.id).await, [RowStatus::Parked, RowStatus::Pending]);
    let reason = fixture.rows_of(order.id).await[0].last_failure_reason.clone();
    assert_eq!(reason.as_deref(), Some("parked by olga: ticket 7"), "the operator and the reason");
    let third = fixture.place_order(P0).await;
    let row = fixture.rows_of(third.id).await[0].id;
    let without_reason = Audit { reason: String::new(), ..audit() };
    assert_eq!(
        backend.operators().park(row, &without_reason).await.expect("the call succeeds"),
        OperatorOutcome::Done(1)
    );
    let reason = fixture.rows_of(third.id).await[0].last_failure_reason.clone();
    assert_eq!(reason.as_deref(), Some("parked by olga"));
}

pub(super) async fn a_parked_failed_row_is_not_retried<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let order = fixture.order_with_rows(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let head = worker.exclude_head(order.id, Disposition::Retry(RETRY)).await;

    assert_eq!(backend.operators().park(head, &audit()).await.expect("the call succeeds"), OperatorOutcome::Done(1));

    worker.reacquire(AcquireReason::OutcomeUnknown).await;
    fixture.advance(RETRY * 2).await;
    assert_eq!(worker.expect_nothing_due().await, (None, false));
    assert_eq!(fixture.row(head).await.next_attempt_at, None);
}

pub(super) async fn a_row_that_is_parked_again_names_the_last_operator<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let order = fixture.place_order(P0).await.id;
    let (row, operators) = (fixture.rows_of(order).await[0].id, backend.operators());
    let reason = async || fixture.row(row).await.last_failure_reason;

    operators.park(row, &audit()).await.expect("the call succeeds");
    operators.retry(row, &audit()).await.expect("the call succeeds");
    let by_bob = Audit { operator: "bob".into(), reason: "again".into() };
    operators.park(row, &by_bob).await.expect("the call succeeds");
    assert_eq!(reason().await.as_deref(), Some("parked by bob: again"));

    operators.retry(row, &audit()).await.expect("the call succeeds");
    worker(backend, "a", P0).await.exclude_head(order, Disposition::Retry(RETRY)).await;
    let failure = reason().await;
    operators.park(row, &by_bob).await.expect("the call succeeds");
    assert!(failure.is_some() && reason().await == failure, "the reason of a failure stays");
}

pub(super) async fn parking_a_later_row_does_not_block_earlier_rows<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let order = fixture.order_with_rows(3, P0).await;
    let second = fixture.rows_of(order.id).await[1].id;

    backend.operators().park(second, &audit()).await.expect("the call succeeds");

    let mut worker = worker(backend, "a", P0).await;
    let sent = worker.drain(ALL).await;
    assert_eq!(sent.iter().map(|row| row.sequence).collect::<Vec<_>>(), [1]);
    backend.operators().retry(second, &audit()).await.expect("the call succeeds");
    worker.reacquire(AcquireReason::OutcomeUnknown).await;
    let sent = worker.drain(ALL).await;
    assert_eq!(sent.iter().map(|row| row.sequence).collect::<Vec<_>>(), [2, 3]);
}

pub(super) async fn an_operators_statement_raises_the_counter<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (_, rows) = parked(&fixture, 3, Disposition::ParkKey).await;
    let operators = backend.operators();
    let counter = async || fixture.view(P0).await.counter;

    let at_first = counter().await;
    operators.retry(rows[0], &audit()).await.expect("the call succeeds");
    let after_retry = counter().await;
    operators.park(rows[0], &audit()).await.expect("the call succeeds");
    let after_park = counter().await;
    operators.redrive(&RowFilter::default(), 10, RedriveMode::Execute, &audit()).await.expect("the call succeeds");
    let after_redrive = counter().await;

    assert!(at_first < after_retry && after_retry < after_park && after_park < after_redrive);
}

pub(super) async fn an_operators_statement_keeps_the_open_batch<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (mut worker, rows) = parked(&fixture, 1, Disposition::ParkKey).await;
    fixture.place_order(P0).await;
    let open = worker.claim(ALL).await;

    backend.operators().retry(rows[0], &audit()).await.expect("the call succeeds");

    assert_eq!(fixture.view(P0).await.open_batch, Some(open.token));
    assert_eq!(worker.settle(&open).await, 1, "a settlement compares the token, not the counter");
    assert_eq!(ids(&worker.claim(ALL).await.rows), rows);
}

pub(super) async fn an_operators_statement_needs_no_owner<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let order = fixture.place_order(P1).await;
    let row = fixture.rows_of(order.id).await[0].id;

    assert_eq!(backend.operators().park(row, &audit()).await.expect("the call succeeds"), OperatorOutcome::Done(1));
    assert_eq!(backend.operators().retry(row, &audit()).await.expect("the call succeeds"), OperatorOutcome::Done(1));

    assert_eq!(worker(backend, "a", P1).await.drain(ALL).await.len(), 1);
}

pub(super) async fn a_retried_row_behind_a_parked_one_is_not_the_oldest_that_waits<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let order = fixture.order_with_rows(2, P0).await;
    let rows = fixture.rows_of(order.id).await;
    let (first, second) = (rows[0].id, rows[1].id);
    for row in [second, first] {
        assert_eq!(backend.operators().park(row, &audit()).await.expect("the call succeeds"), OperatorOutcome::Done(1));
    }

    let retried = backend.operators().retry(second, &audit()).await.expect("the call succeeds");

    assert_eq!(retried, OperatorOutcome::Done(1));
    assert_eq!(fixture.depth().await.oldest_unsent, None, "it waits for an operator");
    backend.operators().retry(first, &audit()).await.expect("the call succeeds");
    assert!(fixture.depth().await.oldest_unsent.is_some());
}
