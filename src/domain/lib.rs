//! The order and its rules: no clock, no I/O, no serde, no async. Callers pass in times and random bits.
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

pub use error::ChangeRefusal;
pub use event::{EventType, OrderEvent};
pub use hlc::{Hlc, RegionId};
pub use ids::{EventId, OrderId, Subject, WebhookId};
pub use item::{Item, Items, ItemsError};
pub use money::{Money, MoneyError};
pub use order::{ChangeContext, NewOrder, Order, Version};
pub use state::Status;
pub use time::Timestamp;
