//! Guarantees of the embedded store beyond the conformance suites: its folder, its single writer, its crashes.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue should stop")]

mod archive;
mod data_loss;
mod failures;
mod folder;
mod log;
mod owners;
mod poison;
mod readers;
mod relay;
mod support;
mod times_ahead;
