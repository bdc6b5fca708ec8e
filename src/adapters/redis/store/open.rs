//! Opening the store, for a service or beside one.
use std::sync::Arc;

use deadpool_redis::redis::cmd;
use domain::Timestamp;
use ports::Error;
use secrecy::ExposeSecret;
use tokio::sync::watch;

use super::options::{StoreOpenError, StoreOptions};
use super::scripts::Scripts;
use super::wakes::Bell;
use super::{Inner, RedisStore, keeping};
use crate::open::Redis;
use crate::options::Options;

impl RedisStore {
    /// Opens the store for a service: refuses what may lose data, installs what is not there, takes the name.
    ///
    /// # Errors
    /// [`StoreOpenError`] says who can mend it; nothing was changed but a first installation.
    pub async fn open(options: StoreOptions) -> Result<Self, StoreOpenError> {
        let (redis, scripts, front) = parts(&options)?;
        keeping::check(&redis, options.durability).await?;
        let store = Self::assemble(redis, scripts, front, "", 0, None);
        let held = store.hold(&options).await?;
        if held.partitions != options.partitions {
            let (configured, installed) = (options.partitions, held.partitions);
            return Err(StoreOpenError::Partitions { configured, installed });
        }
        let Inner { redis, scripts, front, .. } =
            Arc::into_inner(store.inner).ok_or_else(|| StoreOpenError::Options("opened twice".into()))?;
        let name = options.instance.to_string();
        let store = Self::assemble(redis, scripts, front, &held.installation, held.partitions, Some(name));
        if options.wakes {
            store
                .hang_bell(options.url.expose_secret(), &options.instance)
                .map_err(|error| StoreOpenError::Options(error.to_string()))?;
        }
        Ok(store)
    }

    /// Opens the store beside the services that run on it, for looking and for operators' statements: takes no name.
    ///
    /// # Errors
    /// [`StoreOpenError::Absent`] where nothing was installed; otherwise as [`RedisStore::open`].
    pub async fn open_beside(options: StoreOptions) -> Result<Self, StoreOpenError> {
        let (redis, scripts, front) = parts(&options)?;
        let mut meta = cmd("HMGET");
        meta.arg(format!("{front}meta")).arg("installation").arg("partitions");
        let (installation, partitions): (Option<String>, Option<u32>) =
            redis.inner.ask_one("open", meta).await.map_err(StoreOpenError::Away)?;
        let (installation, partitions) = installation.zip(partitions).ok_or(StoreOpenError::Absent)?;
        Ok(Self::assemble(redis, scripts, front, &installation, partitions, None))
    }

    fn assemble(
        redis: Redis,
        scripts: Scripts,
        front: String,
        installation: &str,
        partitions: u32,
        held: Option<String>,
    ) -> Self {
        let lost = watch::Sender::new(None);
        let (installation, bell) = (installation.into(), Bell::default());
        Self { inner: Arc::new(Inner { redis, scripts, front, installation, partitions, held, lost, bell }) }
    }

    /// The store's clock.
    pub(super) async fn now(&self) -> Result<Timestamp, Error> {
        let (seconds, micros): (i64, i64) = self.look_at("time", cmd("TIME")).await?;
        Ok(Timestamp::from_millis(seconds.saturating_mul(1_000).saturating_add(micros / 1_000)))
    }
}

fn parts(options: &StoreOptions) -> Result<(Redis, Scripts, String), StoreOpenError> {
    let mut inner = Options::new(options.url.clone(), options.instance.clone(), Arc::clone(&options.dice));
    inner.prefix = format!("{}store:", options.prefix);
    inner.connections = options.connections;
    // There is no way around a store: whoever finds every connection taken waits its turn.
    inner.connection_wait = options.answer_within;
    inner.answer_within = options.answer_within;
    inner.connect_within = options.answer_within;
    inner.dead_after = options.dead_after;
    inner.heartbeat = options.heartbeat;
    inner.metrics = options.metrics.clone();
    let redis = Redis::open(inner).map_err(|error| StoreOpenError::Options(error.to_string()))?;
    Ok((redis, Scripts::new(), format!("{}{{store}}:", options.prefix)))
}
