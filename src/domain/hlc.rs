//! Hybrid logical clock (Kulkarni et al., 2014) as data: it orders the updates of several regions.
use std::sync::Arc;

use crate::time::Timestamp;

/// Name of a region. Regions compare by name, so every region breaks a tie the same way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionId(Arc<str>);

impl RegionId {
    /// Creates the id of the region with this name.
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// The name as it is configured.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A stamp that grows with every change of one order, even when wall clocks stop, go back or disagree.
/// The order is total: milliseconds first, then the counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hlc {
    /// The physical part, in milliseconds since the epoch.
    pub millis: i64,
    /// Distinguishes stamps of the same millisecond.
    pub counter: u32,
}

impl Hlc {
    /// The stamp of a first change, made at this time.
    pub fn first(now: Timestamp) -> Self {
        Self { millis: now.millis(), counter: 0 }
    }

    /// The stamp of the next change: greater than this one, whatever the wall clock shows.
    pub fn tick(self, now: Timestamp) -> Self {
        if now.millis() > self.millis { Self::first(now) } else { self.successor() }
    }

    /// The later of this stamp and one that was received. A stamp after `latest_accepted_time` is ignored: a clock that is far ahead must not
    /// advance this one.
    #[must_use]
    pub fn merge(self, received: Hlc, latest_accepted_time: Timestamp) -> Self {
        if received.millis > latest_accepted_time.millis() { self } else { self.max(received) }
    }

    fn successor(self) -> Self {
        match self.counter.checked_add(1) {
            Some(counter) => Self { millis: self.millis, counter },
            None => Self { millis: self.millis.saturating_add(1), counter: 0 },
        }
    }

    /// Parses the wire form `millis.counter`.
    pub fn parse(text: &str) -> Option<Self> {
        let (millis, counter) = text.split_once('.')?;
        Some(Self { millis: millis.parse().ok()?, counter: counter.parse().ok()? })
    }
}

impl std::fmt::Display for Hlc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.millis, self.counter)
    }
}
