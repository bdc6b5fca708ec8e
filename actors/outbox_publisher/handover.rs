//! Handovers: a worker settles and releases its partition, and the other instances receive a wake-up.
use std::time::Duration;

use futures::future::join_all;
use ports::partitions::PartitionNo;
use ports::partitions::wake::WakeUp;
use supervision::Mailbox;

use super::peers::Peers;
use super::workers::Workers;
use crate::partition_worker::{HandOver, PartitionWorker};

/// Hands one partition over and removes its worker. `held` says whether this instance has the lease: without it another instance holds the
/// partition, which is therefore not free.
pub async fn hand_over(
    (partition, worker): (PartitionNo, Mailbox<PartitionWorker>),
    held: bool,
    workers: Workers,
    peers: Peers,
    deadline: Duration,
) {
    if matches!(worker.ask(HandOver, deadline).await, Ok(true)) {
        workers.remove(partition).await;
        if held {
            peers.notify(WakeUp::Free(partition));
        }
    }
}

/// Hands all partitions over at the same time, then leaves. Returns how many could not be handed over.
pub async fn hand_over_all(
    workers: Vec<(PartitionNo, Mailbox<PartitionWorker>)>,
    leave: impl Future<Output = ()>,
    peers: Peers,
    deadline: Duration,
) -> usize {
    // Each message waits in its worker's mailbox behind the batch in flight.
    let released = join_all(workers.iter().map(|(_, worker)| worker.ask(HandOver, deadline))).await;
    let left = released.iter().filter(|reply| !matches!(reply, Ok(true))).count();
    leave.await;
    // Only now: an instance that scans after this notification counts one member fewer, so that its share has grown.
    workers.iter().for_each(|(partition, _)| peers.notify(WakeUp::Free(*partition)));
    left
}
