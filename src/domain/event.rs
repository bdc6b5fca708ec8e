//! What happened to an order, as a fact that leaves the house.
use crate::hlc::{Hlc, RegionId};
use crate::ids::{EventId, OrderId};
use crate::item::Items;
use crate::state::Status;
use crate::time::Timestamp;

/// The kinds of facts there are. Closed: the compiler points at every place that must know a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventType {
    /// An order was placed.
    OrderCreated,
    /// An order moved on in its life.
    OrderStatusChanged,
    /// An order was withdrawn, whichever way it was asked.
    OrderCancelled,
}

impl EventType {
    /// Every type.
    pub const ALL: [EventType; 3] = [EventType::OrderCreated, EventType::OrderStatusChanged, EventType::OrderCancelled];

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            EventType::OrderCreated => "ORDER_CREATED",
            EventType::OrderStatusChanged => "ORDER_STATUS_CHANGED",
            EventType::OrderCancelled => "ORDER_CANCELLED",
        }
    }

    /// Reads the name on the wire.
    pub fn parse(text: &str) -> Option<EventType> {
        EventType::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

impl std::fmt::Display for EventType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One fact about one order, with the order as it stood right after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The fact's own name; a second delivery carries the same.
    pub id: EventId,
    /// Whose fact it is; also the key that keeps its place in line.
    pub order_id: OrderId,
    /// What happened.
    pub kind: EventType,
    /// When.
    pub occurred_at: Timestamp,
    /// Place in the order's own line: its version + 1, so a gap proves a loss.
    pub sequence: u64,
    /// The order's state afterwards.
    pub status: Status,
    /// The order's version afterwards.
    pub version: u64,
    /// The order's lines.
    pub items: Items,
    /// The region that made the change.
    pub region: RegionId,
    /// The change's stamp.
    pub hlc: Hlc,
}
