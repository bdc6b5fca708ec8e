//! The number of partitions without an owner, cached for a few seconds.
use std::time::Duration;

use app::operators::outbox::OutboxOperations;
use domain::Timestamp;
use parking_lot::Mutex;
use tokio::time::timeout;

/// Time for which a count is cached: counting reads the store.
const CACHE_TTL: Duration = Duration::from_secs(5);
/// Longest wait for the store: the overview must also be shown while the store does not respond.
const QUERY_TIMEOUT: Duration = Duration::from_secs(1);

/// The cache: the last count and its time.
#[derive(Default)]
pub(crate) struct UnownedPartitionCache(Mutex<Option<(Timestamp, Option<usize>)>>);

impl UnownedPartitionCache {
    /// The partitions whose lease no instance holds; `None` while the store does not answer.
    pub(crate) async fn count(&self, operations: &OutboxOperations) -> Option<usize> {
        let now = operations.monotonic_now();
        if let Some((at, count)) = *self.0.lock()
            && now.since(at) < CACHE_TTL
        {
            return count;
        }
        // Dropping a read that is late changes nothing.
        let partitions = timeout(QUERY_TIMEOUT, operations.partitions()).await.ok().and_then(Result::ok);
        let count = partitions.map(|all| all.iter().filter(|partition| partition.owner.is_none()).count());
        *self.0.lock() = Some((now, count));
        count
    }
}
