//! The relay's statements against a second session that interferes: a claim with an old snapshot takes nothing wrong.
use ports::orders::event_key;
use std::time::Duration;

use domain::Status;
use kit::Factory;
use kit::wait::scaled;
use ports::operators::{OutboxOperators, RowFilter};
use ports::orders::{Commit, CommitOutcome, OrderStore};
use ports::outbox::{Claim, ClaimKind, ClaimOutcome, ClaimedBatch, FencedOutcome, OutboxStore, RowStatus};
use ports::partitions::{
    AcquireReason, Acquisition, InstanceId, LeaseFence, PartitionLeases, PartitionNo, ProducerSessionId,
};
use postgres::Postgres;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use crate::relay::fixture::{LEASE, batch, settle, settlement};
use crate::support::{Database, until};

const P0: PartitionNo = PartitionNo(0);

/// A store with two rows of one key (head and follower) and a row of another key, and a session outside the store.
struct ClaimFixture {
    store: Postgres,
    client: Client,
    factory: Factory,
    fence: LeaseFence,
    database: Database,
}

impl ClaimFixture {
    async fn new() -> Self {
        let database = Database::migrated().await;
        let (store, client) = (database.store("a").await, database.client().await);
        let factory = Factory::seeded(3, "orders".into());
        let head = factory.creation("ann", P0);
        let follower = factory.change(&head.order, Status::Processing, P0);
        for commit in [head, follower, factory.creation("bob", P0)] {
            assert_eq!(store.commit(commit).await.unwrap(), CommitOutcome::Done);
        }
        let fence = acquire(&store, LEASE).await;
        Self { store, client, factory, fence, database }
    }

    async fn ids(&self) -> Vec<i64> {
        self.store.rows(&RowFilter::default(), 100).await.unwrap().iter().map(|row| row.id).collect()
    }

    async fn statuses(&self) -> Vec<RowStatus> {
        self.store.rows(&RowFilter::default(), 100).await.unwrap().iter().map(|row| row.status).collect()
    }

    /// Starts a claim in a task, and returns it once it waits for a lock.
    async fn claim_that_waits(&self) -> JoinHandle<ClaimOutcome> {
        self.claim_that_may_wait().await.expect("the claim waits")
    }

    /// As [`Self::claim_that_waits`]; nothing if the claim ends without a wait.
    async fn claim_that_may_wait(&self) -> Option<JoinHandle<ClaimOutcome>> {
        let (store, fence) = (self.store.clone(), self.fence.clone());
        let claim = tokio::spawn(async move { claim(&store, fence, 10).await });
        let waits = until("the claim to wait for a lock", async || {
            let text = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
            let waits = self.client.query_opt(text, &[]).await.unwrap().is_some();
            (waits || claim.is_finished()).then_some(waits)
        })
        .await;
        waits.then_some(claim)
    }

    async fn sql(&self, text: &str) {
        self.client.batch_execute(text).await.unwrap();
    }
}

async fn acquire(store: &Postgres, ttl: Duration) -> LeaseFence {
    match store.acquire(P0, &InstanceId("a".into()), AcquireReason::Unowned, None, ttl).await.unwrap() {
        Acquisition::Acquired(acquired) => acquired.fence,
        held => panic!("{held:?}"),
    }
}

async fn claim(store: &Postgres, fence: LeaseFence, limit: u32) -> ClaimOutcome {
    store
        .claim(Claim { fence, session: ProducerSessionId("session".into()), limit, kind: ClaimKind::Ordinary })
        .await
        .unwrap()
}

fn ids(batch: &ClaimedBatch) -> Vec<i64> {
    batch.rows.iter().map(|row| row.id).collect()
}

#[tokio::test]
async fn follower_is_not_claimed_while_its_head_is_in_flight() {
    let fixture = ClaimFixture::new().await;
    let first = batch(claim(&fixture.store, fixture.fence.clone(), 1).await);

    for counter in [fixture.fence.counter, first.token] {
        let again = claim(&fixture.store, LeaseFence { counter, ..fixture.fence.clone() }, 10).await;
        assert!(matches!(again, ClaimOutcome::Fenced), "{again:?}");
    }

    use RowStatus::{InFlight, Pending};
    assert_eq!(fixture.statuses().await, [InFlight, Pending, Pending]);
}

#[tokio::test]
async fn claim_takes_a_locked_head_with_its_follower_and_waits_for_no_row_lock() {
    let fixture = ClaimFixture::new().await;
    let rows = fixture.ids().await;
    fixture.sql(&format!("BEGIN; SELECT 1 FROM outbox WHERE id = {} FOR UPDATE", rows[0])).await;

    let claimed = claim(&fixture.store, fixture.fence.clone(), 10).await;

    assert_eq!(ids(&batch(claimed)), rows);
    fixture.sql("ROLLBACK").await;
}

