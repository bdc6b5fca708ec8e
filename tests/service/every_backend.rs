//! Tests that every backend must pass: `tests/services` and `tests/redis` run the same files on PostgreSQL and on Redis.
#[path = "every_backend/faults/chaos_command.rs"]
mod chaos_command;
mod dead_letters;
mod durability;
mod events;
mod faults;
mod large_orders;
mod lists;
mod log_context;
mod log_summary;
mod metrics;
mod operators;
mod orders;
mod overload;
mod processing_chain;
mod rate_limits;
mod relay;
