//! Handovers: a worker settles and releases its partition, and the other instances receive a wake-up.
use std::time::Duration;

use futures::future::join_all;
use ports::Error;
use ports::partitions::PartitionNo;
use ports::partitions::wake::WakeUp;
use supervision::AskError;
use tokio::time::Instant;

use super::peers::Peers;
use super::workers::{WorkerHandle, Workers};
use crate::partition_worker::HandOver;
use crate::partition_worker::acquire_failure::AcquireFailure;
use crate::partition_worker::report::BrokerSignal;

/// Pauses before a release that failed at a stop is repeated. It can fail for a moment: another statement has locked the lease row, or every
/// connection of the store is in use. They delay the stop of an instance without a store by 1.75 s, besides the time of the calls.
pub const STOP_RETRY_PAUSES: [Duration; 3] =
    [Duration::from_millis(250), Duration::from_millis(500), Duration::from_millis(1_000)];

/// Hands one partition over, removes its worker, and then notifies the other instances.
pub async fn hand_over(
    WorkerHandle { partition, mailbox }: WorkerHandle,
    after_release: Option<WakeUp>,
    workers: Workers,
    peers: Peers,
    deadline: Duration,
) {
    if matches!(mailbox.ask(HandOver, deadline).await, Ok(Ok(()))) {
        workers.remove(partition).await;
        if let Some(wake_up) = after_release {
            peers.notify(wake_up);
        }
    }
}

/// Hands all partitions over at the same time, then leaves. Returns the partitions that could not be handed over, with the errors.
pub async fn hand_over_all(
    workers: Option<Workers>,
    leave: impl Future<Output = ()>,
    peers: Peers,
    deadline: Duration,
) -> Vec<(PartitionNo, Error)> {
    let Some(workers) = workers else {
        leave.await;
        return Vec::new();
    };
    let (handles, until) = (workers.all(), Instant::now() + deadline);
    let results = join_all(handles.iter().map(|worker| hand_over_at_stop(worker, &workers, until))).await;
    leave.await;
    // Only now: an instance that refreshes its membership after this notification counts one member fewer, so its quota has grown.
    handles.iter().for_each(|worker| peers.notify(WakeUp::Free(worker.partition)));
    let partitions = handles.iter().map(|worker| worker.partition);
    partitions.zip(results).filter_map(|(partition, result)| Some((partition, result.err()?))).collect()
}

/// Hands one partition over, and repeats that after a failure: there is no next heartbeat that would do it.
async fn hand_over_at_stop(worker: &WorkerHandle, workers: &Workers, until: Instant) -> Result<(), Error> {
    let mut pauses = STOP_RETRY_PAUSES.into_iter();
    loop {
        // The message waits in the worker's mailbox behind the batch in flight.
        let remaining = until.saturating_duration_since(Instant::now());
        let error = match worker.mailbox.ask(HandOver, remaining).await {
            Ok(Ok(())) => return Ok(()),
            // An open batch can only be resolved with the broker, which would fail again.
            Ok(Err(AcquireFailure { error, broker: BrokerSignal::Failed(_) })) => return Err(error),
            Ok(Err(failure)) => failure.error,
            // An earlier handover has removed the worker.
            Err(AskError::Closed) if workers.find(worker.partition).is_none() => return Ok(()),
            // The worker died, and restarts.
            Err(AskError::Closed) => Error::Unreachable("its worker died".into()),
            Err(AskError::Timeout | AskError::Overloaded) => {
                return Err(Error::Unreachable("its worker waits for the store or the broker".into()));
            }
        };
        match pauses.next().filter(|pause| Instant::now() + *pause < until) {
            Some(pause) => tokio::time::sleep(pause).await,
            None => return Err(error),
        }
    }
}
