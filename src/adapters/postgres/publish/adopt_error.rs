//! Why a table was not adopted or released, with what the operator corrects.
use tokio_postgres::error::SqlState;

use crate::connection::open_error::PostgresOpenError;
use crate::connection::statement_error::describe;
use crate::publish::new_event::EventRefusal;

/// Why a table was not adopted. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// The database cannot be reached.
    #[error(transparent)]
    Open(#[from] PostgresOpenError),
    /// There is no such table in the database.
    #[error("there is no table {0:?}: name it with its schema, such as shop.outbox")]
    NoTable(String),
    /// The table is the installation's own.
    #[error("{0} is a table of posthaste itself: name the one of the service with its schema, such as shop.outbox")]
    OwnTable(String),
    /// The table lacks a column.
    #[error("the table has no column {column:?}; it has {}: name the {purpose} with --{purpose}", columns.join(", "))]
    NoColumn {
        /// The column that was looked for.
        column: String,
        /// The value that `adopt` reads from it, as the option is named.
        purpose: &'static str,
        /// The columns of the table.
        columns: Vec<String>,
    },
    /// The payload is of a type whose text is not a record value.
    #[error("the payload is of type {0}: it must be json, jsonb, text, varchar or bytea")]
    PayloadType(String),
    /// With this topic, these headers or this content type no row could be published: each insert into the table would fail.
    #[error("an event of this table would be refused: {0}; change --topic, --header or --content-type")]
    Refused(EventRefusal),
    /// The role that the trigger's function runs as may not publish: each insert into the table would fail.
    #[error(
        "the role {role} may not publish: GRANT posthaste_publisher TO {role} (a role with rights of its own needs EXECUTE on publish and \
         outbox_publish_adopted)"
    )]
    MayNotPublish {
        /// The owner of the trigger's function: the present role, or the one that adopted the table before.
        role: String,
    },
    /// The schema is older than the functions.
    #[error("the functions that publish do not exist: run `posthaste migrate up`")]
    NotInstalled,
    /// The role may not create or drop the trigger or its function.
    #[error(
        "this role may not do that ({reason}); adopting needs the role posthaste_publisher, TRIGGER on {table}, USAGE and CREATE in the schema of \
         the installation, and the ownership of the function of an earlier adoption; --release needs the ownership of both"
    )]
    NotAllowed {
        /// The table with its schema.
        table: String,
        /// The error of the statement that the server refused.
        reason: String,
    },
    /// Transactions have used the table until [`Options::adopt_timeout`](crate::Options::adopt_timeout).
    #[error(
        "{table} is in use by {users}: wait until these transactions end, or end them with pg_terminate_backend, and run the command again"
    )]
    InUse {
        /// The table with its schema.
        table: String,
        /// The transactions, the oldest first.
        users: String,
    },
    /// Another error of the server.
    #[error("{0}")]
    Database(String),
}

impl From<tokio_postgres::Error> for AdoptError {
    fn from(error: tokio_postgres::Error) -> Self {
        match error.code() {
            Some(&SqlState::UNDEFINED_TABLE | &SqlState::UNDEFINED_COLUMN | &SqlState::UNDEFINED_FUNCTION) => {
                AdoptError::NotInstalled
            }
            _ => AdoptError::Database(describe(&error)),
        }
    }
}

impl AdoptError {
    /// The error of a statement that needs rights which the role may lack.
    pub(super) fn of_statement(error: tokio_postgres::Error, table: &str) -> Self {
        if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
            return AdoptError::NotAllowed { table: table.to_owned(), reason: describe(&error) };
        }
        error.into()
    }
}
