//! Tests of several instances, outages and the failure matrix on real services.
mod backpressure;
mod benches;
mod doctor;
mod failure_matrix;
mod guarantees;
mod instances;
mod legacy_keys;
mod objectives;
mod outages;
mod promotion;
mod rate_limit;
mod recovery;
mod region;
mod rolling_restart;
mod standby;
