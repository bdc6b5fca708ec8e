//! The adapter against real servers: the ports' conformance suites, and its behaviour in outages, restarts and with unexpected values.
//!
//! The suites need a shared server, named by `POSTHASTE_TEST_REDIS`; tests that kill or fill a server start their own.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod cache_epochs;
mod encryption;
mod idempotency_keys;
mod outages;
mod rate_limits;
mod server;
mod shared_conformance;
mod store;
mod store_conformance;
mod store_worker;
mod support;
