//! Events of an order: immutable facts that are published.
use crate::hlc::{Hlc, RegionId};
use crate::ids::{EventId, OrderId};
use crate::item::Items;
use crate::state::Status;
use crate::time::Timestamp;

/// Types of events. Closed, so that the compiler finds every `match` that needs a new type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventType {
    /// An order was placed.
    OrderCreated,
    /// An order changed its status, except to CANCELLED.
    OrderStatusChanged,
    /// An order was cancelled, by either of the two requests that cancel.
    OrderCancelled,
}

impl EventType {
    /// Every type, in declaration order.
    pub const ALL: [EventType; 3] = [EventType::OrderCreated, EventType::OrderStatusChanged, EventType::OrderCancelled];

    /// The name in events, headers and stores.
    pub fn as_str(self) -> &'static str {
        match self {
            EventType::OrderCreated => "ORDER_CREATED",
            EventType::OrderStatusChanged => "ORDER_STATUS_CHANGED",
            EventType::OrderCancelled => "ORDER_CANCELLED",
        }
    }

    /// Parses a name that [`EventType::as_str`] returns; case-sensitive.
    pub fn parse(text: &str) -> Option<EventType> {
        EventType::ALL.into_iter().find(|event_type| event_type.as_str() == text)
    }
}

impl std::fmt::Display for EventType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One event of one order, with the order's state after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderEvent {
    /// Id of the event; a repeated delivery carries the same id.
    pub id: EventId,
    /// Order that changed; also the record key, which keeps the order's events in sequence.
    pub order_id: OrderId,
    /// Type of the event.
    pub event_type: EventType,
    /// Time of the change.
    pub occurred_at: Timestamp,
    /// Position among the order's events: its version + 1, so a gap proves a loss.
    pub sequence: u64,
    /// Status of the order after the event.
    pub status: Status,
    /// Version of the order after the event.
    pub version: u64,
    /// Items of the order.
    pub items: Items,
    /// Region that made the change.
    pub region: RegionId,
    /// Hybrid logical clock stamp of the change.
    pub hlc: Hlc,
}
