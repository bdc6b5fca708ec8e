//! Sending at least once, without transactions: one record of a key is in flight at a time, and a key stops at its first failed record.
//! Delivered records stay delivered whatever happens to the others.
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use outbox::partition::topic_partition;
use ports::Error;
use ports::broker::{BrokerFailure, FailureId, PublishOutcome, Record};
use ports::outbox::RowId;
use rdkafka::error::RDKafkaErrorCode as Code;
use rdkafka::producer::{Producer, PurgeConfig};

use crate::connection::topic_metadata::leader_presence;
use crate::error::{FailureCause, failure_cause, is_topic_failure, map_code, was_never_sent};
use crate::producer::sender::{OUTAGE_WAIT, RecordSender};
use crate::producer::session_batch::SessionBatch;

/// Pause between two polls for delivery reports.
const POLL_PAUSE: Duration = Duration::from_micros(100);
/// Longest wait for the reports of purged records, which need no broker.
const PURGE_TIMEOUT: Duration = Duration::from_millis(500);
/// Longest wait for a topic's metadata after a round without its acknowledgements.
const METADATA_TIMEOUT: Duration = Duration::from_secs(1);
/// After this time without an acknowledgement, the producer asks the broker whether it refuses the records. A new topic has its leaders within a
/// second.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(3);

/// Sends the records of some batches and finishes each batch with its result.
///
/// # Errors
/// The session cannot continue; all batches are finished.
pub(crate) fn publish(
    sender: &RecordSender,
    batches: Vec<SessionBatch>,
    delivery_timeout: Duration,
    is_ended: &AtomicBool,
) -> Result<(), String> {
    let lease = batches.iter().map(|batch| batch.deadline).min().unwrap_or_else(Instant::now);
    let deadline = lease.min(Instant::now() + delivery_timeout);
    let records: Vec<&Record> = batches.iter().flat_map(|batch| &batch.records).map(|(_, record)| record).collect();
    let mut round = SendRound::new(sender, records, deadline);
    round.send_all(is_ended);
    round.resend_refused_one_by_one(is_ended);
    let in_flight = round.in_flight.clone();
    let failed = round.purge();
    // Records that the broker refuses say nothing about the client, which recovers by itself from the gap that they leave in its sequence numbers.
    let timed_out = in_flight.iter().any(|index| failed.get(index).is_some_and(|code| !is_refusal(*code)));
    finish(sender, batches, &failed);
    if is_ended.load(Ordering::Relaxed) {
        return Err("the session was ended".into());
    }
    if failed.values().any(|code| may_still_arrive(*code)) {
        // A record that is still in flight could reach the broker after records that a later round sends.
        return Err("records failed while they were in flight and may still reach the broker".into());
    }
    if timed_out {
        // The client itself may have failed; a new one costs one metadata request.
        return Err("no broker acknowledged the records in time".into());
    }
    Ok(())
}

/// The records of one round, each named by its index in the delivery reports.
struct SendRound<'a> {
    sender: &'a RecordSender,
    records: Vec<&'a Record>,
    /// The unsent records of each topic and key.
    waiting: HashMap<(&'a str, &'a str), VecDeque<usize>>,
    in_flight: HashSet<usize>,
    failed: BTreeMap<usize, Code>,
    deadline: Instant,
}

impl<'a> SendRound<'a> {
    fn new(sender: &'a RecordSender, records: Vec<&'a Record>, deadline: Instant) -> Self {
        sender.context().reports().begin(records.len());
        let mut waiting: HashMap<_, VecDeque<usize>> = HashMap::new();
        for (index, record) in records.iter().enumerate() {
            waiting.entry((&*record.topic, &*record.key)).or_default().push_back(index);
        }
        Self { sender, records, waiting, in_flight: HashSet::new(), failed: BTreeMap::new(), deadline }
    }

    fn send_all(&mut self, is_ended: &AtomicBool) {
        let mut heads: Vec<usize> = self.waiting.values_mut().filter_map(VecDeque::pop_front).collect();
        heads.sort_unstable();
        heads.into_iter().for_each(|index| self.send(index));
        self.wait(is_ended);
    }

