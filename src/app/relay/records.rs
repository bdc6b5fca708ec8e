//! A claimed batch as records: which rows are sent, in which form, and which are refused.
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use domain::RegionId;
use outbox::event_rules::{EventRuleError, check_content_type, check_topic, check_type};
use ports::broker::{Record, RecordHeaders};
use ports::outbox::{ClaimedRow, EventKeyError, RowId};
use ports::{Error, FailureType, FaultClass};

use crate::commands::request_id;
use crate::consume::spring_headers;
use crate::contract::rfc3339;
use crate::relay::value_contract::{TopicContracts, ValueContract};

/// Options of the relay: its region and contracts, and the limits of claims and records.
#[derive(Clone, Debug)]
pub struct Options {
    /// Region of this service, the `ce_source` of its records.
    pub region: RegionId,
    /// Contracts of the topics whose values are checked before they are published.
    pub contracts: TopicContracts,
    /// Topics that no row may have: see [`outbox::topics::internal_topics`], and the retry topics and dead letters of the configured topics.
    pub internal_topics: Arc<[String]>,
    /// Limit of rows in one claim. A limit of 200 halves the throughput (measured).
    pub batch: u32,
    /// Time after which a lease expires unless it is renewed.
    pub lease: Duration,
    /// Remaining lease time below which a batch is not given to the broker.
    pub margin: Duration,
    /// Whether a published batch may wait for its settlement until the next claim. Off with at-least-once delivery, where a batch that is open after
    /// a crash is published again.
    pub defers_settlement: bool,
}

impl Options {
    /// The values that all records of this service share.
    pub fn envelope(&self) -> RecordEnvelope {
        let internal_topics = Arc::clone(&self.internal_topics);
        RecordEnvelope { internal_topics, ..RecordEnvelope::new(&self.region, self.contracts.clone()) }
    }
}

/// The values that all records of a service share.
#[derive(Clone, Debug)]
pub struct RecordEnvelope {
    source: Arc<str>,
    contracts: TopicContracts,
    internal_topics: Arc<[String]>,
}

impl RecordEnvelope {
    /// Creates the shared values; the region becomes the CloudEvents source. No topic is internal.
    pub fn new(region: &RegionId, contracts: TopicContracts) -> Self {
        let source = format!("/posthaste/{}", region.as_str()).into();
        Self { source, contracts, internal_topics: Arc::default() }
    }
}

/// A claimed batch, divided into records to send and refused rows.
#[derive(Clone, Debug, Default)]
pub struct BatchPlan {
    /// Records in id order, which is each key's order.
    pub send: Vec<(RowId, Record)>,
    /// Rows that can never be sent as they are; they are excluded before anything is sent.
    pub refused: Vec<RefusedRow>,
}

/// A row that was not sent, with its failure.
#[derive(Clone, Debug)]
pub struct RefusedRow {
    /// Id of the row.
    pub row: RowId,
    /// Fault class of the failure.
    pub fault: FaultClass,
    /// Failure type that operators see.
    pub failure_type: FailureType,
    /// Whether the failure is an outage, which says nothing about the row.
    pub is_outage: bool,
    /// Message of the failure.
    pub reason: String,
    /// Whether its fallback failed, not its own topic.
    pub in_fallback: bool,
    /// Whether its value broke the contract of its topic.
    pub contract_violation: bool,
}

impl RefusedRow {
    /// A row that a port refused with this error.
    pub fn from_error(row: RowId, error: &Error) -> Self {
        Self {
            row,
            fault: error.fault(),
            failure_type: error.failure_type(),
            is_outage: matches!(error, Error::Unreachable(_)),
            reason: error.to_string(),
            in_fallback: false,
            contract_violation: false,
        }
    }
}

/// Divides a batch into records and refused rows. `record_bytes_max` is the broker's limit of a value.
pub fn plan(rows: &[ClaimedRow], envelope: &RecordEnvelope, record_bytes_max: usize) -> BatchPlan {
    let mut plan = BatchPlan { send: Vec::with_capacity(rows.len()), ..BatchPlan::default() };
    let mut builder = RecordBuilder::new(envelope);
    for row in rows {
        match sendable(row, envelope, record_bytes_max) {
            Ok(payload) => plan.send.push((row.id, builder.record(row, payload))),
            Err(refusal) => plan.refused.push(RefusedRow {
                row: row.id,
                fault: FaultClass::Permanent,
                failure_type: FailureType::Validation,
                is_outage: false,
                contract_violation: matches!(refusal, Refusal::OffContract(_)),
                reason: refusal.to_string(),
                in_fallback: false,
            }),
        }
    }
    plan
}

