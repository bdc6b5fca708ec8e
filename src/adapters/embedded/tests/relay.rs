//! Claim, publish and settle, and their recovery after failures and crashes.
use ports::orders::event_key;
use std::time::Duration;

use embedded::{Embedded, Options, WriterMode};
use ports::FailureType;
use ports::broker::{Broker, PublishOutcome};
use ports::operators::{OperatorOutcome, OutboxOperators, RedriveMode, RowFilter, RowSelector};
use ports::outbox::{
    BatchOutcome, ClaimKind, ClaimOutcome, Disposition, Exclusion, OutboxStore, PoisonPolicy, RowStatus,
};
use ports::partitions::{AcquireReason, PartitionLeases, PartitionNo};

use crate::support::*;

fn exclusion(row: i64, disposition: Disposition) -> Exclusion {
    Exclusion { row, attempts: 1, disposition, failure_type: FailureType::Timeout, reason: "no reply".into() }
}

#[tokio::test]
async fn events_are_claimed_in_order_and_counted() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    for version in 0..3 {
        place(&store, 1, version).await;
        place(&store, 2, version).await;
    }
    let mut worker = Worker::start(&store).await;

    let batch = worker.claim_as(4, ClaimKind::Ordinary).await;
    assert_eq!(texts(&batch), ["1/0", "2/0", "1/1", "2/1"]);
    assert!(batch.rows.iter().all(|row| row.contract_checksum == Some(u32::MAX)), "as it was written: {batch:?}");
    assert!(batch.more);
    assert!(matches!(worker.try_claim(4, ClaimKind::Ordinary).await, ClaimOutcome::Fenced), "a batch is open");
    let published = worker.publish(&batch).await;
    assert_eq!(store.watermark(PartitionNo(0), None).await.unwrap(), Some(batch.token));
    assert_eq!(worker.settle(&batch, published).await, 4);

    let depth = store.depth().await.unwrap();
    assert_eq!((depth.pending, depth.in_flight, depth.sent), (2, 0, 4));
    let rest = worker.claim().await;
    assert_eq!(texts(&rest), ["1/2", "2/2"]);
    assert!(!rest.more);
    assert_eq!(store.overview().await.unwrap()[0].depth, 2);
}

#[tokio::test]
async fn rows_that_failed_while_the_clock_was_ahead_are_due_soon_after_a_restart() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let (year, delay) = (Duration::from_secs(365 * 24 * 3600), Duration::from_secs(5));
    clock.advance(year);
    let store = inline(folder.path(), &clock);
    for number in 1..4 {
        place(&store, number, 0).await;
    }
    let mut worker = Worker::start(&store).await;
    let mut batch = worker.claim().await;
    let parks = exclusion(batch.rows[1].id, Disposition::ParkKey);
    let failed = [
        exclusion(batch.rows[0].id, Disposition::Retry(delay)),
        parks,
        exclusion(batch.rows[2].id, Disposition::Retry(delay)),
    ];
    let changed = store.exclude(&worker.fence, batch.token, &failed).await.unwrap();
    assert_eq!(worker.excluded(changed, &mut batch), 3);
    store.resolve(&worker.fence, batch.token, BatchOutcome::NotSent, &PoisonPolicy::default()).await.unwrap();
    store.close().await.unwrap();
    drop(worker);

    clock.turn_back(year);
    let store = Embedded::open(Options {
        writer_mode: WriterMode::Inline,
        retry_delay_max: delay,
        ..options(folder.path(), &clock)
    });
    let store = store.unwrap();
    let mut worker = Worker::new(&store, acquire(&store, AcquireReason::Unowned).await).await;
    let early = worker.try_claim(10, ClaimKind::Ordinary).await;
    assert!(matches!(early, ClaimOutcome::NoneDue { .. }), "{early:?}");

    clock.advance(outbox::limits::TRIAL_INTERVAL);
    let due = worker.claim().await;
    assert_eq!(texts(&due), ["1/0", "3/0"], "the parked row stays parked");
}

