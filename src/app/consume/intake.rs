//! One consumed message as data: decode, apply the region rule, call the handler, decide between processing, retry and dead letter.
use domain::{Hlc, RegionId, Timestamp};
use ports::FailureType;
use ports::broker::consumer_groups::Delivery;
use ports::inbox::{Effect, ProcessedEvent};

use crate::consume::chain::ChainOutcome;
use crate::consume::event_handler::{ConsumedEvent, HandlerFault};
use crate::consume::handlers::Handlers;
use crate::consume::spring_headers;
use crate::contract::{self, DecodedEvent};
use crate::policy::conflict::{self, ConflictDecision, VersionStamp};

/// A message with its decoded event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedMessage {
    /// The event in the value.
    pub event: DecodedEvent,
    /// Region and stamp of the event.
    pub stamp: VersionStamp,
    /// Number of attempts before this one.
    pub attempts_made: u32,
}

/// Decision on a message.
#[derive(Clone, Debug, PartialEq)]
pub enum IntakeStep {
    /// Record the event in the inbox, with its effects.
    Process {
        /// The event and the effects that commit with it.
        event: ProcessedEvent,
        /// Whether the region rule rejected it; it is then recorded without effects.
        stale: bool,
        /// Failure of the primary handler, where the fallback accepted the event.
        fallback_after: Option<IntakeFailure>,
    },
    /// Send the message to a retry topic.
    Retry {
        /// Number of the retry topic, from 0.
        stage: u32,
        /// Failure that is written into the headers.
        failure: IntakeFailure,
    },
    /// Send the message through the last retry topic again, until a handler accepts it; the key's later messages wait.
    Block {
        /// Number of the retry topic, from 0; beyond the last one it counts the rounds.
        stage: u32,
        /// Failure that is written into the headers.
        failure: IntakeFailure,
    },
    /// Send the message to the dead-letter topic.
    DeadLetter(IntakeFailure),
}

/// Why a message was not processed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntakeFailure {
    /// Class of the failure.
    pub failure_type: FailureType,
    /// Class name of the error, in the form of the Java consumers of this topic.
    pub class: &'static str,
    /// Message for operators, stored in a header.
    pub reason: String,
}

/// Decodes a message and checks that its headers name the same event.
///
/// # Errors
/// The message cannot be decoded, now or later: it goes to the dead-letter topic without a retry.
pub fn decode(delivery: &Delivery) -> Result<DecodedMessage, IntakeFailure> {
    let record = &delivery.record;
    let event = contract::decode(&record.value).map_err(|error| undecodable(error.to_string()))?;
    let other_id = record.text("ce_id").filter(|id| *id != event.event_id.to_string());
    if let Some(other) = other_id {
        return Err(undecodable(format!("ce_id is {other}, the value has {}", event.event_id)));
    }
    let version = event.after.as_ref().map_or(0, |after| after.version);
    let fallback = Hlc { millis: event.occurred_at.millis(), counter: u32::try_from(version).unwrap_or(u32::MAX) };
    let stamp = VersionStamp {
        hlc: record.text("x-hlc").and_then(Hlc::parse).unwrap_or(fallback),
        region: RegionId::new(record.text("x-region").unwrap_or("")),
    };
    let attempts_made = spring_headers::attempts_made(record).unwrap_or(0);
    Ok(DecodedMessage { event, stamp, attempts_made })
}

fn undecodable(reason: String) -> IntakeFailure {
    IntakeFailure {
        failure_type: FailureType::Validation,
        class: "org.springframework.kafka.support.serializer.DeserializationException",
        reason,
    }
}

/// Whether the region rule applies: the event comes from another region.
pub fn is_remote(message: &DecodedMessage, local: &RegionId) -> bool {
    message.stamp.region != *local && !message.stamp.region.as_str().is_empty()
}

/// Decides what to do with a message, and runs the chain of its type unless the region rule rejects the event. `remote` is `Some` for events of another region, with the stamp that last won for the order.
pub async fn decide(
    handlers: &Handlers,
    delivery: &Delivery,
    message: &DecodedMessage,
    remote: Option<Option<VersionStamp>>,
    now: Timestamp,
) -> IntakeStep {
    let event = &message.event;
    let processed = |effects| ProcessedEvent { event_id: event.event_id, position: delivery.position.clone(), effects };
    let decision = remote.as_ref().map(|last| conflict::decide(last.as_ref(), &message.stamp, now));
    if matches!(decision, Some(ConflictDecision::Stale | ConflictDecision::TooFarAhead)) {
        return IntakeStep::Process { event: processed(Vec::new()), stale: true, fallback_after: None };
    }
    let stage = message.attempts_made;
    let consumed = ConsumedEvent { event, record: &delivery.record, attempt: stage.saturating_add(1) };
    match handlers.of(event.kind).run(consumed).await {
        ChainOutcome::Handled { mut effects, fallback_after } => {
            if remote.is_some() {
                let VersionStamp { hlc, region } = message.stamp.clone();
                effects.push(Effect::RememberRemote { order_id: event.order_id, region, hlc });
            }
            let fallback_after = fallback_after.map(not_handled);
            IntakeStep::Process { event: processed(effects), stale: false, fallback_after }
        }
        ChainOutcome::Retry(fault) => IntakeStep::Retry { stage, failure: not_handled(fault) },
        ChainOutcome::Blocked(fault) => IntakeStep::Block { stage, failure: not_handled(fault) },
        ChainOutcome::Failed(fault) => IntakeStep::DeadLetter(not_handled(fault)),
    }
}

fn not_handled(fault: HandlerFault) -> IntakeFailure {
    IntakeFailure { failure_type: fault.failure_type, class: "posthaste.HandlerFault", reason: fault.reason }
}
