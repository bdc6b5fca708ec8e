//! Clients that record the responses they receive, and the checks that compare their records with HTTP, Kafka and the inbox.
pub mod checks;
mod checks_tests;
pub mod client_orders;
pub mod clients;
pub mod event_clients;
pub mod evidence;
mod external_checks;
mod external_checks_tests;
pub mod sql_writers;