#[tokio::test]
async fn later_events_of_a_failed_key_wait_and_other_keys_continue() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    place(&store, 1, 0).await;
    place(&store, 1, 1).await;
    place(&store, 2, 0).await;
    let mut worker = Worker::start(&store).await;

    let mut batch = worker.claim().await;
    let retry = exclusion(batch.rows[0].id, Disposition::Retry(Duration::from_secs(5)));
    let changed = store.exclude(&worker.fence, batch.token, &[retry]).await.unwrap();
    assert_eq!(worker.excluded(changed, &mut batch), 2, "the later row of the key returns with its head");
    batch.rows.retain(|row| row.key == event_key(id(2)));
    let published = worker.publish(&batch).await;
    assert_eq!(worker.settle(&batch, published).await, 1);
    place(&store, 1, 2).await;
    place(&store, 3, 0).await;

    let others = worker.claim().await;
    assert_eq!(texts(&others), ["3/0"]);
    let published = worker.publish(&others).await;
    worker.settle(&others, published).await;
    let waiting = worker.try_claim(10, ClaimKind::Ordinary).await;
    let ClaimOutcome::NoneDue { next_due, suspect_due } = waiting else { panic!("{waiting:?}") };
    assert_eq!((next_due, suspect_due), (Some(Duration::from_secs(5)), false));

    clock.advance(Duration::from_secs(5));
    let head = worker.claim().await;
    assert_eq!((texts(&head), head.rows[0].attempt), (vec!["1/0".to_string()], 2));
    let published = worker.publish(&head).await;
    worker.settle(&head, published).await;
    let behind = worker.claim().await;
    assert_eq!((texts(&behind), behind.rows[0].attempt), (vec!["1/1".to_string(), "1/2".to_string()], 1));
}

#[tokio::test]
async fn crash_between_publish_and_settle_is_resolved_by_the_watermark() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    place(&store, 1, 0).await;
    let mut worker = Worker::start(&store).await;
    let batch = worker.claim().await;
    assert!(matches!(worker.publish(&batch).await, PublishOutcome::Committed(_)));
    drop((worker, store));

    let store = inline(folder.path(), &clock);
    let acquired = acquire(&store, AcquireReason::Unowned).await;
    let open = acquired.open_batch.clone().unwrap();
    assert_eq!((open.token, open.claimer_died), (batch.token, true));
    store.fence(&open.session).await.unwrap();
    let watermark = store.watermark(PartitionNo(0), None).await.unwrap().unwrap();
    assert!(open.token <= watermark && acquired.fence.counter > watermark);
    let changed = store
        .resolve(&acquired.fence, open.token, BatchOutcome::Published, &PoisonPolicy::default())
        .await
        .unwrap()
        .closed;
    let mut worker = Worker::new(&store, acquired).await;
    assert_eq!(worker.adopt_counter(changed), 1);

    assert!(matches!(worker.try_claim(10, ClaimKind::Ordinary).await, ClaimOutcome::NoneDue { next_due: None, .. }));
    assert_eq!(store.depth().await.unwrap().sent, 1);
}

#[tokio::test]
async fn crash_between_claim_and_publish_makes_the_rows_due_again() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    place(&store, 1, 0).await;
    let mut worker = Worker::start(&store).await;
    let batch = worker.claim().await;
    let former = worker.session.clone();
    drop((worker, store));

    let store = inline(folder.path(), &clock);
    let acquired = acquire(&store, AcquireReason::Unowned).await;
    let open = acquired.open_batch.clone().unwrap();
    store.fence(&open.session).await.unwrap();
    assert_eq!(store.watermark(PartitionNo(0), None).await.unwrap(), None);
    let changed = store
        .resolve(&acquired.fence, open.token, BatchOutcome::ClaimerDied, &PoisonPolicy::default())
        .await
        .unwrap()
        .closed;
    let mut worker = Worker::new(&store, acquired).await;
    worker.adopt_counter(changed);

    let late = Worker { session: former, ..Worker::new(&store, acquire_again(&worker)).await };
    assert!(matches!(late.publish(&batch).await, PublishOutcome::SessionLost(_)));
    let again = worker.claim().await;
    assert_eq!((again.rows[0].attempt, again.token > batch.token), (2, true));
}

fn acquire_again(worker: &Worker) -> ports::partitions::AcquiredLease {
    ports::partitions::AcquiredLease { fence: worker.fence.clone(), open_batch: None }
}

#[tokio::test]
async fn stale_fence_changes_nothing() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    place(&store, 1, 0).await;
    let mut worker = Worker::start(&store).await;
    let batch = worker.claim().await;
    let newer = acquire(&store, AcquireReason::OutcomeUnknown).await;
    assert!(!newer.open_batch.as_ref().unwrap().claimer_died);

    let settlement = ports::outbox::Settlement {
        fence: worker.fence.clone(),
        token: batch.token,
        positions: [].into(),
        by_fallback: vec![],
    };
    assert_eq!(store.settle(settlement).await.unwrap(), ports::outbox::FencedOutcome::Stale);
    let stale = store
        .resolve(&worker.fence, batch.token, BatchOutcome::NotSent, &PoisonPolicy::default())
        .await
        .unwrap()
        .closed;
    assert_eq!(stale, ports::outbox::FencedOutcome::Stale);

    let changed =
        store.resolve(&newer.fence, batch.token, BatchOutcome::NotSent, &PoisonPolicy::default()).await.unwrap().closed;
    let mut worker = Worker::new(&store, newer).await;
    worker.adopt_counter(changed);
    assert_eq!(worker.claim().await.rows[0].attempt, 1, "the attempt was returned");
}

