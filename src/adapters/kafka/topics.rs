//! Reading topics outside any consumer group: records for operators, and watermarks.
mod partition_reader;
pub(crate) mod pending_watermarks;
pub(crate) mod query_thread;
mod topic_reader;
pub(crate) mod watermark_cache;
