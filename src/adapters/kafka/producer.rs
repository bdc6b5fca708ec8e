//! Publishing: one transactional producer per session, its transactions, and sending without transactions.
mod abort_report;
mod at_least_once;
mod coordinator;
mod delivery_reports;
mod partition_queues;
mod produce;
mod refused_sizes;
pub(crate) mod registry;
mod sender;
mod session;
pub(crate) mod session_batch;
pub(crate) mod session_id;
mod transaction;
mod transactional_producer;
mod unavailable_partitions;
