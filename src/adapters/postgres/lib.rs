//! The store on PostgreSQL: orders, outbox, leases, inbox and keys in one database that several instances share.
//!
//! Commits queue up and share transactions; claims and settlements are one statement each, fenced by the partition's lease row. Time is
//! the database's alone. Every statement knows whether a lost answer may have changed something, and says so.
#![warn(missing_docs)]

mod address;
mod batch;
mod checkup;
mod claim;
mod claimed_row;
mod columns;
mod committer;
mod days;
mod depth;
mod dial;
mod error;
mod exclude;
mod find_out;
mod group;
mod idempotency;
mod inbox;
mod instance;
mod lease;
mod leases;
mod low;
mod migrations;
mod open_error;
mod operate;
mod operators;
mod options;
mod order_row;
mod orders;
mod outbox;
mod probe;
mod question;
mod redrives;
mod resolve;
mod row_view;
mod session;
mod settle;
mod standing;
mod store;
mod sweep;
pub mod throwaway;
mod tls;
mod value;
mod waiting;
mod wakes;

pub use checkup::Checkup;
pub use instance::Lost;
pub use migrations::Migration;
pub use open_error::OpenError;
pub use options::Options;
pub use probe::StoreProbe;
pub use store::{Postgres, migrate, status};
