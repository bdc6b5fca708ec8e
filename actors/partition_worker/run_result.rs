//! How a worker's run ended: its report, and whether the worker keeps its partition.
use ports::Error;

use super::held_partition::HeldPartition;
use super::report::{BatchReport, RunEnd};
use super::settlement::SettleFailure;

/// The held partition for the next run, or none when its state may be wrong.
pub struct RunResult {
    pub held: Option<HeldPartition>,
    pub report: BatchReport,
}

impl RunResult {
    /// Every outcome is known: the next run continues with the held partition.
    pub fn known(held: HeldPartition, report: BatchReport) -> Self {
        Self::ended(Some(held), report)
    }

    /// The outcome of a statement is unknown: the next run acquires a new epoch and resolves first.
    pub fn unknown(report: BatchReport) -> Self {
        Self::ended(None, report)
    }

    /// Another instance holds the partition.
    pub fn held_elsewhere() -> Self {
        Self { held: None, report: BatchReport { end: RunEnd::HeldElsewhere, ..BatchReport::default() } }
    }

    /// An error without anything else to report.
    pub fn failed(held: Option<HeldPartition>, error: Error) -> Self {
        Self::ended(held, BatchReport { error: Some(error), ..BatchReport::default() })
    }

    /// The settlement of the partition's acknowledged batch, which ended the run.
    pub fn settled(held: HeldPartition, settled: Result<(), SettleFailure>, report: BatchReport) -> Self {
        match settled {
            Ok(()) => Self::known(held, report),
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

    /// Without a held partition a batch may be open.
    fn ended(held: Option<HeldPartition>, report: BatchReport) -> Self {
        let end = match &held {
            None => RunEnd::Unresolved,
            Some(held) if held.unsettled.is_some() => RunEnd::Unsettled,
            Some(_) => RunEnd::Resolved,
        };
        Self { held, report: BatchReport { end, ..report } }
    }
}