    fn send(&mut self, index: usize) {
        match self.sender.send(self.records[index], index, self.deadline) {
            Ok(()) => drop(self.in_flight.insert(index)),
            Err(error) => drop(self.failed.insert(index, error.rdkafka_error_code().unwrap_or(Code::Unknown))),
        }
    }

    /// Waits for the records in flight; each acknowledgement sends the next record of its key. Ends when the broker refuses all that are left.
    fn wait(&mut self, is_ended: &AtomicBool) {
        let started = Instant::now();
        let mut ask_broker_at = started + UNACKNOWLEDGED_MAX;
        while !self.in_flight.is_empty() {
            self.sender.serve_events();
            let now = Instant::now();
            let is_outage = self.sender.context().contact().is_unreachable() && now - started > OUTAGE_WAIT;
            if is_outage || now >= self.deadline || is_ended.load(Ordering::Relaxed) {
                return;
            }
            let new = self.sender.context().reports().take_new();
            if !new.is_empty() {
                ask_broker_at = now + UNACKNOWLEDGED_MAX;
            } else if now < ask_broker_at {
                std::thread::sleep(POLL_PAUSE);
            } else if self.refusals(&self.in_flight).len() == self.in_flight.len() {
                return;
            } else {
                ask_broker_at = Instant::now() + UNACKNOWLEDGED_MAX;
            }
            for index in new.into_iter().map(|index| index as usize) {
                self.in_flight.remove(&index);
                self.handle_report(index);
            }
        }
    }

    fn handle_report(&mut self, index: usize) {
        let outcome = self.sender.context().reports().outcome(index);
        match outcome {
            Some(Ok(_)) => {
                self.sender.context().contact().record_response();
                let key = (&*self.records[index].topic, &*self.records[index].key);
                if let Some(next) = self.waiting.get_mut(&key).and_then(VecDeque::pop_front) {
                    self.send(next);
                }
            }
            Some(Err(code)) => drop(self.failed.insert(index, code)),
            None => {}
        }
    }

    /// A broker that does not name the invalid record refuses the whole request: each record of it is sent once more, alone.
    fn resend_refused_one_by_one(&mut self, is_ended: &AtomicBool) {
        let refused = self.failed.iter().filter(|(_, code)| failure_cause(**code) != FailureCause::Broker);
        let refused: Vec<usize> = refused.map(|(index, _)| *index).collect();
        if refused.len() < 2 {
            return;
        }
        // The records that follow a valid one go with the worker's next call.
        self.waiting.clear();
        for index in refused {
            self.failed.remove(&index);
            self.sender.context().reports().reopen(index);
            self.send(index);
            self.wait(is_ended);
        }
    }

    /// Purges the records without a report from the client; returns the error codes of all failed records.
    fn purge(mut self) -> BTreeMap<usize, Code> {
        if self.in_flight.is_empty() {
            return self.failed;
        }
        self.sender.producer.purge(PurgeConfig::default().queue().inflight());
        let deadline = Instant::now() + PURGE_TIMEOUT;
        while self.sender.producer.in_flight_count() > 0 && Instant::now() < deadline {
            self.sender.serve_events();
        }
        for index in std::mem::take(&mut self.in_flight) {
            match self.sender.context().reports().outcome(index) {
                Some(Ok(_)) => {}
                Some(Err(code)) => drop(self.failed.insert(index, code)),
                None => drop(self.failed.insert(index, Code::PurgeInflight)),
            }
        }
        self.replace_purge_codes();
        self.failed
    }

    /// Replaces the purge code of unsent records by the broker's reason, if it refuses them. Within the rest of a lease the client may not have
    /// reported it yet: it reports a missing topic only after `topic.metadata.propagation.max.ms`, and a partition without a leader only as a
    /// timeout.
    fn replace_purge_codes(&mut self) {
        let unsent = self.failed.iter().filter(|(_, code)| **code == Code::PurgeQueue);
        let unsent: HashSet<usize> = unsent.map(|(index, _)| *index).collect();
        self.failed.extend(self.refusals(&unsent));
    }

