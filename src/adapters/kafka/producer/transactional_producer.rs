//! A producer with a transactional id that sends everything for one broker in one Produce request.
//!
//! librdkafka sends a request for each topic partition, and the broker asks the coordinator about the transaction for each: a transaction
//! over 12 partitions takes some 15 ms there and 2 ms here (docs/decisions/kafka/one-produce-request.md). After any failure the
//! transaction is aborted and the epoch raised (KIP-360), so no batch is ever sent again under an old sequence number.
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, EndTxnRequest, EndTxnResponse, InitProducerIdRequest,
    ProducerId, TopicName, TransactionalId,
};
use kafka_protocol::protocol::StrBytes;
use ports::Error;
use rdkafka::error::RDKafkaErrorCode as Code;

use crate::error::{is_topic_failure, map_code};
use crate::options::Options;
use crate::producer::coordinator::{Coordinator, CoordinatorCallError, CoordinatorResponse, RetryLimits};
use crate::producer::unavailable_partitions::UnavailablePartitions;
use crate::protocol::cluster::{Cluster, call_error};
use crate::protocol::record_batch::BatchProducer;
use crate::protocol::response_code::{error_code, is_fenced};
use crate::protocol::settings::ConnectionSettings;

/// A producer that has no id yet.
const NO_PRODUCER: (i64, i16) = (-1, -1);
/// Sequence numbers return to zero after this one.
const SEQUENCE_MAX: i32 = i32::MAX;
/// How long the coordinator may not know a topic that another broker knows.
const NEW_TOPIC_MAX: Duration = Duration::from_secs(3);
/// Pause before it is asked again.
const NEW_TOPIC_PAUSE: Duration = Duration::from_millis(30);
/// The broker's code for partitions of a request that failed for another partition; librdkafka's table names it so, too.
const NOT_ATTEMPTED: i16 = 55;

/// Why a step of a transaction failed.
#[derive(Debug)]
pub(crate) enum StepError {
    /// Another producer has the transactional id, or the coordinator has given this one up.
    Fenced(String),
    /// The step was not done.
    Failed(Error),
    /// The step may have been done.
    Unknown(String),
    /// The coordinator accepted the end of the last transaction, but has not completed it in time (CONCURRENT_TRANSACTIONS). The producer can begin
    /// no other transaction.
    AbortPending(String),
}

impl StepError {
    /// The broker's failure, for a caller that has no use for the producer's state.
    pub(crate) fn into_cause(self) -> Error {
        match self {
            StepError::Failed(error) => error,
            StepError::Fenced(reason) | StepError::Unknown(reason) | StepError::AbortPending(reason) => {
                Error::Unreachable(reason)
            }
        }
    }
}

/// The producer's state between and in transactions.
pub(crate) struct TransactionalProducer {
    pub(crate) cluster: Cluster,
    pub(crate) unavailable: UnavailablePartitions,
    coordinator: Coordinator,
    transaction_timeout: Duration,
    id: i64,
    epoch: i16,
    /// The next sequence number of each topic partition, since the epoch began.
    sequences: HashMap<(Arc<str>, u32), i32>,
    transaction: TransactionState,
}

/// The decision that an EndTxn request carries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EndTxnDecision {
    Commit,
    Abort,
}

/// The state that the producer's last transaction under the current epoch may have at the coordinator.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TransactionState {
    /// It has ended, and no request that ends it can still arrive.
    Ended,
    /// It may be open, or a request that ends it may still arrive. The epoch must be raised before the next one begins.
    MayBeOpen,
    /// Topic partitions were added to it.
    Open,
}

impl TransactionalProducer {
    /// A producer that has initialised its transactional id, and so fenced every earlier producer with it.
    pub(crate) fn initialise(
        settings: Arc<ConnectionSettings>,
        unavailable: UnavailablePartitions,
        options: &Options,
        transactional_id: &str,
        deadline: Instant,
    ) -> Result<Self, StepError> {
        let (id, epoch) = NO_PRODUCER;
        let mut producer = Self {
            cluster: Cluster::new(settings),
            unavailable,
            coordinator: Coordinator::new(transactional_id),
            transaction_timeout: options.transaction_timeout,
            id,
            epoch,
            sequences: HashMap::new(),
            transaction: TransactionState::Ended,
        };
        producer.init_producer_id(RetryLimits { deadline, unreachable_max: options.connect_timeout })?;
        Ok(producer)
    }

