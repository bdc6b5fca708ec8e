//! What became of the records that a producer was given: a table with one line for each, filled in by the client's delivery reports.
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use rdkafka::ClientContext;
use rdkafka::Message;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::ProducerContext;

use crate::contact::{self, Contact};

/// Where a record stands, or why it was not taken.
pub(crate) type Outcome = Result<(u32, u64), Code>;

/// The lines of one round of sending.
#[derive(Default)]
pub(crate) struct Sheet {
    /// Reports of an earlier round, such as purged records of an aborted transaction, are not of this one.
    round: u32,
    outcomes: Vec<Option<Outcome>>,
    open: usize,
    failed: usize,
    /// Lines filled in since somebody last looked.
    fresh: Vec<u32>,
}

impl Sheet {
    /// Begins a round with this many lines.
    pub(crate) fn begin(&mut self, lines: usize) {
        self.round = self.round.wrapping_add(1);
        self.outcomes.clear();
        self.outcomes.resize(lines, None);
        self.fresh.clear();
        (self.open, self.failed) = (lines, 0);
    }

    /// How many are without an answer.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// How many were not taken.
    pub(crate) fn failed(&self) -> usize {
        self.failed
    }

    /// What became of a record, if it is known.
    pub(crate) fn outcome(&self, line: usize) -> Option<Outcome> {
        self.outcomes.get(line).copied().flatten()
    }

    /// All lines.
    pub(crate) fn outcomes(&self) -> &[Option<Outcome>] {
        &self.outcomes
    }

    /// The lines filled in since the last call.
    pub(crate) fn fresh(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.fresh)
    }

    /// The number under which a line's record is sent: its round and its line.
    pub(crate) fn number(&self, line: usize) -> usize {
        (self.round as usize) << 32 | line
    }

    /// Wipes a line, because its record is sent once more.
    pub(crate) fn reopen(&mut self, line: usize) {
        if let Some(Err(_)) = self.outcomes.get_mut(line).and_then(Option::take) {
            self.open += 1;
            self.failed -= 1;
        }
    }

    /// Fills a line in, once.
    pub(crate) fn fill(&mut self, number: usize, outcome: Outcome) {
        let (round, line) = ((number >> 32) as u32, number & 0xffff_ffff);
        if round != self.round {
            return;
        }
        let Some(slot @ None) = self.outcomes.get_mut(line) else { return };
        *slot = Some(outcome);
        self.open -= 1;
        self.failed += usize::from(outcome.is_err());
        self.fresh.push(line as u32);
    }
}

/// A producer's side of the table.
pub(crate) struct Deliveries {
    contact: Arc<Contact>,
    sheet: Mutex<Sheet>,
}

impl Deliveries {
    pub(crate) fn new(contact: Arc<Contact>) -> Self {
        Self { contact, sheet: Mutex::default() }
    }

    pub(crate) fn sheet(&self) -> MutexGuard<'_, Sheet> {
        self.sheet.lock()
    }

    pub(crate) fn contact(&self) -> &Contact {
        &self.contact
    }
}

impl ClientContext for Deliveries {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, line: &str) {
        contact::log(level, facility, line);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.contact.met(&error, reason);
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, number: usize) {
        let outcome = match result {
            // An offset is unknown only where the broker recognised a repetition that it no longer remembers: the record stands.
            Ok(message) => Ok((message.partition().unsigned_abs(), u64::try_from(message.offset()).unwrap_or(0))),
            Err((error, _)) => Err(error.rdkafka_error_code().unwrap_or(Code::Unknown)),
        };
        self.sheet.lock().fill(number, outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_filled_in_once() {
        let mut sheet = Sheet::default();
        sheet.begin(2);
        let number = sheet.number(1);

        sheet.fill(number, Ok((3, 7)));
        sheet.fill(number, Err(Code::PurgeInflight));

        assert_eq!((sheet.outcome(1), sheet.open(), sheet.failed()), (Some(Ok((3, 7))), 1, 0));
        assert_eq!(sheet.fresh(), [1]);
        assert_eq!(sheet.fresh(), [0; 0]);
    }

    #[test]
    fn a_report_of_an_earlier_round_says_nothing() {
        let mut sheet = Sheet::default();
        sheet.begin(1);
        let old = sheet.number(0);
        sheet.begin(1);

        sheet.fill(old, Err(Code::PurgeQueue));

        assert_eq!((sheet.outcome(0), sheet.open()), (None, 1));
    }
}
