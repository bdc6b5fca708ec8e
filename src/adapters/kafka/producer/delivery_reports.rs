//! Delivery reports: one entry for each record that a producer was given, filled in by librdkafka's callbacks.
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use rdkafka::ClientContext;
use rdkafka::Message;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::ProducerContext;

use crate::connection::broker_contact::{self, BrokerContact};

/// The partition and offset of a delivered record, or the reason of its failed delivery.
pub(crate) type DeliveryOutcome = Result<(u32, u64), Code>;

/// The reports of one round of sending: one transaction, or one round at least once. Each record is named by its index in the round.
#[derive(Default)]
pub(crate) struct DeliveryReports {
    /// Reports of an earlier round, such as those of an aborted transaction's purged records, are ignored.
    round: u32,
    outcomes: Vec<Option<DeliveryOutcome>>,
    /// Records reported since the last [`DeliveryReports::take_new`].
    new: Vec<u32>,
}

impl DeliveryReports {
    /// Begins a round of this many records.
    pub(crate) fn begin(&mut self, records: usize) {
        self.round = self.round.wrapping_add(1);
        self.outcomes.clear();
        self.outcomes.resize(records, None);
        self.new.clear();
    }

    /// A record's report, if it has arrived.
    pub(crate) fn outcome(&self, index: usize) -> Option<DeliveryOutcome> {
        self.outcomes.get(index).copied().flatten()
    }

    /// The outcomes of all records, in order.
    pub(crate) fn outcomes(&self) -> &[Option<DeliveryOutcome>] {
        &self.outcomes
    }

    /// The records reported since the last call.
    pub(crate) fn take_new(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.new)
    }

    /// The number that a record carries to its delivery report: its round and its index.
    pub(crate) fn number(&self, index: usize) -> usize {
        (self.round as usize) << 32 | index
    }

    /// Forgets the failure of a record that is sent again.
    pub(crate) fn reopen(&mut self, index: usize) {
        if let Some(outcome) = self.outcomes.get_mut(index) {
            *outcome = outcome.filter(Result::is_ok);
        }
    }

    /// Stores a report. Ignores repeated reports and those of an earlier round.
    pub(crate) fn fill(&mut self, number: usize, outcome: DeliveryOutcome) {
        let (round, index) = ((number >> 32) as u32, number & 0xffff_ffff);
        if round != self.round {
            return;
        }
        let Some(empty @ None) = self.outcomes.get_mut(index) else { return };
        *empty = Some(outcome);
        self.new.push(index as u32);
    }
}

/// The context of a producer: receives its delivery reports, logs and errors.
pub(crate) struct DeliveryContext {
    contact: Arc<BrokerContact>,
    reports: Mutex<DeliveryReports>,
}

impl DeliveryContext {
    pub(crate) fn new(contact: Arc<BrokerContact>) -> Self {
        Self { contact, reports: Mutex::default() }
    }

    pub(crate) fn reports(&self) -> MutexGuard<'_, DeliveryReports> {
        self.reports.lock()
    }

    pub(crate) fn contact(&self) -> &BrokerContact {
        &self.contact
    }
}

impl ClientContext for DeliveryContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, line: &str) {
        broker_contact::log(level, facility, line);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.contact.record_client_error(&error, reason);
    }
}

impl ProducerContext for DeliveryContext {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, number: usize) {
        let outcome = match result {
            // The offset is unknown only when the broker recognised a duplicate whose offset it no longer remembers: the record is stored.
            Ok(message) => Ok((message.partition().unsigned_abs(), u64::try_from(message.offset()).unwrap_or(0))),
            Err((error, _)) => Err(error.rdkafka_error_code().unwrap_or(Code::Unknown)),
        };
        self.reports.lock().fill(number, outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_keeps_its_first_report() {
        let mut reports = DeliveryReports::default();
        reports.begin(2);
        let number = reports.number(1);

        reports.fill(number, Ok((3, 7)));
        reports.fill(number, Err(Code::PurgeInflight));

        assert_eq!(reports.outcomes(), [None, Some(Ok((3, 7)))]);
        assert_eq!(reports.take_new(), [1]);
        assert_eq!(reports.take_new(), [0; 0]);
    }

    #[test]
    fn report_of_an_earlier_round_is_ignored() {
        let mut reports = DeliveryReports::default();
        reports.begin(1);
        let old = reports.number(0);
        reports.begin(1);

        reports.fill(old, Err(Code::PurgeQueue));

        assert_eq!(reports.outcomes(), [None]);
    }
}
