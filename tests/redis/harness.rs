//! Shared code of the tests: the files of `tests/service/harness`, and a backend of their own.
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
#[allow(dead_code, reason = "shared with the tests on PostgreSQL, which need more of it")]
#[path = "../services/harness/kafka.rs"]
mod kafka;
#[path = "../service/harness/load.rs"]
pub mod load;
#[path = "../service/harness/metrics.rs"]
pub mod metrics;
#[path = "../service/harness/ports.rs"]
pub mod ports;
#[path = "../service/harness/process.rs"]
pub mod process;

#[path = "backend.rs"]
pub mod backend;
