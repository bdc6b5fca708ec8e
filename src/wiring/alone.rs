//! The store's statements by themselves, for the bench: one thread, no actors, no HTTP, the same batches.
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use app::intake;
use app::relay::plan;
use embedded::{Embedded, SystemClock};
use ports::Error;
use ports::broker::{Batch, Broker, Published};
use ports::inbox::{Inbox, Mark};
use ports::outbox::{Claim, ClaimKind, Claimed, OutboxStore, Settlement};
use ports::partitions::{Acquired, Acquisition, Because, InstanceId, PartitionLeases, PartitionNo};
use ports::source::Sources;

use super::StartError;

/// Rows of one claim and messages of one turn, as the service takes them.
const BATCH: u32 = 1_000;
const LEASE: Duration = Duration::from_secs(600);

/// Events per second through claim, publish, settle and consume on this folder, which nobody else uses.
///
/// # Errors
/// The folder cannot be opened, or a statement fails.
pub async fn statements_alone(folder: &Path) -> Result<f64, StartError> {
    let told = |error: Error| StartError::Store(error.to_string());
    let store =
        Embedded::open_beside(folder, Arc::new(SystemClock::new())).map_err(|e| StartError::Store(e.to_string()))?;
    let instance = InstanceId("alone".into());
    let source = store.join("alone", &["order.events".to_owned()], 0, 1).await.map_err(told)?;
    let begun = Instant::now();
    let mut moved = 0;
    for number in 0..store.partitions() {
        moved += relay(&store, &instance, PartitionNo(number)).await.map_err(told)?;
    }
    let mut consumed = 0;
    while consumed < moved {
        let deliveries = source.poll(BATCH, Duration::ZERO).await.map_err(told)?;
        let understood = deliveries.iter().filter_map(|delivery| Some((delivery, intake::understand(delivery).ok()?)));
        let marks = understood.map(|(delivery, understood)| Mark {
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

async fn relay(store: &Embedded, instance: &InstanceId, partition: PartitionNo) -> Result<u64, Error> {
    let lane = store.open_lane(partition.0).await?;
    let taken = store.acquire(partition, instance, Because::Vacant, None, LEASE).await?;
    let Acquisition::Taken(Acquired { mut fence, .. }) = taken else { return Ok(0) };
    let mut moved = 0;
    loop {
        let claim = Claim { fence: fence.clone(), lane: lane.clone(), limit: BATCH, kind: ClaimKind::Ordinary };
        let Claimed::Batch(batch) = store.claim(claim).await? else { return Ok(moved) };
        fence.counter = batch.token;
        let records = plan(&batch.rows, "/posthaste/local", store.record_bytes_max()).send;
        let published = store.publish(&lane, Batch { partition, token: batch.token, records, time_left: LEASE }).await;
        let Published::Committed(positions) = published else {
            return Err(Error::Broken("a batch was not published".into()));
        };
        moved += positions.len() as u64;
        let settlement = Settlement { fence: fence.clone(), token: batch.token, positions, by_fallback: Vec::new() };
        if let ports::outbox::Changed::Done { counter, .. } = store.settle(settlement).await? {
            fence.counter = counter;
        }
    }
}
