//! A set of events, as one byte.

/// Events by their numbers, 0 to 7.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EventSet(u8);

impl EventSet {
    /// The set that contains only this event.
    pub fn of(event: usize) -> Self {
        Self(1 << event)
    }

    /// Whether the set contains no event.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Number of events in the set.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether this event is in the set.
    pub fn contains(self, event: usize) -> bool {
        self.0 >> event & 1 == 1
    }

    /// Adds an event; twice changes nothing.
    pub fn insert(&mut self, event: usize) {
        self.0 |= 1 << event;
    }

    /// The events of this set that the other one does not contain.
    pub fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The events of this set, in id order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..8).filter(move |event| self.contains(*event))
    }

    /// The event with the largest id.
    pub fn last(self) -> Option<usize> {
        self.iter().last()
    }
}
