//! Translates the configuration into the options of each crate.
use std::time::Duration;

use actors::ProducerSlots;
use app::commands;
use app::consume::order_topic::OrderTopic;
use domain::{RegionId, Timestamp};
use ports::partitions::InstanceId;

use crate::config::{BrokerKind, Config, DeliveryKind};

/// Up to this duration the cycles of the embedded broker follow each other at once. 3 ms: claims and the topic log share one writer with the orders,
/// so a cycle that takes longer competes with the writes of orders.
const EMBEDDED_CYCLE_NORMAL: Duration = Duration::from_millis(3);

/// Most messages of one poll where events are sent to a URL: a crash repeats at most these. Twice the number of keys that are handled at the
/// same time, for which a stop waits.
const POSTED_BATCH: u32 = 32;

pub(super) fn commands(config: &Config) -> commands::Options {
    commands::Options {
        region: RegionId::new(&config.region.id),
        partitions: config.outbox.partitions,
        topic: config.topic().into(),
        schema_version: config.events.schema_version,
        outbox: config.outbox.enabled,
        key_lock: config.idempotency.lock,
        key_keep: config.idempotency.retention,
    }
}

pub(super) fn http(config: &Config, instance: &InstanceId) -> api::Options {
    api::Options {
        request_timeout: config.http.request_timeout,
        header_timeout: config.http.header_timeout,
        body_timeout: config.http.body_timeout,
        body_max: config.http.body_max,
        max_connections: config.http.max_connections,
        trusted_proxies: config.http.trusted_proxies.clone(),
        region: config.region.id.clone(),
        instance: instance.to_string(),
        unsent_age_max: config.health.unsent_age_max,
        orders_enabled: config.orders.enabled,
        order_topic: OrderTopic::new(&config.topic()),
        own_topics: config
            .outbox
            .enabled
            .then(|| std::iter::once(config.topic()).chain(config.internal_topics()).collect()),
        relay_rules: config.relay_rules().into(),
        known_topics: config.all_topics().into_iter().collect(),
        console_secret: config.http.console_secret.clone().or_else(|| config.auth.hs256_secret.clone()),
        reads: api::TopicReadLimits {
            records_max: config.read.records_max,
            bytes_max: config.read.bytes_max,
            wait_max: config.read.wait_max,
            readers_max: config.read.readers_max,
        },
        ..api::Options::default()
    }
}

pub(super) fn supervision(config: &Config, started: Timestamp) -> supervision::Options {
    supervision::Options {
        first_event_seq: first_event_seq(started),
        escalation_timeout: config.shutdown.deadline,
        ..supervision::Options::default()
    }
}

/// Above the numbers of every earlier process that published fewer than 1,000 events in each millisecond; exact as a JavaScript number.
fn first_event_seq(started: Timestamp) -> u64 {
    u64::try_from(started.millis()).unwrap_or_default().saturating_mul(1_000).max(1)
}

