//! Why a service cannot start, and the exit code that says so.

/// Why a start cannot succeed.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is wrong; exit 78.
    #[error("{0}")]
    Config(String),
    /// The store cannot be opened, or was not there within `startup.deadline`.
    #[error("the store cannot be opened: {0}")]
    Store(String),
    /// The broker refuses a request, such as the creation of topics.
    #[error("the broker cannot be used: {0}")]
    Broker(String),
    /// The address cannot be listened on.
    #[error("cannot listen: {0}")]
    Listen(#[source] std::io::Error),
}

impl StartError {
    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            StartError::Config(_) => 78,
            StartError::Store(_) | StartError::Broker(_) | StartError::Listen(_) => 1,
        }
    }
}
