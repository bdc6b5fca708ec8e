//! The outbox in Redis: its port and the form of its rows.
mod index_audit;
mod outbox_store;
pub(crate) mod row;
