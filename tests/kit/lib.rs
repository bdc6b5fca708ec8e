//! Shared test code: the conformance suite of every port, an in-memory reference that passes them all, fault injection, checkers of
//! the guarantees, and factories with a seed. Only tests depend on this crate.

pub mod backend;
pub mod broken;
pub mod checkers;
pub mod clock;
pub mod conformance;
pub mod factories;
pub mod faults;
pub mod murmur2;
pub mod reference;
pub mod wait;

pub use backend::Backend;
pub use clock::{SeededRng, TestClock, TokioClock};
pub use factories::Factory;
pub use reference::Reference;
