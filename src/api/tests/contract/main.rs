//! The HTTP contract, tested over fakes of the ports.
#![allow(clippy::unwrap_used, reason = "clippy does not recognise the helpers of tests as tests")]
mod admin;
mod auth;
mod dead_letters;
mod health;
mod openapi;
mod orders;
mod request_order;
mod server;
mod startup;
mod topics;
mod validation;

mod connections {
    pub mod disconnected_clients;
    pub mod pipelined_requests;
    pub mod request_bodies;
    pub mod streamed_responses;
}

mod console {
    pub mod access;
    pub mod actor_pages;
    pub mod dashboard;
    pub mod matching_rows;
    pub mod pages;
    pub mod partition_rows;
    pub mod request_log;
    pub mod row_page;
}

mod support {
    pub mod fake_dispatch;
    pub mod fake_ports;
    pub mod fake_topic_log;
    pub mod test_server;
    pub mod unused_ports;
}
