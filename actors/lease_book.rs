//! How long our leases last, by our own count: from before we asked, on a clock that also runs while the machine sleeps.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use domain::Timestamp;
use parking_lot::Mutex;
use ports::clock::Clock;
use ports::partitions::{Epoch, PartitionNo};

/// The leases of this instance. A hint for whoever acts: the store's fence is what protects, this only keeps us from trying in vain.
pub struct LeaseBook {
    clock: Arc<dyn Clock>,
    ttl: Duration,
    held: Mutex<BTreeMap<PartitionNo, (Epoch, Timestamp)>>,
}

impl LeaseBook {
    /// An empty book.
    pub fn new(clock: Arc<dyn Clock>, ttl: Duration) -> Self {
        Self { clock, ttl, held: Mutex::default() }
    }

    /// How long a lease lasts.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// When a request for a lease starts its count.
    pub fn asking(&self) -> Timestamp {
        self.clock.now()
    }

    /// A lease was taken; it lasts from when it was asked for.
    pub fn took(&self, partition: PartitionNo, epoch: Epoch, asked: Timestamp) {
        self.held.lock().insert(partition, (epoch, asked.after(self.ttl)));
    }

    /// Leases were renewed; one that changed hands meanwhile is left alone.
    pub fn renewed(&self, asked: Timestamp, held: &[(PartitionNo, Epoch)], still_ours: &[PartitionNo]) {
        let mut book = self.held.lock();
        for (partition, epoch) in held {
            let Some((current, until)) = book.get_mut(partition) else { continue };
            if current != epoch {
                continue;
            }
            if still_ours.contains(partition) {
                *until = asked.after(self.ttl);
            } else {
                book.remove(partition);
            }
        }
    }

    /// A lease is not ours any more.
    pub fn lost(&self, partition: PartitionNo) {
        self.held.lock().remove(&partition);
    }

    /// What is left of the lease of this epoch; zero when it is not ours.
    pub fn time_left(&self, partition: PartitionNo, epoch: Epoch) -> Duration {
        match self.held.lock().get(&partition) {
            Some((current, until)) if *current == epoch => until.since(self.clock.now()),
            _ => Duration::ZERO,
        }
    }

    /// The epoch under which this one is ours, as far as we know.
    pub fn epoch(&self, partition: PartitionNo) -> Option<Epoch> {
        self.held.lock().get(&partition).map(|(epoch, _)| *epoch)
    }

    /// What we hold.
    pub fn held(&self) -> Vec<(PartitionNo, Epoch)> {
        self.held.lock().iter().map(|(partition, (epoch, _))| (*partition, *epoch)).collect()
    }
}
