//! Changes that the rules of an order refuse. A refused change leaves the order as it was.
use crate::state::Status;

/// A change that the order's rules forbid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeRefusal {
    /// The status may not follow the present one; the caller may read the order and choose another.
    #[error("an order that is {from} cannot become {to}")]
    IllegalTransition {
        /// Present status of the order.
        from: Status,
        /// Status that the caller asked for.
        to: Status,
    },
    /// The caller expected another version; it should read the order again.
    #[error("the order is at version {current}, not the expected one")]
    StaleVersion {
        /// Version that the caller expected.
        expected: u64,
        /// Present version of the order.
        current: u64,
    },
}
