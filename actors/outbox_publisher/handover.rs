//! Handovers: a worker settles and releases its partition, and the other instances receive a wake-up.
use std::time::Duration;

use futures::future::join_all;
use ports::partitions::wake::WakeUp;

use super::peers::Peers;
use super::workers::{WorkerHandle, Workers};
use crate::partition_worker::HandOver;

/// Hands one partition over, removes its worker, and then notifies the other instances.
pub async fn hand_over(
    WorkerHandle { partition, mailbox }: WorkerHandle,
    after_release: Option<WakeUp>,
    workers: Workers,
    peers: Peers,
    deadline: Duration,
) {
    if matches!(mailbox.ask(HandOver, deadline).await, Ok(true)) {
        workers.remove(partition).await;
        if let Some(wake_up) = after_release {
            peers.notify(wake_up);
        }
    }
}

/// Hands all partitions over at the same time, then leaves. Returns how many could not be handed over.
pub async fn hand_over_all(
    workers: Vec<WorkerHandle>,
    leave: impl Future<Output = ()>,
    peers: Peers,
    deadline: Duration,
) -> usize {
    // Each message waits in its worker's mailbox behind the batch in flight.
    let released = join_all(workers.iter().map(|worker| worker.mailbox.ask(HandOver, deadline))).await;
    let left = released.iter().filter(|reply| !matches!(reply, Ok(true))).count();
    leave.await;
    // Only now: an instance that refreshes its membership after this notification counts one member fewer, so its quota has grown.
    workers.iter().for_each(|worker| peers.notify(WakeUp::Free(worker.partition)));
    left
}
