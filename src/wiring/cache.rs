//! One match arm per cache.
use std::sync::Arc;
use std::time::Duration;

use memory::Memory;
use ports::clock::{Clock, Rng};
use ports::partitions::InstanceId;
use telemetry::Metrics;

use super::StartError;
use super::backends::{CachePorts, Held, StoreHeld};
use crate::config::{CacheKind, Config};

/// How long an order read a moment ago is believed over a store that others write too.
const SHARED_TTL: Duration = Duration::from_secs(5);

/// Opens what keeps answers and counts requests. A Redis that is not there yet is no reason not to start: everything has a way around it.
pub(super) fn open(
    config: &Config,
    instance: &InstanceId,
    clock: &Arc<dyn Clock>,
    dice: &Arc<dyn Rng>,
    metrics: &Arc<Metrics>,
    held: &mut Held,
) -> Result<CachePorts, StartError> {
    if config.cache.kind == CacheKind::Redis {
        return redis(config, instance, dice, metrics, held);
    }
    let alone = matches!(held.store, StoreHeld::Embedded(_));
    let mut options = memory::Options::default();
    if !alone {
        options.order_ttl = options.order_ttl.min(SHARED_TTL);
    }
    let memory = Arc::new(Memory::new(&options, Arc::clone(clock)));
    Ok(CachePorts { cache: memory.clone(), limits: memory, idempotency: None, probe: None })
}

#[cfg(feature = "redis")]
fn redis(
    config: &Config,
    instance: &InstanceId,
    dice: &Arc<dyn Rng>,
    metrics: &Arc<Metrics>,
    held: &mut Held,
) -> Result<CachePorts, StartError> {
    let options = super::options::redis(config, instance, &held.installation, dice, metrics);
    let redis = redis::Redis::open(options).map_err(|error| StartError::Config(format!("redis.url: {error}")))?;
    held.redis = Some(redis.clone());
    let redis = Arc::new(redis);
    Ok(CachePorts { cache: redis.clone(), limits: redis.clone(), idempotency: Some(redis.clone()), probe: Some(redis) })
}

#[cfg(not(feature = "redis"))]
fn redis(
    _config: &Config,
    _instance: &InstanceId,
    _dice: &Arc<dyn Rng>,
    _metrics: &Arc<Metrics>,
    _held: &mut Held,
) -> Result<CachePorts, StartError> {
    Err(super::store::not_built("cache.kind", "redis"))
}