/// Why a row cannot be sent as it is.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("its payload is missing")]
    NoPayload,
    #[error("its value has {bytes} bytes, the limit of the broker is {limit}")]
    TooLarge { bytes: usize, limit: usize },
    #[error(transparent)]
    Key(#[from] EventKeyError),
    #[error(transparent)]
    Rule(#[from] EventRuleError),
    #[error("only the service itself writes to the topic {0}")]
    InternalTopic(Arc<str>),
    #[error("{0}")]
    OffContract(String),
}

/// Another program may have written the row, so every rule is checked, and the whole contract of its topic.
fn sendable<'a>(
    row: &'a ClaimedRow,
    envelope: &RecordEnvelope,
    record_bytes_max: usize,
) -> Result<&'a Arc<[u8]>, Refusal> {
    let payload = row.payload.as_ref().ok_or(Refusal::NoPayload)?;
    let contract = envelope.contracts.get(&row.topic);
    let limit = record_bytes_max.saturating_sub(contract.map_or(0, ValueContract::frame_bytes));
    if payload.len() > limit {
        return Err(Refusal::TooLarge { bytes: payload.len(), limit });
    }
    row.key.check()?;
    check_topic(&row.topic)?;
    if envelope.internal_topics.iter().any(|internal| **internal == *row.topic) {
        return Err(Refusal::InternalTopic(Arc::clone(&row.topic)));
    }
    check_type(&row.event_type)?;
    row.headers.check()?;
    row.content_type.as_deref().map_or(Ok(()), check_content_type)?;
    if let Some(contract) = contract {
        contract.check(row, payload).map_err(Refusal::OffContract)?;
    }
    Ok(payload)
}

/// The record of a row: CloudEvents headers in binary mode, Debezium's `id`, the trace context, and the headers that prove order and loss.
pub fn record(row: &ClaimedRow, payload: &Arc<[u8]>, envelope: &RecordEnvelope) -> Record {
    RecordBuilder::new(envelope).record(row, payload)
}

/// Builds records, up to a hundred thousand a second. It formats texts in buffers that it keeps, which saves allocations for each record.
struct RecordBuilder<'a> {
    envelope: &'a RecordEnvelope,
    event_id: String,
    number: String,
    /// Encoded bytes of the last record's headers, an estimate for the next record.
    headers_size: usize,
}

impl<'a> RecordBuilder<'a> {
    fn new(envelope: &'a RecordEnvelope) -> Self {
        Self { envelope, event_id: String::new(), number: String::new(), headers_size: 0 }
    }

    fn record(&mut self, row: &ClaimedRow, payload: &Arc<[u8]>) -> Record {
        let key = row.key.to_text();
        let headers = self.headers(row, &key);
        let contract = self.envelope.contracts.get(&row.topic);
        let value = contract.map_or_else(|| Arc::clone(payload), |contract| contract.framed(payload));
        Record { topic: Arc::clone(&row.topic), key, headers, value, timestamp: row.occurred_at }
    }

    fn headers(&mut self, row: &ClaimedRow, key: &str) -> RecordHeaders {
        let mut headers = RecordHeaders::with_capacity(self.headers_size + 8);
        formatted(&mut self.event_id, row.event_id);
        let mut put = |name: &str, value: &str| headers.push(name, value.as_bytes());
        put("ce_id", &self.event_id);
        put("ce_source", &self.envelope.source);
        put("ce_type", &row.event_type);
        put("ce_specversion", "1.0");
        put("ce_time", &rfc3339(row.occurred_at));
        put("ce_partitionkey", key);
        put("content-type", row.content_type.as_deref().unwrap_or("application/json"));
        put("id", &self.event_id);
        if let Some(stamp) = &row.stamp {
            put("x-region", stamp.region.as_str());
            put("x-hlc", formatted(&mut self.number, stamp.hlc));
        }
        put("x-attempt", formatted(&mut self.number, row.attempt));
        put("x-sequence", formatted(&mut self.number, row.sequence));
        if let Some(trace) = &row.trace {
            put("traceparent", &trace.parent);
            if let Some(state) = &trace.state {
                put("tracestate", state);
            }
        }
        if let Some(request_id) = &row.request_id {
            put(request_id::HEADER, request_id);
        }
        row.headers.iter().for_each(|(name, value)| put(name, value));
        self.headers_size = headers.encoded().len();
        headers
    }
}

/// Formats a value in a buffer, whose former content it replaces.
fn formatted(buffer: &mut String, value: impl std::fmt::Display) -> &str {
    buffer.clear();
    // Writing to a string never fails.
    let _ = write!(buffer, "{value}");
    buffer
}

/// The record that sends a row to its fallback: the dead-letter topic, with the failure in headers. Its event never was in its own topic, so it has
/// no original partition and offset.
pub fn fallback_record(
    row: &ClaimedRow,
    payload: &Arc<[u8]>,
    envelope: &RecordEnvelope,
    refused: &RefusedRow,
) -> Record {
    let primary = record(row, payload, envelope);
    let mut headers = primary.headers;
    let mut put = |name: &'static str, value: &[u8]| headers.push(name, value);
    put(spring_headers::ORIGINAL_TOPIC, primary.topic.as_bytes());
    put(spring_headers::EXCEPTION_FQCN, b"posthaste.RefusedRow");
    put(spring_headers::EXCEPTION_MESSAGE, outbox::truncate_reason(&refused.reason).as_bytes());
    put(spring_headers::ATTEMPTS, &spring_headers::next_attempt(row.attempt));
    put(spring_headers::FAILURE_TYPE, refused.failure_type.as_str().as_bytes());
    Record { topic: outbox::topics::dead_letter_topic(&primary.topic).into(), headers, ..primary }
}
