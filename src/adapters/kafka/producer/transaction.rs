//! One transaction of a session: the records of some batches and a watermark for each, committed or aborted together.
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ports::Error;
use ports::outbox::RowId;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::producer::Producer;

use crate::error::{FailureCause, failure_cause, map_code, map_err, was_never_sent};
use crate::options::Options;
use crate::producer::delivery_reports::DeliveryReports;
use crate::producer::sender::{DeliveryWait, RecordSender};
use crate::producer::session_batch::SessionBatch;

/// Longest wait for the delivery reports that arrive without an abort: a reachable broker's answers.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(100);
/// Timeout of one call to abort. Long, because librdkafka confuses its state when an abort times out in its first step; a longer one would
/// stall the session.
const ABORT_CALL_TIMEOUT: Duration = Duration::from_millis(300);
/// Pause between two polls for delivery reports.
const POLL_PAUSE: Duration = Duration::from_micros(200);
/// Longest wait for the reports of purged records, which need no broker.
const PURGE_TIMEOUT: Duration = Duration::from_millis(500);
/// Longest commit, in delivery timeouts. With the defaults it lasts as long as a lease.
const COMMIT_DELIVERY_TIMEOUTS: u32 = 3;

/// The limits of a transaction, and what its watermarks need.
pub(crate) struct TransactionTerms<'a> {
    /// The full name of the watermark topic.
    pub(crate) watermark_topic: &'a str,
    /// Its partition that takes the watermarks of all batches: each partition that a transaction touches costs the broker a request.
    pub(crate) watermark_partition: u32,
    /// The installation that the watermark records name.
    pub(crate) installation: &'a str,
    /// Longest wait for the delivery reports; a commit gets several times as long.
    pub(crate) delivery_timeout: Duration,
    /// Longest wait for the result of an abort.
    pub(crate) abort_timeout: Duration,
    /// Set when another thread ends the session.
    pub(crate) is_ended: &'a AtomicBool,
}

/// The end of a transaction.
#[derive(Debug)]
pub(crate) enum TransactionEnd {
    /// All records are visible; the delivery reports hold their positions.
    Committed,
    /// Confirmed: no record is visible, now or later.
    Aborted(AbortReport),
    /// The outcome is unknown, and the session is over.
    Unknown(String),
    /// This session committed nothing of it, and the session is over.
    SessionLost(String),
}

/// Why a transaction was aborted. Batches are named by their index.
#[derive(Debug, Default)]
pub(crate) struct AbortReport {
    /// Records that the broker or the client refuses permanently.
    pub(crate) refused: Vec<(usize, RowId, Error)>,
    /// The refused records that were alone in their request and too large.
    pub(crate) too_large: Vec<(usize, RowId)>,
    /// Batches with a record in a refused request that held several records: which of them is invalid is unknown.
    pub(crate) suspects: Vec<usize>,
    /// Batches whose lease expired.
    pub(crate) overdue: Vec<usize>,
    /// The broker's failure, when no record caused the abort.
    pub(crate) cause: Option<Error>,
    /// Whether any record may have reached the broker.
    pub(crate) reached: bool,
    /// When the transaction began, if the delivery reports did not arrive in time.
    pub(crate) undelivered_since: Option<Instant>,
}

/// Publishes batches in one transaction.
pub(crate) fn publish(sender: &RecordSender, batches: &[SessionBatch], terms: &TransactionTerms<'_>) -> TransactionEnd {
    if let Err(error) = sender.producer.begin_transaction() {
        return TransactionEnd::SessionLost(format!("beginning a transaction: {error}"));
    }
    let started = Instant::now();
    sender.context().reports().begin(batches.iter().map(SessionBatch::slots).sum());
    let lease = batches.iter().map(|batch| batch.deadline).min().unwrap_or_else(Instant::now);
    let deadline = lease.min(started + terms.delivery_timeout);
    let sent = send_all(sender, batches, terms, deadline);
    let waited = if sent.is_ok() { sender.wait_for_reports(deadline) } else { DeliveryWait::Reported };
    let mut abort = report_failures(&sender.context().reports(), batches);
    match sent {
        Err(SendError::Refused(refused)) => abort.refused.extend(refused),
        Err(SendError::Failed(error)) if abort.is_empty() => {
            abort.cause = Some(map_err(&error, "sending records"));
        }
        _ => {}
    }
    if let Some((code, reason)) = sender.producer.client().fatal_error() {
        return TransactionEnd::SessionLost(format!("{code:?}: {reason}"));
    }
    if terms.is_ended.load(Ordering::Relaxed) {
        return TransactionEnd::SessionLost("the session was ended".into());
    }
    let now = Instant::now();
    abort.overdue = (0..).zip(batches).filter(|(_, batch)| batch.is_overdue(now)).map(|(at, _)| at).collect();
    abort.undelivered_since = (waited == DeliveryWait::TimedOut).then_some(started);
    if waited == DeliveryWait::TimedOut && abort.is_empty() {
        abort.cause = Some(Error::Unreachable("no broker acknowledged the records in time".into()));
    }
    if !abort.is_empty() {
        return abort_transaction(sender, terms, abort);
    }
    // A commit gets more time than the deliveries: a broker that returns from an outage still answers it, and a commit that is given up
    // costs a fence and a read of the watermark.
    let commit_deadline = lease.min(now + terms.delivery_timeout * COMMIT_DELIVERY_TIMEOUTS);
    commit(sender, commit_deadline.max(now + PURGE_TIMEOUT))
}

