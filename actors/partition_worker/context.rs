//! The ports and limits that all partition workers of an instance share.
use std::sync::Arc;

use app::relay::RecordEnvelope;
use ports::broker::Broker;
use ports::orders::cache::OrderCache;
use ports::outbox::{OutboxStore, PoisonPolicy};
use ports::partitions::{InstanceId, PartitionLeases};
use supervision::{Mailbox, SupervisionBus};
use telemetry::Metrics;
use telemetry::traces::Tracer;

use super::local_leases::LocalLeases;
use super::producer_sessions::ProducerSessions;
use crate::retry_handler::RetryHandler;

/// Shared by all workers; holds no fact that is not in the store or the broker, too.
pub struct RelayContext {
    /// Publishes batches; its watermark resolves unknown outcomes.
    pub broker: Arc<dyn Broker>,
    /// Claims, excludes, settles and resolves rows.
    pub outbox: Arc<dyn OutboxStore>,
    /// Grants the right to act on a partition.
    pub leases: Arc<dyn PartitionLeases>,
    /// Emptied when the store was rewound.
    pub cache: Arc<dyn OrderCache>,
    /// Open transactional producers of this instance.
    pub producers: ProducerSessions,
    /// Remaining time of each lease, by a clock of this process.
    pub local_leases: Arc<LocalLeases>,
    /// Decides about rows that failed, and writes their exclusion.
    pub retry_handler: Mailbox<RetryHandler>,
    /// Effect of a row that is parked as poison on the later rows of its key.
    pub poison: PoisonPolicy,
    /// Name of this instance in leases.
    pub instance: InstanceId,
    /// Headers that all records of this instance have in common.
    pub envelope: RecordEnvelope,
    /// Limits of a batch.
    pub options: app::relay::Options,
    /// Counters of the relay.
    pub metrics: Arc<Metrics>,
    /// Starts the spans of traced events.
    pub tracer: Tracer,
    /// The live stream, for parked rows.
    pub bus: SupervisionBus,
}

impl RelayContext {
    /// The store was rewound, so the cache may have versions of orders that the store has lost. A cache that fails here serves nothing
    /// to this process until it has been emptied.
    pub(super) async fn empty_cache(&self) {
        let _ = self.cache.evict_all().await;
    }
}
