//! The handle of one Redis server and the state that its clones share.
use std::sync::Arc;
use std::time::Instant;

use deadpool_redis::redis::ConnectionInfo;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::cache::epoch::EpochTracker;
use crate::connection::keys::KeyNames;
use crate::connection::options::Options;
use crate::connection::scripts::SharedScripts;
use crate::connection::shared_connection::SharedConnection;
use crate::connection::warn_once::WarnOnce;
use crate::idempotency::pending_releases::PendingReleases;

/// Idempotency keys, order cache, token buckets and probe on one Redis. Cheap to clone; all clones count as one process.
#[derive(Clone)]
pub struct Redis {
    pub(crate) inner: Arc<RedisInner>,
}

pub(crate) struct RedisInner {
    /// Address and trust of the server, for a client that needs a connection of its own.
    pub(crate) server: ConnectionInfo,
    pub(crate) connection: SharedConnection,
    pub(crate) options: Options,
    pub(crate) keys: KeyNames,
    pub(crate) scripts: SharedScripts,
    /// Identifies this run of the process: a restart of the same instance has another one.
    pub(crate) boot_id: String,
    pub(crate) epoch: Arc<Mutex<EpochTracker>>,
    /// `None` while the server answers.
    pub(crate) outage: Mutex<Option<RedisOutage>>,
    /// Wakes the maintenance task.
    pub(crate) maintenance: Arc<Notify>,
    /// Whether the heartbeat was deleted for good. Locked while a heartbeat is sent or deleted, so that none follows the deletion.
    pub(crate) has_left: tokio::sync::Mutex<bool>,
    pub(crate) warnings: WarnOnce,
    pub(crate) pending_releases: PendingReleases,
}

/// Since when the server is unavailable, and why.
pub(crate) struct RedisOutage {
    pub(crate) since: Instant,
    /// The error of the last call that failed.
    pub(crate) cause: String,
}

impl Drop for RedisInner {
    fn drop(&mut self) {
        self.maintenance.notify_one();
    }
}
