//! Time and randomness as ports, so that a simulation controls both.
use domain::Timestamp;

/// The time of this process: for stamps, cache ages and local estimates. What instances must agree on (the end of a lease, due times, ages of rows)
/// is measured by the store's clock.
pub trait Clock: Send + Sync {
    /// The present time. Never goes back within one process, whatever the wall clock does.
    fn now(&self) -> Timestamp;

    /// The time of the wall clock, which may go back: for what is compared with the clocks of other systems, such as the expiry of tokens, the
    /// timestamps of records and the stamps of changes. A wall clock that was ahead for a moment leaves [`Clock::now`] ahead until the process
    /// ends, but not this.
    fn wall(&self) -> Timestamp {
        self.now()
    }
}

/// A source of random bits for ids and jitter. Not for secrets.
pub trait Rng: Send + Sync {
    /// Sixty-four independent random bits.
    fn next_u64(&self) -> u64;

    /// A uniform number in 0.0..1.0.
    fn fraction(&self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// The ten random bytes of a version 7 id.
    fn entropy(&self) -> [u8; 10] {
        let mut bytes = [0; 10];
        bytes[..8].copy_from_slice(&self.next_u64().to_be_bytes());
        bytes[8..].copy_from_slice(&self.next_u64().to_be_bytes()[..2]);
        bytes
    }
}
