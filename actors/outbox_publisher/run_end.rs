//! How a run of a partition ended, as the schedule needs it.
use crate::partition_worker::report::BatchReport;

/// Whether a batch of the partition may still be open after a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// Nothing of this process is open in the partition.
    Resolved,
    /// The broker has acknowledged the batch; the next run of the partition settles it.
    Unsettled,
    /// The outcome of a batch is unknown; the next run of the partition resolves it first.
    Unresolved,
}

/// By the report of the run, if there is one.
pub fn of(report: Option<&BatchReport>) -> RunEnd {
    match report {
        Some(BatchReport { unresolved: false, unsettled: true, .. }) => RunEnd::Unsettled,
        Some(BatchReport { unresolved: false, .. }) => RunEnd::Resolved,
        _ => RunEnd::Unresolved,
    }
}
