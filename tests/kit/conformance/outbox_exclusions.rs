//! Cases of `OutboxStore`: rows that are taken out of an open batch.
use ports::FailureType;
use ports::operators::RowFilter;
use ports::outbox::{BatchOutcome, ClaimKind, Claimed, Disposition, Exclusion, FencedOutcome, RowStatus};

use super::given::{P0, RETRY, SECOND, given};
use super::worker::{ALL, exclusion, ids, worker};
use crate::backend::Backend;

pub(super) async fn an_excluded_row_waits_for_its_retry_by_the_stores_clock<B: Backend>(backend: &B) {
    let given = given(backend);
    let order = given.placed(P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let head = worker.fail_head(order.id, Disposition::Retry(RETRY)).await;

    let row = given.row(head).await;
    assert_eq!(row.status, RowStatus::Failed);
    assert!(row.next_attempt_at.expect("it waits") > row.created_at);
    worker.nothing().await;
    given.advance(RETRY / 2).await;
    worker.nothing().await;
    given.advance(RETRY / 2 + SECOND).await;

    assert_eq!(ids(&worker.claim(ALL).await.rows), [head]);
}

pub(super) async fn an_excluded_row_keeps_its_attempt_and_says_why<B: Backend>(backend: &B) {
    let given = given(backend);
    given.placed(P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let batch = worker.claim(ALL).await;
    let id = batch.rows[0].id;
    let reason = "größer als erlaubt 🦀".to_owned();
    let failed = Exclusion {
        row: id,
        disposition: Disposition::Retry(RETRY),
        failure_type: FailureType::Timeout,
        reason: reason.clone(),
    };

    worker.exclude(batch.token, &[failed]).await;

    let row = given.row(id).await;
    assert_eq!((row.failure_type, row.last_failure_reason), (Some(FailureType::Timeout), Some(reason)));
    assert_eq!(row.retry_count, 1);
    worker.settle(&batch).await;
    given.advance(RETRY + SECOND).await;
    assert_eq!(worker.claim(ALL).await.rows[0].attempt, 2);
}

pub(super) async fn exclusion_gives_back_the_keys_later_rows_with_their_attempt<B: Backend>(backend: &B) {
    let given = given(backend);
    let mut worker = worker(backend, "a", P0).await;
    for fate in [Disposition::Retry(RETRY), Disposition::ParkKey, Disposition::ParkRow] {
        let (line, other) = (given.line(3, P0).await, given.placed(P0).await);
        let batch = worker.claim(ALL).await;
        let [_, second, third, _] = ids(&batch.rows)[..] else { panic!("the line and the other: {batch:?}") };

        let changed = worker.exclude(batch.token, &[exclusion(second, fate)]).await;

        assert_eq!(changed, 2, "the second row and the third, under {fate:?}");
        let row = given.row(third).await;
        assert_eq!((row.status, row.retry_count), (RowStatus::Pending, 0), "under {fate:?}");
        assert_eq!(worker.settle(&batch).await, 2, "the first of the line and the other key go, under {fate:?}");
        assert_eq!(given.statuses(line.id).await[0], RowStatus::Sent);
        assert_eq!(given.statuses(other.id).await, [RowStatus::Sent]);
    }
}

pub(super) async fn exclusion_leaves_the_token_open_for_the_rest<B: Backend>(backend: &B) {
    let given = given(backend);
    given.many_placed(3, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let batch = worker.claim(ALL).await;

    worker.exclude(batch.token, &[exclusion(batch.rows[1].id, Disposition::ParkKey)]).await;

    let view = given.view(P0).await;
    assert_eq!((view.in_flight, view.counter), (Some(batch.token), worker.fence.counter));
    assert!(view.counter > batch.token, "an exclusion raises the counter");
    assert!(matches!(worker.ask(1, ClaimKind::Ordinary).await, Claimed::Fenced));
    assert_eq!(worker.settle(&batch).await, 2);
    assert_eq!(given.row(batch.rows[1].id).await.status, RowStatus::Parked, "a settlement passes it by");
}

pub(super) async fn a_batch_of_which_nothing_is_left_can_be_closed<B: Backend>(backend: &B) {
    let given = given(backend);
    let line = given.line(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let batch = worker.claim(ALL).await;

    assert_eq!(worker.exclude(batch.token, &[exclusion(batch.rows[0].id, Disposition::ParkRow)]).await, 2);
    assert_eq!(given.view(P0).await.in_flight, Some(batch.token));
    assert_eq!(worker.resolve(batch.token, BatchOutcome::NotSent).await, 0);

    assert_eq!(given.statuses(line.id).await, [RowStatus::Parked, RowStatus::Pending]);
    worker.claim(ALL).await;
}

pub(super) async fn a_repeated_exclusion_changes_nothing_more<B: Backend>(backend: &B) {
    let given = given(backend);
    given.many_placed(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let batch = worker.claim(ALL).await;
    let fence = worker.fence.clone();
    worker.exclude(batch.token, &[exclusion(batch.rows[0].id, Disposition::Retry(RETRY))]).await;
    let before = given.rows(RowFilter::default()).await;

    let repeated =
        [exclusion(batch.rows[0].id, Disposition::ParkKey), exclusion(batch.rows[1].id, Disposition::ParkKey)];
    let changed = backend.outbox().exclude(&fence, batch.token, &repeated).await.expect("answered");

    assert_eq!(changed, FencedOutcome::Stale, "its counter is out of date");
    assert_eq!(given.rows(RowFilter::default()).await, before);
}

pub(super) async fn several_rows_are_excluded_at_once<B: Backend>(backend: &B) {
    let given = given(backend);
    let line = given.line(4, P0).await;
    let others = given.many_placed(3, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let batch = worker.claim(ALL).await;
    let row = |at: usize, fate| exclusion(batch.rows[at].id, fate);

    // Two of one key: the earlier one decides from where on its key goes back, each meets its own fate.
    let excluded = [row(1, Disposition::Retry(RETRY)), row(2, Disposition::ParkRow), row(5, Disposition::ParkKey)];
    assert_eq!(worker.exclude(batch.token, &excluded).await, 4);

    use RowStatus::{Failed, InFlight, Parked, Pending};
    assert_eq!(given.statuses(line.id).await, [InFlight, Failed, Parked, Pending]);
    assert_eq!(given.statuses(others[1].id).await, [Parked]);
    assert_eq!(worker.settle(&batch).await, 3);
}
