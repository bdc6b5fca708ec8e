//! Shared code of the tests: the files of `tests/service/harness`, and helpers for several instances on real services.
#[path = "../service/harness/actors.rs"]
pub mod actors;
#[path = "../service/harness/collector.rs"]
pub mod collector;
#[path = "../service/harness/endpoint.rs"]
pub mod endpoint;
#[path = "../service/harness/event_log.rs"]
pub mod event_log;
#[path = "../service/harness/external_events.rs"]
pub mod external_events;
#[path = "../service/harness/http.rs"]
pub mod http;
#[path = "../service/harness/load.rs"]
pub mod load;
#[path = "../service/harness/metrics.rs"]
pub mod metrics;
#[path = "../service/harness/ports.rs"]
pub mod ports;
#[path = "../service/harness/process.rs"]
pub mod process;

pub mod backend;
pub mod database;
pub mod database_server;
mod kafka;
pub mod proxy;
pub mod replicated_database;
pub mod service_control;
pub mod stop_flag_guard;
