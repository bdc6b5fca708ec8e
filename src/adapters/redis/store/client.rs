//! The store's handle and the state that its clones share.
use std::sync::Arc;

use parking_lot::Mutex;
use ports::partitions::InstanceIdTakenOver;
use tokio::sync::watch;

use crate::connection::client::Redis;
use crate::store::options::Durability;
use crate::store::persistence::Persistence;
use crate::store::scripts::StoreScripts;
use crate::wake::queues::WakeQueues;

/// The store. Cheap to clone; all clones count as one process.
#[derive(Clone)]
pub struct RedisStore {
    pub(crate) inner: Arc<StoreInner>,
}

pub(crate) struct StoreInner {
    pub(crate) redis: Redis,
    pub(crate) scripts: StoreScripts,
    /// Prefix of every key, with the hash tag that keeps all of them in one slot.
    pub(crate) prefix: String,
    pub(crate) installation: Arc<str>,
    pub(crate) partitions: u32,
    /// The instance id that this process holds; `None` for a store that was opened for an operator.
    pub(crate) held_instance_id: Option<String>,
    /// The reaction to a Redis that may lose data.
    pub(crate) durability: Durability,
    /// How this Redis keeps its data, as last seen.
    pub(crate) known_persistence: Mutex<Persistence>,
    /// Whether this process has released its instance id. Locked while the id is renewed or released, so that no renewal follows the release.
    pub(crate) instance_id_released: tokio::sync::Mutex<bool>,
    pub(crate) instance_id_taken_over: watch::Sender<Option<InstanceIdTakenOver>>,
    pub(crate) wake: WakeQueues,
}

impl RedisStore {
    /// The installation's id, drawn when the database was first used.
    pub fn installation(&self) -> &str {
        &self.inner.installation
    }

    /// The number of partitions the database was installed with.
    pub fn partitions(&self) -> u32 {
        self.inner.partitions
    }
}
