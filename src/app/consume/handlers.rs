//! Event handlers, one per event type: pure functions from a consumed event to effects as data.
use std::sync::Arc;

use domain::EventType;
use ports::inbox::Effect;

use crate::contract::DecodedEvent;

/// Why a handler failed. The message goes to the next retry topic, or to the dead-letter topic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct HandlerFault {
    /// Whether a later attempt may succeed.
    pub retryable: bool,
    /// Message for operators, stored in a header.
    pub reason: String,
}

/// Handler of one event type.
pub trait EventHandler: Send + Sync {
    /// Whether a key's events must be handled in order, also when one of them is retried.
    fn needs_order(&self) -> bool;

    /// Returns the effects of an event. A retry calls it again, so it must be deterministic and without side effects.
    ///
    /// # Errors
    /// The event cannot be handled, for now or ever.
    fn handle(&self, event: &DecodedEvent) -> Result<Vec<Effect>, HandlerFault>;
}

/// Handler without effects: the inbox records the event, and consuming does not change the order (PendingPromoter does).
struct RecordOnly;

impl EventHandler for RecordOnly {
    fn needs_order(&self) -> bool {
        false
    }

    fn handle(&self, _event: &DecodedEvent) -> Result<Vec<Effect>, HandlerFault> {
        Ok(Vec::new())
    }
}

/// The handler of each event type.
#[derive(Clone)]
pub struct Handlers {
    created: Arc<dyn EventHandler>,
    status_changed: Arc<dyn EventHandler>,
    cancelled: Arc<dyn EventHandler>,
}

impl Default for Handlers {
    fn default() -> Self {
        let record: Arc<dyn EventHandler> = Arc::new(RecordOnly);
        Self { created: Arc::clone(&record), status_changed: Arc::clone(&record), cancelled: record }
    }
}

impl Handlers {
    /// Replaces the handler of an event type.
    #[must_use]
    pub fn with(mut self, kind: EventType, handler: Arc<dyn EventHandler>) -> Self {
        match kind {
            EventType::OrderCreated => self.created = handler,
            EventType::OrderStatusChanged => self.status_changed = handler,
            EventType::OrderCancelled => self.cancelled = handler,
        }
        self
    }

    /// The handler of an event type.
    pub fn of(&self, kind: EventType) -> &dyn EventHandler {
        match kind {
            EventType::OrderCreated => &*self.created,
            EventType::OrderStatusChanged => &*self.status_changed,
            EventType::OrderCancelled => &*self.cancelled,
        }
    }
}
