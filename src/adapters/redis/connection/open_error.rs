//! Reasons for which a handle could not be opened: mistakes of the configuration only, because opening does not connect.

use std::path::PathBuf;

/// Why [`crate::Redis::open`] failed. No server was called, and nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum RedisOpenError {
    /// The URL is not one of a Redis server that this binary supports. The text never contains the URL, which may hold a password.
    #[error("the URL cannot be used: {0}; write redis://host:port")]
    Url(String),
    /// The file with the trusted certificates cannot be used.
    #[error("the certificate authorities in {}: {reason}", file.display())]
    Authorities {
        /// The file of the options.
        file: PathBuf,
        /// Why it cannot be used.
        reason: String,
    },
    /// The prefix contains braces: they choose the slot in a cluster, and the first pair must be the adapter's.
    #[error("the prefix {0:?} must not contain braces")]
    Prefix(String),
    /// An option that must not be zero is zero.
    #[error("{0} must not be zero")]
    Zero(&'static str),
    /// Called outside of a tokio runtime, where the maintenance task cannot run.
    #[error("Redis must be opened inside a tokio runtime")]
    NoRuntime,
}
