//! A claimed batch as records: which rows are sent, in which form, and which are refused.
use std::io::Write;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use domain::RegionId;
use outbox::event_rules::{EventRuleError, check_content_type, check_topic, check_type};
use ports::broker::{Header, Record};
use ports::outbox::{ClaimedRow, EventKeyError, RowId};
use ports::{Error, FailureType, Fault};

use crate::commands::request_id;
use crate::consume::spring_headers;
use crate::contract::rfc3339;
use crate::relay::value_contract::{TopicContracts, ValueContract};

/// How the relay claims and publishes.
#[derive(Clone, Debug)]
pub struct Options {
    /// Region of this service, the `ce_source` of its records.
    pub region: RegionId,
    /// Contracts of the topics whose values are checked before they are published.
    pub contracts: TopicContracts,
    /// Topics that no row may have: see [`outbox::topics::internal_topics`].
    pub internal_topics: Arc<[String]>,
    /// Limit of rows in one claim. A limit of 200 halves the throughput (measured).
    pub batch: u32,
    /// Time after which a lease expires unless it is renewed.
    pub lease: Duration,
    /// Remaining lease time below which a batch is not given to the broker.
    pub margin: Duration,
    /// Whether a published batch may wait for its settlement until the next claim. Not at least once: a batch that is open after a crash is
    /// published again then.
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
    source: Arc<[u8]>,
    contracts: TopicContracts,
    internal_topics: Arc<[String]>,
}

impl RecordEnvelope {
    /// Creates the shared values; the region becomes the CloudEvents source. No topic is internal.
    pub fn new(region: &RegionId, contracts: TopicContracts) -> Self {
        let source = format!("/posthaste/{}", region.as_str()).as_bytes().into();
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
    pub fault: Fault,
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
                fault: Fault::Permanent,
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
    let contract = envelope.contracts.of(&row.topic);
    let limit = record_bytes_max.saturating_sub(contract.map_or(0, ValueContract::frame_bytes));
    if payload.len() > limit {
        return Err(Refusal::TooLarge { bytes: payload.len(), limit });
    }
    row.key.check()?;
    check_topic(&row.topic)?;
    if envelope.internal_topics.iter().any(|internal| **internal == *row.topic) {
        return Err(Refusal::InternalTopic(Arc::clone(&row.topic)));
    }
    check_type(&row.kind)?;
    row.headers.check()?;
    row.content_type.as_deref().map_or(Ok(()), check_content_type)?;
    if let Some(contract) = contract {
        contract.check(row, payload).map_err(Refusal::OffContract)?;
    }
    Ok(payload)
}

/// Header names and values that all records share. A record has some fourteen headers: allocating each name took as long as all the rest.
struct SharedHeaders {
    ce_id: Arc<str>,
    ce_source: Arc<str>,
    ce_type: Arc<str>,
    ce_specversion: Header,
    ce_time: Arc<str>,
    ce_partitionkey: Arc<str>,
    content_type: Header,
    id: Arc<str>,
    x_region: Arc<str>,
    x_hlc: Arc<str>,
    x_attempt: Arc<str>,
    x_sequence: Arc<str>,
    traceparent: Arc<str>,
    tracestate: Arc<str>,
    x_request_id: Arc<str>,
    first_attempt: Arc<[u8]>,
}

static SHARED: LazyLock<SharedHeaders> = LazyLock::new(|| SharedHeaders {
    ce_id: "ce_id".into(),
    ce_source: "ce_source".into(),
    ce_type: "ce_type".into(),
    ce_specversion: ("ce_specversion".into(), b"1.0".as_slice().into()),
    ce_time: "ce_time".into(),
    ce_partitionkey: "ce_partitionkey".into(),
    content_type: ("content-type".into(), b"application/json".as_slice().into()),
    id: "id".into(),
    x_region: "x-region".into(),
    x_hlc: "x-hlc".into(),
    x_attempt: "x-attempt".into(),
    x_sequence: "x-sequence".into(),
    traceparent: "traceparent".into(),
    tracestate: "tracestate".into(),
    x_request_id: request_id::HEADER.into(),
    first_attempt: b"1".as_slice().into(),
});

/// The record of a row: CloudEvents headers in binary mode, Debezium's `id`, the trace context, and the headers that prove order and loss.
pub fn record(row: &ClaimedRow, payload: &Arc<[u8]>, envelope: &RecordEnvelope) -> Record {
    RecordBuilder::new(envelope).record(row, payload)
}

/// Builds records; rows that follow each other mostly share the region header.
struct RecordBuilder<'a> {
    envelope: &'a RecordEnvelope,
    region: Arc<[u8]>,
}

