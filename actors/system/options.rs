//! Options of the actors, with defaults that run. Every queue, loop and wait has its limit here.
use std::time::Duration;

use app::contract;
use app::policy::{self, breaker};
use app::relay::{self, chain};
use ports::partitions::InstanceId;

use crate::partition_worker::producer_sessions::ProducerSlots;

/// Limits of the deliveries to webhooks.
#[derive(Clone, Debug)]
pub struct WebhookOptions {
    /// Most events of a webhook that are sent at the same time.
    pub parallel: usize,
    /// How long an event waits in each retry topic.
    pub retry_delays: [Duration; outbox::topics::RETRY_DELAYS.len()],
    /// When calls pause because an endpoint fails.
    pub breaker: breaker::Options,
    /// Time between two reads of the webhooks: a change takes effect after it.
    pub refresh: Duration,
}

impl Default for WebhookOptions {
    /// 8 at a time, 5 s to 1 h, a second between two reads.
    fn default() -> Self {
        Self {
            parallel: 8,
            retry_delays: [5, 60, 600, 3_600].map(Duration::from_secs),
            breaker: breaker::Options { failures: 5, open: Duration::from_secs(30) },
            refresh: Duration::from_secs(1),
        }
    }
}

/// How many events are committed while a cycle lasts, where the spacing of cycles begins to grow and where it is longest.
#[derive(Clone, Copy, Debug)]
pub struct CycleLoad {
    /// Up to this number, cycles follow each other as closely as their duration permits.
    pub low: f64,
    /// From this number on, they are [`Options::cycle_spacing_max`] apart.
    pub high: f64,
}