/// Commits one record of the watermark topic in a transaction of its own, with the installation as its value. After an error the producer is
/// of no use: its outcome may be unknown.
pub(crate) fn commit_record(
    sender: &RecordSender,
    place: (&str, u32),
    key: &str,
    options: &Options,
) -> Result<(), Error> {
    let (deadline, action) = (Instant::now() + options.delivery_timeout, "registering a transactional id");
    let failed = |error: KafkaError| map_err(&error, action);
    sender.producer.begin_transaction().map_err(failed)?;
    sender.context().reports().begin(1);
    sender.send_watermark(place, key, &options.installation, 0, deadline).map_err(failed)?;
    if sender.wait_for_reports(deadline) == DeliveryWait::TimedOut {
        return Err(Error::Unreachable(format!("{action}: no broker acknowledged the record in time")));
    }
    if let Some(Err(code)) = sender.context().reports().outcome(0) {
        return Err(map_code(code, action.to_owned()));
    }
    match commit(sender, deadline) {
        TransactionEnd::Committed => Ok(()),
        TransactionEnd::Aborted(_) => Err(Error::Unreachable(format!("{action}: it was aborted"))),
        TransactionEnd::Unknown(reason) | TransactionEnd::SessionLost(reason) => Err(Error::Unreachable(reason)),
    }
}

impl AbortReport {
    /// Whether a record caused the abort, or may have.
    pub(crate) fn blames_records(&self) -> bool {
        !self.refused.is_empty() || !self.suspects.is_empty()
    }

    /// Whether the only cause is the client, the broker or the connection between them.
    pub(crate) fn blames_only_the_broker(&self) -> bool {
        self.cause.is_some() && !self.blames_records() && self.overdue.is_empty()
    }

    fn is_empty(&self) -> bool {
        !self.blames_records() && self.overdue.is_empty() && self.cause.is_none()
    }
}

/// Why the client did not take all records.
enum SendError {
    /// The client itself refuses these records.
    Refused(Vec<(usize, RowId, Error)>),
    /// The client takes no more records: a delivery has failed already, or the client has a fatal error.
    Failed(KafkaError),
}

fn send_all(
    sender: &RecordSender,
    batches: &[SessionBatch],
    terms: &TransactionTerms<'_>,
    deadline: Instant,
) -> Result<(), SendError> {
    let (mut slot, mut refused) = (0, Vec::new());
    for (at, batch) in batches.iter().enumerate() {
        for (row, record) in &batch.records {
            match sender.send(record, slot, deadline) {
                Ok(()) => {}
                Err(error)
                    if error.rdkafka_error_code().is_some_and(|code| failure_cause(code) == FailureCause::Record) =>
                {
                    refused.push((at, *row, map_err(&error, &format!("sending key {}", record.key))));
                }
                Err(error) => return Err(SendError::Failed(error)),
            }
            slot += 1;
            if batch.is_suspect && !is_delivered(sender, slot, deadline) {
                return Ok(());
            }
        }
        if let Some((partition, token)) = batch.watermark {
            let value = format!("{token} {}", terms.installation);
            let place = (terms.watermark_topic, terms.watermark_partition);
            let result = sender.send_watermark(place, &partition.to_string(), &value, slot, deadline);
            result.map_err(SendError::Failed)?;
            slot += 1;
        }
    }
    if refused.is_empty() { Ok(()) } else { Err(SendError::Refused(refused)) }
}

