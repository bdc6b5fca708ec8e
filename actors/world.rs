//! What the cast works with: the ports, and how.
use std::sync::Arc;
use std::time::Duration;

use app::admission::gate::Gate;
use app::commands::CommandContext;
use app::consume::handlers::Handlers;
use app::health::HealthBoard;
use app::policy::{self, breaker};
use app::relay::{self, chain};
use ports::broker::Broker;
use ports::clock::{Clock, Rng};
use ports::inbox::Inbox;
use ports::outbox::OutboxStore;
use ports::partitions::{InstanceId, PartitionLeases};
use ports::probe::Probe;
use ports::source::ConsumerGroups;
use ports::wake::WakeChannel;
use telemetry::Metrics;

use crate::lanes::Pinning;

/// Everything outside the actors that they may touch.
#[derive(Clone)]
pub struct World {
    /// The write side's desk: orders, keys, cache, gate.
    pub desk: Arc<CommandContext>,
    /// The outbox.
    pub outbox: Arc<dyn OutboxStore>,
    /// Who may move what.
    pub leases: Arc<dyn PartitionLeases>,
    /// Where events go; `None` while no broker is configured.
    pub broker: Option<Arc<dyn Broker>>,
    /// Where consumed messages come from; `None` while no broker is configured.
    pub sources: Option<Arc<dyn ConsumerGroups>>,
    /// How instances that share the store wake each other; `None` where there is only one.
    pub wakes: Option<Arc<dyn WakeChannel>>,
    /// What was already consumed.
    pub inbox: Arc<dyn Inbox>,
    /// What consuming means.
    pub handlers: Handlers,
    /// Dependencies to watch, and whether each gates the region.
    pub probes: Vec<(Arc<dyn Probe>, bool)>,
    /// Stamps.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub dice: Arc<dyn Rng>,
    /// May we write?
    pub gate: Arc<Gate>,
    /// Our health.
    pub vitals: HealthBoard,
    /// Counters.
    pub metrics: Arc<Metrics>,
}

/// How the cast works. Every queue, loop and wait has its limit here.
#[derive(Clone, Debug)]
pub struct Options {
    /// This instance's stable name.
    pub instance: InstanceId,
    /// What the relay keeps to.
    pub relay: relay::Options,
    /// What becomes of events that do not go.
    pub rules: chain::ChainRules,
    /// When sends pause because the broker is away.
    pub breaker: breaker::Options,
    /// When pressure rises.
    pub pressure: policy::backpressure::PressureThresholds,
    /// When the region turns passive.
    pub region: policy::failover::FailoverThresholds,
    /// Shares of keys.
    pub partitions: u32,
    /// Lanes to the broker; a partition is pinned to one while its session lives.
    pub lanes: Pinning,
    /// Batches in flight in this instance, one a partition. 16: enough to hide the broker's round trip behind one writer.
    pub max_in_flight: usize,
    /// Partitions whose numbers leave the same rest by this go together where they can: the greatest common divisor with the topic's
    /// number of partitions, because both are chosen by the same hash. 1 where a transaction costs the same whatever it touches.
    pub neighbourhoods: u32,
    /// Least time between the beginnings of two batches of one partition that does not come back full. 20 ms: at 6,000 events a second
    /// over 64 partitions a batch then carries two events instead of one, which is what bounds the store's work; an idle partition never
    /// waits.
    pub batch_spacing: Duration,
    /// Batches that are under way at a time where many partitions have work: so much longer than its batch took does each rest as there
    /// are more of them. 4 where each batch asks something of servers that share the processor with orders (16 times as long, with all 64
    /// at work); 32 where it costs little, for events that leave sooner.
    pub batches_under_way: u32,
    /// The longest such rest. A second where batches must grow to be worth their price: it is reached where a batch takes a sixteenth of
    /// that, and a queue for the broker would be as long.
    pub batch_rest_max: Duration,
    /// The safety net under the wake-ups, jittered.
    pub poll_interval: Duration,
    /// Heartbeat and lease renewal.
    pub heartbeat: Duration,
    /// Silence after which a fellow counts as dead.
    pub dead_after: Duration,
    /// How long sent rows stay in the archive.
    pub retention: Duration,
    /// How long consumed events are remembered; longer than the topics keep them.
    pub inbox_retention: Duration,
    /// Rows of one page of a sweep.
    pub sweep_page: u32,
    /// Time between sweeps.
    pub sweep_interval: Duration,
    /// Topic that consumers read, with its retry topics.
    pub topic: String,
    /// Their group.
    pub group: String,
    /// How many there are.
    pub consumers: u32,
    /// Messages a consumer takes at once.
    pub consumer_batch: u32,
    /// Time between rounds of probes.
    pub probe_interval: Duration,
    /// Longest a probe may take.
    pub probe_timeout: Duration,
    /// Time between promotions; zero is off.
    pub promotion_interval: Duration,
    /// Orders of one page of a promotion.
    pub promotion_batch: u32,
    /// Shards of OrderAggregate.
    pub shards: u32,
    /// Commands a shard holds, waiting and running.
    pub mailbox: usize,
    /// Longest a command may take.
    pub request_timeout: Duration,
    /// Whether faults may be injected.
    pub faults: bool,
    /// Whether each sort of actor gets a thread of its own; off in simulations, where all share one virtual clock.
    pub threads: bool,
}

impl Default for Options {
    fn default() -> Self {
        let region = domain::RegionId::new("local");
        Self {
            instance: InstanceId("local".into()),
            relay: relay::Options {
                region,
                schemas: None,
                batch: 1_000,
                lease: Duration::from_secs(30),
                margin: Duration::from_secs(1),
            },
            rules: chain::ChainRules::default(),
            breaker: breaker::Options::default(),
            pressure: policy::backpressure::PressureThresholds::default(),
            region: policy::failover::FailoverThresholds::default(),
            partitions: 64,
            lanes: Pinning::Together(2),
            max_in_flight: 16,
            neighbourhoods: 1,
            batch_spacing: Duration::from_millis(20),
            batches_under_way: 32,
            batch_rest_max: Duration::from_millis(200),
            poll_interval: Duration::from_secs(1),
            heartbeat: Duration::from_secs(3),
            dead_after: Duration::from_secs(15),
            retention: Duration::from_secs(7 * 86_400),
            inbox_retention: Duration::from_secs(14 * 86_400),
            sweep_page: 1_000,
            sweep_interval: Duration::from_secs(10),
            topic: "order.events".into(),
            group: "order-processing-group".into(),
            consumers: 1,
            consumer_batch: 1_000,
            probe_interval: Duration::from_secs(5),
            probe_timeout: Duration::from_secs(2),
            promotion_interval: Duration::from_secs(300),
            promotion_batch: 500,
            shards: 16,
            mailbox: 1_024,
            request_timeout: Duration::from_secs(10),
            faults: false,
            threads: true,
        }
    }
}
