//! The error of a benchmark or chaos run: a message for the command line.

/// The message that the command line prints. No caller distinguishes causes: a bench that failed is repeated by hand.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

impl Error {
    /// An error with this message.
    pub fn new(message: impl std::fmt::Display) -> Self {
        Self(message.to_string())
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::new(error)
    }
}

impl From<ports::Error> for Error {
    fn from(error: ports::Error) -> Self {
        Self::new(error)
    }
}
