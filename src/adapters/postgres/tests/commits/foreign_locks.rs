//! Locks that other sessions keep: they delay what needs the locked row, and nothing else.
use std::time::Duration;

use domain::Status;
use kit::Factory;
use ports::Error;
use ports::orders::{Commit, CommitOutcome, OrderStore};
use ports::outbox::events::{EventBatch, EventBatchOutcome, EventStore, ExternalEvent};
use ports::partitions::PartitionNo;
use postgres::{Options, Postgres};
use tokio_postgres::Client;

use crate::support::{Database, until};

const P0: PartitionNo = PartitionNo(0);

/// A store with a committed order, and a session outside the store.
struct LockFixture {
    store: Postgres,
    client: Client,
    factory: Factory,
    placed: Commit,
    database: Database,
}

impl LockFixture {
    async fn new(change: impl FnOnce(Options) -> Options) -> Self {
        Self::on(Database::migrated().await, change).await
    }

    async fn on(database: Database, change: impl FnOnce(Options) -> Options) -> Self {
        let store = Postgres::open(change(database.options("a"))).await.expect("the store opens");
        let (client, factory) = (database.client().await, Factory::seeded(3, "orders".into()));
        let placed = factory.creation("ann", P0);
        assert_eq!(store.commit(placed.clone()).await.unwrap(), CommitOutcome::Done);
        Self { store, client, factory, placed, database }
    }

    async fn sql(&self, text: &str) {
        self.client.batch_execute(text).await.expect("the statement succeeds");
    }

    async fn lock_the_order(&self) {
        self.sql(&format!("BEGIN; SELECT 1 FROM orders WHERE id = '{}' FOR UPDATE", self.placed.order.id)).await;
    }

    /// A change of the locked order, with an idempotency record.
    fn change_with_idempotency_record(&self) -> Commit {
        let change = self.factory.change(&self.placed.order, Status::Shipped, P0);
        Commit { idempotency_record: Some(self.factory.idempotency_record(&change.order, "key")), ..change }
    }

    async fn create_one(&self) {
        assert_eq!(self.store.commit(self.factory.creation("bob", P0)).await.unwrap(), CommitOutcome::Done);
    }

    fn event(&self) -> ExternalEvent {
        let row = self.factory.external_row("locked", 1, P0);
        ExternalEvent {
            event_id: row.event_id,
            topic: "customers".into(),
            key: row.key,
            event_type: row.event_type,
            partition: P0,
            payload: row.payload,
            headers: row.headers,
            content_type: row.content_type,
            trace: row.trace,
            request_id: row.request_id,
        }
    }
}

#[tokio::test]
async fn locked_order_delays_only_its_own_change() {
    let fixture = LockFixture::new(|options| options).await;
    fixture.lock_the_order().await;

    let (store, commit) = (fixture.store.clone(), fixture.change_with_idempotency_record());
    let change = tokio::spawn(async move { store.commit(commit).await });
    // More than there are committers, each after the change.
    tokio::task::yield_now().await;
    for _ in 0..4 {
        fixture.create_one().await;
    }
    assert!(!change.is_finished(), "its order is locked");
    fixture.sql("COMMIT").await;

    assert_eq!(change.await.unwrap().unwrap(), CommitOutcome::Done);
    let again = fixture.store.commit(fixture.change_with_idempotency_record()).await.unwrap();
    assert!(
        matches!(again, CommitOutcome::KeyUsed(_)),
        "the idempotency record was written with the change: {again:?}"
    );
}

#[tokio::test]
async fn change_of_an_order_that_stays_locked_fails_and_leaves_no_idempotency_record() {
    let fixture = LockFixture::new(|options| Options { lock_timeout: Duration::from_millis(200), ..options }).await;
    fixture.lock_the_order().await;

    let refused = fixture.store.commit(fixture.change_with_idempotency_record()).await;

    assert!(matches!(refused, Err(Error::Unreachable(_))), "{refused:?}");
    fixture.sql("COMMIT").await;
    assert_eq!(fixture.store.commit(fixture.change_with_idempotency_record()).await.unwrap(), CommitOutcome::Done);
}

