//! A database of its own beside the configured one, for measuring: made, described, and dropped with all that is in it.
use std::sync::Arc;

use secrecy::ExposeSecret;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use crate::dial::{Dial, Line};
use crate::open_error::OpenError;
use crate::options::Options;

/// What a figure of this server depends on most.
const SETTINGS: [&str; 5] =
    ["server_version", "fsync", "synchronous_commit", "full_page_writes", "synchronous_standby_names"];

/// Makes an empty database of this name on the server of `options` and answers its URL.
///
/// # Errors
/// The server cannot be reached, or its user may not make databases (`ALTER ROLE … CREATEDB`).
pub async fn create_database(options: &Options, name: &str) -> Result<String, OpenError> {
    let (line, place) = line(options).await?;
    let made = line.client.batch_execute(&format!("CREATE DATABASE {}", quoted(name))).await;
    made.map_err(|error| OpenError::of(&place, &error))?;
    Ok(beside(options.url.expose_secret(), name))
}

/// Drops it, whoever still uses it. Harmless where it is gone already.
///
/// # Errors
/// The server cannot be reached, or the database belongs to somebody else.
pub async fn drop_database(options: &Options, name: &str) -> Result<(), OpenError> {
    let (line, place) = line(options).await?;
    let dropped = line.client.batch_execute(&format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", quoted(name))).await;
    dropped.map_err(|error| OpenError::of(&place, &error))
}

/// What the server says of itself, for whoever reads figures of it: names and values.
///
/// # Errors
/// It cannot be reached.
pub async fn settings(options: &Options) -> Result<Vec<(&'static str, String)>, OpenError> {
    let (line, place) = line(options).await?;
    let mut settings = Vec::new();
    for name in SETTINGS {
        let rows = line.client.query_typed(&format!("SHOW {name}"), &[]).await;
        let rows = rows.map_err(|error| OpenError::of(&place, &error))?;
        settings.push((name, rows.first().map(|row| row.get(0)).unwrap_or_default()));
    }
    Ok(settings)
}

/// The same database in the variables that PostgreSQL's own programs read: a password in an argument would be seen by all.
///
/// # Errors
/// The URL cannot be used.
pub fn environment(options: &Options) -> Result<Vec<(&'static str, String)>, OpenError> {
    let address = crate::address::Address::of(options)?;
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

/// A session without a limit: dropping a database writes a checkpoint, which takes as long as it takes.
async fn line(options: &Options) -> Result<(Line, String), OpenError> {
    let dial = Dial::new(Arc::new(options.clone()))?;
    let line = dial.line("throwaway").await?;
    let unlimited = line.client.batch_execute("SET statement_timeout = 0").await;
    unlimited.map_err(|error| OpenError::of(dial.place(), &error))?;
    Ok((line, dial.place().to_owned()))
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The same URL with another database. In both forms whatever else it says stays.
fn beside(url: &str, name: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        // Of two words that say the same the client takes the later.
        return format!("{} dbname={name}", url.trim());
    };
    let (place, asked) =
        rest.split_once('?').map_or((rest, String::new()), |(place, asked)| (place, format!("?{asked}")));
    let server = place.split('/').next().unwrap_or(place);
    format!("{scheme}://{server}/{name}{asked}")
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
            assert_eq!(beside(url, "x"), expected);
            let config: Config = beside(url, "x").parse().expect("readable");
            assert_eq!((config.get_dbname(), config.get_user()), (Some("x"), Some("ann")), "{url}");
        }
    }

    #[test]
    fn programs_of_the_server_find_the_same_database() {
        let config: Config = "postgres://ann:p%20w@host:5433/shop".parse().expect("readable");
        let variables = variables(&config);
        for expected in [("PGHOST", "host"), ("PGPORT", "5433"), ("PGPASSWORD", "p w"), ("PGDATABASE", "shop")] {
            assert!(variables.iter().any(|(name, value)| (*name, value.as_str()) == expected), "{expected:?}");
        }
    }
}
