//! The tests of `tests/service` with Redis as the only store and Kafka as the broker, then those that only a store in memory needs: a Redis
//! that is killed, one that may lose data, and an instance name that is in use.
mod every_backend;
mod harness;
mod instance_name;
mod instances;
mod kills;
