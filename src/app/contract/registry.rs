//! The registry of the events' contracts, keyed by type and schema version: how a value is written and read, which states of the order it
//! may carry, and the values that were released.
use domain::{EventType, OrderEvent, Status};

use super::event::{ContractError, DecodedEvent, OrderAfterEvent};
use super::{v1, v2};

/// The contract of one event type in one schema version.
#[derive(Debug)]
pub struct EventContract {
    /// Type of the event.
    pub event_type: EventType,
    /// Version of its schema.
    pub version: u32,
    /// Released values, byte for byte as they are in topics. Every later release accepts them.
    pub samples: &'static [&'static str],
    encode: fn(&OrderEvent) -> Vec<u8>,
}

macro_rules! contracts {
    ($($event_type:ident $version:literal $codec:ident [$($sample:literal),+];)+) => {
        /// Every contract. Released ones never change: add the next version's.
        static REGISTRY: &[EventContract] = &[$(EventContract {
            event_type: EventType::$event_type,
            version: $version,
            samples: &[$(include_str!(concat!("released/", $sample, ".json"))),+],
            encode: $codec::encode,
        }),+];

        /// Names of the files of samples, for the test that finds files without a contract.
        #[cfg(test)]
        pub(super) const SAMPLE_FILES: &[&str] = &[$($(concat!($sample, ".json")),+),+];
    };
}

contracts! {
    OrderCreated 1 v1 ["order_created_v1"];
    OrderStatusChanged 1 v1 ["order_status_changed_v1"];
    OrderCancelled 1 v1 ["order_cancelled_v1"];
    OrderCreated 2 v2 ["order_created_v2", "order_created_exact_prices_v2"];
    OrderStatusChanged 2 v2 ["order_status_changed_v2"];
    OrderCancelled 2 v2 ["order_cancelled_v2"];
}

/// Every contract, older schema versions first.
pub fn contracts() -> &'static [EventContract] {
    REGISTRY
}

/// The contract of a type in a schema version.
///
/// # Errors
/// [`ContractError::Unregistered`] when this type has no such version.
pub fn contract(event_type: EventType, version: u32) -> Result<&'static EventContract, ContractError> {
    let registered = REGISTRY.iter().find(|contract| contract.event_type == event_type && contract.version == version);
    registered.ok_or(ContractError::Unregistered { event_type, version })
}

impl EventContract {
    /// Encodes an event of this type. The typed event is legal by construction, so that the value needs no further check.
    pub fn encode(&self, event: &OrderEvent) -> Vec<u8> {
        (self.encode)(event)
    }

    /// Checks that the type, the status and the version of a decoded value fit together.
    pub(super) fn check(&self, event: &DecodedEvent) -> Result<(), ContractError> {
        let Some(OrderAfterEvent { status, version }) = event.after else { return Ok(()) };
        let legal = match self.event_type {
            EventType::OrderCreated => status == Status::Pending && version == 0,
            EventType::OrderStatusChanged => !matches!(status, Status::Pending | Status::Cancelled) && version > 0,
            EventType::OrderCancelled => status == Status::Cancelled && version > 0,
        };
        if legal {
            return Ok(());
        }
        Err(ContractError::Illegal(format!(
            "{} of an order that is {} at version {version}",
            self.event_type,
            status.as_str()
        )))
    }
}
