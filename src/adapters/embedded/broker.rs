//! The embedded broker: publish, sessions and the topic log.
pub(crate) mod end_offsets;
pub(crate) mod headers;
pub(crate) mod log;
pub(crate) mod publish;
pub(crate) mod sessions;
pub(crate) mod topic_log;
pub(crate) mod topic_reader;
pub(crate) mod topics;
