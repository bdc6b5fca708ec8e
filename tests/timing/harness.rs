//! The files of `tests/service/harness` that measure a service.
#![allow(dead_code, reason = "shared with the tests of the service, which need more of it")]
#[path = "../service/harness/actors.rs"]
pub mod actors;
#[path = "../service/harness/backend.rs"]
pub mod backend;
#[path = "../service/harness/http.rs"]
pub mod http;
#[path = "../service/harness/metrics.rs"]
pub mod metrics;
#[path = "../service/harness/process.rs"]
pub mod process;
