//! How a command or a query ends when it does not succeed. `api/error.rs` alone turns these into statuses.
use crate::admission::gate::GateClosed;

/// Why a command changed nothing, or may have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// Writes are held back right now; nothing was changed.
    #[error("writes are held back: {0}")]
    Gated(GateClosed),
    /// The idempotency key is in use by a request that still runs.
    #[error("a request with this idempotency key is still running")]
    KeyRunning,
    /// The idempotency key was used for something else.
    #[error("this idempotency key was used with another body")]
    KeyReused,
    /// No such order, or not for this caller: the two are one answer on purpose.
    #[error("no such order")]
    NotFound,
    /// `If-Match` names another version.
    #[error("the order is at version {current}")]
    PreconditionFailed {
        /// The version it has.
        current: u64,
    },
    /// The order's laws or its version forbid it.
    #[error("{0}")]
    Conflict(String),
    /// Another region changed the order, and its stamp forbids a change here for now.
    #[error("{0}")]
    RegionConflict(String),
    /// The mailbox is full; nothing was changed.
    #[error("too many commands are waiting")]
    Busy,
    /// The actor went down before the store was reached; nothing was changed.
    #[error("the order's actor is restarting")]
    ActorDown,
    /// The command waited past its deadline and was dropped unread; nothing was changed.
    #[error("the command waited past its deadline")]
    Expired,
    /// A dependency is away; nothing was changed.
    #[error("a dependency is not available: {0}")]
    Unavailable(String),
    /// The store has no room left; nothing was changed.
    #[error("no room left: {0}")]
    NoRoom(String),
    /// The outcome is not known: the command may have changed something.
    #[error("the outcome is not known: {0}")]
    Unknown(String),
}

impl From<ports::Error> for CommandError {
    fn from(error: ports::Error) -> Self {
        match error {
            ports::Error::Unknown(_) => Self::Unknown(error.to_string()),
            ports::Error::Full(detail) => Self::NoRoom(detail),
            _ => Self::Unavailable(error.to_string()),
        }
    }
}

/// Why a query has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// No such thing, or not for this caller.
    #[error("not found")]
    NotFound,
    /// The row is in flight or has left, so it cannot be touched now.
    #[error("{0}")]
    Conflict(String),
    /// A dependency is away.
    #[error("a dependency is not available: {0}")]
    Unavailable(String),
    /// An operator's statement was sent and its answer lost: it may have changed something.
    #[error("the outcome is not known: {0}")]
    Unknown(String),
}

impl From<ports::Error> for QueryError {
    fn from(error: ports::Error) -> Self {
        match error {
            ports::Error::Unknown(said) => Self::Unknown(said),
            _ => Self::Unavailable(error.to_string()),
        }
    }
}
