//! Why the store could not be opened, in words that say who can mend it. No text holds a password.
use std::path::PathBuf;

use crate::error::{Class, class};

/// Why [`crate::Postgres::open`] failed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL cannot be used: a mistake of configuration.
    #[error("store.url: {reason}; write it as postgres://user:password@host:5432/database")]
    Url {
        /// What is wrong with it, without quoting it.
        reason: &'static str,
    },
    /// The certificates to trust cannot be used: a mistake of configuration.
    #[error("the root certificates in {path} cannot be used: {reason}", path = path.display())]
    Roots {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Another living process runs under this instance id. Stop it, or choose another `instance.id`.
    #[error("instance {instance} is held by another process (pid {pid}, listening on {address}) on {place}")]
    Held {
        /// The id.
        instance: String,
        /// The holder's process.
        pid: String,
        /// Where the holder listens, as far as it said.
        address: String,
        /// The database.
        place: String,
    },
    /// The database has none of our tables, or an older schema.
    #[error(
        "{place} lacks migrations {missing}; run `posthaste migrate up` first, or start with `posthaste serve --migrate`"
    )]
    MissingMigrations {
        /// The database.
        place: String,
        /// Which, by number and name.
        missing: String,
    },
    /// A later version of this program migrated the database. Run that one.
    #[error("{place} has schema version {found}; this program knows {known} at most")]
    NewerSchema {
        /// The database.
        place: String,
        /// Its version.
        found: u32,
        /// The latest version known here.
        known: u32,
    },
    /// A migration that was applied is not the one this program carries: somebody changed a released file.
    #[error(
        "migration {version} of {place} was applied with another content than this program's; released migrations never change"
    )]
    ChangedMigration {
        /// The database.
        place: String,
        /// Which.
        version: u32,
    },
    /// The number of partitions is fixed at installation.
    #[error(
        "outbox.partitions is {configured}, but {place} was installed with {installed}; keep {installed}, or drain and install anew"
    )]
    PartitionsChanged {
        /// The database.
        place: String,
        /// The number of the installation.
        installed: u32,
        /// The number asked for.
        configured: u32,
    },
    /// The server is not there, is starting, or has no connection left. May be tried again.
    #[error("{place} cannot be reached: {reason}")]
    Unreachable {
        /// The database.
        place: String,
        /// Why.
        reason: String,
    },
    /// The server has no room left: a store that is not there yet. May be tried again.
    #[error("no room left on {place}: {reason}")]
    Full {
        /// The database.
        place: String,
        /// Why.
        reason: String,
    },
    /// User, password, database or rights are not what the server wants: somebody has to change one of them.
    #[error("{place} refuses: {reason}")]
    Refused {
        /// The database.
        place: String,
        /// Why.
        reason: String,
    },
}

impl OpenError {
    /// Whether waiting may help.
    pub fn may_pass(&self) -> bool {
        matches!(self, OpenError::Unreachable { .. } | OpenError::Full { .. })
    }

    /// Whether the configuration is to blame.
    pub fn is_config(&self) -> bool {
        matches!(self, OpenError::Url { .. } | OpenError::Roots { .. })
    }

    /// What a failed connection or a failed statement of opening means.
    pub(crate) fn of(place: &str, error: &tokio_postgres::Error) -> Self {
        let (place, reason) = (place.to_string(), crate::error::words(error));
        match class(error) {
            Class::Lost | Class::Busy | Class::Again | Class::Away => Self::Unreachable { place, reason },
            Class::Full => Self::Full { place, reason },
            Class::Data | Class::Expired | Class::Broken => Self::Refused { place, reason },
        }
    }

    /// The same for an error of a port.
    pub(crate) fn of_port(place: &str, error: &ports::Error) -> Self {
        let (place, reason) = (place.to_string(), error.to_string());
        match error {
            ports::Error::Unreachable(_) | ports::Error::Overloaded(_) | ports::Error::Unknown(_) => {
                Self::Unreachable { place, reason }
            }
            ports::Error::Full(_) => Self::Full { place, reason },
            ports::Error::Rejected(_) | ports::Error::Broken(_) => Self::Refused { place, reason },
        }
    }
}
