//! How a worker's run ended: its report, and whether its session may continue.
use ports::Error;

use super::partition_session::PartitionSession;
use super::report::{BatchReport, RunEnd};
use super::settlement::SettleFailure;

/// The session for the next run, or none when the state that the session assumes may be wrong.
pub struct RunResult {
    pub session: Option<PartitionSession>,
    pub report: BatchReport,
}

impl RunResult {
    /// Every outcome is known: the next run continues the session.
    pub fn known(session: PartitionSession, report: BatchReport) -> Self {
        Self::ended(Some(session), report)
    }

    /// The outcome of a statement is unknown: the next run acquires a new epoch and resolves first.
    pub fn unknown(report: BatchReport) -> Self {
        Self::ended(None, report)
    }

    /// Another instance holds the partition.
    pub fn held_elsewhere() -> Self {
        Self { session: None, report: BatchReport { end: RunEnd::HeldElsewhere, ..BatchReport::default() } }
    }

    /// An error without anything else to report.
    pub fn failed(session: Option<PartitionSession>, error: Error) -> Self {
        Self::ended(session, BatchReport { error: Some(error), ..BatchReport::default() })
    }

    /// The settlement of the session's acknowledged batch, which ended the run.
    pub fn settled(session: PartitionSession, settled: Result<(), SettleFailure>, report: BatchReport) -> Self {
        match settled {
            Ok(()) => Self::known(session, report),
            Err(failure) => Self::unsettled(failure, report),
        }
    }

    /// The settlement of an acknowledged batch failed.
    pub fn unsettled(failure: SettleFailure, report: BatchReport) -> Self {
        let error = match failure {
            SettleFailure::Stale => None,
            SettleFailure::Unknown(error) => Some(error),
        };
        Self::unknown(BatchReport { more: true, error, ..report })
    }

    /// Without a session a batch may be open.
    fn ended(session: Option<PartitionSession>, report: BatchReport) -> Self {
        let end = match &session {
            None => RunEnd::Unresolved,
            Some(session) if session.unsettled.is_some() => RunEnd::Unsettled,
            Some(_) => RunEnd::Resolved,
        };
        Self { session, report: BatchReport { end, ..report } }
    }
}
