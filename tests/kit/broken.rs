//! Backends with a deliberate flaw, and the proof that the suites detect it: a suite that passes on one of them does not test its rule.
//! They wrap any backend, the reference as well as a real adapter.

mod backend;
mod broker;
mod cache;
mod consumer_groups;
mod detection;
mod flaw;
mod idempotency;
mod inbox;
mod leases;
mod operators;
mod orders;
mod outbox;
mod probe;
mod rate_limit;
mod redrives;

pub use self::detection::{FlawReport, check_all_flaws, run_suite_with};
pub use self::flaw::Flaw;
