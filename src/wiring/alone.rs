//! The store's statements by themselves, for the bench: no actors, no HTTP, no Kafka; the same batches, as many at once.
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use app::consume::intake;
use app::relay::{RecordEnvelope, plan};
use domain::RegionId;
use embedded::Embedded;
use memory::SystemClock;
use ports::Error;
use ports::broker::{Batch, Broker, Position, Published};
use ports::inbox::{Inbox, ProcessedEvent};
use ports::outbox::{Claim, ClaimKind, Claimed, ClaimedBatch, FencedOutcome, OutboxStore, RowId, Settlement};
use ports::partitions::{
    AcquireReason, Acquired, Acquisition, Fence, InstanceId, PartitionLeases, PartitionNo, ProducerSessionId,
};
use ports::source::ConsumerGroups;
use tokio::task::JoinSet;

use super::backends::StorePorts;
use super::store::Opened;
use super::{StartError, fill};
use crate::config::{Config, StoreKind};

/// Messages of one consumer's turn.
const TURN: u32 = 1_000;
const LEASE: Duration = Duration::from_secs(600);

fn told(error: Error) -> StartError {
    StartError::Store(error.to_string())
}

/// Events per second through the configured store's statements by themselves, until nothing is left; nobody else may use the store.
/// The embedded one, which is a broker too: claim, publish, settle and consume, one after another as its one writer does. Another:
/// claim and settle, so many partitions at once as the relay takes.
///
/// # Errors
/// The store cannot be opened, or a statement fails.
pub async fn statements_alone(config: &Config) -> Result<f64, StartError> {
    match config.store.kind {
        StoreKind::Embedded => embedded_alone(config).await,
        StoreKind::Postgres | StoreKind::Redis => store_alone(config).await,
    }
}

async fn store_alone(config: &Config) -> Result<f64, StartError> {
    let Opened { ports, held, .. } = fill::open(config, "bench-alone").await?;
    let relay = Arc::new(Alone {
        ports,
        instance: InstanceId("bench-alone".into()),
        next: AtomicU32::new(0),
        partitions: config.outbox.partitions,
        batch: config.outbox.publisher.batch,
        topic: config.topic().into(),
    });
    let begun = Instant::now();
    let mut hands = JoinSet::new();
    for _ in 0..config.outbox.publisher.max_in_flight {
        hands.spawn(Arc::clone(&relay).work());
    }
    let mut moved = 0;
    let mut failed = None;
    while let Some(done) = hands.join_next().await {
        match done {
            Ok(Ok(more)) => moved += more,
            Ok(Err(error)) => failed = Some(told(error)),
            Err(error) => failed = Some(StartError::Store(error.to_string())),
        }
    }
    let elapsed = begun.elapsed();
    held.close().await;
    failed.map_or(Ok(moved as f64 / elapsed.as_secs_f64()), Err)
}

/// What all hands share.
struct Alone {
    ports: StorePorts,
    instance: InstanceId,
    next: AtomicU32,
    partitions: u32,
    batch: u32,
    topic: Arc<str>,
}

impl Alone {
    /// One partition after another, each to its end; says how many events that were.
    async fn work(self: Arc<Self>) -> Result<u64, Error> {
        let mut moved = 0;
        loop {
            let partition = self.next.fetch_add(1, Relaxed);
            if partition >= self.partitions {
                return Ok(moved);
            }
            moved += self.drain(PartitionNo(partition)).await?;
        }
    }

    async fn drain(&self, partition: PartitionNo) -> Result<u64, Error> {
        let Some(mut fence) = acquire(&*self.ports.leases, &self.instance, partition).await? else { return Ok(0) };
        let (lane, mut moved) = (ProducerSessionId("bench-alone".into()), 0);
        loop {
            let claim =
                Claim { fence: fence.clone(), session: lane.clone(), limit: self.batch, kind: ClaimKind::Ordinary };
            let Claimed::Batch(batch) = self.ports.outbox.claim(claim).await? else { return Ok(moved) };
            moved += batch.rows.len() as u64;
            fence.counter = settle(&*self.ports.outbox, &fence, &batch, self.positions(&batch)).await?;
        }
    }

