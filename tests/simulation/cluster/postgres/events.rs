//! Events of other services in the simulated store: the batches that instances publish, and the transactions of writers that use SQL.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::EventId;
use outbox::EventKey;
use ports::Error;
use ports::outbox::RowId;
use ports::outbox::events::{EventBatch, EventBatchOutcome, EventStore, ExternalEvent};
use ports::partitions::PartitionNo;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::sleep;

use crate::cluster::flaw::Flaw;
use crate::cluster::postgres::client::PostgresClient;
use crate::cluster::postgres::server::{PrimaryState, RunningTransaction, SimulatedPostgres, connection_lost};

/// The lock of each key in each topic, which a transaction holds until its end.
pub(super) type KeyRows = BTreeMap<(Arc<str>, EventKey), Arc<Mutex<()>>>;

/// A transaction of this length outlasts leases and the transactions of producers.
const LONG: Duration = Duration::from_secs(6);

/// An event that a writer publishes with SQL.
pub struct SqlEvent {
    pub event: ExternalEvent,
    /// Published in a savepoint that is rolled back.
    pub is_undone: bool,
}

/// A transaction of a writer that uses SQL.
pub struct SqlTransaction {
    pub events: Vec<SqlEvent>,
    /// Time from its statements to its end.
    pub held: Duration,
    /// Whether it ends with a commit, not with a rollback.
    pub commits: bool,
}

/// A transaction that holds the locks of its keys.
struct KeyTransaction {
    running: RunningTransaction,
    _locks: Vec<OwnedMutexGuard<()>>,
}

impl SimulatedPostgres {
    /// The outbox partition of a key, as the functions of the schema compute it.
    pub fn partition_of(&self, key: &EventKey) -> PartitionNo {
        outbox::partition::of_key(&key.to_text(), self.0.partitions)
    }

    /// Publishes a batch in a transaction, which commits after this time.
    pub async fn publish(&self, batch: EventBatch, duration: Duration) -> Result<EventBatchOutcome, Error> {
        let transaction = self.lock_keys(&batch.events, batch.events.len()).await?;
        sleep(duration).await;
        let mut state = self.end(&transaction.running)?;
        self.write(&mut state, batch, transaction.running.first_row)
    }

    /// Executes a transaction of a writer that uses SQL. Returns the ids of the committed events.
    ///
    /// # Errors
    /// [`Error::Unknown`] if the primary fails meanwhile: nothing was committed.
    pub async fn transaction(&self, sql: SqlTransaction) -> Result<Vec<EventId>, Error> {
        let SqlTransaction { events, held, commits } = sql;
        let rows = events.len();
        let events: Vec<ExternalEvent> =
            events.into_iter().filter(|event| !event.is_undone).map(|event| event.event).collect();
        let (ids, has_savepoint) = (events.iter().map(|event| event.event_id).collect(), events.len() < rows);
        let transaction = self.lock_keys(&events, rows).await?;
        sleep(held).await;
        let mut state = self.end(&transaction.running)?;
        let (batch, first_row) = (EventBatch { events, idempotency_record: None }, transaction.running.first_row);
        if held >= LONG {
            self.0.trace.add("long transaction", first_row as u64, held.as_millis() as u64);
        }
        if !commits {
            self.0.trace.add("rollback", first_row as u64, rows as u64);
            if self.flaw() == Some(Flaw::RollbackKeepsRows) {
                self.data().publish_with_ids(batch, first_row)?;
            }
            return Ok(Vec::new());
        }
        if has_savepoint {
            self.0.trace.add("savepoint", first_row as u64, rows as u64);
            if self.flaw() == Some(Flaw::SavepointUndoesTransaction) {
                return Ok(ids);
            }
        }
        self.write(&mut state, batch, first_row)?;
        Ok(ids)
    }

    /// Begins a transaction that holds the keys of these events and draws the ids of so many rows. The locks come first: in a key, ids grow
    /// with the order of the commits.
    async fn lock_keys(&self, events: &[ExternalEvent], rows: usize) -> Result<KeyTransaction, Error> {
        let (restarts, key_rows) = self.key_rows(events);
        let mut locks = Vec::with_capacity(key_rows.len());
        for row in key_rows {
            locks.push(row.lock_owned().await);
        }
        if self.0.state.lock().restarts != restarts {
            return Err(connection_lost());
        }
        if self.flaw() == Some(Flaw::KeyLockEndsBeforeCommit) {
            locks.clear();
        }
        Ok(KeyTransaction { running: self.begin(rows), _locks: locks })
    }

    /// How often the primary has restarted, and the locks of these events, sorted: two transactions never wait for each other.
    fn key_rows(&self, events: &[ExternalEvent]) -> (u32, Vec<Arc<Mutex<()>>>) {
        let keys: BTreeSet<_> = events.iter().map(|event| (Arc::clone(&event.topic), event.key.clone())).collect();
        let mut state = self.0.state.lock();
        let rows = keys.into_iter().map(|key| Arc::clone(state.key_rows.entry(key).or_default())).collect();
        (state.restarts, rows)
    }

    /// Commits a batch. It is on disk then.
    fn write(&self, state: &mut PrimaryState, batch: EventBatch, first_row: RowId) -> Result<EventBatchOutcome, Error> {
        let events = batch.events.clone();
        state.before_settlements = None;
        let commit = match self.flaw() {
            Some(Flaw::EventIdsNotCompared) => self.data().publish_repetitions_with_ids(batch, first_row)?,
            _ => self.data().publish_with_ids(batch, first_row)?,
        };
        let EventBatchOutcome::Done { is_new } = &commit else {
            self.0.trace.add("used key", first_row as u64, events.len() as u64);
            return Ok(commit);
        };
        for (event, is_new) in events.into_iter().zip(is_new) {
            let (id, key, topic) = (event.event_id, &event.key, &event.topic);
            self.0.trace.print(format_args!("event {id} of key {key} in {topic} is new: {is_new}"));
            if *is_new {
                state.committed.insert(id);
                state.written.insert(id, event);
            } else {
                self.0.trace.add("known event", first_row as u64, 0);
            }
        }
        Ok(commit)
    }

    /// An event of another service that was ever committed, as it was written.
    pub fn written(&self, event: EventId) -> Option<ExternalEvent> {
        self.0.state.lock().written.get(&event).cloned()
    }
}

#[async_trait]
impl EventStore for PostgresClient {
    async fn publish(&self, batch: EventBatch) -> Result<EventBatchOutcome, Error> {
        let duration = self.commit_duration();
        self.execute("publish_events", move |server| async move { server.publish(batch, duration).await }).await
    }
}
