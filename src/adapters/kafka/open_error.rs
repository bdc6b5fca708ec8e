//! Why the broker could not be opened, in words that say who can mend it.

/// Why [`crate::Kafka::open`] failed. A broker that is not there is no such reason.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// An option that the client library does not take. Change it.
    #[error("the broker's client cannot be set up: {0}")]
    Options(String),
    /// The operating system gave no thread. May be tried again.
    #[error("no thread for the broker's client: {0}")]
    Thread(#[from] std::io::Error),
}
