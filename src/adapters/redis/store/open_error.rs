//! Reasons for which the store could not be opened.
use ports::Error;

/// A reason for which the store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreOpenError {
    /// The URL cannot be used, or an option that must not be zero is zero.
    #[error("store.url: {0}")]
    Options(String),
    /// The server does not answer, or is not ready.
    #[error("Redis is not available: {0}")]
    Unavailable(Error),
    /// A running process holds this instance id.
    #[error("instance {instance} is running as process {pid} at {address}; stop it, or set another instance.id")]
    Held {
        /// The instance id that is held.
        instance: String,
        /// The process id of the holder.
        pid: String,
        /// The address where the holder listens.
        address: String,
    },
    /// The server's settings allow it to lose data.
    #[error("this Redis may lose orders: {0}; correct that, or set store.durability = \"warn\" to accept losing some")]
    NotDurable(String),
    /// The installation has another number of partitions.
    #[error(
        "outbox.partitions is {configured}, but this installation has {installed}; that number is fixed when the installation is created"
    )]
    Partitions {
        /// The number in the configuration.
        configured: u32,
        /// The number that Redis contains.
        installed: u32,
    },
    /// No service has used this Redis as its store, and opening for an operator installs nothing.
    #[error("there is no installation in this Redis; start the service once")]
    NotInstalled,
}

impl StoreOpenError {
    /// Whether a later attempt may succeed without a change of the configuration.
    pub fn is_temporary(&self) -> bool {
        matches!(
            self,
            StoreOpenError::Unavailable(
                Error::Unreachable(_) | Error::Unknown(_) | Error::Overloaded(_) | Error::Full(_)
            )
        )
    }

    /// Whether the cause is in the configuration.
    pub fn is_config(&self) -> bool {
        matches!(self, StoreOpenError::Options(_) | StoreOpenError::Partitions { .. })
    }
}
