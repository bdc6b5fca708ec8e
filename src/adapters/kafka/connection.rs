//! The common part of all clients of librdkafka: configuration, the state of the brokers, replacement, threads for blocking calls, failures that several
//! callers share.
pub(crate) mod blocking_call;
pub(crate) mod broker_contact;
pub(crate) mod client_config;
pub(crate) mod client_replacement;
pub(crate) mod message;
pub(crate) mod open_error;
pub(crate) mod shared_failure;
pub(crate) mod topic_metadata;
