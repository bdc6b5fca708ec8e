//! The cluster as a whole: its metadata, the installation's topics and their replicas, and the health probe.
mod client;
mod further_topics;
pub(crate) mod probe;
pub(crate) mod replicas;
mod topic_creation;
mod topic_failures;
pub(crate) mod watcher;
