//! Releases partitions: one that goes to another instance, or all of them before this one stops.
use std::time::Duration;

use futures::future::join_all;
use ports::partitions::PartitionNo;

use super::peers::Peers;
use super::workers::Workers;
use crate::partition_worker::HandOver;

/// Hands a partition over: no new claim, then settle the batch in flight, then release. The message waits in the worker's mailbox behind
/// the batch in flight, so that a busy partition changes its owner, too.
pub async fn hand_over(workers: Workers, peers: Peers, partition: PartitionNo, deadline: Duration) {
    let Some(worker) = workers.find(partition) else { return };
    if matches!(worker.ask(HandOver, deadline).await, Ok(true)) {
        workers.remove(partition).await;
        peers.notify(partition);
    }
}

/// Hands all partitions over in parallel, then leaves the group. Returns how many could not be handed over.
pub async fn retire(
    workers: Option<Workers>,
    peers: Peers,
    leave: impl Future<Output = ()>,
    deadline: Duration,
) -> usize {
    let workers = workers.map(|workers| workers.all()).unwrap_or_default();
    let released = join_all(workers.iter().map(|(_, worker)| worker.ask(HandOver, deadline))).await;
    let left = released.iter().filter(|reply| !matches!(reply, Ok(true))).count();
    leave.await;
    // Only now: an instance that scans after this notification counts one member fewer, so that its share has grown.
    workers.iter().for_each(|(partition, _)| peers.notify(*partition));
    left
}
