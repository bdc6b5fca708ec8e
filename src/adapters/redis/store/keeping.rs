//! Whether a Redis keeps what it was told.
use deadpool_redis::redis::cmd;
use ports::Error;

use super::RedisStore;
use super::options::{Durability, StoreOpenError};
use crate::open::Redis;

impl RedisStore {
    /// Why this Redis may lose what it was told; nothing where it does not.
    ///
    /// # Errors
    /// It could not be asked.
    pub async fn may_lose(&self) -> Result<Option<String>, Error> {
        keeping(&self.inner.redis).await.map(|keeping| keeping.complaint)
    }
}

/// Refuses a Redis that may lose orders, or warns of it.
pub(super) async fn check(redis: &Redis, durability: Durability) -> Result<(), StoreOpenError> {
    let Keeping { complaint, late } = keeping(redis).await.map_err(StoreOpenError::Away)?;
    if late {
        let said = "answered orders of the last seconds are lost when Redis and its machine die; appendfsync always loses none";
        tracing::warn!(event = "store_syncs_late", "{said}");
    }
    match (complaint, durability) {
        (None, _) => Ok(()),
        (Some(said), Durability::Refuse) => Err(StoreOpenError::MayLose(said)),
        (Some(said), Durability::Warn) => {
            tracing::warn!(event = "store_may_lose", complaint = %said, "this Redis may lose orders");
            Ok(())
        }
    }
}

/// How a Redis keeps what it was told.
struct Keeping {
    /// Why it may lose anything at all.
    complaint: Option<String>,
    /// It answers before the disk has it.
    late: bool,
}

async fn keeping(redis: &Redis) -> Result<Keeping, Error> {
    let info: String = redis.inner.ask_one("look at its settings", cmd("INFO")).await?;
    let told = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let mut fsync = cmd("CONFIG");
    fsync.arg("GET").arg("appendfsync");
    // A server that may not be asked says nothing: then its append-only file is all that is known.
    let fsync: Option<(String, String)> = redis.inner.ask_one("look at its settings", fsync).await.ok();
    let fsync = fsync.as_ref().map(|(_, value)| value.as_str());
    let complaint = complaint(told("aof_enabled"), fsync, told("maxmemory_policy"));
    Ok(Keeping { late: complaint.is_none() && fsync == Some("everysec"), complaint })
}

fn complaint(aof: Option<&str>, fsync: Option<&str>, policy: Option<&str>) -> Option<String> {
    let evicts = policy.filter(|policy| *policy != "noeviction");
    let said = [
        (aof != Some("1")).then(|| "appendonly is no".to_owned()),
        (fsync == Some("no")).then(|| "appendfsync is no".to_owned()),
        evicts.map(|policy| format!("maxmemory-policy is {policy}")),
    ];
    let said: Vec<String> = said.into_iter().flatten().collect();
    (!said.is_empty()).then(|| said.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_lose_orders_is_named() {
        assert_eq!(complaint(Some("1"), Some("everysec"), Some("noeviction")), None);
        assert_eq!(complaint(Some("1"), None, None), None);
        let all = complaint(Some("0"), Some("no"), Some("allkeys-lru")).expect("a complaint");
        assert!(["appendonly", "appendfsync", "allkeys-lru"].iter().all(|word| all.contains(word)), "{all}");
    }
}