    /// Of these records, those that cannot be sent now, each with its code: the broker refuses the topic, or the partition has no leader. Stops at
    /// the first topic for which no broker answers, because none will answer for the next topic.
    fn refusals(&self, indexes: &HashSet<usize>) -> BTreeMap<usize, Code> {
        let topics: BTreeSet<&str> = indexes.iter().map(|index| &*self.records[*index].topic).collect();
        let mut refusals = BTreeMap::new();
        for topic in topics {
            let Ok(has_leader) = leader_presence(self.sender.producer.client(), topic, METADATA_TIMEOUT) else { break };
            let refusal = |record: &Record| match &has_leader {
                Err(code) => is_topic_failure(*code).then_some(*code),
                Ok(has_leader) => {
                    let partition = topic_partition(
                        record.key_bytes().unwrap_or_default(),
                        u32::try_from(has_leader.len()).unwrap_or(0),
                    );
                    (has_leader.get(&partition) == Some(&false)).then_some(Code::LeaderNotAvailable)
                }
            };
            let of_topic = indexes.iter().filter(|index| *self.records[**index].topic == *topic);
            refusals.extend(of_topic.filter_map(|index| Some((*index, refusal(self.records[*index])?))));
        }
        refusals
    }
}

/// Whether the broker itself refuses the record: it was never sent, and a later round may send others.
fn is_refusal(code: Code) -> bool {
    is_topic_failure(code) || code == Code::LeaderNotAvailable
}

fn may_still_arrive(code: Code) -> bool {
    matches!(code, Code::PurgeInflight | Code::MessageTimedOut)
}

/// Finishes each batch with its result. At least once there are no watermark records, so only the records have reports.
fn finish(sender: &RecordSender, batches: Vec<SessionBatch>, failed: &BTreeMap<usize, Code>) {
    let reports = sender.context().reports();
    // One round without acknowledgements is one failure, however many batches it carried.
    let id = FailureId::unique();
    let mut first = 0;
    for batch in batches {
        let indexes = first..first + batch.records.len();
        let positions = batch.positions(reports.outcomes(), first);
        let codes: Vec<(usize, Code)> =
            failed.range(indexes.clone()).map(|(index, code)| (index - first, *code)).collect();
        first = indexes.end;
        let result = match send_outcome(&batch, positions.len(), &codes, &sender.own_topics) {
            SendOutcome::AllSent => PublishOutcome::Committed(positions),
            SendOutcome::PartlySent(refused) => PublishOutcome::Partial { sent: positions, refused },
            SendOutcome::Unknown => {
                let error = Error::Unknown("no broker acknowledged the records in time".into());
                PublishOutcome::Unknown(BrokerFailure { id, error })
            }
            SendOutcome::NotSent(error) => {
                PublishOutcome::Aborted { cause: BrokerFailure { id, error }, reached: false }
            }
        };
        batch.finish(result);
    }
}

/// How much of a batch the broker has stored.
enum SendOutcome {
    AllSent,
    /// With the records that the broker refuses.
    PartlySent(Vec<(RowId, Error)>),
    Unknown,
    NotSent(Error),
}

fn send_outcome(batch: &SessionBatch, sent: usize, failed: &[(usize, Code)], own_topics: &[String]) -> SendOutcome {
    let refusal = |(index, code): &(usize, Code)| {
        let (row, record) = &batch.records[*index];
        let is_refused = failure_cause(*code) == FailureCause::Record
            || *code == Code::LeaderNotAvailable
            || is_topic_failure(*code) && own_topics.iter().all(|own| **own != *record.topic);
        let message = format!("sending key {} to {}: {code}", record.key, record.topic);
        is_refused.then(|| (*row, map_code(*code, message)))
    };
    let refused: Vec<(RowId, Error)> = failed.iter().filter_map(refusal).collect();
    if sent == batch.records.len() {
        return SendOutcome::AllSent;
    }
    if sent > 0 || !refused.is_empty() {
        return SendOutcome::PartlySent(refused);
    }
    match failed.first() {
        Some((_, code)) if failed.iter().all(|(_, code)| was_never_sent(*code)) => {
            SendOutcome::NotSent(map_code(*code, format!("sending: {code}")))
        }
        _ => SendOutcome::Unknown,
    }
}
