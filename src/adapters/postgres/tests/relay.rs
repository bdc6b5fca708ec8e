//! The relay's statements against a second session that moves in between: what a claim with an old snapshot must not do.
use std::time::Duration;

use domain::Status;
use kit::Factory;
use ports::operators::{OutboxOperators, RowFilter};
use ports::orders::{Commit, Committed, OrderStore};
use ports::outbox::{Claim, ClaimKind, Claimed, ClaimedBatch, FencedOutcome, OutboxStore, RowStatus, Settlement};
use ports::partitions::{
    AcquireReason, Acquisition, Fence, InstanceId, PartitionLeases, PartitionNo, ProducerSessionId,
};
use postgres::Postgres;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use crate::support::{Database, until};

const P0: PartitionNo = PartitionNo(0);
const LEASE: Duration = Duration::from_secs(3_600);

/// A store with a line of two rows (head and follower) and a row of another key, and a session beside it.
struct Trial {
    store: Postgres,
    client: Client,
    make: Factory,
    fence: Fence,
    database: Database,
}

impl Trial {
    async fn begin() -> Self {
        let database = Database::migrated().await;
        let (store, client) = (database.store("a").await, database.client().await);
        let make = Factory::seeded(3, "orders".into());
        let head = make.creation("ann", P0);
        let follower = make.change(&head.order, Status::Processing, P0);
        for commit in [head, follower, make.creation("bob", P0)] {
            assert_eq!(store.commit(commit).await.unwrap(), Committed::Done);
        }
        let fence = acquire(&store, LEASE).await;
        Self { store, client, make, fence, database }
    }

    async fn ids(&self) -> Vec<i64> {
        self.store.rows(&RowFilter::default(), 100).await.unwrap().iter().map(|row| row.id).collect()
    }

    async fn statuses(&self) -> Vec<RowStatus> {
        self.store.rows(&RowFilter::default(), 100).await.unwrap().iter().map(|row| row.status).collect()
    }

    /// A claim that runs beside the test, once it waits for a lock.
    async fn claim_that_waits(&self) -> JoinHandle<Claimed> {
        let (store, fence) = (self.store.clone(), self.fence.clone());
        let claim = tokio::spawn(async move { claim(&store, fence, 10).await });
        until("the claim to wait for a lock", async || {
            let text = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
            self.client.query_opt(text, &[]).await.unwrap()
        })
        .await;
        claim
    }

    async fn sql(&self, text: &str) {
        self.client.batch_execute(text).await.unwrap();
    }
}

async fn acquire(store: &Postgres, ttl: Duration) -> Fence {
    match store.acquire(P0, &InstanceId("a".into()), AcquireReason::Vacant, None, ttl).await.unwrap() {
        Acquisition::Taken(acquired) => acquired.fence,
        held => panic!("{held:?}"),
    }
}

async fn claim(store: &Postgres, fence: Fence, limit: u32) -> Claimed {
    store
        .claim(Claim { fence, session: ProducerSessionId("lane".into()), limit, kind: ClaimKind::Ordinary })
        .await
        .unwrap()
}

fn batch(claimed: Claimed) -> ClaimedBatch {
    match claimed {
        Claimed::Batch(batch) => batch,
        other => panic!("{other:?}"),
    }
}

fn ids(batch: &ClaimedBatch) -> Vec<i64> {
    batch.rows.iter().map(|row| row.id).collect()
}

#[tokio::test]
async fn a_follower_is_not_claimed_while_its_head_is_in_flight() {
    let trial = Trial::begin().await;
    let first = batch(claim(&trial.store, trial.fence.clone(), 1).await);

    for counter in [trial.fence.counter, first.token] {
        let again = claim(&trial.store, Fence { counter, ..trial.fence.clone() }, 10).await;
        assert!(matches!(again, Claimed::Fenced), "{again:?}");
    }

    use RowStatus::{InFlight, Pending};
    assert_eq!(trial.statuses().await, [InFlight, Pending, Pending]);
}

#[tokio::test]
async fn a_locked_head_is_waited_for_and_not_passed() {
    let trial = Trial::begin().await;
    let rows = trial.ids().await;
    trial.sql(&format!("BEGIN; SELECT 1 FROM outbox WHERE id = {} FOR UPDATE", rows[0])).await;

    let claimed = trial.claim_that_waits().await;
    trial.sql("ROLLBACK").await;

    assert_eq!(ids(&batch(claimed.await.unwrap())), rows);
}

