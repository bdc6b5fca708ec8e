//! Random failures under load: a schedule from a seed, and its execution.
pub mod injection;
pub mod schedule;
