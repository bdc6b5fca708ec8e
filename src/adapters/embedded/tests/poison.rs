//! A row whose processing kills its process is found and parked; the other rows of its batches are sent.
use ports::orders::event_key;
use std::time::Duration;

use ports::operators::{OutboxOperators, RowFilter};
use ports::outbox::{BatchOutcome, ClaimKind, ClaimOutcome, OutboxStore, PoisonPolicy, RowStatus};
use ports::partitions::AcquireReason;

use crate::support::*;

/// The process dies with an open batch; another process takes the partition over.
async fn die(worker: Worker) -> Worker {
    let store = worker.store.clone();
    let acquired = acquire(&store, AcquireReason::Unowned).await;
    let open = acquired.open_batch.clone().unwrap();
    assert!(open.claimer_died);
    let changed = store
        .resolve(&acquired.fence, open.token, BatchOutcome::ClaimerDied, &PoisonPolicy::default())
        .await
        .unwrap()
        .closed;
    let mut worker = Worker::new(&store, acquired).await;
    worker.adopt_counter(changed);
    worker
}

#[tokio::test]
async fn only_the_poison_row_is_parked_and_the_others_are_sent() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    for number in 0..20 {
        place(&store, number, 0).await;
    }
    place(&store, 7, 1).await;
    let poison = |text: &String| text == "7/0";
    let mut worker = Worker::start(&store).await;
    let mut sizes = Vec::new();

    let mut sent = Vec::new();
    loop {
        match worker.try_claim(100, ClaimKind::Ordinary).await {
            ClaimOutcome::Batch(batch) => {
                worker.fence.counter = batch.token;
                if texts(&batch).iter().any(poison) {
                    sizes.push(batch.rows.len());
                    worker = die(worker).await;
                } else {
                    sent.extend(texts(&batch));
                    let published = worker.publish(&batch).await;
                    worker.settle(&batch, published).await;
                }
            }
            ClaimOutcome::NoneDue { suspect_due: true, .. } => {
                let batch = worker.claim_as(100, ClaimKind::Trial).await;
                assert_eq!(batch.rows.len(), 1);
                if texts(&batch).iter().any(poison) {
                    worker = die(worker).await;
                } else {
                    sent.extend(texts(&batch));
                    let published = worker.publish(&batch).await;
                    worker.settle(&batch, published).await;
                }
            }
            ClaimOutcome::NoneDue { next_due: Some(due), .. } => clock.advance(due),
            ClaimOutcome::NoneDue { next_due: None, .. } => break,
            ClaimOutcome::Fenced => panic!("fenced"),
        }
    }

    assert_eq!(sizes, [21, 12, 1], "batches shrink with each death");
    assert_eq!(sent.len(), 19, "{sent:?}");
    let parked = store.rows(&RowFilter { status: Some(RowStatus::Parked), ..RowFilter::default() }, 10).await.unwrap();
    assert_eq!(parked.len(), 1);
    assert_eq!((&parked[0].key, parked[0].retry_count), (&event_key(id(7)), 5));
    assert!(parked[0].last_failure_reason.as_ref().unwrap().contains("poison"));
    let depth = store.depth().await.unwrap();
    assert_eq!(
        (depth.pending, depth.failed, depth.parked, depth.sent),
        (1, 0, 1, 19),
        "the later row of its key waits"
    );
}

#[tokio::test]
async fn death_outside_a_suspects_batch_clears_the_suspect() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    place(&store, 1, 0).await;
    let mut worker = Worker::start(&store).await;
    for _ in 0..3 {
        worker.claim().await;
        worker = die(worker).await;
    }
    assert!(matches!(
        worker.try_claim(10, ClaimKind::Ordinary).await,
        ClaimOutcome::NoneDue { suspect_due: false, .. }
    ));

    let acquired = acquire(&store, AcquireReason::Unowned).await;
    let mut worker = Worker::new(&store, acquired).await;

    clock.advance(Duration::from_secs(10));
    assert_eq!(texts(&worker.claim().await), ["1/0"]);
}
