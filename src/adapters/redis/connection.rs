//! The handle of one Redis server: its options, pool, calls, maintenance task and probe.
pub(crate) mod address;
pub(crate) mod call;
pub(crate) mod client;
pub(crate) mod error;
pub(crate) mod keys;
mod maintenance;
mod open;
pub(crate) mod open_error;
pub(crate) mod options;
mod probe;
mod scripts;
pub(crate) mod shared_connection;
mod warn_once;
