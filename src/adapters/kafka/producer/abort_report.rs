//! AbortReport: which records, batches, topic partitions or failures of the broker caused the abort of a transaction.
use ports::Error;
use ports::outbox::RowId;
use rdkafka::error::RDKafkaErrorCode as Code;

use crate::error::{FailureCause, failure_cause, map_code};
use crate::producer::delivery_reports::DeliveryOutcome;
use crate::producer::session_batch::SessionBatch;
use crate::protocol::response_code::is_partition_unavailable;

/// The causes of the abort of a transaction. Batches are identified by their index.
#[derive(Debug, Default)]
pub(crate) struct AbortReport {
    /// Records that the broker refuses permanently, records of topics that it refuses, and records of topic partitions that take none for now
    /// while others do.
    pub(crate) refused: Vec<(usize, RowId, Error)>,
    /// The refused records that were alone in their request and too large.
    pub(crate) too_large: Vec<(usize, RowId)>,
    /// Batches with a record in a refused batch of the topic that held several records: which of them is invalid is unknown.
    pub(crate) unidentified_refusals: Vec<usize>,
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
        !self.refused.is_empty() || !self.unidentified_refusals.is_empty()
    }

    /// Whether the only cause is the broker or the connection to it.
    pub(crate) fn is_broker_fault(&self) -> bool {
        self.cause.is_some() && !self.is_record_fault() && self.overdue.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.is_record_fault() && self.overdue.is_empty() && self.cause.is_none()
    }
}

/// Derives the causes of an abort from the outcomes. `named` says for each record whether a refusal is about this record, and not about an unknown
/// one of its request.
pub(crate) fn find_causes(
    outcomes: &[Option<DeliveryOutcome>],
    named: &[bool],
    batches: &[SessionBatch],
) -> AbortReport {
    let mut abort = AbortReport::default();
    let (mut unavailable, mut first) = (Vec::new(), 0);
    // Where no partition takes records, the failure is the broker's. So it is where the watermarks' partition takes none.
    let mut is_partial = outcomes.iter().any(|outcome| matches!(outcome, Some(Ok(_))));
    for (batch_index, batch) in batches.iter().enumerate() {
        for index in 0..batch.record_count() {
            let Some(Err(code)) = outcomes[first + index] else { continue };
            match (failure_cause(code), batch.records.get(index)) {
                (FailureCause::Record, Some((row, record))) if named[first + index] => {
                    abort.refused.push((
                        batch_index,
                        *row,
                        map_code(code, format!("sending key {}: {code}", record.key)),
                    ));
                    if code == Code::MessageSizeTooLarge {
                        abort.too_large.push((batch_index, *row));
                    }
                }
                (FailureCause::Record, Some(_)) => {
                    if abort.unidentified_refusals.last() != Some(&batch_index) {
                        abort.unidentified_refusals.push(batch_index);
                    }
                }
                (FailureCause::OtherRecord, _) => {}
                (FailureCause::Broker, Some((row, record))) if is_partition_unavailable(code) => {
                    let message = format!("sending to a partition of {}: {code}", record.topic);
                    unavailable.push((batch_index, *row, map_code(code, message)));
                }
                // A refused watermark record is never invalid itself: the watermark topic has wrong settings.
                (FailureCause::Record, None) | (FailureCause::Broker, _) => {
                    is_partial = false;
                    abort.cause.get_or_insert_with(|| map_code(code, format!("sending: {code}")));
                }
            }
        }
        first += batch.record_count();
    }
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kit::Factory;
    use ports::broker::Batch;
    use ports::partitions::PartitionNo;
    use tokio::sync::oneshot;

    use super::*;

    /// A batch of two records and a watermark: three outcomes.
    fn batch(partition: u32) -> SessionBatch {
        let factory = Factory::seeded(u64::from(partition), "orders".into());
        let first = i64::from(partition) * 10;
        let records = vec![(first, factory.record("a", "1")), (first + 1, factory.record("b", "2"))];
        let partition = PartitionNo(partition);
        let batch = Batch { partition, token: 1, records, time_left: Duration::from_secs(60), expected_batches: 0 };
        SessionBatch::from_claim(batch, oneshot::channel().0)
    }

    const INVALID: Option<DeliveryOutcome> = Some(Err(Code::InvalidTimestamp));
    const VALID: Option<DeliveryOutcome> = Some(Err(Code::InvalidDifferentRecord));
    const TOO_LARGE: Option<DeliveryOutcome> = Some(Err(Code::MessageSizeTooLarge));

    #[test]
    fn refusal_that_names_a_record_of_one_request_names_none_of_another() {
        let outcomes = [INVALID, VALID, None, TOO_LARGE, TOO_LARGE, None];
        let named = [true, true, false, false, false, false];

        let abort = find_causes(&outcomes, &named, &[batch(1), batch(2)]);

        assert_eq!(abort.refused.iter().map(|(batch, row, _)| (*batch, *row)).collect::<Vec<_>>(), [(0, 10)]);
        assert_eq!(
            (abort.unidentified_refusals, abort.too_large),
            (vec![1], vec![]),
            "one of the second batch is too large"
        );
        assert!(abort.cause.is_none());
    }

    #[test]
    fn record_that_was_alone_in_its_request_is_named_with_its_size() {
        let outcomes = [TOO_LARGE, Some(Ok((0, 7))), None];

        let abort = find_causes(&outcomes, &[true, false, false], &[batch(1)]);

        assert_eq!((abort.refused.len(), abort.unidentified_refusals, abort.too_large), (1, vec![], vec![(0, 10)]));
    }
}
