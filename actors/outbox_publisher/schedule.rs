//! The order in which partitions run.
pub mod partition_schedule;

#[cfg(test)]
mod tests;
