//! Random faults under load: a schedule drawn from a seed, and its execution.
pub mod actor_fault;
pub mod injection;
pub mod schedule;
