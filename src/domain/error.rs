//! Why the domain says no. Every refusal leaves the order as it was.
use crate::state::Status;

/// A change the order's laws forbid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The table of legal moves has no such move; the caller may read the order and choose another.
    #[error("an order that is {from} cannot become {to}")]
    IllegalMove {
        /// Where the order stands.
        from: Status,
        /// Where it was asked to go.
        to: Status,
    },
    /// The caller looked at an older version; it should read again.
    #[error("the order is at version {current}, not {expected}")]
    StaleVersion {
        /// The version the caller named.
        expected: u64,
        /// The version the order has.
        current: u64,
    },
}
