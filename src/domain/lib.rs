//! The order and its laws: no clock, no I/O, no serde, no async. Everything that varies is handed in.
#![warn(missing_docs)]

pub mod error;
pub mod event;
pub mod hlc;
pub mod ids;
pub mod item;
pub mod money;
pub mod order;
pub mod state;
pub mod time;

pub use error::Refusal;
pub use event::{Event, EventType};
pub use hlc::{Hlc, RegionId};
pub use ids::{EventId, OrderId, Subject};
pub use item::{Item, Items, ItemsError};
pub use money::{Money, MoneyError};
pub use order::{Change, Order, Placement, Version};
pub use state::Status;
pub use time::Timestamp;
