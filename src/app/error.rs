//! Errors of commands and queries. Only `api/error.rs` maps them to HTTP statuses.
use crate::admission::write_gate::WriteGateClosed;

/// Why a command failed. Every variant but `Unknown` means that nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The write gate is closed for now; nothing was changed.
    #[error("writes are held back: {0}")]
    Gated(WriteGateClosed),
    /// Another request with this idempotency key is still running.
    #[error("a request with this idempotency key is still running")]
    KeyRunning,
    /// The idempotency key was used with another request body.
    #[error("this idempotency key was used with another body")]
    KeyReused,
    /// The order does not exist or is not visible to the caller; clients cannot distinguish the two.
    #[error("no such order")]
    NotFound,
    /// `If-Match` does not match the present version.
    #[error("the order is at version {current}")]
    PreconditionFailed {
        /// Present version of the order.
        current: u64,
    },
    /// The order's rules or its version forbid the change.
    #[error("{0}")]
    Conflict(String),
    /// Another region changed the order with a stamp too far ahead of the local clock.
    #[error("{0}")]
    RegionConflict(String),
    /// The actor's mailbox is full; nothing was changed.
    #[error("too many commands are waiting")]
    Busy,
    /// The actor stopped before it called the store; nothing was changed.
    #[error("the order's actor is restarting")]
    ActorDown,
    /// The command passed its deadline before the store was called; nothing was changed.
    #[error("the command waited past its deadline")]
    Expired,
    /// A dependency is not available; nothing was changed.
    #[error("a dependency is not available: {0}")]
    Unavailable(String),
    /// The store's storage is full; nothing was changed.
    #[error("no space left: {0}")]
    StorageFull(String),
    /// The outcome is unknown: the command may have changed the order.
    #[error("the outcome is not known: {0}")]
    Unknown(String),
}

impl From<ports::Error> for CommandError {
    fn from(error: ports::Error) -> Self {
        match error {
            ports::Error::Unknown(_) => Self::Unknown(error.to_string()),
            ports::Error::Full(detail) => Self::StorageFull(detail),
            _ => Self::Unavailable(error.to_string()),
        }
    }
}

/// Why a query or an operator action failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// The item does not exist or is not visible to the caller.
    #[error("not found")]
    NotFound,
    /// The item's state does not allow the action.
    #[error("{0}")]
    Conflict(String),
    /// A dependency is not available.
    #[error("a dependency is not available: {0}")]
    Unavailable(String),
    /// The outcome of an operator action is unknown: it may have changed something.
    #[error("the outcome is not known: {0}")]
    Unknown(String),
    /// An operator action failed after a part of it was done.
    #[error("{done}; then it failed: {cause}")]
    PartlyDone {
        /// Effects that are certain, for the operator.
        done: String,
        /// The failure of the part that followed; that part may have changed something, too.
        cause: String,
    },
}

impl QueryError {
    /// Adds to the failure of an action the part of the action that was done before it.
    #[must_use]
    pub fn after(self, done: impl Into<String>) -> Self {
        let before = done.into();
        match self {
            Self::PartlyDone { done, cause } => Self::PartlyDone { done: format!("{before}; {done}"), cause },
            other => Self::PartlyDone { done: before, cause: other.to_string() },
        }
    }

    /// Whether the action may have changed something.
    pub fn may_have_changed(&self) -> bool {
        match self {
            Self::NotFound | Self::Conflict(_) | Self::Unavailable(_) => false,
            Self::Unknown(_) | Self::PartlyDone { .. } => true,
        }
    }
}

impl From<ports::Error> for QueryError {
    fn from(error: ports::Error) -> Self {
        match error {
            ports::Error::Unknown(detail) => Self::Unknown(detail),
            _ => Self::Unavailable(error.to_string()),
        }
    }
}
