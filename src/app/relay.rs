//! A claimed batch as data: which rows go, as which records, and what an answer of the broker means.
use std::sync::Arc;
use std::time::Duration;

use domain::RegionId;
use ports::broker::{Header, Record};
use ports::outbox::{ClaimedRow, RowId};
use ports::{Error, FailureType, Fault};

use crate::contract::{self, rfc3339};

/// What the relay keeps to.
#[derive(Clone, Debug)]
pub struct Options {
    /// This service's region: the source that CloudEvents name.
    pub region: RegionId,
    /// Most rows of one claim. The seeds' 200 costs half the speed (measured).
    pub batch: u32,
    /// Longest a lease lasts unless it is renewed.
    pub lease: Duration,
    /// Kept back from the lease's time: a batch is never handed over with less than this left.
    pub margin: Duration,
}

/// A claimed batch, sorted into what goes and what cannot.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Records in id order, which is each key's order.
    pub send: Vec<(RowId, Record)>,
    /// Rows that can never go as they are: excluded before anything is sent.
    pub refused: Vec<Refused>,
}

/// A row that does not go, and why.
#[derive(Clone, Debug)]
pub struct Refused {
    /// Which.
    pub row: RowId,
    /// How it failed.
    pub fault: Fault,
    /// Where the failure came from.
    pub failure_type: FailureType,
    /// Why.
    pub reason: String,
    /// Whether its fallback failed and not its primary handler.
    pub in_fallback: bool,
}

impl Refused {
    /// A row refused by a port.
    pub fn by(row: RowId, error: &Error) -> Self {
        Self {
            row,
            fault: error.fault(),
            failure_type: error.failure_type(),
            reason: error.to_string(),
            in_fallback: false,
        }
    }
}

/// Sorts a batch. `record_bytes_max` is the broker's.
pub fn plan(rows: &[ClaimedRow], source: &str, record_bytes_max: usize) -> Plan {
    let mut plan = Plan::default();
    for row in rows {
        match sendable(row, record_bytes_max) {
            Ok(payload) => plan.send.push((row.id, record(row, payload, source))),
            Err(reason) => plan.refused.push(Refused {
                row: row.id,
                fault: Fault::Permanent,
                failure_type: FailureType::Validation,
                reason,
                in_fallback: false,
            }),
        }
    }
    plan
}

fn sendable(row: &ClaimedRow, record_bytes_max: usize) -> Result<&Arc<[u8]>, String> {
    let payload = row.payload.as_ref().ok_or("its payload is gone")?;
    if payload.len() > record_bytes_max {
        return Err(format!("its value has {} bytes, the broker takes {record_bytes_max}", payload.len()));
    }
    let event = contract::decode(payload).map_err(|error| error.to_string())?;
    if event.event_id != row.event_id || event.order_id != row.key || event.kind.as_str() != &*row.kind {
        return Err("its value tells of another event than its row".to_owned());
    }
    Ok(payload)
}

/// The record of a row: CloudEvents in binary mode, Debezium's `id`, the trace, and what proves order and loss.
pub fn record(row: &ClaimedRow, payload: &Arc<[u8]>, source: &str) -> Record {
    let event_id = row.event_id.to_string();
    let key: Arc<str> = row.key.to_string().into();
    let mut headers: Vec<Header> = Vec::with_capacity(16);
    let mut put = |name: &'static str, value: &str| headers.push((name.into(), value.as_bytes().into()));
    put("ce_id", &event_id);
    put("ce_source", source);
    put("ce_type", &row.kind);
    put("ce_specversion", "1.0");
    put("ce_time", &rfc3339(row.occurred_at));
    put("ce_partitionkey", &key);
    put("content-type", "application/json");
    put("id", &event_id);
    put("x-region", row.region.as_str());
    put("x-hlc", &row.hlc.to_string());
    put("x-attempt", &row.attempt.to_string());
    put("x-sequence", &row.sequence.to_string());
    if let Some(trace) = &row.trace {
        put("traceparent", &trace.parent);
        if let Some(state) = &trace.state {
            put("tracestate", state);
        }
    }
    Record { topic: Arc::clone(&row.topic), key, headers, value: Arc::clone(payload), timestamp: row.occurred_at }
}

/// The record of a row that goes to its fallback: the dead letters of its topic, with the failure in headers.
pub fn fallback_record(row: &ClaimedRow, payload: &Arc<[u8]>, source: &str, refused: &Refused) -> Record {
    let primary = record(row, payload, source);
    let mut headers = primary.headers;
    let mut put = |name: &'static str, value: &[u8]| headers.push((name.into(), value.into()));
    put("kafka_original-topic", primary.topic.as_bytes());
    put("kafka_exception-message", cut(&refused.reason).as_bytes());
    put("x-failure-type", refused.failure_type.as_str().as_bytes());
    Record { topic: format!("{}-dlt", primary.topic).into(), headers, ..primary }
}

/// Longest reason that is kept.
const REASON_MAX: usize = 256;

/// A reason, cut at 256 characters at a character's boundary.
pub fn cut(reason: &str) -> &str {
    match reason.char_indices().nth(REASON_MAX) {
        Some((end, _)) => &reason[..end],
        None => reason,
    }
}

/// CloudEvents' source of a region.
pub fn source(region: &RegionId) -> String {
    format!("/posthaste/{}", region.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_cut_between_characters() {
        assert_eq!(cut("short"), "short");
        assert_eq!(cut(&"漢".repeat(300)).chars().count(), 256);
    }
}
