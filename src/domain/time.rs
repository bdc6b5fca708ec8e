//! A point in time as data. Who reads a clock hands one of these in.

/// Milliseconds since the Unix epoch, UTC. Negative values are before 1970 and legal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// A point so many milliseconds after the epoch.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the epoch.
    pub const fn millis(self) -> i64 {
        self.0
    }

    /// This point, later by a duration; saturates at the end of time.
    pub fn after(self, by: std::time::Duration) -> Self {
        let millis = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(millis))
    }

    /// How long ago `earlier` was, zero when it lies ahead.
    pub fn since(self, earlier: Timestamp) -> std::time::Duration {
        let millis = self.0.saturating_sub(earlier.0).max(0);
        std::time::Duration::from_millis(millis.unsigned_abs())
    }
}