#[tokio::test]
async fn claim_that_waited_while_a_key_was_blocked_takes_nothing() {
    let fixture = ClaimFixture::new().await;
    let rows = fixture.ids().await;
    fixture
        .sql(&format!(
            "BEGIN; UPDATE outbox_lease SET counter = counter + 1 WHERE partition = 0;
             UPDATE outbox SET status = 2, next_attempt_at = now() + interval '1 hour' WHERE id = {0};
             INSERT INTO outbox_waiting SELECT partition, key, id, next_attempt_at, true, false FROM outbox WHERE id = {0}",
            rows[0]
        ))
        .await;

    let claimed = fixture.claim_that_waits().await;
    fixture.sql("COMMIT").await;

    assert!(matches!(claimed.await.unwrap(), ClaimOutcome::Fenced), "its snapshot is older than the block");
    let again = batch(claim(&fixture.store, acquire(&fixture.store, LEASE).await, 10).await);
    assert_eq!(ids(&again), rows[2..], "the other key alone");
}

#[tokio::test]
async fn due_head_is_claimed_without_its_follower() {
    let fixture = ClaimFixture::new().await;
    let rows = fixture.ids().await;
    fixture
        .sql(&format!(
            "UPDATE outbox SET status = 2 WHERE id = {0};
             INSERT INTO outbox_waiting SELECT partition, key, id, now() - interval '1 s', true, false FROM outbox WHERE id = {0}",
            rows[0]
        ))
        .await;

    let claimed = batch(claim(&fixture.store, fixture.fence.clone(), 10).await);

    assert_eq!(ids(&claimed), [rows[0], rows[2]]);
}

#[tokio::test]
async fn claim_that_waited_for_a_renewal_takes_its_rows() {
    let fixture = ClaimFixture::new().await;
    fixture.sql("BEGIN; UPDATE outbox_lease SET expires_at = expires_at + interval '1 s' WHERE partition = 0").await;

    let claimed = fixture.claim_that_waits().await;
    fixture.sql("COMMIT").await;

    assert_eq!(batch(claimed.await.unwrap()).rows.len(), 3);
}

#[tokio::test]
async fn claim_that_waited_while_the_partition_was_taken_over_takes_nothing() {
    let fixture = ClaimFixture::new().await;
    fixture
        .sql("BEGIN; UPDATE outbox_lease SET owner = 'b', epoch = epoch + 1, counter = counter + 1 WHERE partition = 0")
        .await;

    let claimed = fixture.claim_that_waits().await;
    fixture.sql("COMMIT").await;

    assert!(matches!(claimed.await.unwrap(), ClaimOutcome::Fenced));
    assert_eq!(fixture.statuses().await, [RowStatus::Pending; 3]);
}

#[tokio::test]
async fn claim_takes_nothing_when_its_lease_expired_during_the_wait() {
    let mut fixture = ClaimFixture::new().await;
    let mut expired = 0;
    let claimed = loop {
        fixture.fence = acquire(&fixture.store, scaled(Duration::from_millis(700))).await;
        fixture.sql("BEGIN; SELECT 1 FROM outbox_lease WHERE partition = 0 FOR UPDATE").await;
        if let Some(claimed) = fixture.claim_that_may_wait().await {
            break claimed;
        }
        // On a busy machine the lease has expired before the claim began.
        fixture.sql("ROLLBACK").await;
        expired += 1;
        assert!(expired < 20, "no claim waits for the locked lease");
    };
    until("the lease to expire", async || {
        let text = "SELECT 1 FROM outbox_lease WHERE partition = 0 AND expires_at < clock_timestamp()";
        fixture.client.query_opt(text, &[]).await.unwrap()
    })
    .await;
    fixture.sql("ROLLBACK").await;

    assert!(matches!(claimed.await.unwrap(), ClaimOutcome::Fenced));
}

#[tokio::test]
async fn row_that_was_committed_late_is_found_below_claimed_ids() {
    let fixture = ClaimFixture::new().await;
    let late = fixture.factory.creation("eve", P0);
    let key = late.order.id;
    // Gets its id now, and commits after rows with larger ids were claimed and settled.
    fixture.sql(&format!("BEGIN; {}", insert_event_text(&late))).await;
    let mut fence = fixture.fence.clone();
    for _ in 0..5 {
        fixture.store.commit(fixture.factory.creation("ann", P0)).await.unwrap();
        let sent = batch(claim(&fixture.store, fence.clone(), 10).await);
        assert!(sent.rows.iter().all(|row| row.key != event_key(key)));
        fence.counter = settle(&fixture.store, &fence, &sent).await;
        let nothing = claim(&fixture.store, fence.clone(), 10).await;
        assert!(matches!(nothing, ClaimOutcome::NoneDue { .. }), "{nothing:?}");
    }

    fixture.sql("COMMIT").await;

    let found = batch(claim(&fixture.store, fence, 10).await);
    assert_eq!(found.rows.iter().map(|row| row.key.clone()).collect::<Vec<_>>(), [event_key(key)]);
}

