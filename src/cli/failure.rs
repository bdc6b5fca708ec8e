//! The failure of a command, with its exit code.
use std::fmt::Display;

use app::error::QueryError;

/// A start or a command failed.
const FAILED: u8 = 1;
/// The configuration has errors (sysexits' EX_CONFIG).
const CONFIGURATION: u8 = 78;

/// The message for stderr and the exit code.
pub(crate) struct Failure {
    pub code: u8,
    pub message: String,
    /// Whether the operator has the message already, in the log.
    pub is_printed: bool,
}

impl Failure {
    pub(crate) fn new(message: impl Display) -> Self {
        Self { code: FAILED, message: message.to_string(), is_printed: false }
    }

    /// The failure of a query; `queried` names the object in the message that it was not found.
    pub(crate) fn querying(error: QueryError, queried: impl Display) -> Self {
        match error {
            QueryError::NotFound => Self::new(format!("{queried} was not found")),
            other => Self::new(other),
        }
    }
}

impl From<posthaste::ConfigErrors> for Failure {
    fn from(errors: posthaste::ConfigErrors) -> Self {
        let message = format!("the configuration has {} mistake(s):\n{errors}", errors.0.len());
        Self { code: CONFIGURATION, message, is_printed: false }
    }
}

impl From<posthaste::StartError> for Failure {
    fn from(error: posthaste::StartError) -> Self {
        Self { code: error.exit_code(), message: error.to_string(), is_printed: false }
    }
}

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Self {
        Self::new(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(error)
    }
}
