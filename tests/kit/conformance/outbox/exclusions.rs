//! Cases of `OutboxStore`: exclusion of rows from an open batch.
use ports::FailureType;
use ports::operators::RowFilter;
use ports::outbox::{
    BatchOutcome, ClaimKind, ClaimOutcome, ClaimedBatch, Disposition, Exclusion, ExclusionOutcome, FencedOutcome,
    RowStatus,
};
use ports::partitions::AcquireReason;

use crate::backend::Backend;
use crate::conformance::fixture::backend::{P0, RETRY, SECOND, audit, fixture};
use crate::conformance::fixture::worker::{ALL, LEASE, Worker, acquire_free, exclusion, ids, worker};
use crate::conformance::outbox::settlements::assert_all_stale;

pub(super) async fn an_excluded_row_waits_for_its_retry_by_the_stores_clock<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let order = fixture.place_order(P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let head = worker.exclude_head(order.id, Disposition::Retry(RETRY)).await;

    let row = fixture.row(head).await;
    assert_eq!(row.status, RowStatus::Failed);
    assert!(row.next_attempt_at.expect("a failed row has a due time") > row.created_at);
    worker.expect_nothing_due().await;
    fixture.advance(RETRY / 2).await;
    worker.expect_nothing_due().await;
    fixture.advance(RETRY / 2 + SECOND).await;

    assert_eq!(ids(&worker.claim(ALL).await.rows), [head]);
}

pub(super) async fn an_excluded_row_keeps_its_attempt_and_failure_reason<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_order(P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let mut batch = worker.claim(ALL).await;
    let id = batch.rows[0].id;
    let reason = "größer als erlaubt 🦀".to_owned();
    let failed = Exclusion {
        row: id,
        attempts: 1,
        disposition: Disposition::Retry(RETRY),
        failure_type: FailureType::Timeout,
        reason: reason.clone(),
    };

    worker.exclude(&[failed], &mut batch).await;

    let row = fixture.row(id).await;
    assert_eq!((row.failure_type, row.last_failure_reason), (Some(FailureType::Timeout), Some(reason)));
    assert_eq!(row.retry_count, 1);
    worker.settle(&batch).await;
    fixture.advance(RETRY + SECOND).await;
    assert_eq!(worker.claim(ALL).await.rows[0].attempt, 2);
}

pub(super) async fn an_exclusion_sets_the_attempts_of_its_row<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let order = fixture.order_with_rows(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    for (attempts, claimed) in [(0, 1), (1, 1), (1, 2), (2, 2)] {
        let mut batch = worker.claim(ALL).await;
        let head = batch.rows[0].id;
        assert_eq!(batch.rows[0].attempt, claimed);
        let claimed_at = fixture.row(head).await.last_attempt_at;

        let excluded = Exclusion { attempts, ..exclusion(head, Disposition::Retry(RETRY)) };
        worker.exclude(&[excluded], &mut batch).await;
        worker.settle(&batch).await;

        let rows = fixture.rows_of(order.id).await;
        assert_eq!((rows[0].retry_count, rows[0].last_attempt_at), (attempts, claimed_at));
        assert_eq!((rows[1].retry_count, rows[1].last_attempt_at), (0, None), "its own attempt was returned");
        fixture.advance(RETRY + SECOND).await;
    }
    assert_eq!(worker.claim(ALL).await.rows[0].attempt, 3);
}

pub(super) async fn exclusion_returns_the_keys_later_rows_and_their_attempts<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let mut worker = worker(backend, "a", P0).await;
    for disposition in [Disposition::Retry(RETRY), Disposition::ParkKey, Disposition::ParkRow] {
        let (order, other) = (fixture.order_with_rows(3, P0).await, fixture.place_order(P0).await);
        let mut batch = worker.claim(ALL).await;
        let [_, second, third, _] = ids(&batch.rows)[..] else {
            panic!("three rows of one key and one of another: {batch:?}")
        };

        let changed = worker.exclude(&[exclusion(second, disposition)], &mut batch).await;

        assert_eq!(changed, 2, "the second and the third row, with {disposition:?}");
        let row = fixture.row(third).await;
        assert_eq!((row.status, row.retry_count), (RowStatus::Pending, 0), "with {disposition:?}");
        assert_eq!(
            worker.settle(&batch).await,
            2,
            "the key's first row and the other key are sent, with {disposition:?}"
        );
        assert_eq!(fixture.statuses(order.id).await[0], RowStatus::Sent);
        assert_eq!(fixture.statuses(other.id).await, [RowStatus::Sent]);
    }
}

