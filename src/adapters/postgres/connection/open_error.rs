//! The errors of opening the store. Each says which setting or system to correct; none contains a password.
use std::path::PathBuf;

use tokio_postgres::error::SqlState;

use crate::connection::statement_error::{ErrorClass, describe, error_class};

/// The error of [`crate::Postgres::open`] and of the schema's commands.
#[derive(Debug, thiserror::Error)]
pub enum PostgresOpenError {
    /// The URL cannot be used: correct the configuration.
    #[error("store.url: {reason}; write it as postgres://user:password@host:5432/database")]
    Url {
        /// The mistake in it, without quoting it.
        reason: &'static str,
    },
    /// The root certificates cannot be used: correct the configuration.
    #[error("the root certificates in {path} cannot be used: {reason}", path = path.display())]
    Roots {
        /// The file that was read.
        path: PathBuf,
        /// Why the file cannot be used.
        reason: String,
    },
    /// Another live process uses this instance id. Stop it, or configure another `instance.id`.
    #[error("instance {instance} is held by another process (pid {pid}, listening on {address}) on {location}")]
    Held {
        /// The configured `instance.id` of this process.
        instance: String,
        /// The process id of the holder, or "unknown".
        pid: String,
        /// The address that the holder announced, or "unknown".
        address: String,
        /// Host, port and database.
        location: String,
    },
    /// The database has no schema of this program, or an older one.
    #[error(
        "{location} lacks migrations {missing}; with the configuration and environment of the service, run `posthaste migrate up --config FILE` \
         first, or start with `posthaste serve --migrate`"
    )]
    MissingMigrations {
        /// Host, port and database.
        location: String,
        /// The missing migrations by number and name.
        missing: String,
    },
    /// A later version of this program migrated the database: run that version.
    #[error("{location} has schema version {found}; this program knows {known} at most: run the newer program")]
    NewerSchema {
        /// Host, port and database.
        location: String,
        /// The schema version of the database.
        found: u32,
        /// The latest schema version of this program.
        known: u32,
    },
    /// The database has recorded another checksum of an applied migration than this program contains: its statements are not those of this program.
    #[error(
        "migration {version} of {location} was applied with another content than this program's; released migrations never change"
    )]
    ChangedMigration {
        /// Host, port and database.
        location: String,
        /// The number of the migration.
        version: u32,
    },
    /// The database has another encoding than UTF-8: install into one that is created with `ENCODING 'UTF8' TEMPLATE template0`.
    #[error(
        "{location} has the encoding {encoding}, but event texts need UTF8; create the database with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
    )]
    NotUtf8 {
        /// Host, port and database.
        location: String,
        /// The encoding, as `server_encoding` shows it.
        encoding: String,
    },
    /// The configured number of partitions differs from the installation's, which never changes.
    #[error(
        "outbox.partitions is {configured}, but {location} was installed with {installed}; keep {installed}, or drain and install anew"
    )]
    PartitionsChanged {
        /// Host, port and database.
        location: String,
        /// The number fixed at installation.
        installed: u32,
        /// The number in the configuration.
        configured: u32,
    },
    /// The server is down, starting or out of connections: a later attempt may succeed.
    #[error("{location} cannot be reached: {reason}")]
    Unreachable {
        /// Host, port and database.
        location: String,
        /// The cause, from the server or the client.
        reason: String,
    },
    /// The server's disk is full: a later attempt may succeed.
    #[error("no space left on {location}: {reason}")]
    Full {
        /// Host, port and database.
        location: String,
        /// The cause, from the server or the client.
        reason: String,
    },
    /// The server rejects user, password, database or privileges: correct one of them.
    #[error("{location} refuses: {reason}")]
    Refused {
        /// Host, port and database.
        location: String,
        /// The cause, from the server or the client.
        reason: String,
    },
}

impl PostgresOpenError {
    /// Whether a later attempt may succeed without a change of the configuration.
    pub fn is_temporary(&self) -> bool {
        matches!(self, PostgresOpenError::Unreachable { .. } | PostgresOpenError::Full { .. })
    }

    /// Whether the cause is a mistake in the configuration, or migrations that are missing. A service manager should not repeat the
    /// start.
    pub fn is_config(&self) -> bool {
        matches!(
            self,
            PostgresOpenError::Url { .. }
                | PostgresOpenError::Roots { .. }
                | PostgresOpenError::MissingMigrations { .. }
                | PostgresOpenError::NotUtf8 { .. }
                | PostgresOpenError::PartitionsChanged { .. }
        )
    }

    /// The error for a failed connection or a failed statement while opening.
    pub(crate) fn from_client(location: &str, error: &tokio_postgres::Error) -> Self {
        let (location, mut reason) = (location.to_string(), describe(error));
        // A setting of each session, which PostgreSQL has since version 14.
        if error.code() == Some(&SqlState::UNDEFINED_OBJECT) && reason.contains("client_connection_check_interval") {
            reason.push_str("; PostgreSQL 14 or later is needed");
        }
        match error_class(error) {
            ErrorClass::ConnectionLost
            | ErrorClass::Overloaded
            | ErrorClass::Conflict
            | ErrorClass::LockTimeout
            | ErrorClass::Unavailable => Self::Unreachable { location, reason },
            ErrorClass::DiskFull => Self::Full { location, reason },
            ErrorClass::InvalidData | ErrorClass::LeaseExpired | ErrorClass::Broken => {
                Self::Refused { location, reason }
            }
        }
    }

    /// The error for an error of a port while opening.
    pub(crate) fn from_port(location: &str, error: &ports::Error) -> Self {
        let (location, reason) = (location.to_string(), error.to_string());
        match error {
            ports::Error::Unreachable(_) | ports::Error::Overloaded(_) | ports::Error::Unknown(_) => {
                Self::Unreachable { location, reason }
            }
            ports::Error::Full(_) => Self::Full { location, reason },
            ports::Error::Rejected(_) | ports::Error::Broken(_) => Self::Refused { location, reason },
        }
    }
}
