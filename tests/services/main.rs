//! Tests on real PostgreSQL, Apache Kafka and Redis: those of `tests/service` on another backend, then those that need several processes
//! or a service that fails.
mod chaos;
mod cluster;
mod every_backend;
mod harness;
mod migrate;
mod oracle;
mod stories;
