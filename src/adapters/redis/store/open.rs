//! Opening the store, for a service or for an operator's command.
use std::sync::Arc;

use deadpool_redis::redis::cmd;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::connection::client::Redis;
use crate::connection::options::Options;
use crate::store::client::{RedisStore, StoreInner};
use crate::store::durability;
use crate::store::instance_id::{StoreInstallation, acquire_instance_id};
use crate::store::open_error::StoreOpenError;
use crate::store::options::{Durability, StoreOptions};
use crate::store::scripts::StoreScripts;
use crate::wake::queues::WakeQueues;

impl RedisStore {
    /// Opens the store for a service: refuses a Redis that may lose data, writes the installation if there is none, acquires the instance
    /// id, and indexes the rows of an earlier release.
    ///
    /// # Errors
    /// [`StoreOpenError`] names the cause; nothing was changed except the first installation.
    pub async fn open(options: StoreOptions) -> Result<Self, StoreOpenError> {
        let (redis, prefix) = connect(&options)?;
        let persistence = durability::check(&redis, options.durability).await?;
        let scripts = StoreScripts::new();
        let installation = acquire_instance_id(&redis, &scripts, &prefix, &options).await?;
        if installation.partitions != options.partitions {
            let (configured, installed) = (options.partitions, installation.partitions);
            return Err(StoreOpenError::Partitions { configured, installed });
        }
        let store =
            Self::new(redis, scripts, prefix, &installation, Some(options.instance.to_string()), options.durability);
        store.start_instance_id_renewal(options.heartbeat_interval, options.dead_after);
        store.build_missing_indexes().await.map_err(StoreOpenError::Unavailable)?;
        if !options.audit_interval.is_zero() {
            store.start_audit(options.audit_interval);
        }
        if options.notify {
            store.start_wake_channel(&options.instance).map_err(|error| StoreOpenError::Options(error.to_string()))?;
        }
        // An attempt to open the store that fails is repeated, and logs nothing.
        store.record_persistence(persistence);
        Ok(store)
    }

    /// Checks the URL and the root certificates of the options as [`RedisStore::open`] does, and connects to nothing.
    ///
    /// # Errors
    /// [`StoreOpenError::Options`].
    pub fn check(options: &StoreOptions) -> Result<(), StoreOpenError> {
        Redis::check(&handle_options(options)).map_err(|error| StoreOpenError::Options(error.to_string()))
    }

    /// Opens the store for an operator's command while services run on it: acquires no instance id and installs nothing.
    ///
    /// # Errors
    /// [`StoreOpenError::NotInstalled`] if there is no installation; otherwise as [`RedisStore::open`].
    pub async fn open_for_operator(options: StoreOptions) -> Result<Self, StoreOpenError> {
        let (redis, prefix) = connect(&options)?;
        let mut meta = cmd("HMGET");
        meta.arg(format!("{prefix}meta")).arg("installation").arg("partitions");
        let (id, partitions): (Option<String>, Option<u32>) =
            redis.inner.store_command("open", meta).await.map_err(StoreOpenError::Unavailable)?;
        let (id, partitions) = id.zip(partitions).ok_or(StoreOpenError::NotInstalled)?;
        let installation = StoreInstallation { id, partitions };
        Ok(Self::new(redis, StoreScripts::new(), prefix, &installation, None, options.durability))
    }

    fn new(
        redis: Redis,
        scripts: StoreScripts,
        prefix: String,
        installation: &StoreInstallation,
        held_instance_id: Option<String>,
        durability: Durability,
    ) -> Self {
        let inner = StoreInner {
            redis,
            scripts,
            prefix,
            installation: installation.id.as_str().into(),
            partitions: installation.partitions,
            held_instance_id,
            durability,
            known_persistence: Mutex::default(),
            instance_id_released: tokio::sync::Mutex::new(false),
            instance_id_taken_over: watch::Sender::new(None),
            wake: WakeQueues::default(),
        };
        Self { inner: Arc::new(inner) }
    }
}

/// The handle of the store's server, and the prefix of the store's keys.
fn connect(options: &StoreOptions) -> Result<(Redis, String), StoreOpenError> {
    let redis = Redis::open(handle_options(options)).map_err(|error| StoreOpenError::Options(error.to_string()))?;
    Ok((redis, format!("{}{{store}}:", options.prefix)))
}

fn handle_options(options: &StoreOptions) -> Options {
    let mut handle = Options::new(options.url.clone(), options.instance.clone(), Arc::clone(&options.rng));
    handle.root_certificates = options.root_certificates.clone();
    handle.prefix = format!("{}store:", options.prefix);
    handle.legacy_key_prefix = options.legacy_key_prefix.clone();
    handle.calls_max = options.calls_max;
    // A store has no fallback: beyond its limit a call waits for another to end.
    handle.permit_timeout = options.response_timeout;
    handle.response_timeout = options.response_timeout;
    handle.connect_timeout = options.response_timeout;
    handle.dead_after = options.dead_after;
    handle.heartbeat_interval = options.heartbeat_interval;
    handle.metrics = options.metrics.clone();
    handle
}
