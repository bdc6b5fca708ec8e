//! Checks whether a Redis keeps what was written to it, and logs what changes.
use ports::Error;

use crate::connection::client::Redis;
use crate::store::client::RedisStore;
use crate::store::open_error::StoreOpenError;
use crate::store::options::Durability;
use crate::store::persistence::{Persistence, SyncSettings, persistence};

impl RedisStore {
    /// The settings by which this Redis may lose data; `None` if there are none.
    ///
    /// # Errors
    /// The server did not answer.
    pub async fn durability_risk(&self) -> Result<Option<String>, Error> {
        persistence(&self.inner.redis, SyncSettings::default()).await.map(|persistence| persistence.risk)
    }
}

impl RedisStore {
    /// Checks the settings of the running server again: an operator, or a restart without its configuration file, may have changed them.
    /// Logs each change of what they allow.
    ///
    /// # Errors
    /// The server may lose orders, and the options do not accept that. Settings that cannot be read count as unchanged.
    pub(crate) async fn recheck_durability(&self) -> Result<(), Error> {
        let known = self.inner.known_persistence.lock().sync.clone();
        if let Ok(found) = persistence(&self.inner.redis, known).await {
            self.record_persistence(found);
        }
        match (self.inner.durability, &self.inner.known_persistence.lock().risk) {
            (Durability::Refuse, Some(risk)) => Err(Error::Broken(format!("this Redis may lose orders: {risk}"))),
            _ => Ok(()),
        }
    }

    /// Keeps the settings of the server as last seen, and logs what changed.
    pub(crate) fn record_persistence(&self, found: Persistence) {
        let mut known = self.inner.known_persistence.lock();
        log_change(&known, &found);
        *known = found;
    }
}

fn log_change(before: &Persistence, after: &Persistence) {
    match &after.risk {
        Some(risk) if before.risk != after.risk => {
            tracing::warn!(event = "store_not_durable", settings = risk, "this Redis may lose orders");
        }
        None if before.risk.is_some() => {
            tracing::info!(event = "store_durable_again", "the settings of this Redis keep all orders again");
        }
        _ => {}
    }
    if after.syncs_late && !before.syncs_late {
        tracing::warn!(
            event = "store_fsync_everysec",
            "acknowledged orders of the last seconds are lost when Redis and its machine fail; appendfsync always loses none"
        );
    }
}

/// Reads how the server keeps its data. Refuses one that may lose some, unless the options accept that.
pub(crate) async fn check(redis: &Redis, durability: Durability) -> Result<Persistence, StoreOpenError> {
    let found = persistence(redis, SyncSettings::default()).await.map_err(StoreOpenError::Unavailable)?;
    match (&found.risk, durability) {
        (Some(risk), Durability::Refuse) => Err(StoreOpenError::NotDurable(risk.clone())),
        _ => Ok(found),
    }
}
