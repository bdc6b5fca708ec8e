//! A store with a lease of every partition, and calls of several partitions that share one round.
use std::future::Future;
use std::time::Duration;

use futures::future::join_all;
use kit::Factory;
use kit::wait::scaled;
use ports::Error;
use ports::operators::{OutboxOperators, RowFilter};
use ports::orders::{CommitOutcome, OrderStore};
use ports::outbox::{Claim, ClaimKind, ClaimOutcome, ClaimedBatch, FencedOutcome, OutboxStore, RowStatus, Settlement};
use ports::partitions::{
    AcquireReason, AcquiredLease, Acquisition, InstanceId, LeaseFence, PartitionLeases, PartitionNo, ProducerSessionId,
};
use postgres::{Options, Postgres};
use tokio_postgres::Client;

use crate::support::{Database, PARTITIONS, reopened, until};

pub const LEASE: Duration = Duration::from_secs(3_600);

/// How long a round waits for a lock that a test holds: longer than the pauses of a busy machine.
pub const LOCK_WAIT: Duration = Duration::from_secs(6);

pub struct RelayFixture {
    pub store: Postgres,
    /// A session outside the store.
    pub client: Client,
    pub factory: Factory,
    /// The lease of each partition.
    pub fences: Vec<LeaseFence>,
    pub database: Database,
}

impl RelayFixture {
    /// A store whose rounds wait for locked rows for as long as the tests need.
    pub async fn new() -> Self {
        Self::with(|options| options).await
    }

    /// A store with other options.
    pub async fn with(change: impl FnOnce(Options) -> Options) -> Self {
        let database = Database::migrated().await;
        let options = Options { relay_lock_timeout: scaled(LOCK_WAIT), ..database.options("a") };
        let store = Postgres::open(change(options)).await.expect("a migrated database can be opened");
        let client = database.client().await;
        let mut fixture =
            Self { store, client, factory: Factory::seeded(7, "orders".into()), fences: Vec::new(), database };
        for partition in 0..PARTITIONS {
            let fence = fixture.acquire(partition, LEASE).await.fence;
            fixture.fences.push(fence);
        }
        fixture
    }

    /// Opens the store again, so that it remembers nothing.
    pub async fn reopen(&mut self) {
        self.store.close().await.unwrap();
        let options = Options { relay_lock_timeout: scaled(LOCK_WAIT), ..self.database.options("a") };
        self.store = reopened(options).await;
    }

    pub async fn acquire(&self, partition: u32, ttl: Duration) -> AcquiredLease {
        acquire(&self.store, partition, ttl).await
    }

    /// Creates orders of different keys in a partition.
    pub async fn create(&self, partition: u32, orders: usize) {
        for _ in 0..orders {
            let commit = self.factory.creation("ann", PartitionNo(partition));
            assert_eq!(self.store.commit(commit).await.unwrap(), CommitOutcome::Done);
        }
    }

    /// Creates one order in each partition.
    pub async fn create_in_all(&self) {
        for partition in 0..PARTITIONS {
            self.create(partition, 1).await;
        }
    }

    pub async fn claim(&self, partition: usize) -> ClaimOutcome {
        claim(&self.store, &self.fences[partition], 100).await.unwrap()
    }

    /// Claims a partition's due rows, and remembers the counter.
    pub async fn claim_batch(&mut self, partition: usize) -> ClaimedBatch {
        let batch = batch(self.claim(partition).await);
        self.fences[partition].counter = batch.token;
        batch
    }

    pub async fn settle(&mut self, partition: usize, batch: &ClaimedBatch) {
        let fence = &mut self.fences[partition];
        fence.counter = settle(&self.store, fence, batch).await;
    }

    pub async fn sql(&self, text: &str) {
        self.client.batch_execute(text).await.unwrap();
    }

    /// Runs calls in one round: they queue up behind a claim that waits for a lock.
    pub async fn in_one_round<T>(&self, calls: impl IntoIterator<Item: Future<Output = T>>) -> Vec<T> {
        let mut calls = Box::pin(join_all(calls));
        let blocked_round = self.blocked_round().await;
        assert!(futures::poll!(&mut calls).is_pending(), "the first poll queues the calls");
        blocked_round.commit().await;
        calls.await
    }

    /// Starts a round that waits until [`BlockedRound::commit`].
    pub async fn blocked_round(&self) -> BlockedRound {
        let client = self.database.client().await;
        client.batch_execute("BEGIN; LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE").await.unwrap();
        let stale = LeaseFence { epoch: 0, ..self.fences[PARTITIONS as usize - 1].clone() };
        let store = self.store.clone();
        let claimed = tokio::spawn(async move { claim(&store, &stale, 1).await });
        self.until_waiting_for("relation").await;
        BlockedRound { client, claimed }
    }

    /// Waits until a session waits for a lock of this kind: `relation` or `transactionid`.
    pub async fn until_waiting_for(&self, kind: &str) {
        until("a session to wait for a lock", async || {
            let text = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND wait_event = $1";
            self.client.query_opt(text, &[&kind]).await.unwrap()
        })
        .await;
    }

    /// The status of every row, in id order.
    pub async fn statuses(&self) -> Vec<RowStatus> {
        self.store.rows(&RowFilter::default(), 100).await.unwrap().iter().map(|row| row.status).collect()
    }

    /// The number of transactions that wrote the lease rows of these partitions last.
    pub async fn writers(&self, partitions: &[i32]) -> i64 {
        let text = "SELECT count(DISTINCT xmin::text) FROM outbox_lease WHERE partition = ANY($1)";
        self.client.query_one(text, &[&partitions]).await.unwrap().get(0)
    }
}

/// A round that waits for a table.
pub struct BlockedRound {
    client: Client,
    claimed: tokio::task::JoinHandle<Result<ClaimOutcome, Error>>,
}

impl BlockedRound {
    /// Lets the round end.
    pub async fn commit(self) {
        self.client.batch_execute("COMMIT").await.unwrap();
        self.claimed.await.unwrap().unwrap();
    }
}

pub async fn acquire(store: &Postgres, partition: u32, ttl: Duration) -> AcquiredLease {
    let owner = InstanceId("a".into());
    match store.acquire(PartitionNo(partition), &owner, AcquireReason::OutcomeUnknown, None, ttl).await.unwrap() {
        Acquisition::Acquired(acquired) => acquired,
        held => panic!("{held:?}"),
    }
}

pub async fn claim(store: &Postgres, fence: &LeaseFence, limit: u32) -> Result<ClaimOutcome, Error> {
    let session = ProducerSessionId("session".into());
    store.claim(Claim { fence: fence.clone(), session, limit, kind: ClaimKind::Ordinary }).await
}

pub fn settlement(fence: &LeaseFence, batch: &ClaimedBatch) -> Settlement {
    Settlement { fence: fence.clone(), token: batch.token, positions: [].into(), by_fallback: Vec::new() }
}

/// Settles an open batch, and returns the counter after it.
pub async fn settle(store: &Postgres, fence: &LeaseFence, batch: &ClaimedBatch) -> u64 {
    match store.settle(settlement(fence, batch)).await.unwrap() {
        FencedOutcome::Done { counter, .. } => counter,
        FencedOutcome::Stale => panic!("the batch is open"),
    }
}

pub fn batch(claimed: ClaimOutcome) -> ClaimedBatch {
    match claimed {
        ClaimOutcome::Batch(batch) => batch,
        other => panic!("{other:?}"),
    }
}
