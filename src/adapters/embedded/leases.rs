//! Cluster membership and partition leases in SQLite: rules and statements of the port `PartitionLeases`.
pub(crate) mod lease;
pub(crate) mod partition_leases;
