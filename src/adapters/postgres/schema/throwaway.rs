//! Throwaway databases for benchmarks and chaos runs, on the server of the configured database: create, describe, drop.
use std::sync::Arc;

use secrecy::ExposeSecret;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use crate::connection::address::DatabaseAddress;
use crate::connection::connector::{Connector, DedicatedConnection};
use crate::connection::open_error::PostgresOpenError;
use crate::store::options::Options;

/// The server's settings that measurements depend on most.
const SETTINGS: [&str; 5] =
    ["server_version", "fsync", "synchronous_commit", "full_page_writes", "synchronous_standby_names"];

/// Creates an empty database of this name on the server of `options`, and returns its URL.
///
/// # Errors
/// The server cannot be reached, or its user may not create databases (`ALTER ROLE … CREATEDB`).
pub async fn create_database(options: &Options, name: &str) -> Result<String, PostgresOpenError> {
    let (connection, location) = connect(options).await?;
    let created = connection.client.batch_execute(&format!("CREATE DATABASE {}", quoted(name))).await;
    created.map_err(|error| PostgresOpenError::from_client(&location, &error))?;
    Ok(with_database(options.url.expose_secret(), name))
}

/// Drops a database and ends its sessions. Does nothing if it does not exist.
///
/// # Errors
/// The server cannot be reached, or the database belongs to another user.
pub async fn drop_database(options: &Options, name: &str) -> Result<(), PostgresOpenError> {
    let (connection, location) = connect(options).await?;
    let dropped =
        connection.client.batch_execute(&format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", quoted(name))).await;
    dropped.map_err(|error| PostgresOpenError::from_client(&location, &error))
}

/// The names and values of the server's settings that measurements depend on.
///
/// # Errors
/// The server cannot be reached.
pub async fn settings(options: &Options) -> Result<Vec<(&'static str, String)>, PostgresOpenError> {
    let (connection, location) = connect(options).await?;
    let mut settings = Vec::new();
    for name in SETTINGS {
        let rows = connection.client.query_typed(&format!("SHOW {name}"), &[]).await;
        let rows = rows.map_err(|error| PostgresOpenError::from_client(&location, &error))?;
        settings.push((name, rows.first().map(|row| row.get(0)).unwrap_or_default()));
    }
    Ok(settings)
}

/// A transaction that stays open while something else is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockingTransaction {
    /// It has written a table that the service does not know.
    UnrelatedWriter,
    /// It has written an event and its outbox row.
    OutboxWriter,
    /// It has read under REPEATABLE READ: no row version that it sees may be removed.
    SnapshotReader,
}

impl BlockingTransaction {
    fn statements(self) -> &'static str {
        match self {
            Self::UnrelatedWriter => "BEGIN; CREATE TABLE written_elsewhere (id integer)",
            Self::OutboxWriter => {
                "BEGIN; WITH e AS (INSERT INTO outbox_event (event_id, key, partition, sequence, occurred_at, hlc_millis, hlc_counter, type,
                   topic, region, payload) SELECT gen_random_uuid(), gen_random_uuid(), 0, 1, now(), 0, 0, 'HELD', 'held', '', '{}'
                 RETURNING id, key, partition) INSERT INTO outbox (id, key, partition, bytes) SELECT id, key, partition, 2 FROM e"
            }
            Self::SnapshotReader => "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM outbox",
        }
    }
}

/// An open transaction, which is rolled back when this is dropped.
pub struct OpenTransaction {
    _connection: DedicatedConnection,
}

/// Opens a transaction of this kind on the database of `options`, and leaves it open.
///
/// # Errors
/// The server cannot be reached, or the database has no schema.
pub async fn open_transaction(
    options: &Options,
    transaction: BlockingTransaction,
) -> Result<OpenTransaction, PostgresOpenError> {
    let (connection, location) = connect(options).await?;
    let begun = async {
        connection.client.batch_execute("SET idle_in_transaction_session_timeout = 0").await?;
        connection.client.batch_execute(transaction.statements()).await
    };
    begun.await.map_err(|error| PostgresOpenError::from_client(&location, &error))?;
    Ok(OpenTransaction { _connection: connection })
}

/// A session that executes scripts; dropped, it ends.
pub struct ScriptSession {
    connection: DedicatedConnection,
    location: String,
    functions: String,
}

impl ScriptSession {
    /// The schema of `publish` and `publish_all`, quoted where SQL needs it.
    pub fn functions(&self) -> &str {
        &self.functions
    }

    /// Executes a script of several statements. An error ends the transaction that the script has begun.
    ///
    /// # Errors
    /// A statement failed, or the connection was lost.
    pub async fn execute(&self, script: &str) -> Result<(), PostgresOpenError> {
        let executed = self.connection.client.batch_execute(script).await;
        executed.map_err(|error| PostgresOpenError::from_client(&self.location, &error))
    }
}

