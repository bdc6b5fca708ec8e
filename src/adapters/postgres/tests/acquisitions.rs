//! Instances that reach for the same partitions at the same time pass each other: none waits for a row that another one has locked.
use std::time::Duration;

use ports::partitions::{AcquireReason, Acquisition, InstanceId, PartitionLeases, PartitionNo};
use postgres::{Options, Postgres};

use crate::support::Database;

const LEASE: Duration = Duration::from_secs(30);
const LOCK: &str = "BEGIN; SELECT FROM outbox_lease WHERE partition = 0 FOR UPDATE";

async fn acquire(store: &Postgres, partition: u32, name: &str, reason: AcquireReason) -> Acquisition {
    let acquired = store.acquire(PartitionNo(partition), &InstanceId(name.into()), reason, None, LEASE).await;
    acquired.expect("the server replied before the lock time-out")
}

#[tokio::test]
async fn a_partition_that_another_instance_is_about_to_take_is_passed() {
    let database = Database::migrated().await;
    // A statement that waited for the row would fail after this time.
    let options = Options { relay_lock_timeout: Duration::from_secs(2), ..database.options("a") };
    let store = Postgres::open(options).await.unwrap();
    let other = database.client().await;

    other.batch_execute(LOCK).await.unwrap();
    let passed = acquire(&store, 0, "a", AcquireReason::Vacant).await;
    let next = acquire(&store, 1, "a", AcquireReason::Vacant).await;
    other.batch_execute("ROLLBACK").await.unwrap();
    let free = acquire(&store, 0, "a", AcquireReason::Vacant).await;

    assert!(matches!(passed, Acquisition::Held { remaining: Duration::ZERO, .. }), "{passed:?}");
    assert!(matches!(next, Acquisition::Taken(_)), "{next:?}");
    assert!(matches!(free, Acquisition::Taken(_)), "{free:?}");
}

#[tokio::test]
async fn an_instance_waits_for_the_row_of_its_own_partition() {
    let database = Database::migrated().await;
    let store = Postgres::open(database.options("a")).await.unwrap();
    assert!(matches!(acquire(&store, 0, "a", AcquireReason::Vacant).await, Acquisition::Taken(_)));
    let other = database.client().await;
    other.batch_execute(LOCK).await.unwrap();

    let (again, unlocked) = tokio::join!(acquire(&store, 0, "a", AcquireReason::Vacant), async {
        tokio::task::yield_now().await;
        other.batch_execute("ROLLBACK").await
    });

    unlocked.unwrap();
    assert!(matches!(again, Acquisition::Taken(_)), "{again:?}");
}
