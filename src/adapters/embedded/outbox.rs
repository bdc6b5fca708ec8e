//! The outbox: claim, exclude, settle, resolve and sweep.
pub(crate) mod blocked_keys;
pub(crate) mod claim;
pub(crate) mod claim_plan;
pub(crate) mod counts;
pub(crate) mod exclude;
pub(crate) mod open_batch;
pub(crate) mod outbox_store;
pub(crate) mod publish;
pub(crate) mod resolve;
pub(crate) mod settle;
pub(crate) mod sweep;
