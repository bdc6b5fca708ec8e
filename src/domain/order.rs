//! The order aggregate and its rules. A change returns the new order and the event that records it.
use crate::error::ChangeRefusal;
use crate::event::{EventType, OrderEvent};
use crate::hlc::{Hlc, RegionId};
use crate::ids::{EventId, OrderId, Subject};
use crate::item::Items;
use crate::state::Status;
use crate::time::Timestamp;

/// Counts an order's changes: 0 when placed, one more for each change.
pub type Version = u64;

/// A version of an order. [`Order::place`] and the changes create versions; stores rebuild them field by field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// UUID v7 whose timestamp is `created_at`.
    pub id: OrderId,
    /// Subject that placed the order.
    pub owner: Subject,
    /// State in the order's life cycle.
    pub status: Status,
    /// Number of changes since the order was placed.
    pub version: Version,
    /// Time at which the order was placed; its id carries the same instant.
    pub created_at: Timestamp,
    /// Time of the last change; never decreases.
    pub updated_at: Timestamp,
    /// Items of the order; they never change.
    pub items: Items,
    /// Region that made the last change.
    pub region: RegionId,
    /// Hybrid logical clock stamp of the last change.
    pub hlc: Hlc,
}

/// A new order for [`Order::place`]: ids, owner, items and region; status, version and times follow from the placement.
#[derive(Clone, Debug)]
pub struct NewOrder {
    /// Id of the new order.
    pub id: OrderId,
    /// Id of its `ORDER_CREATED` event.
    pub event_id: EventId,
    /// Subject that places the order.
    pub owner: Subject,
    /// Items of the order.
    pub items: Items,
    /// Region that places the order.
    pub region: RegionId,
    /// Time at which it is placed.
    pub now: Timestamp,
    /// Time from which the order's HLC stamp is computed: `now`, or the wall clock's time where `now` is too far ahead of it.
    pub physical_time: Timestamp,
    /// Greatest stamp that was received from another region; the order's stamp is greater.
    pub received: Hlc,
}

/// Event id, region and times of a change.
#[derive(Clone, Debug)]
pub struct ChangeContext {
    /// Id of the event that records the change.
    pub event_id: EventId,
    /// Region that makes the change.
    pub region: RegionId,
    /// Time of the change.
    pub now: Timestamp,
    /// Time from which the change's HLC stamp is computed: `now`, or the wall clock's time where `now` is too far ahead of it, because other regions
    /// reject such a stamp.
    pub physical_time: Timestamp,
    /// Greatest stamp that was received from another region; the change's stamp is greater.
    pub received: Hlc,
}

impl Order {
    /// Places an order: version 0, PENDING.
    pub fn place(new_order: NewOrder) -> (Order, OrderEvent) {
        let NewOrder { id, event_id, owner, items, region, now, physical_time, received } = new_order;
        let order = Order {
            id,
            owner,
            status: Status::Pending,
            version: 0,
            created_at: now,
            updated_at: now,
            items,
            region,
            hlc: received.tick(physical_time),
        };
        let event = order.event(EventType::OrderCreated, event_id);
        (order, event)
    }

    /// Changes the status. A change to CANCELLED is the same as [`Order::cancel`] and records the same event.
    ///
    /// # Errors
    /// [`ChangeRefusal::IllegalTransition`] when the status may not follow the present one; nothing changes.
    pub fn change_status(&self, to: Status, change: ChangeContext) -> Result<(Order, OrderEvent), ChangeRefusal> {
        if !self.status.may_become(to) {
            return Err(ChangeRefusal::IllegalTransition { from: self.status, to });
        }
        let order = Order {
            status: to,
            version: self.version + 1,
            // A wall clock that was set back must not decrease `updated_at`.
            updated_at: change.now.max(self.updated_at),
            region: change.region,
            hlc: self.hlc.max(change.received).tick(change.physical_time),
            ..self.clone()
        };
        let event_type =
            if to == Status::Cancelled { EventType::OrderCancelled } else { EventType::OrderStatusChanged };
        let event = order.event(event_type, change.event_id);
        Ok((order, event))
    }

    /// Cancels the order; legal only while it is PENDING.
    ///
    /// # Errors
    /// The same as [`Order::change_status`].
    pub fn cancel(&self, change: ChangeContext) -> Result<(Order, OrderEvent), ChangeRefusal> {
        self.change_status(Status::Cancelled, change)
    }

    /// Checks that the caller expects the present version.
    ///
    /// # Errors
    /// [`ChangeRefusal::StaleVersion`] when the order is at another version.
    pub fn check_version(&self, expected: Version) -> Result<(), ChangeRefusal> {
        if self.version == expected {
            return Ok(());
        }
        Err(ChangeRefusal::StaleVersion { expected, current: self.version })
    }

    fn event(&self, event_type: EventType, id: EventId) -> OrderEvent {
        OrderEvent {
            id,
            order_id: self.id,
            event_type,
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