    /// Adds topic partitions to the transaction; the first ones begin it. Adds none where the broker refuses some of their topics, and
    /// returns those with its reasons.
    pub(crate) fn add_partitions(
        &mut self,
        partitions: &[(Arc<str>, u32)],
        limits: RetryLimits,
    ) -> Result<Vec<(String, Error)>, StepError> {
        let (mut topics, mut last): (Vec<AddPartitionsToTxnTopic>, Option<&str>) = (Vec::new(), None);
        for (topic, partition) in partitions {
            if last != Some(topic) {
                topics.push(AddPartitionsToTxnTopic::default().with_name(topic_name(topic)));
                last = Some(topic);
            }
            if let Some(current) = topics.last_mut() {
                current.partitions.push(*partition as i32);
            }
        }
        let request = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(self.transactional_id())
            .with_v3_and_below_producer_id(ProducerId(self.id))
            .with_v3_and_below_producer_epoch(self.epoch)
            .with_v3_and_below_topics(topics);
        let action = "adding partitions to the transaction";
        self.transaction = TransactionState::MayBeOpen;
        let known_by = limits.deadline.min(Instant::now() + NEW_TOPIC_MAX);
        loop {
            let response = self.coordinator.call(&mut self.cluster, &request, first_error, limits);
            let CoordinatorResponse { response, code, .. } =
                response.map_err(|failure| StepError::Failed(call_error(&failure.error, action)))?;
            // The coordinator may learn of a new topic later than its leader.
            if code == Some(Code::UnknownTopicOrPartition) && Instant::now() + NEW_TOPIC_PAUSE < known_by {
                std::thread::sleep(NEW_TOPIC_PAUSE);
                continue;
            }
            if !code.is_some_and(is_topic_failure) {
                self.check_code(code, action)?;
                self.transaction = TransactionState::Open;
                return Ok(Vec::new());
            }
            let refused = refused_topics(&response, action);
            // It may have been deleted since its metadata was read.
            refused.iter().for_each(|(topic, _)| self.cluster.remove(topic));
            return Ok(refused);
        }
    }

    /// Takes sequence numbers for this number of records of a topic partition.
    pub(crate) fn take_sequence(&mut self, topic: &Arc<str>, partition: u32, records: usize) -> BatchProducer {
        let next = self.sequences.entry((Arc::clone(topic), partition)).or_default();
        let first_sequence = *next;
        *next = first_sequence.wrapping_add(records as i32) & SEQUENCE_MAX;
        BatchProducer { id: self.id, epoch: self.epoch, first_sequence }
    }

    /// Commits the transaction. Repeats the request until it is answered: a late answer to a repetition may leave the outcome unknown. A success
    /// after a repetition leaves it to [`Self::abort`] to raise the epoch before the next transaction.
    pub(crate) fn commit(&mut self, limits: RetryLimits) -> Result<(), StepError> {
        let action = "committing";
        let response = self.end_transaction(EndTxnDecision::Commit, limits);
        let CoordinatorResponse { code, is_repetition, .. } =
            response.map_err(|failure| StepError::Unknown(format!("{action}: {}", failure.error)))?;
        match (code, is_repetition) {
            (None, false) => {
                self.transaction = TransactionState::Ended;
                Ok(())
            }
            // The first request may still arrive. Under the same epoch it would commit what the next transaction has written by then.
            (None, true) => {
                self.transaction = TransactionState::MayBeOpen;
                Ok(())
            }
            // The first request may have committed before the producer was fenced.
            (Some(code), true) => Err(StepError::Unknown(format!("{action}: {code}"))),
            (code, false) => self.check_code(code, action),
        }
    }

