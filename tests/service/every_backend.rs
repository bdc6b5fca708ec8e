//! Tests that every backend must pass: `tests/services` and `tests/redis` run the same files on PostgreSQL and on Redis.
mod dead_letters;
mod durability;
mod faults;
mod large_orders;
mod metrics;
mod lists;
mod log_context;
mod operators;
mod orders;
mod overload;
mod processing_chain;
mod rate_limits;
mod relay;
