//! How a worker's run ended: its report, and whether its session may go on.
use ports::Error;

use super::report::BatchReport;
use super::session::PartitionSession;

/// The session for the next run, or none when the state that the session assumes may be wrong.
pub struct RunResult {
    pub session: Option<PartitionSession>,
    pub report: BatchReport,
}

impl RunResult {
    /// Every outcome is known: the next run continues the session.
    pub fn known(session: PartitionSession, report: BatchReport) -> Self {
        Self { session: Some(session), report }
    }

    /// The outcome of a statement is unknown: the next run acquires a new epoch and resolves first.
    pub fn unknown(report: BatchReport) -> Self {
        Self::ended(None, report)
    }

    /// An error without anything else to report.
    pub fn failed(session: Option<PartitionSession>, error: Error) -> Self {
        Self::ended(session, BatchReport { error: Some(error), ..BatchReport::default() })
    }

    /// Without a session a batch may be open, unless another instance holds the partition and resolves it.
    fn ended(session: Option<PartitionSession>, report: BatchReport) -> Self {
        let unresolved = session.is_none() && !report.held_elsewhere;
        Self { session, report: BatchReport { unresolved, ..report } }
    }
}