pub(super) fn actors(config: &Config, instance: InstanceId, producer_slots: ProducerSlots) -> actors::Options {
    let relay = app::relay::Options {
        region: RegionId::new(&config.region.id),
        contracts: app::contract::order_values(config.topic().into(), config.events.schema_ids),
        internal_topics: config.internal_topics().into(),
        batch: config.outbox.publisher.batch,
        lease: config.outbox.lease,
        // No batch is sent to the broker when less of the lease than this remains: the broker needs time to accept it.
        margin: (config.outbox.lease / 10).min(Duration::from_secs(1)),
        defers_settlement: config.broker.delivery != DeliveryKind::AtLeastOnce,
    };
    let defaults = actors::Options::default();
    actors::Options {
        cycle_duration_normal: match config.broker.kind {
            BrokerKind::Embedded => EMBEDDED_CYCLE_NORMAL,
            BrokerKind::Kafka | BrokerKind::None => defaults.cycle_duration_normal,
        },
        cycle_spacing_max: config.outbox.publisher.cycle_spacing_max,
        instance,
        relay,
        rules: config.relay_rules(),
        breaker: config.broker.breaker.clone(),
        pressure: config.backpressure,
        partitions: config.outbox.partitions,
        producers: producer_slots,
        publisher_enabled: config.outbox.publisher.enabled,
        orders_enabled: config.orders.enabled,
        max_in_flight: config.outbox.publisher.max_in_flight,
        poll_interval: config.outbox.poll_interval,
        // Leases are renewed at each heartbeat, so it is limited to a third of the lease.
        heartbeat: config.partitions.heartbeat.min(config.outbox.lease / 3),
        dead_after: config.partitions.dead_after,
        retention: config.outbox.retention,
        inbox_retention: config.inbox.retention,
        topic: config.topic(),
        consumers: config.consumer.count,
        consumer_batch: if config.consumer.posts() { POSTED_BATCH } else { defaults.consumer_batch },
        probe_interval: config.failover.probe_interval,
        probe_timeout: config.failover.probe_timeout,
        redis_latency_max: config.failover.redis_latency_max,
        region: app::policy::failover::FailoverThresholds {
            dependency: config.failover.dependency_failures,
            unhealthy: config.failover.unhealthy_rounds,
            healthy: config.failover.healthy_rounds,
        },
        retry_delays: config.consumer.retry_delays,
        topic_prefix: config.broker.topic_prefix.clone(),
        webhooks: actors::WebhookOptions {
            parallel: config.webhooks.parallel,
            retry_delays: config.webhooks.retry_delays,
            breaker: config.webhooks.breaker.clone(),
            refresh: config.webhooks.refresh,
        },
        promotion_interval: config.promotion.interval,
        promotion_batch: config.promotion.batch,
        shards: config.orders.shards,
        mailbox: config.orders.mailbox,
        request_timeout: config.http.request_timeout,
        faults: config.fault_injection.enabled,
        ..defaults
    }
}

#[cfg(feature = "postgres")]
pub(super) fn postgres(
    config: &Config,
    instance: &InstanceId,
    metrics: &std::sync::Arc<telemetry::Metrics>,
) -> postgres::Options {
    let mut options = postgres::Options::new(config.store.url.clone(), instance.clone());
    options.address = config.http.listen.to_string();
    options.partitions = config.outbox.partitions;
    options.internal_topics = config.internal_topics();
    options.migrate = config.store.migrate;
    options.pool = config.store.pool;
    options.pooler = config.store.pooler;
    options.notify = config.store.notify && !config.store.pooler;
    options.root_certificates = config.store.ca_file.clone();
    options.flush_settlements = config.broker.delivery == DeliveryKind::AtLeastOnce;
    options.dead_after = config.partitions.dead_after;
    options.heartbeat_interval = config.partitions.heartbeat;
    options.metrics = Some(std::sync::Arc::clone(metrics));
    options
}

/// Options for an operator's command. Its metrics are discarded.
#[cfg(feature = "postgres")]
pub(super) fn postgres_for_operator(config: &Config) -> postgres::Options {
    postgres(config, &operator_instance(), &telemetry::Metrics::new())
}

/// The instance id of an operator's command. It is random, because two producers with the same transactional id fence each other.
#[cfg(any(feature = "postgres", feature = "kafka", feature = "redis"))]
pub(super) fn operator_instance() -> InstanceId {
    InstanceId(format!("operator-{:08x}", rand::random::<u32>()).into())
}

#[cfg(feature = "kafka")]
pub(super) fn kafka(
    config: &Config,
    instance: &InstanceId,
    installation: &std::sync::Arc<str>,
    clock: &std::sync::Arc<dyn ports::clock::Clock>,
) -> kafka::Options {
    use crate::config::{BatchCompression, DeliveryKind};
    use kafka::{Compression, DeliveryGuarantee, Sasl, Security};
    let (installation, clock) = (std::sync::Arc::clone(installation), std::sync::Arc::clone(clock));
    let mut options = kafka::Options::new(&config.broker.bootstrap_servers, installation, instance.clone(), clock);
    options.topic_prefix = config.broker.topic_prefix.clone();
    if !config.orders.enabled {
        options.event_topic = None;
    }
    options.topic_partitions = config.broker.topic_partitions;
    options.partitions_by_topic = config.partitions_by_topic();
    options.additional_topics = config.additional_topics();
    options.partitions = config.outbox.partitions;
    options.guarantee = match config.broker.delivery {
        DeliveryKind::ExactlyOnce => DeliveryGuarantee::ExactlyOnce,
        DeliveryKind::AtLeastOnce => DeliveryGuarantee::AtLeastOnce,
    };
    options.create_topics = config.broker.create_topics;
    // An open transaction of a dead instance blocks read_committed consumers, so it is limited to the lease.
    options.transaction_timeout = config.broker.transaction_timeout.min(config.outbox.lease);
    options.compression = match config.broker.compression {
        BatchCompression::Lz4 => Compression::Lz4,
        BatchCompression::None => Compression::None,
    };
    options.security = Security {
        tls: config.broker.tls,
        ca_file: config.broker.ca_file.clone(),
        sasl: config.broker.sasl.mechanism.clone().map(|mechanism| {
            let (username, password) = (config.broker.sasl.username.clone(), config.broker.sasl.password.clone());
            Sasl { mechanism, username, password }
        }),
    };
    options
}

