//! The cluster as a whole: its metadata, the installation's topics and their replicas, and the health probe.
mod additional_topics;
mod client;
mod deleted_topics;
mod existing_topics;
mod partition_warnings;
pub(crate) mod probe;
pub(crate) mod replicas;
mod topic_creation;
mod topic_failures;
pub(crate) mod watcher;
