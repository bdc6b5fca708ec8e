//! Opens the configured cache and rate limiter, with one match arm per cache.
use std::sync::Arc;
use std::time::Duration;

use memory::Memory;
use ports::clock::{Clock, Rng};
use ports::partitions::InstanceId;
use telemetry::Metrics;

use super::backends::{BackendHandles, CachePorts, StoreHandle};
use super::start_error::StartError;
use crate::config::{CacheKind, CacheSettings, Config};

/// Longest time from the read of an order or a list until it leaves a memory cache, when other instances write to the same store.
const SHARED_TTL: Duration = Duration::from_secs(5);

/// Opens the cache and the rate limiter without connecting: while Redis is unavailable the service runs without them.
///
/// # Errors
/// `redis.url` cannot be used, or this program was built without Redis.
pub(super) fn open(
    config: &Config,
    instance: &InstanceId,
    clock: &Arc<dyn Clock>,
    rng: &Arc<dyn Rng>,
    metrics: &Arc<Metrics>,
    handles: &mut BackendHandles,
) -> Result<CachePorts, StartError> {
    if config.cache.kind == CacheKind::Redis {
        return open_redis(config, instance, rng, metrics, handles);
    }
    let is_shared = !matches!(handles.store, StoreHandle::Embedded(_));
    let CacheSettings { order_ttl, list_ttl, jitter, .. } = config.cache;
    let mut options = memory::Options { order_ttl, list_ttl, jitter, ..memory::Options::default() };
    if is_shared {
        options.order_ttl = order_ttl.min(SHARED_TTL);
        options.list_ttl = list_ttl.min(SHARED_TTL);
    }
    let memory = Arc::new(Memory::new(&options, Arc::clone(clock)));
    Ok(CachePorts { cache: memory.clone(), rate_limiter: memory, idempotency: None, probe: None })
}

/// Checks the settings of the configured cache with its own parser, and connects to nothing.
pub(super) fn check(config: &Config) -> Result<(), StartError> {
    match config.cache.kind {
        CacheKind::Memory => Ok(()),
        #[cfg(feature = "redis")]
        CacheKind::Redis => {
            let rng: Arc<dyn Rng> = Arc::new(super::thread_rng::ThreadRng);
            let instance = super::options::operator_instance();
            let options = super::options::redis_cache(config, &instance, "check", &rng, &Metrics::new());
            redis::Redis::check(&options).map_err(from_open_error)
        }
        #[cfg(not(feature = "redis"))]
        CacheKind::Redis => Err(super::store::feature_missing("cache.kind", "redis")),
    }
}

#[cfg(feature = "redis")]
pub(super) fn from_open_error(error: redis::RedisOpenError) -> StartError {
    StartError::Config(format!("redis.url: {error}"))
}

#[cfg(feature = "redis")]
fn open_redis(
    config: &Config,
    instance: &InstanceId,
    rng: &Arc<dyn Rng>,
    metrics: &Arc<Metrics>,
    handles: &mut BackendHandles,
) -> Result<CachePorts, StartError> {
    let options = super::options::redis_cache(config, instance, &handles.installation, rng, metrics);
    let redis = redis::Redis::open(options).map_err(from_open_error)?;
    handles.redis = Some(redis.clone());
    let redis = Arc::new(redis);
    Ok(CachePorts {
        cache: redis.clone(),
        rate_limiter: redis.clone(),
        idempotency: Some(redis.clone()),
        probe: Some(redis),
    })
}

#[cfg(not(feature = "redis"))]
fn open_redis(
    _config: &Config,
    _instance: &InstanceId,
    _rng: &Arc<dyn Rng>,
    _metrics: &Arc<Metrics>,
    _handles: &mut BackendHandles,
) -> Result<CachePorts, StartError> {
    Err(super::store::feature_missing("cache.kind", "redis"))
}
