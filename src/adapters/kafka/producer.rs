//! Publishing: one transactional producer per session, its transactions, and sending without transactions.
mod at_least_once;
mod delivery_reports;
mod refused_sizes;
pub(crate) mod registry;
mod sender;
mod session;
pub(crate) mod session_batch;
pub(crate) mod session_id;
mod transaction;