    /// Makes the coordinator abort what may be open, and raises the epoch. Does nothing if the last transaction has ended.
    pub(crate) fn abort(&mut self, limits: RetryLimits) -> Result<(), StepError> {
        if self.transaction == TransactionState::Ended {
            return Ok(());
        }
        let action = "aborting";
        let response = self.end_transaction(EndTxnDecision::Abort, limits);
        let CoordinatorResponse { code, .. } =
            response.map_err(|failure| StepError::Unknown(format!("{action}: {}", failure.error)))?;
        match (code, self.transaction) {
            (Some(code @ Code::InvalidTransactionalState), TransactionState::Open) => {
                self.transaction = TransactionState::MayBeOpen;
                return Err(StepError::Unknown(format!("{action}: {code}: the transaction has ended otherwise")));
            }
            // Without an added partition there is no transaction.
            (Some(Code::InvalidTransactionalState), _) => {}
            (code, _) => self.check_code(code, action)?,
        }
        self.init_producer_id(limits).map_err(|error| match error {
            StepError::Failed(error) => StepError::AbortPending(error.to_string()),
            other => other,
        })?;
        self.transaction = TransactionState::Ended;
        Ok(())
    }

    fn end_transaction(
        &mut self,
        decision: EndTxnDecision,
        limits: RetryLimits,
    ) -> Result<CoordinatorResponse<EndTxnResponse>, CoordinatorCallError> {
        let request = EndTxnRequest::default()
            .with_transactional_id(self.transactional_id())
            .with_producer_id(ProducerId(self.id))
            .with_producer_epoch(self.epoch)
            .with_committed(decision == EndTxnDecision::Commit);
        self.coordinator.call(&mut self.cluster, &request, |response| response.error_code, limits)
    }

    /// Obtains a new epoch (InitProducerId), and a producer id if there is none yet. Waits until the coordinator has ended the last transaction.
    fn init_producer_id(&mut self, limits: RetryLimits) -> Result<(), StepError> {
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(self.transactional_id()))
            .with_transaction_timeout_ms(i32::try_from(self.transaction_timeout.as_millis()).unwrap_or(i32::MAX))
            .with_producer_id(ProducerId(self.id))
            .with_producer_epoch(self.epoch);
        let action = format!("initialising the transactional id {}", self.coordinator.transactional_id);
        let response = self.coordinator.call(&mut self.cluster, &request, |response| response.error_code, limits);
        let CoordinatorResponse { response, code, .. } =
            response.map_err(|failure| match failure.is_transaction_pending {
                true => StepError::AbortPending(format!("{action}: {}", failure.error)),
                false => StepError::Failed(call_error(&failure.error, &action)),
            })?;
        self.check_code(code, &action)?;
        (self.id, self.epoch) = (response.producer_id.0, response.producer_epoch);
        self.sequences.clear();
        Ok(())
    }

    /// Maps an error code of the coordinator to the error of the step.
    fn check_code(&self, code: Option<Code>, action: &str) -> Result<(), StepError> {
        match code {
            None => Ok(()),
            Some(code) if is_fenced(code) => Err(StepError::Fenced(format!("{action}: {code}"))),
            Some(code) => Err(StepError::Failed(map_code(code, format!("{action}: {code}")))),
        }
    }

    pub(crate) fn transactional_id(&self) -> TransactionalId {
        TransactionalId(StrBytes::from_string(self.coordinator.transactional_id.clone()))
    }
}

/// A topic's name as the protocol has it.
pub(crate) fn topic_name(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_owned()))
}

/// The topics that the coordinator refuses.
fn refused_topics(response: &AddPartitionsToTxnResponse, action: &str) -> Vec<(String, Error)> {
    let topics = response.results_by_topic_v3_and_below.iter();
    let refused = topics.filter_map(|topic| {
        let mut codes = topic.results_by_partition.iter().map(|partition| error_code(partition.partition_error_code));
        let code = codes.find_map(|code| code.filter(|code| is_topic_failure(*code)))?;
        let name = topic.name.as_str();
        Some((name.to_owned(), map_code(code, format!("{action}: topic {name}: {code}"))))
    });
    refused.collect()
}

/// The error of the first partition that was refused itself.
fn first_error(response: &AddPartitionsToTxnResponse) -> i16 {
    let topics = response.results_by_topic_v3_and_below.iter();
    let codes = topics.flat_map(|topic| &topic.results_by_partition).map(|partition| partition.partition_error_code);
    let mut refused = codes.filter(|code| error_code(*code).is_some());
    refused.clone().find(|code| *code != NOT_ATTEMPTED).or_else(|| refused.next()).unwrap_or(0)
}
