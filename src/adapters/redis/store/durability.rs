//! Checks whether a Redis keeps what was written to it.
use deadpool_redis::redis::cmd;
use ports::Error;

use crate::connection::client::Redis;
use crate::store::client::RedisStore;
use crate::store::open_error::StoreOpenError;
use crate::store::options::Durability;

impl RedisStore {
    /// The settings by which this Redis may lose data; `None` if there are none.
    ///
    /// # Errors
    /// The server did not answer.
    pub async fn durability_risk(&self) -> Result<Option<String>, Error> {
        persistence(&self.inner.redis).await.map(|persistence| persistence.risk)
    }
}

impl RedisStore {
    /// Checks the settings of the running server again: an operator, or a restart without its configuration file, may have changed them.
    /// Logs each change of what they allow.
    ///
    /// # Errors
    /// The server may lose orders, and the options do not accept that. Settings that cannot be read count as unchanged.
    pub(crate) async fn recheck_durability(&self) -> Result<(), Error> {
        if let Ok(persistence) = persistence(&self.inner.redis).await {
            let before = std::mem::replace(&mut *self.inner.known_risk.lock(), persistence.risk.clone());
            log_change(before.as_deref(), persistence.risk.as_deref());
        }
        match (self.inner.durability, &*self.inner.known_risk.lock()) {
            (Durability::Refuse, Some(risk)) => Err(Error::Broken(format!("this Redis may lose orders: {risk}"))),
            _ => Ok(()),
        }
    }
}

fn log_change(before: Option<&str>, after: Option<&str>) {
    match after {
        Some(risk) if before != after => {
            tracing::warn!(event = "store_not_durable", settings = risk, "this Redis may lose orders");
        }
        None if before.is_some() => {
            tracing::info!(event = "store_durable_again", "the settings of this Redis keep all orders again");
        }
        _ => {}
    }
}

/// Refuses a Redis that may lose orders, or logs a warning.
/// Returns the accepted risk.
pub(crate) async fn check(redis: &Redis, durability: Durability) -> Result<Option<String>, StoreOpenError> {
    let Persistence { risk, syncs_late } = persistence(redis).await.map_err(StoreOpenError::Unavailable)?;
    if syncs_late {
        tracing::warn!(
            event = "store_fsync_everysec",
            "acknowledged orders of the last seconds are lost when Redis and its machine fail; appendfsync always loses none"
        );
    }
    match (risk, durability) {
        (None, _) => Ok(None),
        (Some(risk), Durability::Refuse) => Err(StoreOpenError::NotDurable(risk)),
        (Some(risk), Durability::Warn) => {
            log_change(None, Some(&risk));
            Ok(Some(risk))
        }
    }
}

/// How a Redis keeps what was written to it.
struct Persistence {
    /// The settings by which it may lose data.
    risk: Option<String>,
    /// Whether it replies before the data is on the disk.
    syncs_late: bool,
}

async fn persistence(redis: &Redis) -> Result<Persistence, Error> {
    let info: String = redis.inner.store_command("read its settings", cmd("INFO")).await?;
    let setting = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let mut fsync = cmd("CONFIG");
    fsync.arg("GET").arg("appendfsync");
    // Where an ACL forbids CONFIG, the check knows only whether there is an append-only file.
    let fsync: Option<(String, String)> = redis.inner.store_command("read its settings", fsync).await.ok();
    let fsync = fsync.as_ref().map(|(_, value)| value.as_str());
    let risk = risk(setting("aof_enabled"), fsync, setting("maxmemory_policy"));
    Ok(Persistence { syncs_late: risk.is_none() && fsync == Some("everysec"), risk })
}

fn risk(aof: Option<&str>, fsync: Option<&str>, policy: Option<&str>) -> Option<String> {
    let evicting = policy.filter(|policy| *policy != "noeviction");
    let risks = [
        (aof != Some("1")).then(|| "appendonly is no".to_owned()),
        (fsync == Some("no")).then(|| "appendfsync is no".to_owned()),
        evicting.map(|policy| format!("maxmemory-policy is {policy}")),
    ];
    let risks: Vec<String> = risks.into_iter().flatten().collect();
    (!risks.is_empty()).then(|| risks.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_may_lose_orders_are_named() {
        assert_eq!(risk(Some("1"), Some("everysec"), Some("noeviction")), None);
        assert_eq!(risk(Some("1"), None, None), None);
        let all = risk(Some("0"), Some("no"), Some("allkeys-lru")).expect("a risk");
        assert!(["appendonly", "appendfsync", "allkeys-lru"].iter().all(|word| all.contains(word)), "{all}");
    }
}
