//! The outbox in Redis: its port and the form of its rows.
mod outbox_store;
pub(crate) mod row;