pub(super) async fn exclusion_gives_the_rest_of_the_batch_a_new_token<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_orders(4, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let mut batch = worker.claim(ALL).await;
    let (claimed, rows) = (batch.token, ids(&batch.rows));

    worker.exclude(&[exclusion(rows[1], Disposition::ParkKey)], &mut batch).await;
    let first = batch.token;
    worker.exclude(&[exclusion(rows[2], Disposition::ParkKey)], &mut batch).await;

    assert!(claimed < first && first < batch.token, "{claimed} {first} {}", batch.token);
    let view = fixture.view(P0).await;
    assert_eq!((view.open_batch, view.counter), (Some(batch.token), batch.token));
    assert!(matches!(worker.try_claim(1, ClaimKind::Ordinary).await, ClaimOutcome::Fenced));
    for (row, token) in [(0, batch.token), (1, claimed), (2, first), (3, batch.token)] {
        assert_eq!(fixture.row(rows[row]).await.lease_version, token, "row {row}");
    }
    assert_eq!(worker.settle(&batch).await, 2);
    assert_eq!(fixture.row(rows[1]).await.status, RowStatus::Parked, "a settlement does not change an excluded row");
}

pub(super) async fn the_token_before_an_exclusion_changes_nothing<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_orders(3, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let mut batch = worker.claim(ALL).await;
    let claimed = batch.clone();
    worker.exclude(&[exclusion(batch.rows[0].id, Disposition::ParkKey)], &mut batch).await;

    let rest = batch.rows[1..].to_vec();
    let late = worker.settlement(&ClaimedBatch { rows: rest, ..claimed.clone() });
    assert_all_stale(backend, &worker.fence, late).await;
    let again = worker.reacquire(AcquireReason::OutcomeUnknown).await.expect("the batch is open");
    assert_eq!(again.token, batch.token);
    assert_all_stale(backend, &worker.fence, worker.settlement(&claimed)).await;
    assert_eq!(fixture.row(batch.rows[1].id).await.status, RowStatus::InFlight);

    assert_eq!(worker.settle(&batch).await, 2);
    let late = backend.outbox().settle(worker.settlement(&claimed)).await.expect("the call succeeds");
    assert_eq!(late, FencedOutcome::Stale, "only the token that was closed is known");
}

pub(super) async fn the_next_owner_resolves_the_token_of_the_last_exclusion<B: Backend>(backend: &B) {
    use RowStatus::{Parked, Pending, Sent};
    let fixture = fixture(backend);
    for (outcome, rest) in [(BatchOutcome::Published, Sent), (BatchOutcome::NotSent, Pending)] {
        let orders = fixture.place_orders(2, P0).await;
        let mut former = worker(backend, "a", P0).await;
        let mut batch = former.claim(ALL).await;
        former.exclude(&[exclusion(batch.rows[0].id, Disposition::ParkRow)], &mut batch).await;

        fixture.advance(LEASE + SECOND).await;
        let acquired = acquire_free(backend, "b", P0, LEASE).await;
        let open = acquired.open_batch.expect("the batch is still open");
        assert_eq!((open.token, open.session), (batch.token, former.session.clone()));
        let mut next = Worker::of(backend, acquired.fence);
        assert_eq!(next.resolve(open.token, outcome).await, 1, "{outcome:?}");

        assert_eq!(fixture.statuses(orders[0].id).await, [Parked], "{outcome:?}");
        assert_eq!(fixture.statuses(orders[1].id).await, [rest], "{outcome:?}");
        next.drain(ALL).await;
        backend.leases().release(P0, &next.fence.owner, next.fence.epoch).await.expect("the release returns");
    }
}

