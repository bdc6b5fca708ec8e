//! Errors of ports. An adapter maps a foreign error to one of these at once; its fault class decides whether a retry follows.
pub use ::outbox::{FailureType, FaultClass};

/// Why a call through a port failed. The text names the action and the id; it is for operators, never for clients.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The backend is not reachable, busy or shut down. Nothing was changed; the same call may succeed later.
    #[error("not reachable: {0}")]
    Unreachable(String),
    /// A queue is full and refused the call. Nothing was changed.
    #[error("overloaded: {0}")]
    Overloaded(String),
    /// The backend's storage is full (a disk, a quota). Nothing was changed; an operator must free space.
    #[error("no space left: {0}")]
    Full(String),
    /// The call was sent and no response arrived: it may have changed something. The caller must resolve the outcome.
    #[error("outcome unknown: {0}")]
    Unknown(String),
    /// The backend will never accept the data of this call.
    #[error("rejected: {0}")]
    Rejected(String),
    /// The backend has a defect that no retry repairs (damaged file, missing table).
    #[error("broken: {0}")]
    Broken(String),
}

impl Error {
    /// The fault class, which the retry policy reads.
    pub fn fault(&self) -> FaultClass {
        match self {
            Error::Unreachable(_) | Error::Unknown(_) => FaultClass::Transient,
            Error::Overloaded(_) | Error::Full(_) | Error::Broken(_) => FaultClass::SemiTransient,
            Error::Rejected(_) => FaultClass::Permanent,
        }
    }

    /// The failure type that operators see and filter by.
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
