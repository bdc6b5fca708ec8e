//! Orders in Redis: their text form and the store's port.
pub(crate) mod order_json;
pub(crate) mod order_store;
