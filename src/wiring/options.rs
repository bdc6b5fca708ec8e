//! From the configuration to each room's own options.
use std::time::Duration;

use actors::ProducerSlots;
use app::commands;
use domain::RegionId;
use ports::partitions::InstanceId;

use crate::config::Config;

pub(super) fn desk(config: &Config) -> commands::Options {
    commands::Options {
        region: RegionId::new(&config.region_id),
        partitions: config.outbox_partitions,
        topic: config.topic().into(),
        schema_version: config.events_schema_version,
        outbox: config.outbox_enabled,
        ..commands::Options::default()
    }
}

pub(super) fn http(config: &Config, instance: &InstanceId, proxies: api::Proxies) -> api::Options {
    api::Options {
        request_timeout: config.http_request_timeout,
        header_timeout: config.http_header_timeout,
        body_timeout: config.http_body_timeout,
        body_max: config.http_body_max,
        max_connections: config.http_max_connections,
        trusted_proxies: proxies,
        region: config.region_id.clone(),
        instance: instance.to_string(),
        unsent_age_max: config.health_unsent_age_max.unwrap_or_default(),
        ..api::Options::default()
    }
}

/// The greatest (Euclid).
fn common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

pub(super) fn actors(config: &Config, instance: InstanceId, lanes: ProducerSlots) -> actors::Options {
    let relay = app::relay::Options {
        region: RegionId::new(&config.region_id),
        schemas: config.events_schema_ids,
        batch: config.outbox_batch,
        lease: config.outbox_lease,
        // A batch is not handed over with less left than a broker may need to take it, nor with less than a tenth of the lease.
        margin: (config.outbox_lease / 10).min(Duration::from_secs(1)),
    };
    // Kafka asks a price of each transaction and of each partition that it touches; the embedded log of neither.
    let usual = actors::Options::default();
    let (pacing_concurrency, batch_pause_max, affinity_groups) = match lanes {
        ProducerSlots::Spread(_) => (usual.pacing_concurrency, usual.batch_pause_max, usual.affinity_groups),
        ProducerSlots::Shared(_) => {
            let divisor = common_divisor(config.outbox_partitions, config.broker_topic_partitions);
            (4, Duration::from_secs(1), divisor)
        }
    };
    actors::Options {
        instance,
        relay,
        rules: app::chain::Rules {
            retry: config.outbox_retry.clone(),
            poison: config.outbox_poison.clone(),
            fallback: config.outbox_fallback.clone(),
        },
        breaker: config.broker_breaker.clone(),
        pressure: config.backpressure.clone(),
        partitions: config.outbox_partitions,
        producers: lanes,
        pacing_concurrency,
        batch_pause_max,
        affinity_groups,
        max_in_flight: config.outbox_max_in_flight,
        poll_interval: config.outbox_poll_interval,
        // A lease must be renewed well before it runs out, whatever the heartbeat says.
        heartbeat: config.partitions_heartbeat.min(config.outbox_lease / 3),
        dead_after: config.partitions_dead_after,
        retention: config.outbox_retention,
        inbox_retention: config.inbox_retention,
        topic: config.topic(),
        consumers: config.consumer_count,
        probe_interval: config.failover_probe_interval,
        probe_timeout: config.failover_probe_timeout,
        promotion_interval: config.promotion_interval,
        promotion_batch: config.promotion_batch,
        shards: config.orders_shards,
        mailbox: config.orders_mailbox,
        request_timeout: config.http_request_timeout,
        faults: config.fault_injection_enabled,
        ..usual
    }
}

#[cfg(feature = "postgres")]
pub(super) fn postgres(
    config: &Config,
    instance: &InstanceId,
    metrics: &std::sync::Arc<telemetry::Metrics>,
) -> postgres::Options {
    let mut options = postgres::Options::new(&config.store_url, instance.clone());
    options.address = config.http_listen.to_string();
    options.partitions = config.outbox_partitions;
    options.migrate = config.store_migrate;
    options.pool = config.store_pool;
    options.pooler = config.store_pooler;
    options.wakes = config.store_notify && !config.store_pooler;
    options.root_certificates = config.store_ca_file.clone();
    options.dead_after = config.partitions_dead_after;
    options.beat_every = config.partitions_heartbeat;
    options.metrics = Some(std::sync::Arc::clone(metrics));
    options
}

