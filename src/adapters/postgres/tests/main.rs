//! The store on PostgreSQL, tested on a real server: each case has a database of its own.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod archive;
mod commits;
mod conformance;
mod instance;
mod migrations;
mod proxy;
mod relay;
mod support;
mod tls;
mod trouble;
mod wakes;