impl CycleLoad {
    /// The position of a number between `low` and `high`, from 0 to 1.
    #[must_use]
    pub fn fraction(&self, events: f64) -> f64 {
        ((events - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }
}

/// Limits and intervals of all actors.
#[derive(Clone, Debug)]
pub struct Options {
    /// Stable name of this instance in leases and heartbeats.
    pub instance: InstanceId,
    /// Limits of a batch and of a lease.
    pub relay: relay::Options,
    /// Retry, fallback and parking rules for events that fail.
    pub rules: chain::ChainRules,
    /// When sends pause because the broker fails.
    pub breaker: breaker::Options,
    /// Thresholds of the backpressure levels.
    pub pressure: policy::backpressure::PressureThresholds,
    /// Thresholds of the region's failover.
    pub region: policy::failover::FailoverThresholds,
    /// Whether this instance relays events. If not, it takes no partition; other instances relay what it writes.
    pub publisher_enabled: bool,
    /// Whether this instance has the actors of the orders: shards, promoter and consumers of the orders' topic.
    pub orders_enabled: bool,
    /// Number of partitions; fixed at installation.
    pub partitions: u32,
    /// Transactional producers, and how partitions share them.
    pub producers: ProducerSlots,
    /// Most batches in flight in this instance, at most one for each partition. 64: a cycle then takes what is due in all partitions of the
    /// default number.
    pub max_in_flight: usize,
    /// Least time between the starts of two cycles. 5 ms: under load a cycle then carries several events, which bounds the work of the store
    /// and the broker; an idle relay starts at once.
    pub cycle_spacing_min: Duration,
    /// Longest time between the starts of two cycles, reached where the processor is saturated (`outbox.publisher.cycle_spacing_max`). 50 ms:
    /// further apart, creates gain nothing more.
    pub cycle_spacing_max: Duration,
    /// Up to this duration, cycles follow each other at once: their spacing is not longer than they are. 40 ms: what claim and transaction
    /// take at most on a machine that is busy, but not saturated.
    pub cycle_duration_normal: Duration,
    /// When cycles are stretched because many events are committed while one lasts. 90 to 140: on two processors it is 25 to 50 at 3,000 events
    /// a second, 60 to 85 at 5,000, and 150 to 200 at saturation.
    pub cycle_load: CycleLoad,
    /// How long a cycle whose batches are not all answered delays the next one. 100 ms: several times the duration of a transaction, and short
    /// for partitions whose own batches are not slow.
    pub cycle_wait_max: Duration,
    /// Interval of the poll that finds rows whose wake-up was lost; jittered by a fifth.
    pub poll_interval: Duration,
    /// Interval of heartbeats and lease renewals.
    pub heartbeat: Duration,
    /// Time without a heartbeat after which an instance counts as dead.
    pub dead_after: Duration,
    /// How long the archive keeps sent rows.
    pub retention: Duration,
    /// How long consumed events are remembered; longer than the topics keep them.
    pub inbox_retention: Duration,
    /// Most rows in one page of a sweep.
    pub sweep_page: u32,
    /// Time between two sweeps that found little.
    pub sweep_interval: Duration,
    /// Topic that the consumers read, together with its retry topics.
    pub topic: String,
    /// Name of the consumers' group.
    pub group: String,
    /// Number of consumers in this instance.
    pub consumers: u32,
    /// How long a message waits in each retry topic.
    pub retry_delays: [Duration; outbox::topics::RETRY_DELAYS.len()],
    /// Most messages of one poll.
    pub consumer_batch: u32,
    /// Most messages of one poll of the consumers of other services' topics: a crash sends at most these again, and a stop waits for them.
    pub topic_batch: u32,
    /// Most keys of a poll whose messages are handled at the same time. A handler that waits for another system delays only its own key.
    pub consumer_parallel_keys: usize,
    /// `broker.topic_prefix`, used unchanged.
    pub topic_prefix: String,
    /// Limits of the deliveries to webhooks.
    pub webhooks: WebhookOptions,
    /// Time between two rounds of probes.
    pub probe_interval: Duration,
    /// Longest time a probe may take; longer counts as failed.
    pub probe_timeout: Duration,
    /// Longest reply of Redis; longer counts as a failed probe.
    pub redis_latency_max: Duration,
    /// Time from the start of one promotion to the start of the next, which begins at once if the first lasts longer. Zero switches promotions off.
    pub promotion_interval: Duration,
    /// Most orders in one page of a promotion.
    pub promotion_batch: u32,
    /// Number of OrderAggregate shards.
    pub shards: u32,
    /// Most commands of one shard, waiting and running; also most batches of the EventIntake.
    pub mailbox: usize,
    /// Longest time a command may take.
    pub request_timeout: Duration,
    /// Whether operators may inject faults into actors.
    pub faults: bool,
    /// Whether relay and orders run on threads of their own; off in simulations, where all actors share one virtual clock.
    pub threads: bool,
}

impl Default for Options {
    fn default() -> Self {
        let region = domain::RegionId::new("local");
        Self {
            instance: InstanceId("local".into()),
            relay: relay::Options {
                region,
                contracts: contract::order_values("order.events".into(), None),
                internal_topics: outbox::topics::internal_topics("").into(),
                batch: 1_000,
                lease: Duration::from_secs(30),
                margin: Duration::from_secs(1),
                defers_settlement: true,
            },
            rules: chain::ChainRules::default(),
            breaker: breaker::Options::default(),
            pressure: policy::backpressure::PressureThresholds::default(),
            region: policy::failover::FailoverThresholds::default(),
            publisher_enabled: true,
            orders_enabled: true,
            partitions: 64,
            producers: ProducerSlots::Shared(2),
            max_in_flight: 64,
            cycle_spacing_min: Duration::from_millis(5),
            cycle_spacing_max: Duration::from_millis(50),
            cycle_duration_normal: Duration::from_millis(40),
            cycle_load: CycleLoad { low: 90.0, high: 140.0 },
            cycle_wait_max: Duration::from_millis(100),
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
            retry_delays: outbox::topics::RETRY_DELAYS,
            consumer_batch: 1_000,
            topic_batch: 32,
            consumer_parallel_keys: 16,
            topic_prefix: String::new(),
            webhooks: WebhookOptions::default(),
            probe_interval: Duration::from_secs(5),
            probe_timeout: Duration::from_secs(2),
            redis_latency_max: Duration::from_millis(150),
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
