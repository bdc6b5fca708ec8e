//! Errors of installing the log.

use tracing::subscriber::SetGlobalDefaultError;
use tracing_subscriber::filter::ParseError;

/// The reason why the log could not be installed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A word that is not a level; the configuration must be corrected.
    #[error(
        "{level:?} is not a log level: write off, error, warn, info, debug or trace, or target=level, separated by commas"
    )]
    UnknownLevel { level: String },
    /// A directive that cannot be parsed; the configuration must be corrected.
    #[error("the log level {level:?} cannot be parsed")]
    Directive { level: String, source: ParseError },
    /// A second `init` in one process; a programming error.
    #[error("the log was initialized twice")]
    InitializedTwice(#[from] SetGlobalDefaultError),
}
