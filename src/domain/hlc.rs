//! Hybrid logical clock (Kulkarni et al., 2014) as data: which of two regions' updates wins.
use std::sync::Arc;

use crate::time::Timestamp;

/// Names a region. Regions compare by name, which breaks ties the same way everywhere.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionId(Arc<str>);

impl RegionId {
    /// The region of this name.
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A stamp that grows with every change of one thing, also when wall clocks stand still or disagree.
/// The order is total: milliseconds first, then the counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hlc {
    /// The physical part, in milliseconds since the epoch.
    pub millis: i64,
    /// Tells apart stamps of the same millisecond.
    pub counter: u32,
}

impl Hlc {
    /// The stamp of a first change at this time.
    pub fn first(now: Timestamp) -> Self {
        Self { millis: now.millis(), counter: 0 }
    }

    /// The stamp of a change made now, above this one whatever the wall clock says.
    pub fn tick(self, now: Timestamp) -> Self {
        if now.millis() > self.millis { Self::first(now) } else { self.bumped() }
    }

    /// The stamp after hearing of `remote`: above both.
    pub fn merge(self, remote: Hlc, now: Timestamp) -> Self {
        let seen = self.max(remote);
        seen.tick(now)
    }

    fn bumped(self) -> Self {
        match self.counter.checked_add(1) {
            Some(counter) => Self { millis: self.millis, counter },
            None => Self { millis: self.millis.saturating_add(1), counter: 0 },
        }
    }

    /// Reads the wire form `millis.counter`.
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
