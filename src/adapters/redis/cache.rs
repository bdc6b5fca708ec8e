//! The order cache that instances share.
pub(crate) mod epoch;
mod order_cache;
