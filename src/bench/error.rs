//! The error of a benchmark or chaos run: a message for the command line.

/// The message that the command line prints. No caller distinguishes causes: a bench that failed is repeated by hand.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    message: String,
    is_output_closed: bool,
}

impl Error {
    /// An error with this message.
    pub fn new(message: impl std::fmt::Display) -> Self {
        Self { message: message.to_string(), is_output_closed: false }
    }

    /// The reader of the figures has closed the pipe, as `head` does. The run ends, and removes its data as after any other error.
    pub(crate) fn output_closed() -> Self {
        Self { is_output_closed: true, ..Self::new("the reader of the figures has closed the pipe") }
    }

    /// Whether the run ended only because its figures have no reader any more.
    pub fn is_output_closed(&self) -> bool {
        self.is_output_closed
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
