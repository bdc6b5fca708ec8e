//! What changes orders. Each command is one function: gate, look, decide in the domain, one commit.
pub mod change_order;
pub mod create_order;
mod desk;
pub mod promote_pending;

pub use desk::{Desk, Options, Reach};
