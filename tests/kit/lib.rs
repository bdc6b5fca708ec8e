//! What tests share: the conformance suite of every port, a reference in memory that keeps them all, faults to inject, checkers of the
//! invariants, and factories whose entropy is seeded. A dev-dependency only: nothing of it ships.

pub mod backend;
pub mod broken;
mod broken_broker;
mod broken_small;
mod broken_store;
pub mod checkers;
pub mod clock;
pub mod conformance;
pub mod factories;
pub mod faults;
mod faults_broker;
mod faults_store;
pub mod murmur;
pub mod reference;
mod reference_broker;
mod reference_claims;
mod reference_inbox;
mod reference_leases;
mod reference_operators;
mod reference_orders;
mod reference_outbox;
mod reference_redrives;
mod reference_small;
mod reference_source;
pub mod wait;

pub use backend::Backend;
pub use clock::{SeededDice, TestClock, TokioClock};
pub use factories::Factory;
pub use reference::Reference;
