//! The partitions that wait to be announced to other instances, and those that other instances announced.
use std::sync::Arc;

use parking_lot::Mutex;
use ports::partitions::wake::WakeUpSet;
use tokio::task::JoinHandle;

/// Both directions of the wake channel. Until its tasks are started it sends and receives nothing. Its tasks end with it.
#[derive(Default)]
pub(crate) struct WakeQueues {
    pub(crate) outgoing: Arc<WakeUpSet>,
    pub(crate) incoming: Arc<WakeUpSet>,
    pub(crate) tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Drop for WakeQueues {
    fn drop(&mut self) {
        self.tasks.get_mut().iter().for_each(JoinHandle::abort);
    }
}
