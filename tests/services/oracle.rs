//! Clients that record the responses they receive, and the checks that compare their records with HTTP, Kafka and the inbox.
pub mod checks;
mod checks_tests;
pub mod client_orders;
pub mod clients;
pub mod evidence;
