//! The conformance suites: one per port, one case per rule. A case's name states the rule; the case panics where a backend breaks it.
//!
//! A backend crate writes one line per port and gets one `#[test]` per case:
//! ```text
//! kit::conformance_suite!(outbox, MyBackend);
//! ```
#[macro_use]
pub mod suite;

pub mod broker;
pub mod cache;
pub mod consumer_groups;
mod fixture;
pub mod idempotency;
pub mod inbox;
pub mod operators;
pub mod orders;
pub mod outbox;
pub mod partitions;
pub mod probe;
pub mod rate_limit;
pub mod redrives;
pub mod topics;

pub use self::operators::webhooks;
pub use self::outbox::event_store as events;
