//! Reading topics outside any consumer group: records for operators, and watermarks.
pub(crate) mod group_members;
pub(crate) mod group_offsets;
mod partition_reader;
pub(crate) mod pending_watermarks;
pub(crate) mod query_thread;
pub(crate) mod topic_kind;
mod topic_reader;
pub(crate) mod watermark_cache;
