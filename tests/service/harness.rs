//! Shared code of the tests: processes of the service, HTTP clients, load, and checks of the event log. `tests/services` and `tests/redis`
//! include these files together with a `backend` of their own.
pub mod actors;
pub mod backend;
pub mod collector;
pub mod console_browser;
pub mod endpoint;
pub mod event_log;
pub mod external_events;
pub mod http;
pub mod load;
pub mod metrics;
pub mod ports;
pub mod process;
mod topic_tail;