pub(super) async fn a_batch_without_remaining_rows_can_be_closed<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let order = fixture.order_with_rows(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let mut batch = worker.claim(ALL).await;

    assert_eq!(worker.exclude(&[exclusion(batch.rows[0].id, Disposition::ParkRow)], &mut batch).await, 2);
    assert_eq!(fixture.view(P0).await.open_batch, Some(batch.token));
    assert_eq!(worker.resolve(batch.token, BatchOutcome::NotSent).await, 0);

    assert_eq!(fixture.statuses(order.id).await, [RowStatus::Parked, RowStatus::Pending]);
    worker.claim(ALL).await;
}

pub(super) async fn a_repeated_exclusion_is_stale<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_orders(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let mut batch = worker.claim(ALL).await;
    let (fence, claimed) = (worker.fence.clone(), batch.token);
    worker.exclude(&[exclusion(batch.rows[0].id, Disposition::Retry(RETRY))], &mut batch).await;
    let before = (fixture.view(P0).await, fixture.rows(RowFilter::default()).await);

    let repeated =
        [exclusion(batch.rows[0].id, Disposition::ParkKey), exclusion(batch.rows[1].id, Disposition::ParkKey)];
    let changed = backend.outbox().exclude(&fence, claimed, &repeated).await.expect("the call succeeds");

    assert_eq!(changed, ExclusionOutcome::Stale, "counter and token are out of date");
    assert_eq!((fixture.view(P0).await, fixture.rows(RowFilter::default()).await), before);
}

pub(super) async fn an_exclusion_of_rows_that_left_keeps_the_token<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_orders(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let mut batch = worker.claim(ALL).await;
    let excluded = [exclusion(batch.rows[0].id, Disposition::Retry(RETRY))];
    worker.exclude(&excluded, &mut batch).await;
    let before = (fixture.view(P0).await, fixture.rows(RowFilter::default()).await);

    let again = backend.outbox().exclude(&worker.fence, batch.token, &excluded).await.expect("the call succeeds");

    assert_eq!(again, ExclusionOutcome::Stale);
    assert_eq!((fixture.view(P0).await, fixture.rows(RowFilter::default()).await), before);
    assert_eq!(worker.settle(&batch).await, 1);
}

pub(super) async fn several_rows_are_excluded_in_one_call<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let order = fixture.order_with_rows(4, P0).await;
    let others = fixture.place_orders(3, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let mut batch = worker.claim(ALL).await;
    let row = |at: usize, disposition| exclusion(batch.rows[at].id, disposition);

    // Two rows of one key: later rows return from the earlier one on, and each named row gets its own disposition.
    let excluded = [row(1, Disposition::Retry(RETRY)), row(2, Disposition::ParkRow), row(5, Disposition::ParkKey)];
    assert_eq!(worker.exclude(&excluded, &mut batch).await, 4);

    use RowStatus::{Failed, InFlight, Parked, Pending};
    assert_eq!(fixture.statuses(order.id).await, [InFlight, Failed, Parked, Pending]);
    assert_eq!(fixture.statuses(others[1].id).await, [Parked]);
    assert_eq!(worker.settle(&batch).await, 3);
}

pub(super) async fn exclusion_returns_a_later_head_of_the_key_to_pending<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let order = fixture.order_with_rows(3, P0).await;
    let second = fixture.rows_of(order.id).await[1].id;
    backend.operators().park(second, &audit()).await.expect("the second row is parked");
    backend.operators().retry(second, &audit()).await.expect("the second row is due as a head");
    let mut worker = worker(backend, "a", P0).await;
    let mut batch = worker.claim(ALL).await;
    assert_eq!(batch.rows[1].id, second, "the first row does not block its key");

    worker.exclude(&[exclusion(batch.rows[0].id, Disposition::Retry(RETRY))], &mut batch).await;

    use RowStatus::{Failed, Pending};
    assert_eq!(fixture.statuses(order.id).await, [Failed, Pending, Pending]);
    worker.settle(&batch).await;
    worker.expect_nothing_due().await;
}

pub(super) async fn a_stored_failure_reason_has_at_most_256_characters_and_no_nul<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.place_order(P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let mut batch = worker.claim(ALL).await;
    let id = batch.rows[0].id;
    let long = Exclusion { reason: "é\0".repeat(300), ..exclusion(id, Disposition::ParkKey) };

    worker.exclude(&[long], &mut batch).await;

    assert_eq!(fixture.row(id).await.last_failure_reason, Some("é".repeat(256)));
}
