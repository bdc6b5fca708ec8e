//! Cases of `OutboxStore`: how a batch is closed, once and by its owner only.
use ports::operators::{RowFilter, RowSelector};
use ports::outbox::{BatchOutcome, Disposition, FencedOutcome, RowStatus, Settlement};
use ports::partitions::{AcquireReason, Fence};

use super::given::{P0, P1, given, instance};
use super::worker::{ALL, exclusion, ids, worker};
use crate::backend::Backend;

pub(super) async fn a_settled_row_is_sent_and_archived<B: Backend>(backend: &B) {
    let given = given(backend);
    given.many_placed(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let batch = worker.claim(ALL).await;

    assert_eq!(worker.settle(&batch).await, 2);

    for id in ids(&batch.rows) {
        let row = given.row(id).await;
        assert_eq!((row.status, row.retry_count), (RowStatus::Sent, 1));
        assert!(row.sent_at.expect("it left") >= row.created_at);
    }
    let view = given.view(P0).await;
    assert_eq!((view.in_flight, view.counter, view.depth), (None, worker.fence.counter, 0));
    worker.nothing().await;
}

pub(super) async fn a_settlement_remembers_positions_and_fallbacks<B: Backend>(backend: &B) {
    let given = given(backend);
    given.many_placed(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let batch = worker.claim(ALL).await;
    let mut settlement = worker.settlement(&batch);
    let (known, position) = settlement.positions[0].clone();
    settlement.positions.truncate(1);
    settlement.by_fallback = vec![batch.rows[1].id];
    assert_eq!(known, batch.rows[0].id);

    backend.outbox().settle(settlement).await.expect("answered");

    let first = given.diagnose(RowSelector::Event(batch.rows[0].event_id)).await;
    assert_eq!((first.sent_to, first.by_fallback), (Some(position), false));
    let second = given.diagnose(RowSelector::Event(batch.rows[1].event_id)).await;
    assert_eq!((second.sent_to, second.by_fallback, second.row.status), (None, true, RowStatus::Sent));
}

pub(super) async fn a_stale_token_changes_nothing<B: Backend>(backend: &B) {
    let given = given(backend);
    given.placed(P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let batch = worker.claim(ALL).await;
    let wrong = Settlement { token: batch.token - 1, ..worker.settlement(&batch) };

    untouched(backend, &worker.fence, wrong).await;

    assert_eq!(given.row(batch.rows[0].id).await.status, RowStatus::InFlight);
    assert_eq!(worker.settle(&batch).await, 1, "the right one still goes");
}

pub(super) async fn a_stale_epoch_changes_nothing<B: Backend>(backend: &B) {
    let given = given(backend);
    given.placed(P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let batch = worker.claim(ALL).await;
    let late = worker.settlement(&batch);
    worker.again(AcquireReason::WorkerDied).await.expect("the batch is open");

    untouched(backend, &late.fence.clone(), late).await;

    assert_eq!(given.row(batch.rows[0].id).await.status, RowStatus::InFlight);
    assert_eq!(given.view(P0).await.in_flight, Some(batch.token));
}

pub(super) async fn another_owners_statement_changes_nothing<B: Backend>(backend: &B) {
    let given = given(backend);
    given.placed(P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let batch = worker.claim(ALL).await;
    let fence = Fence { owner: instance("b"), ..worker.fence.clone() };

    untouched(backend, &fence, Settlement { fence: fence.clone(), ..worker.settlement(&batch) }).await;

    assert_eq!(given.row(batch.rows[0].id).await.status, RowStatus::InFlight);
}

/// Every fenced statement of this fence and token is stale, and the lease row stays as it was.
async fn untouched<B: Backend>(backend: &B, fence: &Fence, settlement: Settlement) {
    let given = given(backend);
    let before = given.view(P0).await;
    let (token, row) = (settlement.token, settlement.positions[0].0);
    let outbox = backend.outbox();
    let excluded = outbox.exclude(fence, token, &[exclusion(row, Disposition::ParkKey)]).await.expect("answered");
    assert_eq!(excluded, FencedOutcome::Stale, "exclude");
    assert_eq!(outbox.settle(settlement).await.expect("answered"), FencedOutcome::Stale, "settle");
    for verdict in [BatchOutcome::Published, BatchOutcome::ClaimerDied, BatchOutcome::NotSent] {
        assert_eq!(outbox.resolve(fence, token, verdict).await.expect("answered"), FencedOutcome::Stale, "{verdict:?}");
    }
    assert_eq!(given.view(P0).await, before);
}

pub(super) async fn a_settlement_does_not_compare_the_counter<B: Backend>(backend: &B) {
    let given = given(backend);
    given.many_placed(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let batch = worker.claim(ALL).await;
    let before_the_exclusion = worker.settlement(&batch);
    worker.exclude(batch.token, &[exclusion(batch.rows[0].id, Disposition::ParkKey)]).await;

    let changed = backend.outbox().settle(before_the_exclusion).await.expect("answered");

    assert!(matches!(changed, FencedOutcome::Done { rows: 1, .. }), "{changed:?}");
}

pub(super) async fn a_repeated_settle_is_harmless<B: Backend>(backend: &B) {
    let given = given(backend);
    given.many_placed(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let batch = worker.claim(ALL).await;
    worker.settle(&batch).await;
    let before = (given.depth().await.sent, given.row(batch.rows[0].id).await);

    let again = backend.outbox().settle(worker.settlement(&batch)).await.expect("a repetition is answered");

    if let FencedOutcome::Done { counter, rows } = again {
        assert_eq!((counter, rows), (given.view(P0).await.counter, 0));
        worker.fence.counter = counter;
    }
    assert_eq!((given.depth().await.sent, given.row(batch.rows[0].id).await), before);
    worker.nothing().await;
}

pub(super) async fn a_late_settle_does_not_touch_the_next_batch<B: Backend>(backend: &B) {
    let given = given(backend);
    given.many_placed(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let first = worker.claim(1).await;
    worker.settle(&first).await;
    let second = worker.claim(1).await;

    backend.outbox().settle(worker.settlement(&first)).await.expect("answered");
    backend.outbox().resolve(&worker.fence, first.token, BatchOutcome::NotSent).await.expect("answered");

    assert_eq!(given.row(second.rows[0].id).await.status, RowStatus::InFlight);
    assert_eq!(given.row(first.rows[0].id).await.status, RowStatus::Sent);
    assert_eq!(given.view(P0).await.in_flight, Some(second.token));
}

pub(super) async fn a_settlement_of_one_partition_leaves_the_other_alone<B: Backend>(backend: &B) {
    let given = given(backend);
    given.placed(P0).await;
    given.placed(P1).await;
    let (mut a, mut b) = (worker(backend, "a", P0).await, worker(backend, "a", P1).await);
    // Fresh partitions count alike, so that their first tokens may well be the same number.
    let (here, there) = (a.claim(ALL).await, b.claim(ALL).await);

    a.settle(&here).await;

    assert_eq!(given.row(there.rows[0].id).await.status, RowStatus::InFlight);
    assert_eq!(b.settle(&there).await, 1);
}

pub(super) async fn a_resolution_by_publication_sends_the_rows<B: Backend>(backend: &B) {
    let given = given(backend);
    let line = given.line(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let batch = worker.claim(ALL).await;
    worker.again(AcquireReason::Uncertain).await.expect("the batch is open");

    assert_eq!(worker.resolve(batch.token, BatchOutcome::Published).await, 2);

    assert_eq!(given.statuses(line.id).await, [RowStatus::Sent, RowStatus::Sent]);
    assert_eq!(given.view(P0).await.in_flight, None);
    worker.nothing().await;
}

pub(super) async fn a_returned_batch_is_due_again_with_its_attempt_returned<B: Backend>(backend: &B) {
    let given = given(backend);
    let line = given.line(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let batch = worker.claim(ALL).await;

    assert_eq!(worker.resolve(batch.token, BatchOutcome::NotSent).await, 2);

    let again = worker.claim(ALL).await;
    assert_eq!(ids(&again.rows), ids(&batch.rows));
    assert!(again.rows.iter().all(|row| row.attempt == 1));
    assert!(again.token > batch.token);
    assert_eq!(given.diagnose(RowSelector::Key(line.id)).await.deaths, 0, "nobody died");
}

pub(super) async fn a_repeated_resolution_is_harmless<B: Backend>(backend: &B) {
    let given = given(backend);
    given.many_placed(2, P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let batch = worker.claim(ALL).await;
    let first = worker.fence.clone();
    worker.resolve(batch.token, BatchOutcome::ClaimerDied).await;
    let before = given.rows(RowFilter::default()).await;
    let deaths = given.diagnose(RowSelector::Event(batch.rows[0].event_id)).await.deaths;

    for fence in [first, worker.fence.clone()] {
        let again = backend.outbox().resolve(&fence, batch.token, BatchOutcome::ClaimerDied).await;
        if let FencedOutcome::Done { counter, rows } = again.expect("a repetition is answered") {
            assert_eq!((counter, rows), (given.view(P0).await.counter, 0));
            worker.fence.counter = counter;
        }
    }

    assert_eq!(given.rows(RowFilter::default()).await, before);
    assert_eq!(given.diagnose(RowSelector::Event(batch.rows[0].event_id)).await.deaths, deaths);
    worker.claim(ALL).await;
}

pub(super) async fn a_stale_resolution_changes_nothing<B: Backend>(backend: &B) {
    let given = given(backend);
    given.placed(P0).await;
    let mut worker = worker(backend, "a", P0).await;
    let batch = worker.claim(ALL).await;
    let late = worker.fence.clone();
    worker.again(AcquireReason::Uncertain).await;
    worker.resolve(batch.token, BatchOutcome::NotSent).await;
    let second = worker.claim(ALL).await;

    for verdict in [BatchOutcome::Published, BatchOutcome::ClaimerDied, BatchOutcome::NotSent] {
        for token in [batch.token, second.token] {
            let changed = backend.outbox().resolve(&late, token, verdict).await.expect("answered");
            assert_eq!(changed, FencedOutcome::Stale, "{verdict:?}");
        }
    }

    assert_eq!(given.row(second.rows[0].id).await.status, RowStatus::InFlight);
    assert_eq!(worker.settle(&second).await, 1);
}
