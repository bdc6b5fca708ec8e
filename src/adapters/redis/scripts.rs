//! The scripts, each in a file of its own under `lua/`. They are called by their hash; a server that does not know one (a restart, a
//! flush of its scripts) is given it on the spot.
use deadpool_redis::redis::Script;

/// Every script of this crate.
pub(crate) struct Scripts {
    pub cache_get: Script,
    pub cache_put: Script,
    pub cache_raise: Script,
    pub key_begin: Script,
    pub key_complete: Script,
    pub key_abandon: Script,
    pub leave: Script,
    pub bucket_take: Script,
}

impl Scripts {
    pub(crate) fn new() -> Self {
        Self {
            cache_get: Script::new(include_str!("lua/cache_get.lua")),
            cache_put: Script::new(include_str!("lua/cache_put.lua")),
            cache_raise: Script::new(include_str!("lua/cache_raise.lua")),
            key_begin: Script::new(include_str!("lua/key_begin.lua")),
            key_complete: Script::new(include_str!("lua/key_complete.lua")),
            key_abandon: Script::new(include_str!("lua/key_abandon.lua")),
            leave: Script::new(include_str!("lua/leave.lua")),
            bucket_take: Script::new(include_str!("lua/bucket_take.lua")),
        }
    }
}
