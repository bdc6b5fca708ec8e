//! The store's statements by themselves: no actors, no HTTP, no Kafka; the same batches, as many concurrently as the relay has in flight.
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use app::consume::message_decision;
use app::contract::order_values;
use app::relay::{RecordEnvelope, plan};
use domain::RegionId;
use ports::broker::{Batch, Position, PublishOutcome};
use ports::inbox::ProcessedEvent;
use ports::outbox::{Claim, ClaimKind, ClaimOutcome, ClaimedBatch, FencedOutcome, OutboxStore, RowId, Settlement};
use ports::partitions::{
    AcquireReason, AcquiredLease, Acquisition, InstanceId, LeaseFence, PartitionLeases, PartitionNo, ProducerSessionId,
};
use tokio::task::JoinSet;

use crate::error::Error;
use crate::program::{OpenStore, StoreAndBroker, ThrowawayData};

const POLL_RECORDS_MAX: u32 = 1_000;
/// Longer than any measurement: no lease is renewed.
const LEASE: Duration = Duration::from_secs(600);
/// The consumer group and the instance of the measurement.
pub(crate) const MEASUREMENT_NAME: &str = "bench-statements";

/// Events per second through the store's statements by themselves, until the outbox is empty. A store that is its own broker claims,
/// publishes, settles and consumes, one after another as its one writer does. Another store claims and settles.
///
/// # Errors
/// The store cannot be opened, or a statement fails.
pub(crate) async fn events_per_second(data: &impl ThrowawayData) -> Result<f64, Error> {
    match data.open_store_and_broker().await? {
        Some(store) => store_and_broker(data, store).await,
        None => store_only(data).await,
    }
}

async fn store_only(data: &impl ThrowawayData) -> Result<f64, Error> {
    let store = data.open_store(MEASUREMENT_NAME).await?;
    let drain = Arc::new(StatementDrain {
        outbox: store.outbox(),
        leases: store.leases(),
        next: AtomicU32::new(0),
        partitions: data.partitions(),
        batch: data.batch(),
        topic: data.topic().into(),
    });
    let begin = Instant::now();
    let mut workers = JoinSet::new();
    for _ in 0..data.batches_in_flight() {
        workers.spawn(Arc::clone(&drain).drain_partitions());
    }
    let mut moved: Result<u64, Error> = Ok(0);
    while let Some(worker) = workers.join_next().await {
        let more = worker.map_err(Error::new).and_then(|more| more.map_err(Error::from));
        moved = moved.and_then(|moved| Ok(moved + more?));
    }
    let elapsed = begin.elapsed();
    store.close().await;
    Ok(moved? as f64 / elapsed.as_secs_f64())
}

/// State that all workers of a measurement share.
struct StatementDrain {
    outbox: Arc<dyn OutboxStore>,
    leases: Arc<dyn PartitionLeases>,
    next: AtomicU32,
    partitions: u32,
    batch: u32,
    topic: Arc<str>,
}

impl StatementDrain {
    /// Drains one partition after another; returns the number of events.
    async fn drain_partitions(self: Arc<Self>) -> Result<u64, ports::Error> {
        let mut moved = 0;
        loop {
            let partition = self.next.fetch_add(1, Relaxed);
            if partition >= self.partitions {
                return Ok(moved);
            }
            moved += self.drain(PartitionNo(partition)).await?;
        }
    }

    async fn drain(&self, partition: PartitionNo) -> Result<u64, ports::Error> {
        let Some(mut fence) = acquire(&*self.leases, partition).await? else { return Ok(0) };
        let (session, mut moved) = (ProducerSessionId(MEASUREMENT_NAME.into()), 0);
        loop {
            let claim =
                Claim { fence: fence.clone(), session: session.clone(), limit: self.batch, kind: ClaimKind::Ordinary };
            let ClaimOutcome::Batch(batch) = self.outbox.claim(claim).await? else { return Ok(moved) };
            moved += batch.rows.len() as u64;
            fence.counter = settle(&*self.outbox, &fence, &batch, self.positions(&batch)).await?;
        }
    }

