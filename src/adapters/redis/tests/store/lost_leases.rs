//! A lease that is lost in the middle of a batch: the loser changes nothing any more, and does not release the lease of the new owner.
use std::time::Duration;

use kit::Factory;
use ports::outbox::{BatchOutcome, Disposition, ExclusionOutcome, FencedOutcome, OutboxStore, PoisonPolicy, RowStatus};
use ports::partitions::{AcquireReason, Acquisition, InstanceId, PartitionLeases, ReleaseOutcome, Renewal};
use redis::RedisStore;

use crate::store_worker::{ALL, HOUR, P0, Worker, order_with_changes, rows};
use crate::support::{command, prefix, store_options, url};

#[tokio::test]
async fn a_worker_that_lost_its_lease_in_a_batch_changes_nothing() {
    let prefix = prefix();
    let store = RedisStore::open(store_options(&url(), &prefix, "one")).await.unwrap();
    let factory = Factory::seeded(1, "orders".into());
    for _ in 0..3 {
        order_with_changes(&store, &factory, 0).await;
    }
    let mut former_owner = Worker::acquire(&store, "one", HOUR).await;
    let batch = former_owner.claim(ALL).await;

    // The lease expires while the batch is open.
    let lease = format!("{prefix}{{store}}:lease:0");
    let _: i64 = command(&url(), &["HSET", &lease, "expires", "1"]).await;
    let new_owner = InstanceId("two".into());
    store.heartbeat(&new_owner, HOUR).await.unwrap();
    let acquired = match store.acquire(P0, &new_owner, AcquireReason::Unowned, None, HOUR).await.unwrap() {
        Acquisition::Acquired(acquired) => acquired,
        held => panic!("{held:?}"),
    };
    let open = acquired.open_batch.expect("the batch is open");
    assert_eq!((open.token, open.claimer_died), (batch.token, false));

    // The renewal of the former owner is refused, and none of its late statements has an effect.
    let owner = &former_owner.fence.owner;
    assert_eq!(store.renew(owner, &[(P0, former_owner.fence.epoch)], HOUR).await.unwrap(), Renewal::default());
    let before = rows(&store).await;
    assert_eq!(store.settle(former_owner.settlement(&batch)).await.unwrap(), FencedOutcome::Stale);
    let resolved = store
        .resolve(&former_owner.fence, batch.token, BatchOutcome::Published, &PoisonPolicy::default())
        .await
        .unwrap()
        .closed;
    assert_eq!(resolved, FencedOutcome::Stale);
    let exclusion = ports::outbox::Exclusion {
        row: 1,
        attempts: 1,
        disposition: Disposition::Retry(Duration::ZERO),
        failure_type: ports::FailureType::Timeout,
        reason: String::new(),
    };
    assert_eq!(store.exclude(&former_owner.fence, batch.token, &[exclusion]).await.unwrap(), ExclusionOutcome::Stale);
    assert_eq!(store.release(P0, owner, former_owner.fence.epoch).await.unwrap(), ReleaseOutcome::NotHeld);
    assert_eq!(rows(&store).await, before);
    let view = store.overview().await.unwrap().swap_remove(0);
    assert_eq!((view.owner, view.open_batch), (Some(new_owner), Some(batch.token)), "the new owner's lease stays");

    // The new owner makes the rows due and sends them.
    let mut worker = Worker { store: &store, fence: acquired.fence };
    let resolved = store
        .resolve(&worker.fence, batch.token, BatchOutcome::NotSent, &PoisonPolicy::default())
        .await
        .unwrap()
        .closed;
    assert!(matches!(resolved, FencedOutcome::Done { rows: 3, .. }));
    worker.fence.counter += 1;
    assert_eq!(worker.drain().await, [1, 2, 3]);
    assert!(rows(&store).await.iter().all(|row| row.status == RowStatus::Sent && row.retry_count == 1));
}
