//! Data for a measurement, and measurements of the store's statements alone.
pub(crate) mod fill;
pub(crate) mod idle_claims;
pub(crate) mod pgbench;
pub(crate) mod row_ages;
pub(crate) mod statements;
pub(crate) mod throwaway;