#[tokio::test]
async fn change_of_a_locked_order_with_another_version_is_stale_at_once() {
    let fixture = LockFixture::new(|options| options).await;
    let first = fixture.store.commit(fixture.factory.change(&fixture.placed.order, Status::Processing, P0)).await;
    assert_eq!(first.unwrap(), CommitOutcome::Done);
    fixture.lock_the_order().await;

    let second = fixture.store.commit(fixture.change_with_idempotency_record()).await.unwrap();

    assert!(matches!(second, CommitOutcome::Stale { .. }), "{second:?}");
}

#[tokio::test]
async fn store_closes_after_its_commits_of_locked_orders() {
    let fixture = LockFixture::new(|options| options).await;
    fixture.lock_the_order().await;
    let (store, commit) = (fixture.store.clone(), fixture.change_with_idempotency_record());
    let change = tokio::spawn(async move { store.commit(commit).await });
    tokio::task::yield_now().await;
    fixture.create_one().await;

    let (closed, ()) = futures::join!(fixture.store.close(), fixture.sql("COMMIT"));

    closed.unwrap();
    assert_eq!(change.await.unwrap().unwrap(), CommitOutcome::Done);
}

/// The function for batches waits for this lock before it looks which of the events are known.
const PUBLISH_ALL_WAITS: &str =
    "ALTER FUNCTION posthaste.publish_all(text[], text[], text[], bytea[], jsonb[], text[], uuid[]) RENAME TO publish_all_now;
     CREATE FUNCTION posthaste.publish_all(text[], text[], text[], bytea[], jsonb[], text[], uuid[]) RETURNS uuid[] LANGUAGE plpgsql AS $$
     BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN posthaste.publish_all_now($1, $2, $3, $4, $5, $6, $7); END $$;
     SELECT pg_advisory_lock(4711)";

#[tokio::test]
async fn event_of_another_session_between_look_up_and_write_is_a_duplicate() {
    // Of its own: the function below stays.
    let fixture = LockFixture::on(Database::own().await, |options| options).await;
    fixture.sql(PUBLISH_ALL_WAITS).await;
    let (first, second) = (fixture.event(), fixture.event());
    let id = first.event_id;
    let events = vec![first, second.clone(), second];
    let (store, batch) = (fixture.store.clone(), EventBatch { events, idempotency_record: None });
    let published = tokio::spawn(async move { store.publish(batch).await });
    let observer = fixture.database.client().await;
    until("the write waits", async || {
        let text =
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory' LIMIT 1";
        observer.query_opt(text, &[]).await.unwrap()
    })
    .await;

    let values = format!("'{{customers}}', '{{other}}', '{{moved}}', '{{x}}', NULL, NULL, '{{{id}}}'");
    fixture.sql(&format!("SELECT posthaste.publish_all_now({values})")).await;
    fixture.sql("SELECT pg_advisory_unlock(4711)").await;

    assert_eq!(published.await.unwrap().unwrap(), EventBatchOutcome::Done { is_new: vec![false, true, false] });
}

#[tokio::test]
async fn events_that_wait_for_a_key_delay_no_commit() {
    let fixture = LockFixture::new(|options| Options { pool: 8, ..options }).await;
    fixture.sql("BEGIN; SELECT posthaste.publish('customers', 'locked', 'moved', '{}')").await;
    let events: Vec<_> = (0..8)
        .map(|_| {
            let (store, batch) =
                (fixture.store.clone(), EventBatch { events: vec![fixture.event()], idempotency_record: None });
            tokio::spawn(async move { store.publish(batch).await })
        })
        .collect();
    let observer = fixture.database.client().await;
    until("an event to wait for its key", async || {
        let text =
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' LIMIT 1";
        observer.query_opt(text, &[]).await.unwrap()
    })
    .await;

    fixture.create_one().await;

    fixture.sql("COMMIT").await;
    for event in events {
        assert_eq!(event.await.unwrap().unwrap(), EventBatchOutcome::Done { is_new: vec![true] });
    }
}
