//! LocalLeases: the local expiry of this instance's leases, counted from before the request on a clock that also runs while the machine is suspended.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use domain::Timestamp;
use parking_lot::Mutex;
use ports::clock::Clock;
use ports::partitions::{Epoch, PartitionNo, Renewal};

/// The leases of this instance. Only a hint that avoids futile calls: the store's fence protects the rows.
pub struct LocalLeases {
    clock: Arc<dyn Clock>,
    ttl: Duration,
    held: Mutex<BTreeMap<PartitionNo, LocalLease>>,
    /// Partitions that the store may have leased to this instance under an epoch that it does not know.
    unknown: Mutex<BTreeSet<PartitionNo>>,
    /// This instance acquires nothing any more.
    closed: AtomicBool,
}

/// One lease, as this instance knows it.
struct LocalLease {
    epoch: Epoch,
    /// When it ends, unless it is renewed.
    until: Timestamp,
}

impl LocalLeases {
    /// No leases yet; each last `ttl`.
    pub fn new(clock: Arc<dyn Clock>, ttl: Duration) -> Self {
        Self { clock, ttl, held: Mutex::default(), unknown: Mutex::default(), closed: false.into() }
    }

    /// How long a lease lasts from its request.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Ends the acquisitions of this instance, which stops: a worker that still runs must not acquire again what is released without it.
    pub fn close(&self) {
        self.closed.store(true, SeqCst);
    }

    /// Whether [`LocalLeases::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.closed.load(SeqCst)
    }

    /// Start of a lease's time: read it before the request is sent.
    pub fn request_time(&self) -> Timestamp {
        self.clock.now()
    }

    /// Records that the epoch of a lease is unknown from now on: an acquisition is under way, or the store has refused the epoch. Returns
    /// whether it was unknown before.
    pub fn set_epoch_unknown(&self, partition: PartitionNo) -> bool {
        !self.unknown.lock().insert(partition)
    }

    /// Whether the store may have leased the partition to this instance under an epoch that it does not know: the reply to an acquisition
    /// was lost, or the store refused the epoch of a claim.
    pub fn is_epoch_unknown(&self, partition: PartitionNo) -> bool {
        self.unknown.lock().contains(&partition)
    }

    /// Records an acquired lease, which lasts from its request.
    pub fn record_acquired(&self, partition: PartitionNo, epoch: Epoch, requested: Timestamp) {
        self.unknown.lock().remove(&partition);
        self.held.lock().insert(partition, LocalLease { epoch, until: requested.plus(self.ttl) });
    }

    /// Records that the store has certainly not leased the partition to this instance under another epoch than the recorded one.
    pub fn clear_epoch_unknown(&self, partition: PartitionNo) {
        self.unknown.lock().remove(&partition);
    }

    /// Records a renewal. A lease whose epoch changed since the request stays as it is, as does one whose row was locked.
    pub fn apply_renewal(&self, requested: Timestamp, held: &[(PartitionNo, Epoch)], renewal: &Renewal) {
        let mut local_leases = self.held.lock();
        for (partition, epoch) in held {
            let Some(lease) = local_leases.get_mut(partition).filter(|lease| lease.epoch == *epoch) else { continue };
            if renewal.renewed.contains(partition) {
                lease.until = requested.plus(self.ttl);
            } else if !renewal.locked.contains(partition) {
                local_leases.remove(partition);
            }
        }
    }

    /// Removes a lease of this epoch that was released or lost. A later one remains.
    pub fn remove(&self, partition: PartitionNo, epoch: Epoch) {
        let mut held = self.held.lock();
        if held.get(&partition).is_some_and(|lease| lease.epoch <= epoch) {
            held.remove(&partition);
        }
    }

    /// Remaining time of the lease of this epoch; zero when this instance does not hold it.
    pub fn time_left(&self, partition: PartitionNo, epoch: Epoch) -> Duration {
        match self.held.lock().get(&partition) {
            Some(lease) if lease.epoch == epoch => lease.until.since(self.clock.now()),
            _ => Duration::ZERO,
        }
    }

    /// The epoch of the last recorded lease on this partition.
    pub fn epoch(&self, partition: PartitionNo) -> Option<Epoch> {
        self.held.lock().get(&partition).map(|lease| lease.epoch)
    }

    /// The partitions that the store may have leased to this instance: those with a recorded lease, and those with an unknown epoch.
    pub fn possibly_held(&self) -> BTreeSet<PartitionNo> {
        let mut partitions = self.unknown.lock().clone();
        partitions.extend(self.held.lock().keys());
        partitions
    }

    /// All recorded leases with their epochs.
    pub fn held(&self) -> Vec<(PartitionNo, Epoch)> {
        self.held.lock().iter().map(|(partition, lease)| (*partition, lease.epoch)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct SteppedClock(Mutex<Timestamp>);

    impl Clock for SteppedClock {
        fn now(&self) -> Timestamp {
            *self.0.lock()
        }
    }

    #[test]
    fn locked_lease_is_kept_until_the_time_of_its_last_renewal() {
        let (ttl, step) = (Duration::from_secs(30), Duration::from_secs(20));
        let clock = Arc::new(SteppedClock(Mutex::default()));
        let leases = LocalLeases::new(Arc::clone(&clock) as _, ttl);
        let [renewed, locked, lost] = [0, 1, 2].map(PartitionNo);
        for partition in [renewed, locked, lost] {
            leases.record_acquired(partition, 1, clock.now());
        }
        let later = clock.now().plus(step);
        *clock.0.lock() = later;

        let renewal = Renewal { renewed: vec![renewed], locked: vec![locked] };
        leases.apply_renewal(clock.now(), &leases.held(), &renewal);

        assert_eq!(leases.held(), [(renewed, 1), (locked, 1)]);
        assert_eq!((leases.time_left(renewed, 1), leases.time_left(locked, 1)), (ttl, ttl - step));
    }
}
