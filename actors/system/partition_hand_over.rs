//! PartitionHandOver: before the tree stops, the publisher hands all partitions over, so that other instances need not wait for the leases.
use std::sync::Arc;
use std::time::Duration;

use supervision::{ActorState, Mailbox, SupervisionBus};

use crate::outbox_publisher::OutboxPublisher;
use crate::outbox_publisher::messages::Retire;
use crate::partition_worker::local_leases::LocalLeases;

/// The hand-over of one instance. It may run more than once.
#[derive(Clone)]
pub struct PartitionHandOver {
    /// Resumes the actors that an operator paused.
    pub bus: SupervisionBus,
    /// Supervises no worker, but asks every one to release its lease.
    pub publisher: Mailbox<OutboxPublisher>,
    /// What remains when the publisher does not reply.
    pub local_leases: Arc<LocalLeases>,
}

impl PartitionHandOver {
    /// Starts no further batch and hands all partitions over. Returns how many still have their lease after `limit`.
    pub async fn run(&self, limit: Duration) -> usize {
        // An actor that an operator paused would block the hand-over for the whole time.
        for row in self.bus.snapshot().into_iter().filter(|row| row.state == ActorState::Paused) {
            // An error means that the actor has ended since, which blocks nothing.
            let _ = self.bus.resume(&row.path, "shutdown");
        }
        // The publisher has the last quarter to leave and to reply.
        let reply = self.publisher.ask(Retire { deadline: limit * 3 / 4 }, limit).await;
        reply.unwrap_or_else(|_| self.local_leases.held().len())
    }
}
