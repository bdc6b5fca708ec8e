//! AbortReport: which records, batches, topic partitions or failures of the broker caused the abort of a transaction.
use std::sync::Arc;

use ports::Error;
use ports::outbox::RowId;
use rdkafka::error::RDKafkaErrorCode as Code;

use crate::error::{FailureCause, failure_cause, map_code};
use crate::producer::delivery_reports::DeliveryOutcome;
use crate::producer::session_batch::SessionBatch;
use crate::protocol::response_code::is_partition_unavailable;

/// Why a transaction was aborted. Batches are named by their index.
#[derive(Debug, Default)]
pub(crate) struct AbortReport {
    /// Records that the broker refuses permanently, records of topics that it refuses, and records of topic partitions that take none for now
    /// while others do.
    pub(crate) refused: Vec<(usize, RowId, Error)>,
    /// The refused records that were alone in their request and too large.
    pub(crate) too_large: Vec<(usize, RowId)>,
    /// Batches with a record in a refused batch of the topic that held several records: which of them is invalid is unknown.
    pub(crate) suspects: Vec<usize>,
    /// Batches whose lease expired.
    pub(crate) overdue: Vec<usize>,
    /// The broker's failure, when no record caused the abort.
    pub(crate) cause: Option<Error>,
    /// Whether any record may have reached the broker.
    pub(crate) reached: bool,
}

impl AbortReport {
    /// Whether a record caused the abort, or may have.
    pub(crate) fn is_record_fault(&self) -> bool {
        !self.refused.is_empty() || !self.suspects.is_empty()
    }

    /// Whether the only cause is the broker or the connection to it.
    pub(crate) fn is_broker_fault(&self) -> bool {
        self.cause.is_some() && !self.is_record_fault() && self.overdue.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.is_record_fault() && self.overdue.is_empty() && self.cause.is_none()
    }
}

/// Which records or which failure of the broker the outcomes name.
pub(crate) fn find_causes(outcomes: &[Option<DeliveryOutcome>], batches: &[SessionBatch]) -> AbortReport {
    let mut abort = AbortReport::default();
    let (mut at_fault, mut unavailable, mut others_are_valid, mut first) = (Vec::new(), Vec::new(), false, 0);
    // Where no partition takes records, the failure is the broker's. So it is where the watermarks' partition takes none.
    let mut is_partial = outcomes.iter().any(|outcome| matches!(outcome, Some(Ok(_))));
    for (at, batch) in batches.iter().enumerate() {
        for index in 0..batch.slots() {
            let Some(Err(code)) = outcomes[first + index] else { continue };
            match (failure_cause(code), batch.records.get(index)) {
                (FailureCause::Record, Some((row, record))) => at_fault.push((at, *row, &record.key, code)),
                (FailureCause::OtherRecord, _) => others_are_valid = true,
                (FailureCause::Broker, Some((row, record))) if is_partition_unavailable(code) => {
                    let message = format!("sending to a partition of {}: {code}", record.topic);
                    unavailable.push((at, *row, map_code(code, message)));
                }
                // A refused watermark record is never invalid itself: the watermark topic has wrong settings.
                (FailureCause::Record, None) | (FailureCause::Broker, _) => {
                    is_partial = false;
                    abort.cause.get_or_insert_with(|| map_code(code, format!("sending: {code}")));
                }
            }
        }
        first += batch.slots();
    }
    name_records(&mut abort, at_fault, others_are_valid, batches);
    if is_partial {
        abort.refused.append(&mut unavailable);
    } else if let Some((_, _, error)) = unavailable.into_iter().next() {
        abort.cause.get_or_insert(error);
    }
    if abort.is_record_fault() {
        abort.cause = None;
    }
    abort
}

/// Names the invalid records, or the batches that one of them is in.
fn name_records(
    abort: &mut AbortReport,
    at_fault: Vec<(usize, RowId, &Arc<str>, Code)>,
    others_are_valid: bool,
    batches: &[SessionBatch],
) {
    // The record was alone in its batch, or the broker distinguishes it from the other records of the batch.
    let is_certain = at_fault.len() == 1 || others_are_valid;
    for (at, row, key, code) in at_fault {
        if is_certain || batches[at].is_suspect {
            abort.refused.push((at, row, map_code(code, format!("sending key {key}: {code}"))));
            if code == Code::MessageSizeTooLarge {
                abort.too_large.push((at, row));
            }
        } else if !abort.suspects.contains(&at) {
            abort.suspects.push(at);
        }
    }
}
