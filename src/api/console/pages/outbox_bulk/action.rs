//! An operator's action on several rows. Each row is changed by a statement of its own, so a row that no longer fits stops no other.
use app::error::QueryError;
use app::operators::outbox::OutboxOperations;
use app::port_types::{Audit, OperatorAction, RowId, RowStatus};

use crate::admin::live_events::log_operator_action;
use crate::console::format::{grouped, pluralize};
use crate::error::Problem;
use crate::request::query::Query;
use crate::state::HttpState;

/// Rows that were not changed, of which the note names no more than this.
const NAMED_MAX: usize = 10;

/// The action on the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BulkAction {
    /// Makes waiting and parked rows due.
    Retry,
    /// Makes parked rows due, and no other.
    Redrive,
    /// Parks rows that wait for an attempt.
    Park,
}

impl BulkAction {
    pub(super) fn read(query: &Query<'_>) -> Result<Self, Problem> {
        match query.non_empty("action")? {
            Some("retry") => Ok(Self::Retry),
            Some("redrive") => Ok(Self::Redrive),
            Some("park") => Ok(Self::Park),
            _ => Err(Problem::field("action", "must be one of retry, redrive, park")),
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Redrive => "redrive",
            Self::Park => "park",
        }
    }

    /// The label of its button.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Retry => "Retry",
            Self::Redrive => "Redrive",
            Self::Park => "Park",
        }
    }

    /// What it does to the rows, for the operator who confirms it.
    pub(super) fn effect(self) -> &'static str {
        match self {
            Self::Retry | Self::Redrive => "Makes the rows due now. The order of their keys does not change.",
            Self::Park => "Stops their retries. Later events of their keys are blocked until they are sent.",
        }
    }

    pub(super) fn applies_to(self, status: RowStatus) -> bool {
        let action = match self {
            Self::Retry => OperatorAction::Retry,
            Self::Redrive => OperatorAction::Redrive,
            Self::Park => OperatorAction::Park,
        };
        action.applies_to(status)
    }
}

/// What an action has changed so far.
#[derive(Default)]
pub(super) struct RowChanges {
    changed: Vec<RowId>,
    /// Why each of the other rows was not changed.
    refused: Vec<String>,
    /// The failure of the store that ended the action.
    failure: Option<QueryError>,
}

impl RowChanges {
    /// Changes one row; returns false after a failure of the store, which ends the action.
    pub(super) async fn change_row(
        &mut self,
        operations: &OutboxOperations,
        action: BulkAction,
        id: RowId,
        audit: &Audit,
    ) -> bool {
        match change_row(operations, action, id, audit).await {
            Ok(()) => self.changed.push(id),
            // The row was changed or sent since the count; the others still are what the operator saw.
            Err(error @ (QueryError::Conflict(_) | QueryError::NotFound)) => {
                self.refused.push(format!("row {id}: {error}"));
            }
            Err(error) => self.fail(error),
        }
        self.failure.is_none()
    }

    /// Ends the action by a failure of the store.
    pub(super) fn fail(&mut self, error: QueryError) {
        self.failure = Some(error);
    }

    /// The number of changed rows.
    pub(super) fn count(&self) -> u64 {
        self.changed.len() as u64
    }

    /// The changed rows by their ids.
    pub(super) fn rows(&self) -> String {
        format!("rows {}", self.changed.iter().map(RowId::to_string).collect::<Vec<_>>().join(", "))
    }

    /// Logs the action if it has changed a row, and returns the note for the operator. `on` names the rows.
    ///
    /// # Errors
    /// The failure of the store, with what was changed before.
    pub(super) fn finish(
        self,
        state: &HttpState,
        action: BulkAction,
        on: &str,
        audit: &Audit,
    ) -> Result<String, QueryError> {
        if !self.changed.is_empty() {
            log_operator_action(state, &audit.operator, action.as_str(), on, &audit.reason);
        }
        let note = self.note(action);
        match self.failure {
            Some(error) if self.changed.is_empty() => Err(error),
            Some(error) => Err(error.after(format!("{} of {on}", action.as_str()))),
            None => Ok(note),
        }
    }

    fn note(&self, action: BulkAction) -> String {
        let changed = pluralize(self.count(), "row was", "rows were");
        let note = format!("{}: {changed} changed.", action.as_str());
        let named = self.refused.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join("; ");
        match self.refused.len().saturating_sub(NAMED_MAX) {
            _ if named.is_empty() => note,
            0 => format!("{note} Not changed: {named}."),
            others => format!("{note} Not changed: {named}; and {} more.", grouped(others as u64)),
        }
    }
}

async fn change_row(
    operations: &OutboxOperations,
    action: BulkAction,
    id: RowId,
    audit: &Audit,
) -> Result<(), QueryError> {
    let status = operations.row(id).await?.status;
    if !action.applies_to(status) {
        return Err(QueryError::Conflict(format!("it is {} now", status.as_str())));
    }
    let Audit { operator, reason } = audit;
    match action {
        BulkAction::Retry => operations.retry(id, operator, reason).await,
        BulkAction::Redrive => operations.redrive_row(id, operator, reason).await,
        BulkAction::Park => operations.park(id, operator, reason).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_names_a_few_rows_that_were_not_changed_and_counts_the_rest() {
        let changes = |refused: usize| RowChanges {
            changed: vec![1, 2],
            refused: (0..refused).map(|id| format!("row {id}: gone")).collect(),
            failure: None,
        };

        assert_eq!(changes(0).note(BulkAction::Park), "park: 2 rows were changed.");
        assert!(changes(1).note(BulkAction::Park).ends_with("Not changed: row 0: gone."));
        let many = changes(14).note(BulkAction::Park);
        assert!(many.contains("row 9: gone; and 4 more.") && !many.contains("row 10"), "{many}");
    }
}
