//! PartitionHandover: before the tree stops, the publisher hands all partitions over, so that other instances need not wait for the leases.
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use ports::Error;
use ports::partitions::wake::WakeUp;
use ports::partitions::{Epoch, InstanceId, PartitionLeases, PartitionNo, ReleaseOutcome};
use supervision::{ActorState, AskError, Mailbox, SupervisionBus};
use tokio::time::Instant;

use crate::outbox_publisher::OutboxPublisher;
use crate::outbox_publisher::handover::STOP_RETRY_PAUSES;
use crate::outbox_publisher::membership::{delete_membership, partition_list};
use crate::outbox_publisher::messages::Retire;
use crate::outbox_publisher::peers::Peers;
use crate::partition_worker::local_leases::LocalLeases;

/// The handover of one instance. It may run more than once.
pub struct PartitionHandover {
    /// Resumes the actors that an operator paused.
    pub bus: SupervisionBus,
    /// Asks every worker to release its lease.
    pub publisher: Mailbox<OutboxPublisher>,
    /// The leases that this instance holds, as far as it knows.
    pub local_leases: Arc<LocalLeases>,
    /// Releases the leases that the workers have not released.
    pub leases: Arc<dyn PartitionLeases>,
    /// The owner of the leases.
    pub instance: InstanceId,
    /// Receive a wake-up for each partition that was released without its worker.
    pub peers: Peers,
}

impl PartitionHandover {
    /// Starts no further batch and hands all partitions over. Returns how many may still have their lease after `limit`.
    pub async fn run(&self, limit: Duration) -> usize {
        // An actor that an operator paused would block the handover for the whole time.
        for actor in self.bus.snapshot().into_iter().filter(|actor| actor.state == ActorState::Paused) {
            // An error means that the actor has ended since, which blocks nothing.
            let _ = self.bus.resume(&actor.path, "shutdown");
        }
        let deadline = Instant::now() + limit;
        let (errors, pauses) = match self.retire(deadline).await {
            Ok(errors) if errors.is_empty() => return 0,
            Ok(errors) => (errors, &[][..]),
            // The relay has made the root escalate, or the tree has stopped: no worker has repeated its release.
            Err(AskError::Closed) => (Vec::new(), &STOP_RETRY_PAUSES[..]),
            Err(_) => (Vec::new(), &[][..]),
        };
        drop(tokio::time::timeout_at(deadline, self.release_leases(pauses)).await);
        let left = self.local_leases.possibly_held();
        log_left(&left, errors);
        left.len()
    }

    /// Has the publisher hand all partitions over. Returns those that it could not hand over, with the errors.
    async fn retire(&self, deadline: Instant) -> Result<Vec<(PartitionNo, Error)>, AskError> {
        // A publisher that dies restarts and takes partitions again, so it is asked once more.
        for _ in 0..2 {
            let remaining = deadline.saturating_duration_since(Instant::now());
            // The rest is for the publisher to leave and to reply, and for the leases that the workers have not released.
            match self.publisher.ask(Retire { deadline: remaining * 3 / 4 }, remaining * 7 / 8).await {
                Err(AskError::Closed) => {}
                result => return result,
            }
        }
        Err(AskError::Closed)
    }

    /// Releases the leases without their workers, which have ended or wait for the broker, and leaves. A worker that still runs claims nothing under
    /// a released lease, and acquires none. The store refuses to release a lease with an open batch: its next owner resolves the batch once the lease
    /// has expired.
    async fn release_leases(&self, pauses: &[Duration]) {
        self.local_leases.close();
        let (mut pauses, mut released) = (pauses.iter(), Vec::new());
        loop {
            let held = self.local_leases.held();
            let results = join_all(held.into_iter().map(|(partition, epoch)| self.release(partition, epoch))).await;
            released.extend(results.iter().flatten().flatten());
            match pauses.next().filter(|_| results.iter().any(Result::is_err)) {
                Some(pause) => tokio::time::sleep(*pause).await,
                None => break,
            }
        }
        delete_membership(&*self.leases, &self.instance).await;
        // Only now, as after a handover: the quota of each other instance has grown.
        released.into_iter().for_each(|partition| self.peers.notify(WakeUp::Free(partition)));
    }

    /// Returns the partition if its lease does not belong to this instance any more.
    async fn release(&self, partition: PartitionNo, epoch: Epoch) -> Result<Option<PartitionNo>, Error> {
        if self.leases.release(partition, &self.instance, epoch).await? == ReleaseOutcome::InFlight {
            return Ok(None);
        }
        self.local_leases.remove(partition, epoch);
        Ok(Some(partition))
    }
}

fn log_left(left: &BTreeSet<PartitionNo>, errors: Vec<(PartitionNo, Error)>) {
    if left.is_empty() {
        return;
    }
    let error = errors.into_iter().find(|(partition, _)| left.contains(partition));
    let error = error.map_or_else(|| "the relay did not release them in time".into(), |(_, error)| error.to_string());
    let partitions = partition_list(left);
    tracing::warn!(
        event = "leases_not_released",
        partitions,
        error,
        "the leases of the partitions {partitions} could not be released: their next owners wait until they expire: {error}"
    );
}
