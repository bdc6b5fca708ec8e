//! How a Redis keeps what was written to it: the settings of the running server, and what it may lose with them.
use std::collections::HashMap;

use deadpool_redis::redis::cmd;
use ports::Error;

use crate::connection::client::Redis;

/// How a Redis keeps what was written to it.
#[derive(Default)]
pub(crate) struct Persistence {
    /// The settings by which it may lose data.
    pub(crate) risk: Option<String>,
    /// Whether it replies before the data is on the disk.
    pub(crate) syncs_late: bool,
    /// The settings of its syncs, as last read.
    pub(crate) sync: SyncSettings,
}

/// When a server syncs its append-only file. The default value means that the settings are unknown.
#[derive(Clone, Default)]
pub(crate) struct SyncSettings {
    fsync: Option<String>,
    no_fsync_on_rewrite: bool,
}

/// Reads the settings of the running server. Those of its syncs are `known` where the server refuses to show them, as with an ACL.
pub(crate) async fn persistence(redis: &Redis, known: SyncSettings) -> Result<Persistence, Error> {
    let info: String = redis.inner.store_command("read its settings", cmd("INFO")).await?;
    if is_loading(&info) {
        return Err(Error::Unreachable("Redis is loading its data".into()));
    }
    let setting = |name: &str| field(&info, name);
    let mut get = cmd("CONFIG");
    get.arg("GET").arg("*appendfsync*");
    let configured: Result<HashMap<String, String>, Error> = redis.inner.store_command("read its settings", get).await;
    let sync = match configured {
        Ok(mut configured) => SyncSettings {
            no_fsync_on_rewrite: configured.get("no-appendfsync-on-rewrite").is_some_and(|value| value == "yes"),
            fsync: configured.remove("appendfsync"),
        },
        Err(Error::Broken(_)) => known,
        Err(error) => return Err(error),
    };
    let settings = PersistenceSettings {
        aof: setting("aof_enabled"),
        fsync: sync.fsync.as_deref(),
        no_fsync_on_rewrite: sync.no_fsync_on_rewrite,
        policy: setting("maxmemory_policy"),
    };
    let risk = risk(&settings);
    Ok(Persistence { syncs_late: risk.is_none() && settings.fsync == Some("everysec"), risk, sync })
}

/// The value of a field of `INFO`.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

/// Whether the server loads its data. Until it has, it keeps the append-only file closed, and `INFO` reports that as `aof_enabled:0`.
fn is_loading(info: &str) -> bool {
    ["loading", "async_loading"].iter().any(|name| field(info, name) == Some("1"))
}

/// The settings that decide what a Redis may lose.
struct PersistenceSettings<'a> {
    aof: Option<&'a str>,
    fsync: Option<&'a str>,
    /// While the append-only file is rewritten or a snapshot is saved, nothing is synced, whatever `fsync` says: up to 30 s are lost.
    no_fsync_on_rewrite: bool,
    policy: Option<&'a str>,
}

fn risk(PersistenceSettings { aof, fsync, no_fsync_on_rewrite, policy }: &PersistenceSettings<'_>) -> Option<String> {
    let evicting = policy.filter(|policy| *policy != "noeviction");
    let risks = [
        (*aof != Some("1")).then(|| "appendonly is no".to_owned()),
        (*fsync == Some("no")).then(|| "appendfsync is no".to_owned()),
        no_fsync_on_rewrite.then(|| "no-appendfsync-on-rewrite is yes".to_owned()),
        evicting.map(|policy| format!("maxmemory-policy is {policy}")),
    ];
    let risks: Vec<String> = risks.into_iter().flatten().collect();
    (!risks.is_empty()).then(|| risks.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loading_server_is_recognized_by_its_info() {
        let info = |loading: u8, in_background: u8| {
            format!("# Persistence\r\nloading:{loading}\r\nasync_loading:{in_background}\r\naof_enabled:0\r\n")
        };

        assert!(is_loading(&info(1, 0)) && is_loading(&info(0, 1)));
        assert!(!is_loading(&info(0, 0)));
        assert!(!is_loading("loading_start_time:1\r\n"), "the name of another field begins with this one's");
    }

    #[test]
    fn settings_that_may_lose_orders_are_reported() {
        let risk_of = |aof, fsync, no_fsync_on_rewrite, policy| {
            risk(&PersistenceSettings { aof, fsync, no_fsync_on_rewrite, policy })
        };
        assert_eq!(risk_of(Some("1"), Some("everysec"), false, Some("noeviction")), None);
        assert_eq!(risk_of(Some("1"), None, false, None), None);
        let rewrite = risk_of(Some("1"), Some("always"), true, Some("noeviction"));
        assert_eq!(rewrite.as_deref(), Some("no-appendfsync-on-rewrite is yes"));
        let all = risk_of(Some("0"), Some("no"), false, Some("allkeys-lru")).expect("a risk");
        assert!(["appendonly", "appendfsync", "allkeys-lru"].iter().all(|word| all.contains(word)), "{all}");
    }
}