/// Waits until the first `slots` records are delivered. False when a delivery failed or the deadline passed: then the other records need not
/// be sent.
fn is_delivered(sender: &RecordSender, slots: usize, deadline: Instant) -> bool {
    while Instant::now() < deadline {
        sender.serve_events();
        let reports = sender.context().reports();
        if reports.failed() > 0 {
            return false;
        }
        if (0..slots).rev().all(|slot| reports.outcome(slot).is_some()) {
            return true;
        }
        drop(reports);
        std::thread::sleep(Duration::from_micros(100));
    }
    false
}

/// The failures among the delivery reports so far.
fn report_failures(reports: &DeliveryReports, batches: &[SessionBatch]) -> AbortReport {
    let mut abort = AbortReport::default();
    let (mut blamed, mut others_are_valid, mut first) = (Vec::new(), false, 0);
    for (at, batch) in batches.iter().enumerate() {
        for index in 0..batch.slots() {
            let Some(Err(code)) = reports.outcome(first + index) else { continue };
            match (failure_cause(code), batch.records.get(index)) {
                (FailureCause::Record, Some((row, record))) => blamed.push((at, *row, &record.key, code)),
                (FailureCause::OtherRecord, _) => others_are_valid = true,
                // A refused watermark record is never invalid itself: the watermark topic has wrong settings.
                (FailureCause::Record, None) | (FailureCause::Broker, _) => {
                    let message = format!("sending: {code}");
                    abort.cause.get_or_insert_with(|| map_code(code, message));
                }
            }
        }
        first += batch.slots();
    }
    // The record was alone in its request, or the broker distinguishes it from the other records of the request.
    let is_certain = blamed.len() == 1 || others_are_valid;
    for (at, row, key, code) in blamed {
        if is_certain || batches[at].is_suspect {
            abort.refused.push((at, row, map_code(code, format!("sending key {key}: {code}"))));
            if code == Code::MessageSizeTooLarge {
                abort.too_large.push((at, row));
            }
        } else if !abort.suspects.contains(&at) {
            abort.suspects.push(at);
        }
    }
    if abort.blames_records() {
        abort.cause = None;
    }
    abort
}

/// Commits; the outcome is unknown when the commit does not end in time. A commit that timed out is never called again: when a repeated call
/// times out in its first step, librdkafka gives up its claim to the commit, takes the broker's late answer for that of an abort, and ends
/// the process by an assertion.
fn commit(sender: &RecordSender, deadline: Instant) -> TransactionEnd {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match sender.producer.commit_transaction(left) {
            Ok(()) => return TransactionEnd::Committed,
            Err(KafkaError::Transaction(error)) if error.is_fatal() => {
                return TransactionEnd::SessionLost(format!("committing: {error}"));
            }
            // The client has not sent the commit to the broker yet.
            Err(KafkaError::Transaction(error))
                if error.is_retriable() && error.code() != Code::OperationTimedOut && Instant::now() < deadline =>
            {
                std::thread::sleep(POLL_PAUSE);
            }
            Err(error) => return TransactionEnd::Unknown(format!("committing: {error}")),
        }
    }
}

fn abort_transaction(sender: &RecordSender, terms: &TransactionTerms<'_>, mut report: AbortReport) -> TransactionEnd {
    let deadline = Instant::now() + terms.abort_timeout;
    // librdkafka's abort waits until the delivery reports of purged records are served, which only this thread can do, and not during that
    // call: so the reports that are due anyway are served first.
    drain_reports(sender, DRAIN_TIMEOUT);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match sender.producer.abort_transaction(ABORT_CALL_TIMEOUT.min(left)) {
            Ok(()) => break,
            // The call timed out; the next call resumes the abort.
            Err(KafkaError::Transaction(error)) if error.is_retriable() && !left.is_zero() => sender.serve_events(),
            Err(KafkaError::Transaction(error)) if error.is_fatal() => {
                return TransactionEnd::SessionLost(format!("aborting: {error}"));
            }
            // The broker is unreachable: whether it has aborted the transaction is unknown until it returns.
            Err(error) => return TransactionEnd::Unknown(format!("aborting: {error}")),
        }
    }
    drain_reports(sender, PURGE_TIMEOUT);
    let reports = sender.context().reports();
    // A slot without an outcome belongs to a record that was never sent, because an earlier one was refused.
    report.reached = reports
        .outcomes()
        .iter()
        .flatten()
        .any(|outcome| outcome.is_ok() || outcome.is_err_and(|code| !was_never_sent(code)));
    TransactionEnd::Aborted(report)
}

fn drain_reports(sender: &RecordSender, timeout: Duration) {
    let deadline = Instant::now() + timeout;
    while sender.producer.in_flight_count() > 0 && Instant::now() < deadline {
        sender.serve_events();
        std::thread::sleep(POLL_PAUSE);
    }
}
