//! The tests of `tests/service` with Redis as the only store and Kafka as the broker, and the cases that only such a store has: a Redis
//! that is killed, a Redis that may lose data, an instance name that is held.
#[path = "../service/check.rs"]
mod check;
#[path = "../service/dead_letters.rs"]
mod dead_letters;
#[path = "../service/durability.rs"]
mod durability;
#[path = "../service/faults.rs"]
mod faults;
#[path = "../service/http.rs"]
mod http;
#[path = "../service/load.rs"]
mod load;
#[path = "../service/operators.rs"]
mod operators;
#[path = "../service/orders.rs"]
mod orders;
#[path = "../service/process.rs"]
mod process;
#[allow(dead_code, reason = "shared with the tests on PostgreSQL, which use more of it")]
#[path = "../services/reader.rs"]
mod reader;
#[path = "../service/relay.rs"]
mod relay;
#[path = "../service/trouble.rs"]
mod trouble;

mod ground;
mod instance_name;
mod instances;
mod kills;