/// A snapshot does not show a transaction that began after the last one that had ended, although it may have an id already.
#[tokio::test]
async fn row_of_a_younger_transaction_is_found_below_an_older_ones_row() {
    let fixture = ClaimFixture::new().await;
    let older = fixture.database.client().await;
    let (early, late) = (fixture.factory.creation("ann", P0), fixture.factory.creation("eve", P0));
    older.batch_execute("BEGIN; SELECT pg_current_xact_id()").await.unwrap();
    fixture.sql(&format!("BEGIN; SELECT pg_current_xact_id(); {}", insert_event_text(&late))).await;
    older.batch_execute(&format!("{}; COMMIT", insert_event_text(&early))).await.unwrap();
    let mut fence = fixture.fence.clone();

    let sent = batch(claim(&fixture.store, fence.clone(), 10).await);
    assert_eq!(sent.rows.last().map(|row| row.key.clone()), Some(event_key(early.order.id)));
    fence.counter = settle(&fixture.store, &fence, &sent).await;
    assert!(matches!(claim(&fixture.store, fence.clone(), 10).await, ClaimOutcome::NoneDue { .. }));
    fixture.sql("COMMIT").await;

    let found = batch(claim(&fixture.store, fence, 10).await);
    assert_eq!(found.rows.iter().map(|row| row.key.clone()).collect::<Vec<_>>(), [event_key(late.order.id)]);
}

/// The statement that inserts a creation's event and row, without its order.
fn insert_event_text(creation: &Commit) -> String {
    format!(
        "WITH e AS (INSERT INTO outbox_event (event_id, key, partition, sequence, occurred_at, hlc_millis, hlc_counter, type, topic, region,
             payload) VALUES ('{}', '{}', 0, 1, now(), 0, 0, 'ORDER_CREATED', 'orders', 'eu', 'x') RETURNING id, key)
         INSERT INTO outbox (partition, id, key, bytes) SELECT 0, id, key, 1 FROM e",
        creation.events[0].event_id, creation.order.id
    )
}

#[tokio::test]
async fn ids_of_a_key_are_assigned_after_its_order_is_locked() {
    let fixture = ClaimFixture::new().await;
    let placed = fixture.factory.creation("eve", P0);
    let order = placed.order.clone();
    fixture.store.commit(placed).await.unwrap();
    fixture.sql(&format!("BEGIN; SELECT 1 FROM orders WHERE id = '{}' FOR UPDATE", order.id)).await;

    let (store, commit) = (fixture.store.clone(), fixture.factory.change(&order, Status::Shipped, P0));
    let change = tokio::spawn(async move { store.commit(commit).await });
    // The change is queued before the creation, and cannot take its order.
    tokio::task::yield_now().await;
    fixture.store.commit(fixture.factory.creation("bob", P0)).await.unwrap();
    fixture.sql("COMMIT").await;
    assert_eq!(change.await.unwrap().unwrap(), CommitOutcome::Done);

    let rows = fixture.store.rows(&RowFilter::default(), 100).await.unwrap();
    assert_eq!(rows.last().map(|row| row.key.clone()), Some(event_key(order.id)), "the change drew its id last");
}

#[tokio::test]
async fn settlement_after_a_takeover_changes_nothing() {
    let fixture = ClaimFixture::new().await;
    let open = batch(claim(&fixture.store, fixture.fence.clone(), 10).await);
    acquire(&fixture.store, LEASE).await;

    let late = settlement(&fixture.fence, &open);

    assert_eq!(fixture.store.settle(late).await.unwrap(), FencedOutcome::Stale);
    assert_eq!(fixture.statuses().await, [RowStatus::InFlight; 3]);
}

#[tokio::test]
async fn a_missing_event_leaves_the_other_rows_of_its_batch_as_they_are() {
    let fixture = ClaimFixture::new().await;
    let ids = fixture.ids().await;
    fixture.sql(&format!("DELETE FROM outbox_event WHERE id = {}", ids[1])).await;
    fixture.sql(&format!("UPDATE outbox SET attempts = 4 WHERE id = {}", ids[2])).await;

    let batch = batch(claim(&fixture.store, fixture.fence.clone(), 10).await);

    assert_eq!(batch.rows.iter().map(|row| row.id).collect::<Vec<_>>(), ids);
    assert_eq!(batch.rows.iter().map(|row| row.payload.is_some()).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(batch.rows.iter().map(|row| row.attempt).collect::<Vec<_>>(), [1, 1, 5]);
    assert_eq!(batch.rows[1].key, batch.rows[0].key);
    assert_ne!(batch.rows[1].key, batch.rows[2].key);
}
