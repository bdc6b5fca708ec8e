//! The errors of a start, with their exit codes.

/// A start failed; nothing keeps running.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is wrong, or the store lacks migrations; exit 78.
    #[error("{0}")]
    Config(String),
    /// The store cannot be opened, or stayed unavailable for `startup.deadline`.
    #[error("the store cannot be opened: {0}")]
    Store(String),
    /// The broker refuses a request, such as the creation of topics.
    #[error("the broker cannot be used: {0}")]
    Broker(String),
    /// An address cannot be bound.
    #[error("cannot listen: {0}")]
    Listen(#[source] std::io::Error),
}

impl StartError {
    /// The process's exit code: 78 where no restart helps, otherwise 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            StartError::Config(_) => 78,
            StartError::Store(_) | StartError::Broker(_) | StartError::Listen(_) => 1,
        }
    }
}
