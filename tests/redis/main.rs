//! The stories of `tests/service` once more, with Redis as the only store and Kafka behind it; then what only a store in memory can meet:
//! a Redis that is killed, one that may forget, a name that is taken.
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
#[allow(dead_code, reason = "shared with the stories on PostgreSQL, which ask for more")]
#[path = "../services/reader.rs"]
mod reader;
#[path = "../service/relay.rs"]
mod relay;
#[path = "../service/trouble.rs"]
mod trouble;

mod ground;
mod instances;
mod kills;
mod names;
