//! Cases of `OutboxStore`: a waiting or parked head blocks the later rows of its key, and no other key.
use ports::orders::event_key;
use ports::outbox::{BatchOutcome, Disposition, RowStatus};
use ports::partitions::AcquireReason;

use crate::backend::Backend;
use crate::conformance::fixture::backend::{DAY, P0, RETRY, SECOND, fixture};
use crate::conformance::fixture::worker::{ALL, Worker, exclusion, ids, keys, worker};

pub(super) async fn a_keys_later_rows_wait_while_its_head_waits_for_a_retry<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let order = fixture.order_with_rows(3, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    worker.exclude_head(order.id, Disposition::Retry(RETRY)).await;

    worker.expect_nothing_due().await;

    use RowStatus::{Failed, Pending};
    assert_eq!(fixture.statuses(order.id).await, [Failed, Pending, Pending]);
}

pub(super) async fn rows_written_behind_a_waiting_head_wait_too<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let order = fixture.place_order(P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let head = worker.exclude_head(order.id, Disposition::Retry(RETRY)).await;

    fixture.committed(fixture.factory.change(&order, domain::Status::Shipped, P0)).await;

    worker.expect_nothing_due().await;
    fixture.advance(RETRY + SECOND).await;
    let sent = worker.drain(ALL).await;
    assert_eq!((sent[0].id, sent.len()), (head, 2));
}

pub(super) async fn a_due_head_is_claimed_without_the_rows_behind_it<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let order = fixture.order_with_rows(3, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let head = worker.exclude_head(order.id, Disposition::Retry(RETRY)).await;
    fixture.advance(RETRY + SECOND).await;

    let batch = worker.claim(ALL).await;

    let of_the_key: Vec<_> = batch.rows.iter().filter(|row| row.key == event_key(order.id)).map(|row| row.id).collect();
    assert_eq!(of_the_key, [head]);
    assert_eq!(batch.rows[0].attempt, 2);
}

pub(super) async fn a_head_blocks_its_key_until_it_is_sent<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let order = fixture.order_with_rows(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let head = worker.exclude_head(order.id, Disposition::Retry(RETRY)).await;
    fixture.advance(RETRY + SECOND).await;

    let second = worker.exclude_head(order.id, Disposition::Retry(RETRY)).await;

    assert_eq!(second, head);
    worker.expect_nothing_due().await;
    fixture.advance(RETRY + SECOND).await;
    assert_eq!(ids(&worker.claim(ALL).await.rows), [head]);
}

pub(super) async fn a_sent_head_unblocks_its_key<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let order = fixture.order_with_rows(3, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    worker.exclude_head(order.id, Disposition::Retry(RETRY)).await;
    fixture.advance(RETRY + SECOND).await;

    let sent = worker.drain(ALL).await;

    assert_eq!(sent.iter().map(|row| row.sequence).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(sent.iter().map(|row| row.attempt).collect::<Vec<_>>(), [2, 1, 1]);
    fixture.committed(fixture.factory.change(&order, domain::Status::Delivered, P0)).await;
    worker.claim(ALL).await;
}

pub(super) async fn a_blocked_key_does_not_block_other_keys<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let order = fixture.order_with_rows(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    for disposition in [Disposition::Retry(RETRY), Disposition::ParkKey] {
        worker.exclude_head(order.id, disposition).await;
        let others = fixture.place_orders(3, P0).await;

        assert_eq!(keys(&worker.drain(2).await), others.iter().map(|order| order.id).collect::<Vec<_>>());
        fixture.advance(RETRY + SECOND).await;
    }
}

pub(super) async fn a_parked_row_blocks_its_key_under_park_key<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let order = fixture.order_with_rows(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;

    worker.exclude_head(order.id, Disposition::ParkKey).await;
    fixture.committed(fixture.factory.change(&order, domain::Status::Shipped, P0)).await;

    worker.expect_nothing_due().await;
    use RowStatus::{Parked, Pending};
    assert_eq!(fixture.statuses(order.id).await, [Parked, Pending, Pending]);
}

pub(super) async fn a_parked_row_does_not_block_its_key_under_park_row<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let order = fixture.order_with_rows(3, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    worker.exclude_head(order.id, Disposition::ParkRow).await;

    let sent = worker.drain(ALL).await;

    assert_eq!(sent.iter().map(|row| (row.sequence, row.attempt)).collect::<Vec<_>>(), [(2, 1), (3, 1)]);
    use RowStatus::{Parked, Sent};
    assert_eq!(fixture.statuses(order.id).await, [Parked, Sent, Sent]);
}

pub(super) async fn a_parked_row_is_never_claimed_again<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let order = fixture.place_order(P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let head = worker.exclude_head(order.id, Disposition::ParkKey).await;

    fixture.advance(DAY * 30).await;
    worker.reacquire(AcquireReason::Unowned).await;

    assert_eq!(worker.expect_nothing_due().await, (None, false));
    let row = fixture.row(head).await;
    assert_eq!((row.status, row.next_attempt_at, row.retry_count), (RowStatus::Parked, None, 1));
}

pub(super) async fn an_empty_claim_returns_the_time_until_the_next_due_row<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let (first, second) = (fixture.place_order(P0).await, fixture.place_order(P0).await);
    let mut worker = worker(backend, "a", P0).await;
    let mut batch = worker.claim(ALL).await;
    let waits = [(first.id, RETRY), (second.id, RETRY * 2)];
    let excluded = batch.rows.iter().zip(waits).map(|(row, (key, wait))| {
        assert_eq!(row.key, event_key(key));
        exclusion(row.id, Disposition::Retry(wait))
    });
    let excluded: Vec<_> = excluded.collect();
    worker.exclude(&excluded, &mut batch).await;
    worker.settle(&batch).await;

    let due_in = async |worker: &mut Worker<'_, B>| worker.expect_nothing_due().await.0.expect("a row waits");
    let at_first = due_in(&mut worker).await;
    fixture.advance(RETRY / 2).await;
    let later = due_in(&mut worker).await;

    let slack = SECOND * 120;
    assert!(at_first <= RETRY && at_first > RETRY - slack, "{at_first:?}");
    assert!(later <= RETRY / 2 && later > RETRY / 2 - slack, "{later:?}");
}

pub(super) async fn a_head_resolved_as_not_sent_still_blocks_its_key<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let order = fixture.order_with_rows(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let head = worker.exclude_head(order.id, Disposition::Retry(RETRY)).await;
    fixture.advance(RETRY + SECOND).await;
    let batch = worker.claim(ALL).await;

    worker.resolve(batch.token, BatchOutcome::NotSent).await;

    let again = worker.claim(ALL).await;
    assert_eq!((ids(&again.rows), again.rows[0].attempt), (vec![head], 2));
    worker.settle(&again).await;
    assert_eq!(worker.claim(ALL).await.rows[0].sequence, 2);
}
