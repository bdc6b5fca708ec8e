//! The default store and broker: every durable port on one SQLite file. One process, one data folder, nothing to install.
//!
//! One thread writes and commits in groups: it takes the commands that queued up while the last commit ran, gives each command that can
//! fail after its first write a savepoint, commits once and then replies to all of them. Readers have their own connections and never wait for
//! the writer. The lock of the folder is the fence: its holder is the only service on this file, and the operating system releases it when the
//! process dies.
#![warn(missing_docs)]

mod broker;
mod connection;
mod consumer;
mod error;
mod leases;
mod operators;
mod options;
mod orders;
mod outbox;
mod probe;
mod store;
mod units;

pub use connection::open_error::OpenError;
pub use options::{Options, WriterMode};
pub use probe::{BrokerProbe, StoreProbe};
pub use store::Embedded;
