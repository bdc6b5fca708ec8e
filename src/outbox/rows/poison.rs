//! What a parked row does to the later rows of its key, decided by event type.
use std::collections::HashMap;

use serde::Deserialize;

use crate::rows::exclusion::Disposition;
use crate::rows::status::RowState;

/// What a parked row does to its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Poison {
    /// Later rows of the key wait until an operator acts.
    #[default]
    BlockKey,
    /// Later rows of the key are published.
    SkipRow,
}

impl Poison {
    /// How an excluded row is parked.
    pub fn disposition(self) -> Disposition {
        match self {
            Poison::BlockKey => Disposition::ParkKey,
            Poison::SkipRow => Disposition::ParkRow,
        }
    }

    /// The state of a row parked under this rule.
    pub fn state(self) -> RowState {
        self.disposition().state()
    }
}

/// The rule of every event type. It holds for each row that the relay parks: after its last attempt, and after its deaths in trials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoisonPolicy(HashMap<String, Poison>);

impl PoisonPolicy {
    /// The rule of this event type; a type without an entry blocks its key.
    pub fn of(&self, event_type: &str) -> Poison {
        self.0.get(event_type).copied().unwrap_or_default()
    }

    /// Sets the rule of one event type.
    pub fn insert(&mut self, event_type: impl Into<String>, poison: Poison) {
        self.0.insert(event_type.into(), poison);
    }

    /// The event types whose parked rows do not block their key, for a store that applies the rule in a language of its own.
    pub fn skipped_types(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|(_, poison)| **poison == Poison::SkipRow).map(|(event_type, _)| event_type.as_str())
    }
}

impl<T: Into<String>> FromIterator<(T, Poison)> for PoisonPolicy {
    fn from_iter<I: IntoIterator<Item = (T, Poison)>>(rules: I) -> Self {
        Self(rules.into_iter().map(|(event_type, poison)| (event_type.into(), poison)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_without_an_entry_blocks_its_key() {
        let policy = PoisonPolicy::from_iter([("SKIPPED", Poison::SkipRow), ("BLOCKED", Poison::BlockKey)]);

        assert_eq!(
            ["SKIPPED", "BLOCKED", "OTHER"].map(|event_type| policy.of(event_type)),
            [Poison::SkipRow, Poison::BlockKey, Poison::BlockKey]
        );
        assert_eq!(policy.skipped_types().collect::<Vec<_>>(), ["SKIPPED"]);
    }

    #[test]
    fn only_block_key_blocks_the_key_of_a_parked_row() {
        assert!(Poison::BlockKey.state().blocks_key());
        assert!(!Poison::SkipRow.state().blocks_key());
    }
}
