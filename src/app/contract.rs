//! Event schemas: a registry of (type, version) → contract. Every released version stays readable; the latest is written by default.
//! Compatibility is BACKWARD_TRANSITIVE: a reader accepts every version from [`READABLE_MIN`] on and ignores unknown members.
mod checksum;
mod codec;
mod event;
pub mod framing;
mod order_values;
mod registry;
mod schema;
mod time;
pub mod v1;
pub mod v2;

pub use checksum::checksum;
pub use codec::{decode, encode, validate};
pub use event::{ContractError, DecodedEvent, LATEST, OrderAfterEvent, READABLE_MIN};
pub use order_values::order_values;
pub use registry::{EventContract, contract, contracts};
pub use schema::schema;
pub use time::{parse_rfc3339, rfc3339};

#[cfg(test)]
mod tests;
