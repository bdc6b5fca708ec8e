//! The embedded broker: publish, sessions and the topic log.
pub(crate) mod headers;
pub(crate) mod log;
pub(crate) mod log_state;
pub(crate) mod publish;
pub(crate) mod sessions;
pub(crate) mod topic_admissions;
pub(crate) mod topic_log;
pub(crate) mod topic_reader;
pub(crate) mod topics;
