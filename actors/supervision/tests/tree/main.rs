//! Supervision, seen from outside: what the events, the answers and the snapshot say. In virtual time, except where another thread
//! takes part.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod world;

mod arbiters;
mod chaos;
mod children;
mod escalation;
mod events;
mod faults;
mod inbox;
mod restarts;
mod starts;
mod stopping;
mod strategies;
mod watch;