    /// Positions as a broker returns them: the statement carries them either way.
    fn positions(&self, batch: &ClaimedBatch) -> Vec<(RowId, Position)> {
        let position = |row: RowId| Position { topic: Arc::clone(&self.topic), partition: 0, offset: row as u64 };
        batch.rows.iter().map(|row| (row.id, position(row.id))).collect()
    }
}

/// Acquires a partition; `None` if another instance holds it.
pub(crate) async fn acquire(
    leases: &dyn PartitionLeases,
    partition: PartitionNo,
) -> Result<Option<LeaseFence>, ports::Error> {
    let instance = InstanceId(MEASUREMENT_NAME.into());
    match leases.acquire(partition, &instance, AcquireReason::Unowned, None, LEASE).await? {
        Acquisition::Acquired(AcquiredLease { fence, .. }) => Ok(Some(fence)),
        // A bench runs on a store of its own, which is never restored.
        Acquisition::Held { .. } | Acquisition::TimelineChanged(_) => Ok(None),
    }
}

async fn settle(
    outbox: &dyn OutboxStore,
    fence: &LeaseFence,
    batch: &ClaimedBatch,
    positions: Vec<(RowId, Position)>,
) -> Result<u64, ports::Error> {
    let settlement =
        Settlement { fence: fence.clone(), token: batch.token, positions: positions.into(), by_fallback: Vec::new() };
    match outbox.settle(settlement).await? {
        FencedOutcome::Done { counter, .. } => Ok(counter),
        FencedOutcome::Stale => Err(ports::Error::Broken("another process uses the bench's data".into())),
    }
}

async fn store_and_broker(data: &impl ThrowawayData, store: StoreAndBroker) -> Result<f64, Error> {
    let member = store.groups.join(MEASUREMENT_NAME, &[data.topic()], 0, 1).await?;
    let begin = Instant::now();
    let mut moved = 0;
    for number in 0..data.partitions() {
        moved += publish_all(&store, PartitionNo(number), data).await?;
    }
    let mut consumed = 0;
    while consumed < moved {
        let messages = member.poll(POLL_RECORDS_MAX, Duration::ZERO).await?;
        if messages.is_empty() {
            return Err(Error::new("fewer events were consumed than were published"));
        }
        let decoded = messages.iter().filter_map(|message| Some((message, message_decision::decode(message).ok()?)));
        let processed = decoded.map(|(message, decoded)| ProcessedEvent {
            event_id: decoded.event.event_id,
            position: message.position.clone(),
            effects: Vec::new(),
        });
        store.inbox.commit(MEASUREMENT_NAME, processed.collect()).await?;
        let positions: Vec<_> = messages.iter().map(|message| message.position.clone()).collect();
        member.acknowledge(&positions).await?;
        consumed += messages.len() as u64;
    }
    Ok(moved as f64 / begin.elapsed().as_secs_f64())
}

async fn publish_all(
    store: &StoreAndBroker,
    partition: PartitionNo,
    data: &impl ThrowawayData,
) -> Result<u64, ports::Error> {
    let session = store.broker.open_session(partition.0).await?;
    let limit = data.batch();
    let envelope = RecordEnvelope::new(&RegionId::new("local"), order_values(data.topic().into(), None));
    let Some(mut fence) = acquire(&*store.leases, partition).await? else { return Ok(0) };
    let mut moved = 0;
    loop {
        let claim = Claim { fence: fence.clone(), session: session.clone(), limit, kind: ClaimKind::Ordinary };
        let ClaimOutcome::Batch(batch) = store.outbox.claim(claim).await? else { return Ok(moved) };
        fence.counter = batch.token;
        let records = plan(&batch.rows, &envelope, store.broker.record_bytes_max()).send;
        let outgoing = Batch { partition, token: batch.token, records, time_left: LEASE, expected_batches: 0 };
        let PublishOutcome::Committed(positions) = store.broker.publish(&session, outgoing).await else {
            return Err(ports::Error::Broken("a batch was not published".into()));
        };
        moved += positions.len() as u64;
        fence.counter = settle(&*store.outbox, &fence, &batch, positions).await?;
    }
}
