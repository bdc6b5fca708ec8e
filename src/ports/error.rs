//! How a port fails. An adapter turns a foreign error into one of these at once and states the fault; policy decides what follows.
pub use ::outbox::{FailureType, Fault};

/// Why a call to the world failed. `detail` says what was being done and to which id; it is for operators, never for clients.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// Not reachable, busy or shut down: nothing was changed, the same call may succeed later.
    #[error("not reachable: {0}")]
    Unreachable(String),
    /// Refused before anything was done, because a queue is full: nothing was changed.
    #[error("overloaded: {0}")]
    Overloaded(String),
    /// No room left (a full disk, a quota): nothing was changed; a human makes room.
    #[error("no room left: {0}")]
    Full(String),
    /// The call was sent and its answer never came: it may have changed something. Find out, do not guess.
    #[error("outcome unknown: {0}")]
    Unknown(String),
    /// The data of the call can never be accepted.
    #[error("rejected: {0}")]
    Rejected(String),
    /// The other side is broken in a way that no repetition mends (damaged file, missing table).
    #[error("broken: {0}")]
    Broken(String),
}

impl Error {
    /// The class that policy reads.
    pub fn fault(&self) -> Fault {
        match self {
            Error::Unreachable(_) | Error::Unknown(_) => Fault::Transient,
            Error::Overloaded(_) | Error::Full(_) | Error::Broken(_) => Fault::SemiTransient,
            Error::Rejected(_) => Fault::Permanent,
        }
    }

    /// The file that operators put it in.
    pub fn failure_type(&self) -> FailureType {
        match self {
            Error::Unreachable(_) => FailureType::Network,
            Error::Unknown(_) => FailureType::Timeout,
            Error::Rejected(_) => FailureType::Validation,
            Error::Overloaded(_) | Error::Full(_) | Error::Broken(_) => FailureType::System,
        }
    }

    /// Whether the call may have changed something although it failed.
    pub fn outcome_unknown(&self) -> bool {
        matches!(self, Error::Unknown(_))
    }
}
