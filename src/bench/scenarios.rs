//! The scenarios, with one file for each.
pub(crate) mod create;
pub(crate) mod end_to_end;
pub(crate) mod held;
pub(crate) mod latency;
pub(crate) mod overload;
pub(crate) mod peers;
pub(crate) mod publish;
pub(crate) mod relay;
pub(crate) mod waiting;
