//! A handler of consumed events: what it receives, what it returns, and the one that only records.
use async_trait::async_trait;
use ports::FailureType;
use ports::broker::Record;
use ports::inbox::Effect;

use crate::contract::DecodedEvent;

/// Why a handler failed. The message goes to the next retry topic, to the fallback, or to the dead-letter topic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct HandlerFault {
    /// Whether a later attempt may succeed.
    pub retryable: bool,
    /// The origin of the failure, as operators filter by it.
    pub failure_type: FailureType,
    /// Message for operators, stored in a header.
    pub reason: String,
}

/// A consumed event as its handler receives it.
#[derive(Clone, Copy, Debug)]
pub struct ConsumedEvent<'a> {
    /// The decoded value, written in any readable schema version.
    pub event: &'a DecodedEvent,
    /// The record with its headers.
    pub record: &'a Record,
    /// Number of this attempt, from 1.
    pub attempt: u32,
}

/// Handler of consumed events.
#[async_trait]
pub trait EventHandler: Send + Sync {
    /// Whether a key's events must be handled in order, also when one of them is retried.
    fn needs_order(&self) -> bool;

    /// Returns the effects of an event, which commit together with its record in the inbox. A retry or a crash calls it again with the same
    /// event: what it does to other systems must be repeatable.
    ///
    /// # Errors
    /// The event cannot be handled, for now or ever.
    async fn handle(&self, consumed: ConsumedEvent<'_>) -> Result<Vec<Effect>, HandlerFault>;
}

/// Handler without effects: the inbox records the event, and consuming does not change the order (PendingPromoter does).
pub struct RecordOnly;

#[async_trait]
impl EventHandler for RecordOnly {
    fn needs_order(&self) -> bool {
        false
    }

    async fn handle(&self, _consumed: ConsumedEvent<'_>) -> Result<Vec<Effect>, HandlerFault> {
        Ok(Vec::new())
    }
}
