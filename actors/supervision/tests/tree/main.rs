//! Supervision through its public API: events, replies and snapshots. In virtual time, except where another thread
//! takes part.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod fixture;

mod arbiters;
mod chaos;
mod children;
mod drain_hooks;
mod escalation;
mod events;
mod faults;
mod mailbox;
mod restarts;
mod shutdown;
mod starts;
mod strategies;
mod watchdog;
