//! The aggregate: one order, its rules, its single writer. A change returns the new order and the event that tells of it.
use crate::error::Refusal;
use crate::event::{Event, EventType};
use crate::hlc::{Hlc, RegionId};
use crate::ids::{EventId, OrderId, Subject};
use crate::item::Items;
use crate::state::Status;
use crate::time::Timestamp;

/// Counts an order's changes: 0 when placed, one more for each change.
pub type Version = u64;

/// An order as it stands. Made by [`Order::place`] and its changes; stores rebuild it field by field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Its name.
    pub id: OrderId,
    /// Who placed it.
    pub owner: Subject,
    /// Where it stands.
    pub status: Status,
    /// How often it changed.
    pub version: Version,
    /// When it was placed; its id carries the same instant.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// What was ordered; never changes.
    pub items: Items,
    /// The region of the last change.
    pub region: RegionId,
    /// The stamp of the last change.
    pub hlc: Hlc,
}

/// What it takes to place an order.
#[derive(Clone, Debug)]
pub struct Placement {
    /// Name of the new order.
    pub id: OrderId,
    /// Name of the event that tells of it.
    pub event_id: EventId,
    /// Who places it.
    pub owner: Subject,
    /// What is ordered.
    pub items: Items,
    /// The region that takes the order.
    pub region: RegionId,
    /// When.
    pub now: Timestamp,
}

/// The circumstances of a change.
#[derive(Clone, Debug)]
pub struct Change {
    /// Name of the event that tells of it.
    pub event_id: EventId,
    /// The region that makes it.
    pub region: RegionId,
    /// When.
    pub now: Timestamp,
}

impl Order {
    /// Places an order: version 0, PENDING.
    pub fn place(placement: Placement) -> (Order, Event) {
        let Placement { id, event_id, owner, items, region, now } = placement;
        let order = Order {
            id,
            owner,
            status: Status::Pending,
            version: 0,
            created_at: now,
            updated_at: now,
            items,
            region,
            hlc: Hlc::first(now),
        };
        let event = order.tell(EventType::OrderCreated, event_id);
        (order, event)
    }

    /// Moves the order on. CANCELLED obeys the rule of cancelling and tells the same event.
    ///
    /// # Errors
    /// [`Refusal::IllegalMove`] when the table of moves has no such move; nothing changes.
    pub fn change_status(&self, to: Status, change: Change) -> Result<(Order, Event), Refusal> {
        if !self.status.may_become(to) {
            return Err(Refusal::IllegalMove { from: self.status, to });
        }
        let order = Order {
            status: to,
            version: self.version + 1,
            // A wall clock set back must not make an order younger than it was.
            updated_at: change.now.max(self.updated_at),
            region: change.region,
            hlc: self.hlc.tick(change.now),
            ..self.clone()
        };
        let kind = if to == Status::Cancelled { EventType::OrderCancelled } else { EventType::OrderStatusChanged };
        let event = order.tell(kind, change.event_id);
        Ok((order, event))
    }

    /// Withdraws the order; legal only while it is PENDING.
    ///
    /// # Errors
    /// As [`Order::change_status`].
    pub fn cancel(&self, change: Change) -> Result<(Order, Event), Refusal> {
        self.change_status(Status::Cancelled, change)
    }

    /// Whether the caller looked at this very version.
    ///
    /// # Errors
    /// [`Refusal::StaleVersion`].
    pub fn at_version(&self, expected: Version) -> Result<(), Refusal> {
        if self.version == expected {
            return Ok(());
        }
        Err(Refusal::StaleVersion { expected, current: self.version })
    }

    fn tell(&self, kind: EventType, id: EventId) -> Event {
        Event {
            id,
            order_id: self.id,
            kind,
            occurred_at: self.updated_at,
            sequence: self.version + 1,
            status: self.status,
            version: self.version,
            items: self.items.clone(),
            region: self.region.clone(),
            hlc: self.hlc,
        }
    }
}
