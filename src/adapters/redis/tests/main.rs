//! What Redis is used for, against real servers: the ports' conformance suites, and what outages, restarts and strange values do to them.
//!
//! The suites need a server to share, named by `POSTHASTE_TEST_REDIS`; trials that kill or starve a server start their own.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod conformance;
mod epochs;
mod keys;
mod limits;
mod outages;
mod server;
mod store;
mod support;
