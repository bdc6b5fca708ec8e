//! Statements of operators: retry, park, redrive. Each changes rows that no worker holds, raises the counter and leaves an audit row.
use std::time::Duration;

use crate::failure::truncate_reason;
use crate::rows::row::{OutboxRow, RowChange};
use crate::rows::status::{RowState, RowStatus};

/// A statement of an operator about one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorAction {
    /// Makes a FAILED or PARKED row due at once.
    Retry,
    /// Parks a PENDING or FAILED row; later rows of its key wait behind it.
    Park,
    /// Makes a PARKED row due at once, as one of many that a filter selects.
    Redrive,
}

impl OperatorAction {
    /// Every action, in the order in which help texts list them.
    pub const ALL: [Self; 3] = [Self::Retry, Self::Park, Self::Redrive];

    /// The action with this name in the audit table; `None` if there is none.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.as_str() == text)
    }

    /// The name in the audit table.
    pub fn as_str(self) -> &'static str {
        match self {
            OperatorAction::Retry => "retry",
            OperatorAction::Park => "park",
            OperatorAction::Redrive => "redrive",
        }
    }

    /// Whether the action applies to a row with this status. A row that is in flight or sent is never changed.
    pub fn applies_to(self, status: RowStatus) -> bool {
        match self {
            OperatorAction::Retry => matches!(status, RowStatus::Failed | RowStatus::Parked),
            OperatorAction::Park => matches!(status, RowStatus::Pending | RowStatus::Failed),
            OperatorAction::Redrive => status == RowStatus::Parked,
        }
    }
}

/// A row that becomes due at once by [`OperatorAction::Retry`] or [`OperatorAction::Redrive`]. A parked row starts again: its attempts and
/// trial deaths are zero. Its deaths stay, so a row that was parked as poison is still claimed only by a trial.
pub fn due_now<K: Clone>(row: &OutboxRow<K>, status: RowStatus) -> RowChange<K> {
    let change = row.with_state(RowState::Failed { due_in: Duration::ZERO });
    match status {
        RowStatus::Parked => RowChange { attempts: 0, trial_deaths: 0, ..change },
        RowStatus::Pending | RowStatus::InFlight | RowStatus::Failed | RowStatus::Sent => change,
    }
}

/// A row that an operator parks. The reason of a stored failure stays, because it explains more than the parking, which the audit row
/// records. A stored reason without a failure type is that of an earlier parking, and is replaced.
pub fn parked<K: Clone>(row: &OutboxRow<K>, has_failed: bool, operator: &str, reason: &str) -> RowChange<K> {
    let reason = (!has_failed).then(|| parked_reason(operator, reason));
    RowChange { reason, ..row.with_state(RowState::Parked { blocks_key: true }) }
}

/// The failure reason of a parked row that had not failed before, truncated as every reason.
pub fn parked_reason(operator: &str, reason: &str) -> String {
    let text =
        if reason.is_empty() { format!("parked by {operator}") } else { format!("parked by {operator}: {reason}") };
    truncate_reason(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUE_NOW: RowState = RowState::Failed { due_in: Duration::ZERO };

    fn row() -> OutboxRow<()> {
        OutboxRow { id: 1, key: (), attempts: 4, deaths: 5, trial_deaths: 2, blocks_key: true }
    }

    #[test]
    fn actions_apply_only_to_rows_that_no_worker_holds() {
        let cases = [
            (OperatorAction::Retry, [false, false, true, true, false]),
            (OperatorAction::Park, [true, false, true, false, false]),
            (OperatorAction::Redrive, [false, false, false, true, false]),
        ];

        for (action, expected) in cases {
            assert_eq!(RowStatus::ALL.map(|status| action.applies_to(status)), expected, "{action:?}");
        }
    }

    #[test]
    fn an_action_is_parsed_from_its_name_in_the_audit_table() {
        for action in OperatorAction::ALL {
            assert_eq!(OperatorAction::parse(action.as_str()), Some(action));
        }
        assert_eq!(OperatorAction::parse("Retry"), None);
    }

    #[test]
    fn parked_row_that_is_retried_starts_again_but_remains_a_suspect() {
        let change = due_now(&row(), RowStatus::Parked);

        assert_eq!(change, RowChange { attempts: 0, trial_deaths: 0, ..row().with_state(DUE_NOW) });
        assert!(change.awaits_trial());
    }

    #[test]
    fn failed_row_that_is_retried_keeps_its_counts() {
        assert_eq!(due_now(&row(), RowStatus::Failed), row().with_state(DUE_NOW));
    }

    #[test]
    fn parking_keeps_the_reason_of_a_stored_failure() {
        let cases = [
            (true, "ann", "spam", None),
            (false, "ann", "spam", Some("parked by ann: spam")),
            (false, "ann", "", Some("parked by ann")),
        ];

        for (has_failed, operator, reason, stored) in cases {
            let change = parked(&row(), has_failed, operator, reason);
            assert_eq!(change.state, RowState::Parked { blocks_key: true });
            assert_eq!((change.failure_type, change.reason.as_deref()), (None, stored));
        }
        assert_eq!(parked_reason("ann", &"x".repeat(300)).chars().count(), 256);
    }
}
