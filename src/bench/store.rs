//! Data for a measurement, and the store's statements by themselves.
pub(crate) mod fill;
pub(crate) mod idle_claims;
pub(crate) mod pgbench;
pub(crate) mod row_ages;
pub(crate) mod statements;
pub(crate) mod throwaway;
