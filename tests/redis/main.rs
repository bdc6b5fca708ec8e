//! The tests of `tests/service` with Redis as the only store and Kafka as the broker, then those that only a store in memory needs: a Redis
//! that is killed or reconfigured, one that may lose data, a damaged index, a lease that is lost in a batch, an instance id that is in
//! use, and a bench on the Redis of a service.
mod every_backend;
mod harness;
mod index_audit;
mod instance_id;
mod instances;
mod kills;
mod lost_leases;
mod permissions;
mod throwaway_data;