    /// Places as a broker would tell them: the statement carries them either way.
    fn positions(&self, batch: &ClaimedBatch) -> Vec<(RowId, Position)> {
        let position = |row: RowId| Position { topic: Arc::clone(&self.topic), partition: 0, offset: row as u64 };
        batch.rows.iter().map(|row| (row.id, position(row.id))).collect()
    }
}

async fn acquire(
    leases: &dyn PartitionLeases,
    instance: &InstanceId,
    partition: PartitionNo,
) -> Result<Option<Fence>, Error> {
    match leases.acquire(partition, instance, AcquireReason::Vacant, None, LEASE).await? {
        Acquisition::Taken(Acquired { fence, .. }) => Ok(Some(fence)),
        Acquisition::Held { .. } => Ok(None),
    }
}

async fn settle(
    outbox: &dyn OutboxStore,
    fence: &Fence,
    batch: &ClaimedBatch,
    positions: Vec<(RowId, Position)>,
) -> Result<u64, Error> {
    let settlement = Settlement { fence: fence.clone(), token: batch.token, positions, by_fallback: Vec::new() };
    match outbox.settle(settlement).await? {
        FencedOutcome::Done { counter, .. } => Ok(counter),
        FencedOutcome::Stale => Err(Error::Broken("somebody else uses the bench's data".into())),
    }
}

async fn embedded_alone(config: &Config) -> Result<f64, StartError> {
    let store = Embedded::open_beside(&config.store.path, Arc::new(SystemClock::new()))
        .map_err(|error| StartError::Store(error.to_string()))?;
    let source = store.join("alone", &[config.topic()], 0, 1).await.map_err(told)?;
    let begun = Instant::now();
    let mut moved = 0;
    for number in 0..store.partitions() {
        moved += publish_all(&store, PartitionNo(number), config.outbox.publisher.batch).await.map_err(told)?;
    }
    let mut consumed = 0;
    while consumed < moved {
        let deliveries = source.poll(TURN, Duration::ZERO).await.map_err(told)?;
        let understood = deliveries.iter().filter_map(|delivery| Some((delivery, intake::decode(delivery).ok()?)));
        let marks = understood.map(|(delivery, understood)| ProcessedEvent {
            event_id: understood.event.event_id,
            position: delivery.position.clone(),
            effects: Vec::new(),
        });
        store.commit("alone", marks.collect()).await.map_err(told)?;
        let done: Vec<_> = deliveries.iter().map(|delivery| delivery.position.clone()).collect();
        source.acknowledge(&done).await.map_err(told)?;
        if deliveries.is_empty() {
            return Err(StartError::Store("fewer events came out than went in".into()));
        }
        consumed += deliveries.len() as u64;
    }
    Ok(moved as f64 / begun.elapsed().as_secs_f64())
}

async fn publish_all(store: &Embedded, partition: PartitionNo, limit: u32) -> Result<u64, Error> {
    let instance = InstanceId("alone".into());
    let lane = store.open_session(partition.0).await?;
    let envelope = RecordEnvelope::new(&RegionId::new("local"), None);
    let Some(mut fence) = acquire(store, &instance, partition).await? else { return Ok(0) };
    let mut moved = 0;
    loop {
        let claim = Claim { fence: fence.clone(), session: lane.clone(), limit, kind: ClaimKind::Ordinary };
        let Claimed::Batch(batch) = store.claim(claim).await? else { return Ok(moved) };
        fence.counter = batch.token;
        let records = plan(&batch.rows, &envelope, store.record_bytes_max()).send;
        let published = store.publish(&lane, Batch { partition, token: batch.token, records, time_left: LEASE }).await;
        let Published::Committed(positions) = published else {
            return Err(Error::Broken("a batch was not published".into()));
        };
        moved += positions.len() as u64;
        fence.counter = settle(store, &fence, &batch, positions).await?;
    }
}
