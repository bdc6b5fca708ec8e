//! Cases of `OutboxStore`: a key waits for its head, and no other key does.
use ports::outbox::{BatchOutcome, Disposition, RowStatus};
use ports::partitions::AcquireReason;

use super::given::{DAY, P0, RETRY, SECOND, given};
use super::worker::{ALL, exclusion, ids, keys, worker};
use crate::backend::Backend;

pub(super) async fn a_keys_later_rows_wait_while_its_head_waits_for_a_retry<B: Backend>(backend: &B) {
    let given = given(backend);
    let line = given.line(3, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    worker.fail_head(line.id, Disposition::Retry(RETRY)).await;

    worker.nothing().await;

    use RowStatus::{Failed, Pending};
    assert_eq!(given.statuses(line.id).await, [Failed, Pending, Pending]);
}

pub(super) async fn rows_written_behind_a_waiting_head_wait_too<B: Backend>(backend: &B) {
    let given = given(backend);
    let order = given.placed(P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let head = worker.fail_head(order.id, Disposition::Retry(RETRY)).await;

    given.done(given.make.change(&order, domain::Status::Shipped, P0)).await;

    worker.nothing().await;
    given.advance(RETRY + SECOND).await;
    let gone = worker.drain(ALL).await;
    assert_eq!((gone[0].id, gone.len()), (head, 2));
}

pub(super) async fn a_due_head_goes_without_the_rows_behind_it<B: Backend>(backend: &B) {
    let given = given(backend);
    let line = given.line(3, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let head = worker.fail_head(line.id, Disposition::Retry(RETRY)).await;
    given.advance(RETRY + SECOND).await;

    let batch = worker.claim(ALL).await;

    let of_the_line: Vec<_> = batch.rows.iter().filter(|row| row.key == line.id).map(|row| row.id).collect();
    assert_eq!(of_the_line, [head]);
    assert_eq!(batch.rows[0].attempt, 2);
}

pub(super) async fn a_head_that_is_not_sent_goes_on_blocking<B: Backend>(backend: &B) {
    let given = given(backend);
    let line = given.line(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let head = worker.fail_head(line.id, Disposition::Retry(RETRY)).await;
    given.advance(RETRY + SECOND).await;

    let second = worker.fail_head(line.id, Disposition::Retry(RETRY)).await;

    assert_eq!(second, head);
    worker.nothing().await;
    given.advance(RETRY + SECOND).await;
    assert_eq!(ids(&worker.claim(ALL).await.rows), [head]);
}

pub(super) async fn a_head_that_is_sent_lifts_its_block<B: Backend>(backend: &B) {
    let given = given(backend);
    let line = given.line(3, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    worker.fail_head(line.id, Disposition::Retry(RETRY)).await;
    given.advance(RETRY + SECOND).await;

    let gone = worker.drain(ALL).await;

    assert_eq!(gone.iter().map(|row| row.sequence).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(gone.iter().map(|row| row.attempt).collect::<Vec<_>>(), [2, 1, 1]);
    given.done(given.make.change(&line, domain::Status::Delivered, P0)).await;
    worker.claim(ALL).await;
}

pub(super) async fn other_keys_go_on<B: Backend>(backend: &B) {
    let given = given(backend);
    let line = given.line(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    for fate in [Disposition::Retry(RETRY), Disposition::ParkKey] {
        worker.fail_head(line.id, fate).await;
        let others = given.many_placed(3, P0).await;

        assert_eq!(keys(&worker.drain(2).await), others.iter().map(|order| order.id).collect::<Vec<_>>());
        given.advance(RETRY + SECOND).await;
    }
}

pub(super) async fn a_parked_row_blocks_its_key_under_park_key<B: Backend>(backend: &B) {
    let given = given(backend);
    let line = given.line(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;

    worker.fail_head(line.id, Disposition::ParkKey).await;
    given.done(given.make.change(&line, domain::Status::Shipped, P0)).await;

    worker.nothing().await;
    use RowStatus::{Parked, Pending};
    assert_eq!(given.statuses(line.id).await, [Parked, Pending, Pending]);
}

pub(super) async fn a_parked_row_lets_its_key_go_on_under_park_row<B: Backend>(backend: &B) {
    let given = given(backend);
    let line = given.line(3, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    worker.fail_head(line.id, Disposition::ParkRow).await;

    let gone = worker.drain(ALL).await;

    assert_eq!(gone.iter().map(|row| (row.sequence, row.attempt)).collect::<Vec<_>>(), [(2, 1), (3, 1)]);
    use RowStatus::{Parked, Sent};
    assert_eq!(given.statuses(line.id).await, [Parked, Sent, Sent]);
}

pub(super) async fn a_parked_row_does_not_come_back_by_itself<B: Backend>(backend: &B) {
    let given = given(backend);
    let order = given.placed(P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let head = worker.fail_head(order.id, Disposition::ParkKey).await;

    given.advance(DAY * 30).await;
    worker.again(AcquireReason::Vacant).await;

    assert_eq!(worker.nothing().await, (None, false));
    let row = given.row(head).await;
    assert_eq!((row.status, row.next_attempt_at, row.retry_count), (RowStatus::Parked, None, 1));
}

pub(super) async fn what_is_next_due_is_told<B: Backend>(backend: &B) {
    let given = given(backend);
    let (first, second) = (given.placed(P0).await, given.placed(P0).await);
    let mut worker = worker(backend, "a", P0).await;
    let batch = worker.claim(ALL).await;
    let waits = [(first.id, RETRY), (second.id, RETRY * 2)];
    let excluded = batch.rows.iter().zip(waits).map(|(row, (key, wait))| {
        assert_eq!(row.key, key);
        exclusion(row.id, Disposition::Retry(wait))
    });
    let excluded: Vec<_> = excluded.collect();
    worker.exclude(batch.token, &excluded).await;
    worker.settle(&batch).await;

    let due_in = async |worker: &mut super::worker::Worker<'_, B>| worker.nothing().await.0.expect("a row waits");
    let at_first = due_in(&mut worker).await;
    given.advance(RETRY / 2).await;
    let later = due_in(&mut worker).await;

    let slack = SECOND * 30;
    assert!(at_first <= RETRY && at_first > RETRY - slack, "{at_first:?}");
    assert!(later <= RETRY / 2 && later > RETRY / 2 - slack, "{later:?}");
}

pub(super) async fn a_resolution_does_not_lift_the_block_of_a_head_that_did_not_go<B: Backend>(backend: &B) {
    let given = given(backend);
    let line = given.line(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let head = worker.fail_head(line.id, Disposition::Retry(RETRY)).await;
    given.advance(RETRY + SECOND).await;
    let batch = worker.claim(ALL).await;

    worker.resolve(batch.token, BatchOutcome::NotSent).await;

    let again = worker.claim(ALL).await;
    assert_eq!((ids(&again.rows), again.rows[0].attempt), (vec![head], 2));
    worker.settle(&again).await;
    assert_eq!(worker.claim(ALL).await.rows[0].sequence, 2);
}
