//! One consumed message: decode → region rule → handler → what to remember, where to send it instead, or why it is dead.
use std::sync::Arc;
use std::time::Duration;

use domain::{Hlc, RegionId, Timestamp};
use ports::FailureType;
use ports::broker::{Header, Record};
use ports::inbox::{Effect, ProcessedEvent};
use ports::source::Delivery;

use crate::contract::{self, Incoming};
use crate::handlers::Handlers;
use crate::policy::conflict::{Ruling, Stand, ruling};

/// Delays of the retry topics, in order: attempts two to five.
pub const RETRY_DELAYS: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4), Duration::from_secs(8)];

/// A message, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Understood {
    /// What it says.
    pub event: Incoming,
    /// Who says it, with which stamp.
    pub stand: Stand,
    /// Attempts before this one.
    pub attempts_made: u32,
}

/// What to do with a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Remember it, with its effects.
    Take {
        /// The mark.
        mark: ProcessedEvent,
        /// Whether the region rule found it stale: remembered, without effects.
        stale: bool,
    },
    /// Send it to retry topic `stage` (from 0).
    Retry {
        /// Which.
        stage: u32,
        /// Why.
        failure: Failure,
    },
    /// Send it to the dead letters.
    Dead(Failure),
}

/// Why a message was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
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
pub fn understand(delivery: &Delivery) -> Result<Understood, Failure> {
    let record = &delivery.record;
    let event = contract::decode(&record.value).map_err(|error| undecodable(error.to_string()))?;
    let named = record.text("ce_id").filter(|id| *id != event.event_id.to_string());
    if let Some(other) = named {
        return Err(undecodable(format!("ce_id is {other}, the value names {}", event.event_id)));
    }
    let version = event.after.as_ref().map_or(0, |after| after.version);
    let fallback = Hlc { millis: event.occurred_at.millis(), counter: u32::try_from(version).unwrap_or(u32::MAX) };
    let stand = Stand {
        hlc: record.text("x-hlc").and_then(Hlc::parse).unwrap_or(fallback),
        region: RegionId::new(record.text("x-region").unwrap_or("")),
    };
    let attempts_made = record.text("retry_topic-attempts").and_then(|text| text.parse().ok()).unwrap_or(0);
    Ok(Understood { event, stand, attempts_made })
}

fn undecodable(reason: String) -> Failure {
    Failure {
        failure_type: FailureType::Validation,
        class: "org.springframework.kafka.support.serializer.DeserializationException",
        reason,
    }
}

/// Whether the region rule must be asked: our own events are history to us, not news.
pub fn is_remote(understood: &Understood, ours: &RegionId) -> bool {
    understood.stand.region != *ours && !understood.stand.region.as_str().is_empty()
}

/// Decides. `standing` is what last won for this order from another region, for remote events only.
pub fn judge(
    handlers: &Handlers,
    delivery: &Delivery,
    understood: &Understood,
    remote: Option<Option<Stand>>,
    now: Timestamp,
) -> Step {
    let event = &understood.event;
    let mark = |effects| ProcessedEvent { event_id: event.event_id, position: delivery.position.clone(), effects };
    let ruled = remote.as_ref().map(|standing| ruling(standing.as_ref(), &understood.stand, now));
    if matches!(ruled, Some(Ruling::Stale | Ruling::TooFarAhead)) {
        return Step::Take { mark: mark(Vec::new()), stale: true };
    }
    match handlers.of(event.kind).handle(event) {
        Ok(mut effects) => {
            if remote.is_some() {
                let Stand { hlc, region } = understood.stand.clone();
                effects.push(Effect::RememberRemote { order_id: event.order_id, region, hlc });
            }
            Step::Take { mark: mark(effects), stale: false }
        }
        Err(fault) => {
            let failure =
                Failure { failure_type: FailureType::System, class: "posthaste.HandlerFault", reason: fault.reason };
            let stage = understood.attempts_made;
            if fault.retryable && (stage as usize) < RETRY_DELAYS.len() {
                Step::Retry { stage, failure }
            } else {
                Step::Dead(failure)
            }
        }
    }
}

/// The base topic of a topic: `x-retry-2` → `x`.
pub fn base_topic(topic: &str) -> &str {
    topic.rsplit_once("-retry-").filter(|(_, n)| n.bytes().all(|b| b.is_ascii_digit())).map_or(topic, |(base, _)| base)
}

/// Which retry topic this is.
pub fn stage_of(topic: &str) -> Option<usize> {
    topic.rsplit_once("-retry-").and_then(|(_, n)| n.parse().ok())
}

/// Every topic a consumer of `topic` reads.
pub fn topics_of(topic: &str) -> Vec<String> {
    let retries = (0..RETRY_DELAYS.len()).map(|stage| format!("{topic}-retry-{stage}"));
    std::iter::once(topic.to_owned()).chain(retries).collect()
}

/// Every topic of ours around `topic`: itself, its retry topics, its dead letters.
pub fn all_topics(topic: &str) -> Vec<String> {
    let mut topics = topics_of(topic);
    topics.push(format!("{topic}-dlt"));
    topics
}

/// The record that carries a message to a retry topic or to the dead letters, with Spring Kafka's headers: the first journey's
/// place stays, attempts grow, the last error is told.
pub fn onward(delivery: &Delivery, target: String, failure: &Failure, attempts: u32, now: Timestamp) -> Record {
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
    put("kafka_exception-message", crate::relay::cut(&failure.reason).as_bytes());
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
