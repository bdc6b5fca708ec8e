//! PartitionHandover: before the tree stops, the publisher hands all partitions over, so that other instances need not wait for the leases.
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use ports::partitions::{InstanceId, PartitionLeases, ReleaseOutcome};
use supervision::{ActorState, AskError, Mailbox, SupervisionBus};
use tokio::time::Instant;

use crate::outbox_publisher::OutboxPublisher;
use crate::outbox_publisher::membership::delete_membership;
use crate::outbox_publisher::messages::Retire;
use crate::partition_worker::local_leases::LocalLeases;

/// The handover of one instance. It may run more than once.
pub struct PartitionHandover {
    /// Resumes the actors that an operator paused.
    pub bus: SupervisionBus,
    /// Asks every worker to release its lease.
    pub publisher: Mailbox<OutboxPublisher>,
    /// The leases that this instance still holds when the publisher does not reply.
    pub local_leases: Arc<LocalLeases>,
    /// Releases the leases when the publisher and its workers have ended.
    pub leases: Arc<dyn PartitionLeases>,
    /// The owner of the leases.
    pub instance: InstanceId,
}

impl PartitionHandover {
    /// Starts no further batch and hands all partitions over. Returns how many still have their lease after `limit`.
    pub async fn run(&self, limit: Duration) -> usize {
        // An actor that an operator paused would block the handover for the whole time.
        for actor in self.bus.snapshot().into_iter().filter(|actor| actor.state == ActorState::Paused) {
            // An error means that the actor has ended since, which blocks nothing.
            let _ = self.bus.resume(&actor.path, "shutdown");
        }
        let deadline = Instant::now() + limit;
        // A publisher that dies restarts and takes partitions again, so it is asked once more.
        for _ in 0..2 {
            let remaining = deadline.saturating_duration_since(Instant::now());
            // The publisher has the last quarter to leave and to reply.
            match self.publisher.ask(Retire { deadline: remaining * 3 / 4 }, remaining).await {
                Ok(left) => return left,
                Err(AskError::Closed) => {}
                Err(AskError::Timeout | AskError::Overloaded) => return self.local_leases.held().len(),
            }
        }
        // The relay has made the root escalate, or the tree has stopped.
        drop(tokio::time::timeout_at(deadline, self.release_leases()).await);
        self.local_leases.held().len()
    }

    /// Releases the leases without their workers, and leaves. The store refuses a lease with an open batch: its next owner resolves the batch once
    /// the lease has expired.
    async fn release_leases(&self) {
        let release = |(partition, epoch)| async move {
            if let Ok(ReleaseOutcome::Done | ReleaseOutcome::NotHeld) =
                self.leases.release(partition, &self.instance, epoch).await
            {
                self.local_leases.remove(partition);
            }
        };
        join_all(self.local_leases.held().into_iter().map(release)).await;
        delete_membership(&*self.leases, &self.instance).await;
    }
}
