//! The scripts of keys, cache and buckets, each in a file under `lua/`. The client calls them by their hash and loads a script that the
//! server does not know (after a restart, or after a flush of its scripts).
use deadpool_redis::redis::Script;

/// Every script of the shared keys, cache and buckets.
pub(crate) struct SharedScripts {
    pub(crate) cache_get: Script,
    pub(crate) cache_put: Script,
    pub(crate) cache_get_list: Script,
    pub(crate) cache_put_list: Script,
    pub(crate) raise_epoch: Script,
    pub(crate) begin_key: Script,
    pub(crate) complete_key: Script,
    pub(crate) abandon_key: Script,
    pub(crate) find_legacy_key: Script,
    pub(crate) delete_heartbeat: Script,
    pub(crate) take_token: Script,
}

impl SharedScripts {
    pub(crate) fn new() -> Self {
        Self {
            cache_get: Script::new(include_str!("../lua/cache/get.lua")),
            cache_put: Script::new(include_str!("../lua/cache/put.lua")),
            cache_get_list: Script::new(include_str!("../lua/cache/get_list.lua")),
            cache_put_list: Script::new(include_str!("../lua/cache/put_list.lua")),
            raise_epoch: Script::new(include_str!("../lua/cache/raise_epoch.lua")),
            begin_key: Script::new(include_str!("../lua/idempotency/begin.lua")),
            complete_key: Script::new(include_str!("../lua/idempotency/complete.lua")),
            abandon_key: Script::new(include_str!("../lua/idempotency/abandon.lua")),
            find_legacy_key: Script::new(include_str!("../lua/idempotency/find_legacy.lua")),
            delete_heartbeat: Script::new(include_str!("../lua/idempotency/delete_heartbeat.lua")),
            take_token: Script::new(include_str!("../lua/rate_limit/take_token.lua")),
        }
    }
}