/// For whoever works beside the services: it takes no name and no lease, and counts nothing.
#[cfg(feature = "postgres")]
pub(super) fn postgres_beside(config: &Config) -> postgres::Options {
    postgres(config, &operator(), &telemetry::Metrics::new())
}

/// The name under which an operator's command comes: each its own, because two producers of one name fence each other.
#[cfg(any(feature = "postgres", feature = "kafka", feature = "redis"))]
pub(super) fn operator() -> InstanceId {
    InstanceId(format!("operator-{:08x}", rand::random::<u32>()).into())
}

#[cfg(feature = "kafka")]
pub(super) fn kafka(
    config: &Config,
    instance: &InstanceId,
    installation: &std::sync::Arc<str>,
    clock: &std::sync::Arc<dyn ports::clock::Clock>,
) -> kafka::Options {
    use kafka::{Compression, Guarantee, Sasl, Security};
    let (installation, clock) = (std::sync::Arc::clone(installation), std::sync::Arc::clone(clock));
    let mut options = kafka::Options::new(&config.broker_bootstrap_servers, installation, instance.clone(), clock);
    options.topic_prefix = config.broker_topic_prefix.clone();
    options.topic_partitions = config.broker_topic_partitions;
    options.partitions = config.outbox_partitions;
    options.guarantee = if config.broker_exactly_once { Guarantee::ExactlyOnce } else { Guarantee::AtLeastOnce };
    options.create_topics = config.broker_create_topics;
    // A dead instance's open transaction holds every reader back: not longer than its lease.
    options.transaction_timeout = config.broker_transaction_timeout.min(config.outbox_lease);
    options.compression = if config.broker_lz4 { Compression::Lz4 } else { Compression::None };
    options.security = Security {
        tls: config.broker_tls,
        ca_file: config.broker_ca_file.clone(),
        sasl: config.broker_sasl.clone().map(|crate::config::Sasl { mechanism, username, password }| Sasl {
            mechanism,
            username,
            password,
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
    let dice = std::sync::Arc::new(super::ThreadDice);
    let mut options = redis::StoreOptions::new(&config.store_url, instance.clone(), dice);
    options.address = config.http_listen.to_string();
    options.partitions = config.outbox_partitions;
    options.wakes = config.store_notify;
    options.durability = if config.store_durability_warn { redis::Durability::Warn } else { redis::Durability::Refuse };
    options.dead_after = config.partitions_dead_after;
    options.heartbeat = config.partitions_heartbeat;
    options.metrics = Some(std::sync::Arc::clone(metrics));
    options
}

/// For whoever works beside the services: it takes no name, and counts nothing.
#[cfg(feature = "redis")]
pub(super) fn redis_beside(config: &Config) -> redis::StoreOptions {
    redis_store(config, &operator(), &telemetry::Metrics::new())
}

#[cfg(feature = "redis")]
pub(super) fn redis(
    config: &Config,
    instance: &InstanceId,
    installation: &str,
    dice: &std::sync::Arc<dyn ports::clock::Rng>,
    metrics: &std::sync::Arc<telemetry::Metrics>,
) -> redis::Options {
    let mut options = redis::Options::new(&config.redis_url, instance.clone(), std::sync::Arc::clone(dice));
    // Orders, keys and buckets of two installations that share a server do not meet.
    options.prefix = format!("posthaste:{installation}:");
    options.capacity = config.rate_limit.capacity;
    options.window = config.rate_limit.window;
    options.dead_after = config.partitions_dead_after;
    options.heartbeat = config.partitions_heartbeat;
    options.settle = config.http_request_timeout;
    options.metrics = Some(std::sync::Arc::clone(metrics));
    options
}
