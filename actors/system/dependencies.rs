//! Dependencies: the ports and shared services that the actors use.
use std::sync::Arc;

use app::admission::write_gate::WriteGate;
use app::commands::CommandContext;
use app::consume::handlers::Handlers;
use app::health::SharedHealth;
use ports::broker::Broker;
use ports::broker::consumer_groups::ConsumerGroups;
use ports::clock::{Clock, Rng};
use ports::endpoint::WebhookClient;
use ports::endpoint::webhooks::WebhookStore;
use ports::inbox::Inbox;
use ports::outbox::OutboxStore;
use ports::outbox::events::EventStore;
use ports::partitions::PartitionLeases;
use ports::partitions::wake::WakeChannel;
use ports::probe::Probe;
use telemetry::Metrics;
use telemetry::traces::Tracer;

use crate::consumer_actor::topic_pipeline::TopicConsumers;

/// A probe of a service, and what its failure means for the region.
#[derive(Clone)]
pub struct MonitoredProbe {
    /// Asks the service whether it answers.
    pub probe: Arc<dyn Probe>,
    /// Whether its failure makes the region PASSIVE, so that this instance accepts no writes.
    pub gates_region: bool,
}

/// The ports and shared services that the actors may use. Cheap to clone.
#[derive(Clone)]
pub struct Dependencies {
    /// Context of the commands: orders, idempotency keys, cache, gate.
    pub commands: Arc<CommandContext>,
    /// Store of the outbox rows.
    pub outbox: Arc<dyn OutboxStore>,
    /// Takes the events that other services hand over.
    pub events: Arc<dyn EventStore>,
    /// Partition leases and group membership.
    pub leases: Arc<dyn PartitionLeases>,
    /// Receives the events; `None` while no broker is configured.
    pub broker: Option<Arc<dyn Broker>>,
    /// Source of consumed messages; `None` while no broker is configured.
    pub consumer_groups: Option<Arc<dyn ConsumerGroups>>,
    /// Wake-ups between instances that share the store; `None` where there is only one instance.
    pub wake_channel: Option<Arc<dyn WakeChannel>>,
    /// Store of the events that were already consumed.
    pub inbox: Arc<dyn Inbox>,
    /// Store of the webhooks.
    pub webhooks: Arc<dyn WebhookStore>,
    /// Calls the endpoints of webhooks; `None` where they are switched off.
    pub webhook_client: Option<Arc<dyn WebhookClient>>,
    /// Handlers of consumed events, by event type.
    pub handlers: Handlers,
    /// The consumers of other services' topics.
    pub topic_consumers: Vec<TopicConsumers>,
    /// Probes of the services that this instance uses.
    pub probes: Vec<MonitoredProbe>,
    /// The clock of this process, for stamps and the local expiry of leases.
    pub clock: Arc<dyn Clock>,
    /// Source of randomness, for jitter.
    pub rng: Arc<dyn Rng>,
    /// Whether this instance accepts writes.
    pub gate: Arc<WriteGate>,
    /// Health of this instance, as readiness and the console show it.
    pub health: SharedHealth,
    /// All metrics of this instance.
    pub metrics: Arc<Metrics>,
    /// Starts the spans of traced requests and events; off unless a collector is configured.
    pub tracer: Tracer,
}
