//! The status of a row as operators see it, the state that a rule gives it, and the codes that SQL stores keep for it.
use std::time::Duration;

/// The status of a row as operators see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowStatus {
    /// Ready to be claimed, or waiting behind an earlier row of its key.
    Pending,
    /// Claimed by a worker, outcome not yet recorded.
    InFlight,
    /// Waiting for `next_attempt_at` after a failure.
    Failed,
    /// Waiting for an operator to retry it.
    Parked,
    /// Acknowledged by the broker, and archived.
    Sent,
}

impl RowStatus {
    /// Every status, in the order of a row's life.
    pub const ALL: [RowStatus; 5] =
        [RowStatus::Pending, RowStatus::InFlight, RowStatus::Failed, RowStatus::Parked, RowStatus::Sent];

    /// The name in tables, replies and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            RowStatus::Pending => "PENDING",
            RowStatus::InFlight => "IN_FLIGHT",
            RowStatus::Failed => "FAILED",
            RowStatus::Parked => "PARKED",
            RowStatus::Sent => "SENT",
        }
    }

    /// Parses the name that [`RowStatus::as_str`] returns; capitals only.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// The status for a code of [`code`]; unknown codes have none.
    pub fn from_code(code: i16) -> Option<Self> {
        match code {
            code::PENDING => Some(RowStatus::Pending),
            code::IN_FLIGHT => Some(RowStatus::InFlight),
            code::FAILED => Some(RowStatus::Failed),
            code::PARKED | code::PARKED_ROW => Some(RowStatus::Parked),
            code::SENT => Some(RowStatus::Sent),
            _ => None,
        }
    }
}

/// Codes of a row's status in the tables of SQL stores.
pub mod code {
    /// Ready to be claimed.
    pub const PENDING: i16 = 0;
    /// Claimed, outcome not yet recorded.
    pub const IN_FLIGHT: i16 = 1;
    /// Waiting for its next attempt; a suspect waits for its trial.
    pub const FAILED: i16 = 2;
    /// Waiting for an operator; later rows of the key wait behind it.
    pub const PARKED: i16 = 3;
    /// Waiting for an operator; later rows of the key go on.
    pub const PARKED_ROW: i16 = 4;
    /// Archived; only in counts and views.
    pub const SENT: i16 = 5;
}

/// The state of a row that no worker holds, as the rules of this crate assign it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowState {
    /// Ready to be claimed.
    Pending,
    /// FAILED: its key waits behind it until it is due.
    Failed {
        /// Time from now until the row may be claimed; zero means at once.
        due_in: Duration,
    },
    /// PARKED: an operator has to retry it.
    Parked {
        /// Whether later rows of the key wait behind it.
        blocks_key: bool,
    },
}

impl RowState {
    /// The status that operators see for this state.
    pub fn status(self) -> RowStatus {
        match self {
            RowState::Pending => RowStatus::Pending,
            RowState::Failed { .. } => RowStatus::Failed,
            RowState::Parked { .. } => RowStatus::Parked,
        }
    }

    /// The code of this state in [`code`].
    pub fn code(self) -> i16 {
        match self {
            RowState::Pending => code::PENDING,
            RowState::Failed { .. } => code::FAILED,
            RowState::Parked { blocks_key: true } => code::PARKED,
            RowState::Parked { blocks_key: false } => code::PARKED_ROW,
        }
    }

    /// Time from now until the next attempt; only a FAILED row has one.
    pub fn due_in(self) -> Option<Duration> {
        match self {
            RowState::Failed { due_in } => Some(due_in),
            RowState::Pending | RowState::Parked { .. } => None,
        }
    }

    /// Whether later rows of the same key wait behind a row in this state.
    pub fn blocks_key(self) -> bool {
        match self {
            RowState::Pending => false,
            RowState::Failed { .. } => true,
            RowState::Parked { blocks_key } => blocks_key,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_is_parsed_back_from_its_name() {
        for status in RowStatus::ALL {
            assert_eq!(RowStatus::parse(status.as_str()), Some(status));
        }
        assert_eq!(RowStatus::parse("pending"), None);
    }

    #[test]
    fn state_determines_status_code_due_time_and_block() {
        let due_in = Duration::from_secs(3);
        let cases = [
            (RowState::Pending, RowStatus::Pending, 0, None, false),
            (RowState::Failed { due_in }, RowStatus::Failed, 2, Some(due_in), true),
            (RowState::Parked { blocks_key: true }, RowStatus::Parked, 3, None, true),
            (RowState::Parked { blocks_key: false }, RowStatus::Parked, 4, None, false),
        ];

        for (state, status, code, due_in, blocks_key) in cases {
            let seen = (state.status(), state.code(), state.due_in(), state.blocks_key());
            assert_eq!(seen, (status, code, due_in, blocks_key), "{state:?}");
            assert_eq!(RowStatus::from_code(code), Some(status));
        }
        assert_eq!([1, 5, 6].map(RowStatus::from_code), [Some(RowStatus::InFlight), Some(RowStatus::Sent), None]);
    }
}
