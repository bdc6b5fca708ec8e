//! The service under measurement: its process, its metrics page, and the check of its published events.
mod log_reader;
pub(crate) mod metrics_page;
pub(crate) mod process;
pub(crate) mod topic_checker;
