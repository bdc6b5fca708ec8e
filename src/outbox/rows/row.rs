//! The columns of an outbox row that the rules read, and the change of a row that they return.
use crate::failure::FailureType;
use crate::ids::RowId;
use crate::rows::claim::is_suspect;
use crate::rows::status::RowState;

/// The columns of an outbox row that the rules read. `K` is the store's type for the row's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxRow<K> {
    /// Position of the row in its store.
    pub id: RowId,
    /// The key whose rows keep their order.
    pub key: K,
    /// Attempts counted so far, including the present attempt of a claimed row.
    pub attempts: u32,
    /// Times its claimer died while the row was in flight.
    pub deaths: u32,
    /// The number of its deaths that happened in trials.
    pub trial_deaths: u32,
    /// Whether the row is the one that the later rows of its key wait behind.
    pub blocks_key: bool,
}

/// The new values of a row's columns. Applying it replaces state, due time and all three counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowChange<K> {
    /// The row to change.
    pub id: RowId,
    /// The key of the row, whose block the store re-computes.
    pub key: K,
    /// The new state with its due time.
    pub state: RowState,
    /// The new number of attempts.
    pub attempts: u32,
    /// The new number of deaths.
    pub deaths: u32,
    /// The new number of deaths in trials.
    pub trial_deaths: u32,
    /// The new failure type; `None` keeps the stored one.
    pub failure_type: Option<FailureType>,
    /// The new failure reason, already truncated; `None` keeps the stored one.
    pub reason: Option<String>,
}

impl<K: Clone> OutboxRow<K> {
    /// A change that assigns `state` and keeps counts and failure.
    pub fn with_state(&self, state: RowState) -> RowChange<K> {
        RowChange {
            id: self.id,
            key: self.key.clone(),
            state,
            attempts: self.attempts,
            deaths: self.deaths,
            trial_deaths: self.trial_deaths,
            failure_type: None,
            reason: None,
        }
    }
}

impl<K> RowChange<K> {
    /// Whether the changed row waits for a trial and no ordinary claim may take it.
    pub fn awaits_trial(&self) -> bool {
        matches!(self.state, RowState::Failed { .. }) && is_suspect(self.deaths)
    }
}
