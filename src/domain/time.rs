//! A point in time as data. The domain reads no clock; callers pass the time in.

/// Milliseconds since the Unix epoch, UTC. Negative values are before 1970 and legal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The time this many milliseconds after the epoch.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn millis(self) -> i64 {
        self.0
    }

    /// This time plus a duration; saturates at the largest value.
    pub fn plus(self, by: std::time::Duration) -> Self {
        let millis = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(millis))
    }

    /// Time elapsed since `earlier`; zero when `earlier` is later.
    pub fn since(self, earlier: Timestamp) -> std::time::Duration {
        let millis = self.0.saturating_sub(earlier.0).max(0);
        std::time::Duration::from_millis(millis.unsigned_abs())
    }
}