#[cfg(feature = "redis")]
pub(super) fn redis_store(
    config: &Config,
    instance: &InstanceId,
    metrics: &std::sync::Arc<telemetry::Metrics>,
) -> redis::StoreOptions {
    use crate::config::WeakDurability;
    let rng = std::sync::Arc::new(super::thread_rng::ThreadRng);
    let mut options = redis::StoreOptions::new(config.store.url.clone(), instance.clone(), rng);
    options.root_certificates = config.store.ca_file.clone();
    options.prefix = config.store.key_prefix.clone();
    options.address = config.http.listen.to_string();
    options.partitions = config.outbox.partitions;
    options.notify = config.store.notify;
    options.audit_interval = config.store.audit_interval;
    options.legacy_key_prefix = config.redis.legacy_key_prefix.clone();
    options.durability = match config.store.durability {
        WeakDurability::Refuse => redis::Durability::Refuse,
        WeakDurability::Warn => redis::Durability::Warn,
    };
    options.dead_after = config.partitions.dead_after;
    options.heartbeat_interval = config.partitions.heartbeat;
    options.metrics = Some(std::sync::Arc::clone(metrics));
    options
}

/// Options for an operator's command. Its metrics are discarded.
#[cfg(feature = "redis")]
pub(super) fn redis_store_for_operator(config: &Config) -> redis::StoreOptions {
    redis_store(config, &operator_instance(), &telemetry::Metrics::new())
}

#[cfg(feature = "redis")]
pub(super) fn redis_cache(
    config: &Config,
    instance: &InstanceId,
    installation: &str,
    rng: &std::sync::Arc<dyn ports::clock::Rng>,
    metrics: &std::sync::Arc<telemetry::Metrics>,
) -> redis::Options {
    let mut options = redis::Options::new(config.redis.url.clone(), instance.clone(), std::sync::Arc::clone(rng));
    options.root_certificates = config.redis.ca_file.clone();
    // Two installations may share a server; the prefix separates their keys.
    options.prefix = format!("posthaste:{installation}:");
    options.legacy_key_prefix = config.redis.legacy_key_prefix.clone();
    options.dead_after = config.partitions.dead_after;
    options.heartbeat_interval = config.partitions.heartbeat;
    options.order_ttl = config.cache.order_ttl;
    options.list_ttl = config.cache.list_ttl;
    options.cache_jitter = config.cache.jitter;
    options.epoch_age_min = config.http.request_timeout;
    options.metrics = Some(std::sync::Arc::clone(metrics));
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_process_numbers_its_events_above_those_of_the_one_before() {
        let first = |millis| first_event_seq(Timestamp::from_millis(millis));

        assert!(first(1_769_860_800_121) > first(1_769_860_800_120) + 999);
        // The year 2200.
        assert!(first(7_258_118_400_000) < 1 << 53);
        assert_eq!((first(0), first(-5)), (1, 1));
    }

    /// Without watermarks a batch that is open after a crash is published again, so its settlement neither waits for the next cycle nor may be lost.
    #[test]
    fn settlements_are_deferred_and_not_flushed_only_with_watermarks() {
        for (delivery, has_watermarks) in [(DeliveryKind::ExactlyOnce, true), (DeliveryKind::AtLeastOnce, false)] {
            let mut config = Config::defaults();
            config.broker.delivery = delivery;
            let instance = InstanceId("a".into());

            let relay = actors(&config, instance.clone(), ProducerSlots::Spread(1)).relay;
            assert_eq!(relay.defers_settlement, has_watermarks, "{delivery:?}");
            #[cfg(feature = "postgres")]
            {
                let store = postgres(&config, &instance, &telemetry::Metrics::new());
                assert_eq!(store.flush_settlements, !has_watermarks, "{delivery:?}");
            }
        }
    }
}
