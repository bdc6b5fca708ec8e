//! The order in which partitions run.
pub mod turns;

#[cfg(test)]
mod tests;
