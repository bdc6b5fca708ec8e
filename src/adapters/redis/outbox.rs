//! The outbox in Redis: its port and the form of its rows.
mod index_audit;
mod outbox_store;
mod publish;
pub(crate) mod row;
