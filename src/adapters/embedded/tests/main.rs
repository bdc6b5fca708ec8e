//! What the embedded store promises beyond the ports' conformance suites: its folder, its one writer, its crashes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod failures;
mod folder;
mod log;
mod owners;
mod poison;
mod relay;
mod support;
