//! Why Redis could not be opened: mistakes of the configuration only, because a server that is not there yet is no reason.

/// Why [`crate::Redis::open`] failed. Nobody was asked, and nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// `redis.url` is no URL of a Redis server that this binary can talk to. The text never holds the URL, which may hold a password.
    #[error("redis.url cannot be used: {0}; write redis://host:port")]
    Url(String),
    /// Braces choose the slot in a cluster, and ours must be the first.
    #[error("the prefix {0:?} must not contain braces")]
    Prefix(String),
    /// Something that must not be zero is.
    #[error("{0} must not be zero")]
    Zero(&'static str),
    /// Called outside of a tokio runtime, where the keeper cannot live.
    #[error("Redis must be opened inside a tokio runtime")]
    NoRuntime,
}
