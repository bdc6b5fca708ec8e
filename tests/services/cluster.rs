//! Several instances of the service on one backend.
pub mod fleet;