/// Opens a session for scripts on the database of `options`.
///
/// # Errors
/// The server cannot be reached, or the database has no schema.
pub async fn open_session(options: &Options) -> Result<ScriptSession, PostgresOpenError> {
    let (connection, location) = connect(options).await?;
    let opened = async {
        // A script may wait for the lock of a key as long as the transaction of another one lasts.
        let unlimited = "SET idle_in_transaction_session_timeout = 0; SET lock_timeout = 0";
        connection.client.batch_execute(unlimited).await?;
        connection.client.query_typed("SELECT quote_ident(functions) FROM installation", &[]).await
    };
    let rows = opened.await.map_err(|error| PostgresOpenError::from_client(&location, &error))?;
    let functions = rows.first().and_then(|row| row.get::<_, Option<String>>(0)).unwrap_or_default();
    Ok(ScriptSession { connection, location, functions })
}

/// The configured database as environment variables of PostgreSQL's own programs. A password in an argument would be visible to every
/// user of the machine.
///
/// # Errors
/// The URL cannot be used.
pub fn environment(options: &Options) -> Result<Vec<(&'static str, String)>, PostgresOpenError> {
    let address = DatabaseAddress::parse(options)?;
    Ok(variables(&address.config))
}

fn variables(config: &Config) -> Vec<(&'static str, String)> {
    let host = match (config.get_hosts().first(), config.get_hostaddrs().first()) {
        (Some(Host::Tcp(name)), _) => Some(name.clone()),
        (Some(Host::Unix(path)), _) => Some(path.display().to_string()),
        (None, address) => address.map(ToString::to_string),
    };
    let mode = match config.get_ssl_mode() {
        SslMode::Disable => "disable",
        SslMode::Require => "require",
        _ => "prefer",
    };
    let given = [
        ("PGHOST", host),
        ("PGPORT", config.get_ports().first().map(ToString::to_string)),
        ("PGUSER", config.get_user().map(str::to_owned)),
        ("PGPASSWORD", config.get_password().map(|password| String::from_utf8_lossy(password).into_owned())),
        ("PGDATABASE", config.get_dbname().map(str::to_owned)),
        ("PGSSLMODE", Some(mode.to_owned())),
    ];
    given.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// Opens a connection without a statement timeout: dropping a database waits for a checkpoint.
async fn connect(options: &Options) -> Result<(DedicatedConnection, String), PostgresOpenError> {
    let connector = Connector::new(Arc::new(options.clone()))?;
    let connection = connector.connect("throwaway").await?;
    let unlimited = connection.client.batch_execute("SET statement_timeout = 0").await;
    unlimited.map_err(|error| PostgresOpenError::from_client(connector.location(), &error))?;
    Ok((connection, connector.location().to_owned()))
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The same URL with another database, in either form. Everything else stays.
fn with_database(url: &str, name: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        // Of two `dbname` parameters the client uses the later one.
        return format!("{} dbname={name}", url.trim());
    };
    let (path, query) = rest.split_once('?').map_or((rest, String::new()), |(path, query)| (path, format!("?{query}")));
    let server = path.split('/').next().unwrap_or(path);
    format!("{scheme}://{server}/{name}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_database_of_a_url_changes() {
        for (url, expected) in [
            ("postgres://ann:pw@host:5432/shop", "postgres://ann:pw@host:5432/x"),
            ("postgres://ann@host", "postgres://ann@host/x"),
            (
                "postgresql://ann@host/shop?sslmode=require&application_name=b",
                "postgresql://ann@host/x?sslmode=require&application_name=b",
            ),
            ("postgres://ann@host?sslmode=require", "postgres://ann@host/x?sslmode=require"),
            ("host=h user=ann dbname=shop", "host=h user=ann dbname=shop dbname=x"),
        ] {
            assert_eq!(with_database(url, "x"), expected);
            let config: Config = with_database(url, "x").parse().expect("readable");
            assert_eq!((config.get_dbname(), config.get_user()), (Some("x"), Some("ann")), "{url}");
        }
    }

    #[test]
    fn environment_variables_name_the_same_database() {
        let config: Config = "postgres://ann:p%20w@host:5433/shop".parse().expect("readable");
        let variables = variables(&config);
        for expected in [("PGHOST", "host"), ("PGPORT", "5433"), ("PGPASSWORD", "p w"), ("PGDATABASE", "shop")] {
            assert!(variables.iter().any(|(name, value)| (*name, value.as_str()) == expected), "{expected:?}");
        }
    }
}
