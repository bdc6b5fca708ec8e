//! The number of partitions without an owner, counted at most every few seconds however many pages ask.
use std::time::Duration;

use app::operators::outbox::OutboxOperations;
use domain::Timestamp;
use parking_lot::Mutex;
use tokio::time::timeout;

/// How long a count is shown: counting reads the store.
const FRESH: Duration = Duration::from_secs(5);
/// Longest wait for the store: the overview must show what is wrong with a store that does not answer.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// The last count and its time.
#[derive(Default)]
pub(crate) struct CountedPartitions(Mutex<Option<(Timestamp, Option<usize>)>>);

impl CountedPartitions {
    /// The partitions whose lease no instance holds; `None` while the store does not answer.
    pub(crate) async fn without_owner(&self, operations: &OutboxOperations) -> Option<usize> {
        let now = operations.steady_now();
        if let Some((at, count)) = *self.0.lock()
            && now.since(at) < FRESH
        {
            return count;
        }
        // Dropping a read that is late changes nothing.
        let partitions = timeout(WAIT_MAX, operations.partitions()).await.ok().and_then(Result::ok);
        let count = partitions.map(|all| all.iter().filter(|one| one.owner.is_none()).count());
        *self.0.lock() = Some((now, count));
        count
    }
}
