//! A claimed batch as records: which rows are sent, in which form, and which are refused.
use std::io::Write;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use domain::RegionId;
use ports::broker::{Header, Record};
use ports::outbox::{ClaimedRow, RowId};
use ports::{Error, FailureType, Fault};

use crate::consume::spring_headers;
use crate::contract::framing::{FRAME_BYTES, SchemaIds};
use crate::contract::{self, ContractError, rfc3339};

/// How the relay claims and publishes.
#[derive(Clone, Debug)]
pub struct Options {
    /// Region of this service, the `ce_source` of its records.
    pub region: RegionId,
    /// Registry ids of the schemas; with them, values have a frame for consumers that use a schema registry.
    pub schemas: Option<SchemaIds>,
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
        RecordEnvelope::new(&self.region, self.schemas)
    }
}

/// The values that all records of a service share.
#[derive(Clone, Debug)]
pub struct RecordEnvelope {
    source: Arc<[u8]>,
    schemas: Option<SchemaIds>,
}

impl RecordEnvelope {
    /// Creates the shared values; the region becomes the CloudEvents source.
    pub fn new(region: &RegionId, schemas: Option<SchemaIds>) -> Self {
        Self { source: format!("/posthaste/{}", region.as_str()).as_bytes().into(), schemas }
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
    /// Message of the failure.
    pub reason: String,
    /// Whether its fallback failed, not its own topic.
    pub in_fallback: bool,
    /// Whether its value broke the contract of its type and schema version.
    pub off_contract: bool,
}

impl RefusedRow {
    /// A row that a port refused with this error.
    pub fn from_error(row: RowId, error: &Error) -> Self {
        Self {
            row,
            fault: error.fault(),
            failure_type: error.failure_type(),
            reason: error.to_string(),
            in_fallback: false,
            off_contract: false,
        }
    }
}

/// Divides a batch into records and refused rows. `record_bytes_max` is the broker's limit of a value.
pub fn plan(rows: &[ClaimedRow], envelope: &RecordEnvelope, record_bytes_max: usize) -> BatchPlan {
    let value_bytes_max = record_bytes_max.saturating_sub(envelope.schemas.map_or(0, |_| FRAME_BYTES));
    let mut plan = BatchPlan { send: Vec::with_capacity(rows.len()), ..BatchPlan::default() };
    let mut builder = RecordBuilder::new(envelope);
    for row in rows {
        match sendable(row, value_bytes_max) {
            Ok(payload) => plan.send.push((row.id, builder.record(row, payload))),
            Err(refusal) => plan.refused.push(RefusedRow {
                row: row.id,
                fault: Fault::Permanent,
                failure_type: FailureType::Validation,
                off_contract: matches!(refusal, Refusal::OffContract(_)),
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
    OffContract(#[from] ContractError),
    #[error("its value is of another event than its row")]
    OtherEvent,
}

/// Another program may have written the row, so the whole contract is checked.
fn sendable(row: &ClaimedRow, value_bytes_max: usize) -> Result<&Arc<[u8]>, Refusal> {
    let payload = row.payload.as_ref().ok_or(Refusal::NoPayload)?;
    if payload.len() > value_bytes_max {
        return Err(Refusal::TooLarge { bytes: payload.len(), limit: value_bytes_max });
    }
    let event = contract::validate(payload)?;
    if event.event_id != row.event_id || event.order_id != row.key || event.kind.as_str() != &*row.kind {
        return Err(Refusal::OtherEvent);
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
        let key: Arc<str> = row.key.to_string().into();
        let event_id = text_of(row.event_id);
        let attempt = match row.attempt {
            1 => Arc::clone(&shared.first_attempt),
            attempt => text_of(attempt),
        };
        if *self.region != *row.region.as_str().as_bytes() {
            self.region = row.region.as_str().as_bytes().into();
        }
        let mut headers: Vec<Header> = Vec::with_capacity(14);
        let mut put = |name: &Arc<str>, value: Arc<[u8]>| headers.push((Arc::clone(name), value));
        put(&shared.ce_id, Arc::clone(&event_id));
        put(&shared.ce_source, Arc::clone(&self.envelope.source));
        put(&shared.ce_type, Arc::from(Arc::clone(&row.kind)));
        put(&shared.ce_specversion.0, Arc::clone(&shared.ce_specversion.1));
        put(&shared.ce_time, rfc3339(row.occurred_at).as_bytes().into());
        put(&shared.ce_partitionkey, Arc::from(Arc::clone(&key)));
        put(&shared.content_type.0, Arc::clone(&shared.content_type.1));
        put(&shared.id, event_id);
        put(&shared.x_region, Arc::clone(&self.region));
        put(&shared.x_hlc, text_of(row.hlc));
        put(&shared.x_attempt, attempt);
        put(&shared.x_sequence, text_of(row.sequence));
        if let Some(trace) = &row.trace {
            put(&shared.traceparent, Arc::from(Arc::clone(&trace.parent)));
            if let Some(state) = &trace.state {
                put(&shared.tracestate, Arc::from(Arc::clone(state)));
            }
        }
        let value = self.envelope.schemas.map_or_else(|| Arc::clone(payload), |schemas| schemas.framed(payload));
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
