//! The tests of `tests/service/every_backend` on PostgreSQL, Kafka and Redis.
#[path = "../service/every_backend/faults/chaos_command.rs"]
mod chaos_command;
#[path = "../service/every_backend/dead_letters.rs"]
mod dead_letters;
#[path = "../service/every_backend/durability.rs"]
mod durability;
#[path = "../service/every_backend/faults.rs"]
mod faults;
#[path = "../service/every_backend/large_orders.rs"]
mod large_orders;
#[path = "../service/every_backend/lists.rs"]
mod lists;
#[path = "../service/every_backend/log_context.rs"]
mod log_context;
#[path = "../service/every_backend/metrics.rs"]
mod metrics;
#[path = "../service/every_backend/operators.rs"]
mod operators;
#[path = "../service/every_backend/orders.rs"]
mod orders;
#[path = "../service/every_backend/overload.rs"]
mod overload;
#[path = "../service/every_backend/processing_chain.rs"]
mod processing_chain;
#[path = "../service/every_backend/rate_limits.rs"]
mod rate_limits;
#[path = "../service/every_backend/relay.rs"]
mod relay;
#[path = "../service/every_backend/events/topic_dead_letters.rs"]
mod topic_dead_letters;
#[path = "../service/every_backend/events/topic_rules.rs"]
mod topic_rules;
