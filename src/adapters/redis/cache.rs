//! The order cache that instances share.
pub(crate) mod epoch;
mod list_cache;
mod order_cache;
