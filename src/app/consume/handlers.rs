//! What consuming an event means, per type: a pure function from the event to effects as data.
use std::sync::Arc;

use domain::EventType;
use ports::inbox::Effect;

use crate::contract::DecodedEvent;

/// Why a handler did not take an event. Retry topics, then the dead letters, take care of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct HandlerFault {
    /// Whether another try may help.
    pub retryable: bool,
    /// Why.
    pub reason: String,
}

/// One type's handler.
pub trait EventHandler: Send + Sync {
    /// Whether a key's events must be taken in order, also when one of them is retried.
    fn needs_order(&self) -> bool;

    /// The effects of an event. Called again when it is retried: must not depend on having been called before.
    ///
    /// # Errors
    /// The event cannot be taken now, or never.
    fn handle(&self, event: &DecodedEvent) -> Result<Vec<Effect>, HandlerFault>;
}

/// Records that the event was seen, which `processed_events` does by itself: the order's life is not changed by consuming
/// (PendingPromoter does that, on its own rate).
struct Record;

impl EventHandler for Record {
    fn needs_order(&self) -> bool {
        false
    }

    fn handle(&self, _event: &DecodedEvent) -> Result<Vec<Effect>, HandlerFault> {
        Ok(Vec::new())
    }
}

/// The handler of each type.
#[derive(Clone)]
pub struct Handlers {
    created: Arc<dyn EventHandler>,
    status_changed: Arc<dyn EventHandler>,
    cancelled: Arc<dyn EventHandler>,
}

impl Default for Handlers {
    fn default() -> Self {
        let record: Arc<dyn EventHandler> = Arc::new(Record);
        Self { created: Arc::clone(&record), status_changed: Arc::clone(&record), cancelled: record }
    }
}

impl Handlers {
    /// Replaces the handler of a type.
    #[must_use]
    pub fn with(mut self, kind: EventType, handler: Arc<dyn EventHandler>) -> Self {
        match kind {
            EventType::OrderCreated => self.created = handler,
            EventType::OrderStatusChanged => self.status_changed = handler,
            EventType::OrderCancelled => self.cancelled = handler,
        }
        self
    }

    /// The handler of a type.
    pub fn of(&self, kind: EventType) -> &dyn EventHandler {
        match kind {
            EventType::OrderCreated => &*self.created,
            EventType::OrderStatusChanged => &*self.status_changed,
            EventType::OrderCancelled => &*self.cancelled,
        }
    }
}
