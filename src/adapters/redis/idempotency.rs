//! Idempotency keys that instances share.
mod legacy_keys;
pub(crate) mod pending_releases;
pub(crate) mod release;
mod shared_keys;
mod store_keys;
pub(crate) mod stored_value;
