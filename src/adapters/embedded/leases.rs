//! Members and partition leases.
pub(crate) mod lease;
pub(crate) mod store;
