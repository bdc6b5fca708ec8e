//! Effect of a parked row on the later rows of its key, decided by topic and event type.
use serde::Deserialize;

use crate::rows::exclusion::Disposition;
use crate::rows::status::RowState;
use crate::rows::topic_rules::TopicRules;

/// Effect of a parked row on its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PoisonAction {
    /// Later rows of the key wait until an operator acts.
    #[default]
    BlockKey,
    /// Later rows of the key are published.
    SkipRow,
}

impl PoisonAction {
    /// How an excluded row is parked.
    pub fn disposition(self) -> Disposition {
        match self {
            PoisonAction::BlockKey => Disposition::ParkKey,
            PoisonAction::SkipRow => Disposition::ParkRow,
        }
    }

    /// The state of a row parked under this rule.
    pub fn state(self) -> RowState {
        self.disposition().state()
    }
}

/// The rules of topics and event types. They hold for each row that the relay parks: after its last attempt, and after its deaths in trials.
pub type PoisonPolicy = TopicRules<PoisonAction>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_without_a_rule_blocks_its_key() {
        let policy = PoisonPolicy::from_iter([("SKIPPED", PoisonAction::SkipRow), ("BLOCKED", PoisonAction::BlockKey)]);

        assert_eq!(
            ["SKIPPED", "BLOCKED", "OTHER"].map(|event_type| policy.value_for("customers", event_type)),
            [PoisonAction::SkipRow, PoisonAction::BlockKey, PoisonAction::BlockKey]
        );
    }

    #[test]
    fn only_block_key_blocks_the_key_of_a_parked_row() {
        assert!(PoisonAction::BlockKey.state().blocks_key());
        assert!(!PoisonAction::SkipRow.state().blocks_key());
    }
}
