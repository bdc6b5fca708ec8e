//! AtLeastOnceSession: a producer without transactions. One record of a key is in flight at a time, and a key stops at its first refused record.
//! Records that the brokers have stored stay after the session has ended.
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use ports::Error;
use ports::broker::{Batch, BrokerFailure, Position, PublishOutcome, Record};
use ports::outbox::RowId;
use tokio::time::Instant;

use crate::cluster::flaw::Flaw;
use crate::cluster::kafka::broker::SimulatedKafka;
use crate::cluster::network::Link;

/// The session. Clones share it.
#[derive(Clone)]
pub struct AtLeastOnceSession(Arc<Shared>);

struct Shared {
    kafka: SimulatedKafka,
    link: Link,
    /// Distinguishes the sessions of one slot.
    number: u32,
    is_ended: AtomicBool,
}

/// The records of a batch that have not been sent, by topic and key.
type Unsent = BTreeMap<(Arc<str>, Arc<str>), VecDeque<(RowId, Record)>>;

/// The replies of the brokers for the records of a batch.
#[derive(Default)]
struct SendResults {
    sent: Vec<(RowId, Position)>,
    refused: Vec<(RowId, Error)>,
}

impl AtLeastOnceSession {
    /// A session with this number.
    pub fn new(kafka: SimulatedKafka, link: Link, number: u32) -> Self {
        Self(Arc::new(Shared { kafka, link, number, is_ended: AtomicBool::new(false) }))
    }

    /// The number of the session.
    pub fn number(&self) -> u32 {
        self.0.number
    }

    /// Ends the session: it sends no further record.
    pub fn end(&self) {
        self.0.is_ended.store(true, SeqCst);
    }

    /// Sends the records of a batch, and waits for the answers.
    pub async fn publish(&self, batch: Batch) -> PublishOutcome {
        if self.0.is_ended.load(SeqCst) {
            return PublishOutcome::SessionLost(BrokerFailure::unknown("the session is over"));
        }
        let (deadline, count) = (Instant::now() + batch.time_left, batch.records.len());
        let mut send_results = SendResults::default();
        let failure = self.send_all(batch.records, deadline, &mut send_results).await.err();
        if matches!(failure, Some(Error::Unknown(_))) {
            // A record without a reply could arrive after records that a later call sends.
            self.end();
        }
        let SendResults { sent, refused } = send_results;
        match failure {
            _ if sent.len() == count => PublishOutcome::Committed(sent),
            _ if !sent.is_empty() || !refused.is_empty() => PublishOutcome::Partial { sent, refused },
            Some(Error::Unknown(reason)) => PublishOutcome::Unknown(BrokerFailure::unknown(reason)),
            failure => {
                let cause = failure.unwrap_or_else(|| Error::Unreachable("the lease has expired".into()));
                PublishOutcome::Aborted { cause: cause.into(), reached: false }
            }
        }
    }

    /// Sends in rounds: one record of each key.
    async fn send_all(
        &self,
        records: Vec<(RowId, Record)>,
        deadline: Instant,
        send_results: &mut SendResults,
    ) -> Result<(), Error> {
        let mut unsent = Unsent::new();
        for (row, record) in records {
            let key = (Arc::clone(&record.topic), Arc::clone(&record.key));
            unsent.entry(key).or_default().push_back((row, record));
        }
        while Instant::now() < deadline && !self.0.is_ended.load(SeqCst) {
            let heads: Vec<(RowId, Record)> = unsent.values_mut().filter_map(VecDeque::pop_front).collect();
            if heads.is_empty() {
                return Ok(());
            }
            let results = match self.append(&heads).await {
                Err(Error::Unknown(_)) if self.0.kafka.flaw() == Some(Flaw::RecordSentTwice) => {
                    self.append(&heads).await?
                }
                results => results?,
            };
            for ((row, record), result) in heads.into_iter().zip(results) {
                match result {
                    Ok(position) => send_results.sent.push((row, position)),
                    Err(error) => {
                        if self.0.kafka.flaw() != Some(Flaw::KeyGoesOnAfterRefusal) {
                            unsent.remove(&(record.topic, record.key));
                        }
                        send_results.refused.push((row, error));
                    }
                }
            }
        }
        Ok(())
    }

    async fn append(&self, records: &[(RowId, Record)]) -> Result<Vec<Result<Position, Error>>, Error> {
        let (kafka, request) = (self.0.kafka.clone(), records.to_vec());
        let append = async move { request.iter().map(|(_, record)| kafka.append_or_refuse(record)).collect() };
        self.0.link.call("send", append).await
    }
}
