//! Connections to the file: the writer with its group commit, the readers, the folder and the schema.
pub(crate) mod completion;
pub(crate) mod folder;
pub(crate) mod free_space;
pub(crate) mod group_commit;
pub(crate) mod migrations;
pub(crate) mod open_error;
pub(crate) mod queue;
pub(crate) mod read_interrupt;
pub(crate) mod readers;
pub(crate) mod settings;
pub(crate) mod times_ahead;
pub(crate) mod wal_limit;
pub(crate) mod writer;

#[cfg(test)]
pub(crate) mod step_count;
#[cfg(test)]
mod tests;
