//! RunEnd: whether a partition has an open batch after a run, which decides when the schedule runs it again.
use crate::partition_worker::report::BatchReport;

/// Whether a batch of the partition may still be open after a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// The partition has no open batch of this process.
    Resolved,
    /// The broker has acknowledged the batch; the next run of the partition settles it.
    Unsettled,
    /// The outcome of a batch is unknown; the next run of the partition resolves it first.
    Unresolved,
}

impl RunEnd {
    /// Derives the end from the run's report. A run without a report may have left a batch open.
    pub fn from_report(report: Option<&BatchReport>) -> Self {
        match report {
            Some(BatchReport { unresolved: false, unsettled: true, .. }) => RunEnd::Unsettled,
            Some(BatchReport { unresolved: false, .. }) => RunEnd::Resolved,
            _ => RunEnd::Unresolved,
        }
    }
}
