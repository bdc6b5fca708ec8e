//! Clients that apply load over HTTP, and the figures of what they measured.
pub(crate) mod client;
pub(crate) mod figures;
pub(crate) mod generator;
pub(crate) mod warm_up;