#[tokio::test]
async fn a_claim_that_waited_while_its_key_was_blocked_takes_nothing_of_it() {
    let trial = Trial::begin().await;
    let rows = trial.ids().await;
    trial
        .sql(&format!(
            "BEGIN; UPDATE outbox_lease SET counter = counter + 1 WHERE partition = 0;
             UPDATE outbox SET status = 2, next_attempt_at = now() + interval '1 hour' WHERE id = {0};
             INSERT INTO outbox_waiting SELECT partition, key, id, next_attempt_at, true, false FROM outbox WHERE id = {0}",
            rows[0]
        ))
        .await;

    let claimed = trial.claim_that_waits().await;
    trial.sql("COMMIT").await;

    assert!(matches!(claimed.await.unwrap(), Claimed::Fenced), "its snapshot is older than the block");
    let again = batch(claim(&trial.store, acquire(&trial.store, LEASE).await, 10).await);
    assert_eq!(ids(&again), rows[2..], "the other key alone");
}

#[tokio::test]
async fn a_due_head_is_claimed_alone_and_its_follower_waits() {
    let trial = Trial::begin().await;
    let rows = trial.ids().await;
    trial
        .sql(&format!(
            "UPDATE outbox SET status = 2 WHERE id = {0};
             INSERT INTO outbox_waiting SELECT partition, key, id, now() - interval '1 s', true, false FROM outbox WHERE id = {0}",
            rows[0]
        ))
        .await;

    let claimed = batch(claim(&trial.store, trial.fence.clone(), 10).await);

    assert_eq!(ids(&claimed), [rows[0], rows[2]]);
}

#[tokio::test]
async fn a_renewal_in_the_way_hinders_no_claim() {
    let trial = Trial::begin().await;
    trial.sql("BEGIN; UPDATE outbox_lease SET expires_at = expires_at + interval '1 s' WHERE partition = 0").await;

    let claimed = trial.claim_that_waits().await;
    trial.sql("COMMIT").await;

    assert_eq!(batch(claimed.await.unwrap()).rows.len(), 3);
}

#[tokio::test]
async fn a_claim_that_waited_while_another_took_the_partition_takes_nothing() {
    let trial = Trial::begin().await;
    trial
        .sql("BEGIN; UPDATE outbox_lease SET owner = 'b', epoch = epoch + 1, counter = counter + 1 WHERE partition = 0")
        .await;

    let claimed = trial.claim_that_waits().await;
    trial.sql("COMMIT").await;

    assert!(matches!(claimed.await.unwrap(), Claimed::Fenced));
    assert_eq!(trial.statuses().await, [RowStatus::Pending; 3]);
}

#[tokio::test]
async fn a_claim_whose_lease_ran_out_while_it_waited_takes_nothing() {
    let mut trial = Trial::begin().await;
    trial.fence = acquire(&trial.store, Duration::from_millis(700)).await;
    trial.sql("BEGIN; SELECT 1 FROM outbox_lease WHERE partition = 0 FOR UPDATE").await;

    let claimed = trial.claim_that_waits().await;
    until("the lease to run out", async || {
        let text = "SELECT 1 FROM outbox_lease WHERE partition = 0 AND expires_at < clock_timestamp()";
        trial.client.query_opt(text, &[]).await.unwrap()
    })
    .await;
    trial.sql("ROLLBACK").await;

    assert!(matches!(claimed.await.unwrap(), Claimed::Fenced));
}

#[tokio::test]
async fn a_row_that_was_committed_late_is_found_below_what_was_claimed_before() {
    let trial = Trial::begin().await;
    let late = trial.make.creation("eve", P0);
    let key = late.order.id;
    // Draws its id now, and commits after rows with larger ids have come and gone.
    trial.sql(&format!("BEGIN; {}", event_of(&late))).await;
    let mut fence = trial.fence.clone();
    for _ in 0..5 {
        trial.store.commit(trial.make.creation("ann", P0)).await.unwrap();
        let gone = batch(claim(&trial.store, fence.clone(), 10).await);
        assert!(gone.rows.iter().all(|row| row.key != key));
        fence.counter = settle(&trial.store, &fence, &gone).await;
        let nothing = claim(&trial.store, fence.clone(), 10).await;
        assert!(matches!(nothing, Claimed::Nothing { .. }), "{nothing:?}");
    }

    trial.sql("COMMIT").await;

    let found = batch(claim(&trial.store, fence, 10).await);
    assert_eq!(found.rows.iter().map(|row| row.key).collect::<Vec<_>>(), [key]);
}

