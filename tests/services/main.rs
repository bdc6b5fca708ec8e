//! Stories beside real PostgreSQL, Apache Kafka and Redis: those of `tests/service` on other ground, then what only several processes and
//! services that fail can show.
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
#[path = "../service/relay.rs"]
mod relay;
#[path = "../service/trouble.rs"]
mod trouble;

mod book;
mod chaos;
mod clients;
mod fault;
mod fleet;
mod ground;
mod instances;
mod laws;
mod limits;
mod matrix;
mod matrix_outages;
mod meter;
mod pressure;
mod promotion;
mod proxy;
mod reader;
mod recovery;
mod region;
mod rolling;
mod services;
mod sql;
mod verdict;
mod verdict_tests;
