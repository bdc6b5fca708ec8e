//! Tests of the store on a real PostgreSQL server; each test has a database of its own.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod acquisitions;
mod archive {
    mod days;
    mod upgrade;
}
mod commits;
mod conformance;
mod debezium_view;
mod instance_id_lease;
mod migrations;
mod outages;
mod proxy;
mod relay {
    mod adopt;
    mod claim_sizes;
    pub mod claims;
    mod consume_example;
    #[path = "../../../../../examples/publish/rust/customer_service.rs"]
    mod customer_service;
    mod examples;
    pub mod fixture;
    #[path = "../../../../../examples/consume/rust/inbox_consumer.rs"]
    mod inbox_consumer;
    pub mod migration_files;
    mod open_batches;
    mod publish;
    mod publish_in_transaction;
    mod publish_upgrade;
    mod rounds;
    mod rounds_with_faults;
    mod scan_starts;
    mod upgrade;
}
mod support;
mod timeline;
mod tls;
mod wake_channel;