/// A snapshot tells of no transaction that began after the last that had ended, though it may have drawn its id already.
#[tokio::test]
async fn a_row_of_a_younger_transaction_is_found_below_what_an_older_one_brought() {
    let trial = Trial::begin().await;
    let older = trial.database.client().await;
    let (early, late) = (trial.make.creation("ann", P0), trial.make.creation("eve", P0));
    older.batch_execute("BEGIN; SELECT pg_current_xact_id()").await.unwrap();
    trial.sql(&format!("BEGIN; SELECT pg_current_xact_id(); {}", event_of(&late))).await;
    older.batch_execute(&format!("{}; COMMIT", event_of(&early))).await.unwrap();
    let mut fence = trial.fence.clone();

    let gone = batch(claim(&trial.store, fence.clone(), 10).await);
    assert_eq!(gone.rows.last().map(|row| row.key), Some(early.order.id));
    fence.counter = settle(&trial.store, &fence, &gone).await;
    assert!(matches!(claim(&trial.store, fence.clone(), 10).await, Claimed::Nothing { .. }));
    trial.sql("COMMIT").await;

    let found = batch(claim(&trial.store, fence, 10).await);
    assert_eq!(found.rows.iter().map(|row| row.key).collect::<Vec<_>>(), [late.order.id]);
}

/// Writes the event of a creation, and no more of it.
fn event_of(creation: &Commit) -> String {
    format!(
        "WITH e AS (INSERT INTO outbox_event (event_id, key, partition, sequence, occurred_at, hlc_millis, hlc_counter, type, topic, region,
             payload) VALUES ('{}', '{}', 0, 1, now(), 0, 0, 'ORDER_CREATED', 'orders', 'eu', 'x') RETURNING id, key)
         INSERT INTO outbox (partition, id, key, bytes) SELECT 0, id, key, 1 FROM e",
        creation.events[0].event_id, creation.order.id
    )
}

#[tokio::test]
async fn ids_of_a_key_are_drawn_after_its_order_is_locked() {
    let trial = Trial::begin().await;
    let placed = trial.make.creation("eve", P0);
    let order = placed.order.clone();
    trial.store.commit(placed).await.unwrap();
    trial.sql(&format!("BEGIN; SELECT 1 FROM orders WHERE id = '{}' FOR UPDATE", order.id)).await;

    let (store, change) = (trial.store.clone(), trial.make.change(&order, Status::Shipped, P0));
    let waits = tokio::spawn(async move { store.commit(change).await });
    until("the change to wait for its order", async || {
        let text = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        trial.client.query_opt(text, &[]).await.unwrap()
    })
    .await;
    trial.store.commit(trial.make.creation("bob", P0)).await.unwrap();
    trial.sql("COMMIT").await;
    assert_eq!(waits.await.unwrap().unwrap(), Committed::Done);

    let rows = trial.store.rows(&RowFilter::default(), 100).await.unwrap();
    assert_eq!(rows.last().map(|row| row.key), Some(order.id), "the change drew its id last");
}

#[tokio::test]
async fn a_settlement_after_a_take_over_changes_nothing() {
    let trial = Trial::begin().await;
    let open = batch(claim(&trial.store, trial.fence.clone(), 10).await);
    acquire(&trial.store, LEASE).await;

    let late =
        Settlement { fence: trial.fence.clone(), token: open.token, positions: Vec::new(), by_fallback: Vec::new() };

    assert_eq!(trial.store.settle(late).await.unwrap(), FencedOutcome::Stale);
    assert_eq!(trial.statuses().await, [RowStatus::InFlight; 3]);
}

pub async fn settle(store: &Postgres, fence: &Fence, batch: &ClaimedBatch) -> u64 {
    let settlement =
        Settlement { fence: fence.clone(), token: batch.token, positions: Vec::new(), by_fallback: Vec::new() };
    match store.settle(settlement).await.unwrap() {
        FencedOutcome::Done { counter, .. } => counter,
        FencedOutcome::Stale => panic!("the batch is open"),
    }
}