#[tokio::test]
async fn token_is_published_once() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    place(&store, 1, 0).await;
    let mut worker = Worker::start(&store).await;
    let batch = worker.claim().await;

    assert!(matches!(worker.publish(&batch).await, PublishOutcome::Committed(_)));
    assert!(matches!(worker.publish(&batch).await, PublishOutcome::Unknown(_)));
}

#[tokio::test]
async fn redriven_key_continues_in_order() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    let audit = ports::operators::Audit { operator: "ann".into(), reason: "fixed".into() };
    place(&store, 1, 0).await;
    place(&store, 1, 1).await;
    let mut worker = Worker::start(&store).await;
    let mut batch = worker.claim().await;
    let parked = exclusion(batch.rows[0].id, Disposition::ParkKey);
    let changed = store.exclude(&worker.fence, batch.token, &[parked]).await.unwrap();
    worker.excluded(changed, &mut batch);
    let changed = store
        .resolve(&worker.fence, batch.token, BatchOutcome::NotSent, &PoisonPolicy::default())
        .await
        .unwrap()
        .closed;
    worker.adopt_counter(changed);

    assert!(matches!(worker.try_claim(10, ClaimKind::Ordinary).await, ClaimOutcome::NoneDue { next_due: None, .. }));
    let diagnosis = store.diagnose(RowSelector::Event(batch.rows[1].event_id)).await.unwrap().unwrap();
    assert_eq!((diagnosis.row.status, diagnosis.head.unwrap().status), (RowStatus::Pending, RowStatus::Parked));
    let found = store.redrive(&RowFilter::default(), 10, RedriveMode::DryRun, &audit).await.unwrap();
    assert_eq!(found, OperatorOutcome::Done(1));
    assert_eq!(
        store.redrive(&RowFilter::default(), 10, RedriveMode::Execute, &audit).await.unwrap(),
        OperatorOutcome::Done(1)
    );
    assert!(
        matches!(worker.try_claim(10, ClaimKind::Ordinary).await, ClaimOutcome::Fenced),
        "an operator raised the counter"
    );

    let mut worker = Worker::start(&store).await;
    let head = worker.claim().await;
    assert_eq!((texts(&head), head.rows[0].attempt), (vec!["1/0".to_string()], 1));
    let published = worker.publish(&head).await;
    worker.settle(&head, published).await;
    assert_eq!(texts(&worker.claim().await), ["1/1"]);
    let sent = store.diagnose(RowSelector::Event(head.rows[0].event_id)).await.unwrap().unwrap();
    assert_eq!((sent.row.status, sent.sent_to.unwrap().topic.as_ref()), (RowStatus::Sent, "order.events"));
}

#[tokio::test]
async fn operator_may_park_a_row_that_is_not_the_first_of_its_key() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    let audit = ports::operators::Audit { operator: "ann".into(), reason: "wait".into() };
    for version in 0..3 {
        place(&store, 1, version).await;
    }
    let rows = store.rows(&RowFilter::default(), 10).await.unwrap();
    assert_eq!(store.park(rows[1].id, &audit).await.unwrap(), OperatorOutcome::Done(1));

    let mut worker = Worker::start(&store).await;
    assert_eq!(texts(&worker.claim().await), ["1/0"]);
}

#[tokio::test]
async fn sweep_deletes_sent_rows_and_no_id_is_used_twice() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let store = inline(folder.path(), &clock);
    place(&store, 1, 0).await;
    place(&store, 2, 0).await;
    let mut worker = Worker::start(&store).await;
    let batch = worker.claim().await;
    let published = worker.publish(&batch).await;
    worker.settle(&batch, published).await;

    clock.advance(Duration::from_secs(60));
    assert_eq!(OutboxStore::sweep(&store, Duration::from_secs(3600), 100).await.unwrap(), 0);
    assert_eq!(OutboxStore::sweep(&store, Duration::from_secs(1), 100).await.unwrap(), 2);
    assert_eq!(store.depth().await.unwrap().sent, 0);
    drop((worker, store));
    let store = inline(folder.path(), &clock);
    place(&store, 3, 0).await;

    let rows = store.rows(&RowFilter::default(), 10).await.unwrap();
    assert_eq!(rows.len(), 1);
    assert!(rows[0].id > batch.rows[1].id);
}
