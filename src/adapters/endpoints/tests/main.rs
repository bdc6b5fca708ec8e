//! HttpEndpoint against a server that responds, or fails, as each test says.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod calls;
mod collector;
mod private_authority;
mod test_server;
mod webhooks;
