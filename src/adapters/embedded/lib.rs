//! The default store and broker: every port on one SQLite file and some memory. One process, one data folder, nothing to install.
//!
//! One thread writes and commits in groups: it takes what queued up while the last commit ran, gives each command a savepoint of its
//! own, commits once and then answers all. Readers have connections of their own and never wait for it. The folder's lock file
//! is the fence: whoever holds it is the only service on this file, and the operating system frees it when the process dies.
#![warn(missing_docs)]

mod blocks;
mod book;
mod broker;
mod cache;
mod claim;
mod clock;
mod commit;
mod connect;
mod counts;
mod done;
mod engine;
mod error;
mod exclude;
mod generations;

mod headers;
mod idempotency;
mod inbox;
mod lanes;
mod lease;
mod leases;
mod lock;
mod log;
mod memory;
mod migrations;
mod murmur2;
mod open;
mod open_error;
mod operate;
mod operators;
mod options;
mod order_row;
mod orders;
mod outbox;
mod owners;
mod probe;
mod queue;
mod rate_limit;
mod readers;
mod redrives;
mod resolve;
mod row_view;
mod settle;
mod source;
mod sources;
mod standing;
mod sweep;
mod topics;
mod writer;

#[cfg(test)]
#[path = "tests/writer.rs"]
mod writer_tests;

pub use clock::SystemClock;
pub use memory::{Memory, MemoryOptions};
pub use murmur2::{murmur2, partition_of};
pub use open::Embedded;
pub use open_error::OpenError;
pub use options::{Options, Writing};
pub use probe::{BrokerProbe, StoreProbe};
