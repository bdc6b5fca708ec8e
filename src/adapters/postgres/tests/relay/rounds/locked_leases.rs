//! Lease rows that a transaction outside the store keeps locked: they delay only their own partitions.
use std::time::Duration;

use kit::wait::scaled;
use ports::partitions::{InstanceId, PartitionLeases, PartitionNo, ReleaseOutcome};
use ports::probe::Probe;
use postgres::{Options, PostgresProbe};

use crate::relay::fixture::{LEASE, RelayFixture, batch, claim};

#[tokio::test]
async fn lease_row_that_stays_locked_delays_only_its_own_partition() {
    let fixture =
        RelayFixture::with(|options| Options { relay_lock_timeout: Duration::from_millis(20), ..options }).await;
    fixture.create_in_all().await;
    let holder = fixture.database.client().await;
    holder.batch_execute("BEGIN; SELECT 1 FROM outbox_lease WHERE partition = 1 FOR UPDATE").await.unwrap();
    let (store, fence) = (fixture.store.clone(), fixture.fences[1].clone());
    let locked = tokio::spawn(async move { claim(&store, &fence, 100).await });
    let others = [0, 2, 3].map(|partition| claim(&fixture.store, &fixture.fences[partition], 100));

    for claimed in futures::future::join_all(others).await {
        batch(claimed.unwrap());
    }
    assert!(!locked.is_finished());
    holder.batch_execute("ROLLBACK").await.unwrap();
    batch(locked.await.unwrap().unwrap());
}

/// As many rows as the relay has connections, each locked for longer than any call of this test waits.
#[tokio::test]
async fn lease_rows_that_stay_locked_leave_connections_for_the_other_partitions() {
    let fixture = RelayFixture::with(|options| Options {
        relay_connections: 3,
        relay_lock_timeout: Duration::from_millis(20),
        lock_timeout: scaled(Duration::from_secs(60)),
        statement_timeout: scaled(Duration::from_secs(60)),
        checkout_timeout: scaled(Duration::from_secs(5)),
        ..options
    })
    .await;
    fixture.create_in_all().await;
    let holder = fixture.database.client().await;
    holder.batch_execute("BEGIN; SELECT 1 FROM outbox_lease WHERE partition > 0 FOR UPDATE").await.unwrap();
    let locked = [1, 2, 3].map(|partition: u32| {
        let (store, fence) = (fixture.store.clone(), fixture.fences[partition as usize].clone());
        let released = {
            let (store, fence) = (store.clone(), fence.clone());
            tokio::spawn(async move { store.release(PartitionNo(partition), &fence.owner, fence.epoch + 1).await })
        };
        (tokio::spawn(async move { claim(&store, &fence, 100).await }), released)
    });

    for _ in 0..5 {
        // The first one takes the batch; the others find the counter changed.
        claim(&fixture.store, &fixture.fences[0], 100).await.unwrap();
        fixture.store.heartbeat(&InstanceId("a".into()), LEASE).await.unwrap();
        PostgresProbe(fixture.store.clone()).check().await.unwrap();
    }

    assert!(locked.iter().all(|(claimed, _)| !claimed.is_finished()));
    holder.batch_execute("ROLLBACK").await.unwrap();
    for (claimed, released) in locked {
        batch(claimed.await.unwrap().unwrap());
        assert_eq!(released.await.unwrap().unwrap(), ReleaseOutcome::NotHeld);
    }
}
