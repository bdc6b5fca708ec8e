//! Operators' queries and statements.
pub(crate) mod actions;
pub(crate) mod audit;
pub(crate) mod diagnosis;
pub(crate) mod outbox_operators;
pub(crate) mod redrive_ledger;
pub(crate) mod rows;
pub(crate) mod webhooks;
