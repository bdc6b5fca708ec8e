//! One consumed message: decode → region rule → handler → what to remember, where to send it instead, or why it is dead.
use std::sync::Arc;

use domain::{Hlc, RegionId, Timestamp};
use outbox::topics::RETRY_DELAYS;
use ports::FailureType;
use ports::broker::{Header, Record};
use ports::inbox::{Effect, ProcessedEvent};
use ports::source::Delivery;

use crate::consume::handlers::Handlers;
use crate::contract::{self, DecodedEvent};
use crate::policy::conflict::{self, ConflictDecision, VersionStamp};

/// A message, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedMessage {
    /// What it says.
    pub event: DecodedEvent,
    /// Who says it, with which stamp.
    pub stand: VersionStamp,
    /// Attempts before this one.
    pub attempts_made: u32,
}

/// What to do with a message.
#[derive(Clone, Debug, PartialEq)]
pub enum IntakeStep {
    /// Remember it, with its effects.
    Process {
        /// The event and the effects that commit with it.
        event: ProcessedEvent,
        /// Whether the region rule found it stale: remembered, without effects.
        stale: bool,
    },
    /// Send it to retry topic `stage` (from 0).
    Retry {
        /// Which.
        stage: u32,
        /// Why.
        failure: IntakeFailure,
    },
    /// Send it to the dead letters.
    DeadLetter(IntakeFailure),
}

/// Why a message was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntakeFailure {
    /// Where the failure came from.
    pub failure_type: FailureType,
    /// What kind of error, as other consumers of this topic name it.
    pub class: &'static str,
    /// Why.
    pub reason: String,
}

/// Reads a message.
///
/// # Errors
/// It can never be understood: it goes straight to the dead letters.
pub fn decode(delivery: &Delivery) -> Result<DecodedMessage, IntakeFailure> {
    let record = &delivery.record;
    let event = contract::decode(&record.value).map_err(|error| undecodable(error.to_string()))?;
    let named = record.text("ce_id").filter(|id| *id != event.event_id.to_string());
    if let Some(other) = named {
        return Err(undecodable(format!("ce_id is {other}, the value names {}", event.event_id)));
    }
    let version = event.after.as_ref().map_or(0, |after| after.version);
    let fallback = Hlc { millis: event.occurred_at.millis(), counter: u32::try_from(version).unwrap_or(u32::MAX) };
    let stand = VersionStamp {
        hlc: record.text("x-hlc").and_then(Hlc::parse).unwrap_or(fallback),
        region: RegionId::new(record.text("x-region").unwrap_or("")),
    };
    let attempts_made = record.text("retry_topic-attempts").and_then(|text| text.parse().ok()).unwrap_or(0);
    Ok(DecodedMessage { event, stand, attempts_made })
}

fn undecodable(reason: String) -> IntakeFailure {
    IntakeFailure {
        failure_type: FailureType::Validation,
        class: "org.springframework.kafka.support.serializer.DeserializationException",
        reason,
    }
}

/// Whether the region rule must be asked: our own events are history to us, not news.
pub fn is_remote(understood: &DecodedMessage, ours: &RegionId) -> bool {
    understood.stand.region != *ours && !understood.stand.region.as_str().is_empty()
}

/// Decides. `standing` is what last won for this order from another region, for remote events only.
pub fn decide(
    handlers: &Handlers,
    delivery: &Delivery,
    understood: &DecodedMessage,
    remote: Option<Option<VersionStamp>>,
    now: Timestamp,
) -> IntakeStep {
    let event = &understood.event;
    let processed = |effects| ProcessedEvent { event_id: event.event_id, position: delivery.position.clone(), effects };
    let ruled = remote.as_ref().map(|standing| conflict::decide(standing.as_ref(), &understood.stand, now));
    if matches!(ruled, Some(ConflictDecision::Stale | ConflictDecision::TooFarAhead)) {
        return IntakeStep::Process { event: processed(Vec::new()), stale: true };
    }
    match handlers.of(event.kind).handle(event) {
        Ok(mut effects) => {
            if remote.is_some() {
                let VersionStamp { hlc, region } = understood.stand.clone();
                effects.push(Effect::RememberRemote { order_id: event.order_id, region, hlc });
            }
            IntakeStep::Process { event: processed(effects), stale: false }
        }
        Err(fault) => {
            let failure = IntakeFailure {
                failure_type: FailureType::System,
                class: "posthaste.HandlerFault",
                reason: fault.reason,
            };
            let stage = understood.attempts_made;
            if fault.retryable && (stage as usize) < RETRY_DELAYS.len() {
                IntakeStep::Retry { stage, failure }
            } else {
                IntakeStep::DeadLetter(failure)
            }
        }
    }
}

/// The record that carries a message to a retry topic or to the dead letters, with Spring Kafka's headers: the first journey's
/// place stays, attempts grow, the last error is told.
pub fn forward_record(
    delivery: &Delivery,
    target: String,
    failure: &IntakeFailure,
    attempts: u32,
    now: Timestamp,
) -> Record {
    let Delivery { position, record } = delivery;
    let original = record.headers.iter().any(|(name, _)| &**name == "kafka_original-topic");
    let rewritten = ["retry_topic-attempts", "kafka_exception-fqcn", "kafka_exception-message", "x-failure-type"];
    let mut headers: Vec<Header> =
        record.headers.iter().filter(|(name, _)| !rewritten.contains(&&**name)).cloned().collect();
    let mut put = |name: &'static str, value: &[u8]| headers.push((name.into(), value.into()));
    if !original {
        put("kafka_original-topic", position.topic.as_bytes());
        put("kafka_original-partition", &i32::try_from(position.partition).unwrap_or(i32::MAX).to_be_bytes());
        put("kafka_original-offset", &i64::try_from(position.offset).unwrap_or(i64::MAX).to_be_bytes());
        put("kafka_original-timestamp", &record.timestamp.millis().to_be_bytes());
    }
    put("kafka_exception-fqcn", failure.class.as_bytes());
    put("kafka_exception-message", outbox::truncate_reason(&failure.reason).as_bytes());
    put("retry_topic-attempts", attempts.to_string().as_bytes());
    put("x-failure-type", failure.failure_type.as_str().as_bytes());
    Record {
        topic: Arc::from(target),
        key: Arc::clone(&record.key),
        headers,
        value: Arc::clone(&record.value),
        timestamp: now,
    }
}