impl<'a> RecordBuilder<'a> {
    fn new(envelope: &'a RecordEnvelope) -> Self {
        Self { envelope, region: [].into() }
    }

    fn record(&mut self, row: &ClaimedRow, payload: &Arc<[u8]>) -> Record {
        let shared = &*SHARED;
        let key = row.key.to_text();
        let event_id = text_of(row.event_id);
        let attempt = match row.attempt {
            1 => Arc::clone(&shared.first_attempt),
            attempt => text_of(attempt),
        };
        let content_type = row
            .content_type
            .as_ref()
            .map_or_else(|| Arc::clone(&shared.content_type.1), |content_type| Arc::from(Arc::clone(content_type)));
        let mut headers: Vec<Header> = Vec::with_capacity(15);
        let mut put = |name: &Arc<str>, value: Arc<[u8]>| headers.push((Arc::clone(name), value));
        put(&shared.ce_id, Arc::clone(&event_id));
        put(&shared.ce_source, Arc::clone(&self.envelope.source));
        put(&shared.ce_type, Arc::from(Arc::clone(&row.kind)));
        put(&shared.ce_specversion.0, Arc::clone(&shared.ce_specversion.1));
        put(&shared.ce_time, rfc3339(row.occurred_at).as_bytes().into());
        put(&shared.ce_partitionkey, Arc::from(Arc::clone(&key)));
        put(&shared.content_type.0, content_type);
        put(&shared.id, event_id);
        if let Some(stamp) = &row.stamp {
            if *self.region != *stamp.region.as_str().as_bytes() {
                self.region = stamp.region.as_str().as_bytes().into();
            }
            put(&shared.x_region, Arc::clone(&self.region));
            put(&shared.x_hlc, text_of(stamp.hlc));
        }
        put(&shared.x_attempt, attempt);
        put(&shared.x_sequence, text_of(row.sequence));
        if let Some(trace) = &row.trace {
            put(&shared.traceparent, Arc::from(Arc::clone(&trace.parent)));
            if let Some(state) = &trace.state {
                put(&shared.tracestate, Arc::from(Arc::clone(state)));
            }
        }
        if let Some(request_id) = &row.request_id {
            put(&shared.x_request_id, Arc::from(Arc::clone(request_id)));
        }
        row.headers.iter().for_each(|(name, value)| put(name, Arc::from(Arc::clone(value))));
        let contract = self.envelope.contracts.of(&row.topic);
        let value = contract.map_or_else(|| Arc::clone(payload), |contract| contract.framed(payload));
        Record { topic: Arc::clone(&row.topic), key, headers, value, timestamp: row.occurred_at }
    }
}

/// Formats a short value in a buffer on the stack, because each allocation of a record happens a hundred thousand times a second.
fn text_of(value: impl std::fmt::Display) -> Arc<[u8]> {
    let mut buffer = [0; 64];
    let mut left = buffer.as_mut_slice();
    match write!(left, "{value}") {
        Ok(()) => {
            let length = 64 - left.len();
            buffer[..length].into()
        }
        Err(_) => value.to_string().as_bytes().into(),
    }
}

/// The record that sends a row to its fallback: the dead-letter topic, with the failure in headers.
pub fn fallback_record(
    row: &ClaimedRow,
    payload: &Arc<[u8]>,
    envelope: &RecordEnvelope,
    refused: &RefusedRow,
) -> Record {
    let primary = record(row, payload, envelope);
    let mut headers = primary.headers;
    let mut put = |name: &'static str, value: &[u8]| headers.push((name.into(), value.into()));
    put(spring_headers::ORIGINAL_TOPIC, primary.topic.as_bytes());
    put(spring_headers::EXCEPTION_MESSAGE, outbox::truncate_reason(&refused.reason).as_bytes());
    put(spring_headers::FAILURE_TYPE, refused.failure_type.as_str().as_bytes());
    Record { topic: outbox::topics::dead_letter_topic(&primary.topic).into(), headers, ..primary }
}
