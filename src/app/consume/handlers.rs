//! The registry: event type → chain of handlers.
use std::sync::Arc;

use domain::EventType;

use crate::consume::chain::HandlerChain;
use crate::consume::event_handler::RecordOnly;

/// The chain of each event type. A type without a registered chain has one whose handler is [`RecordOnly`].
#[derive(Clone)]
pub struct Handlers {
    created: HandlerChain,
    status_changed: HandlerChain,
    cancelled: HandlerChain,
}

impl Default for Handlers {
    fn default() -> Self {
        let record = HandlerChain::new(Arc::new(RecordOnly));
        Self { created: record.clone(), status_changed: record.clone(), cancelled: record }
    }
}

impl Handlers {
    /// Registers the chain of an event type in place of the former one.
    #[must_use]
    pub fn with(mut self, event_type: EventType, chain: HandlerChain) -> Self {
        match event_type {
            EventType::OrderCreated => self.created = chain,
            EventType::OrderStatusChanged => self.status_changed = chain,
            EventType::OrderCancelled => self.cancelled = chain,
        }
        self
    }

    /// The chain of an event type.
    pub fn chain(&self, event_type: EventType) -> &HandlerChain {
        match event_type {
            EventType::OrderCreated => &self.created,
            EventType::OrderStatusChanged => &self.status_changed,
            EventType::OrderCancelled => &self.cancelled,
        }
    }
}
