//! A PostgreSQL client that is independent of the service: one database for each test, and queries on its tables.
use std::sync::Mutex;
use std::time::Duration;

use kit::wait::until;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, NoTls, SimpleQueryMessage};

/// Longest until PostgreSQL accepts connections again.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A database for one test. Dropped, it is deleted, unless the test failed.
pub struct Database {
    server: String,
    name: String,
    connection: Mutex<Connection>,
}

/// A connection with the runtime that drives it.
struct Connection {
    runtime: Runtime,
    client: Option<Client>,
}

impl Database {
    /// Creates an empty database on a server.
    pub fn create(server: &str, name: &str) -> Self {
        // Another session may use the template for a moment.
        until("the database is created", TIMEOUT, || {
            match Connection::new().query(server, &format!("CREATE DATABASE {name}")) {
                Ok(_) => Some(()),
                // The reply to an earlier attempt was lost.
                Err(error) => (error.code() == Some(&SqlState::DUPLICATE_DATABASE)).then_some(()),
            }
        });
        Self { server: server.to_owned(), name: name.to_owned(), connection: Mutex::new(Connection::new()) }
    }

    /// Address of the database, with its user.
    pub fn url(&self) -> String {
        on_server(&self.server, &self.name)
    }

    /// Rows of a statement, each column as text; NULL is the empty text.
    pub fn rows(&self, statement: &str) -> Vec<Vec<String>> {
        let (mut connection, url) = (self.connection.lock().expect("not poisoned"), self.url());
        // A connection that was cut is opened again.
        until(statement, TIMEOUT, || connection.query(&url, statement).ok())
    }

    /// A session of its own on this database.
    pub fn session(&self) -> DatabaseSession {
        DatabaseSession { url: self.url(), connection: Connection::new() }
    }
}

/// A session that is opened by its first script, and again by the first one after a failure.
pub struct DatabaseSession {
    url: String,
    connection: Connection,
}

impl DatabaseSession {
    /// Executes a script of several statements; an error ends the session, with its transaction.
    ///
    /// # Errors
    /// The client's; a lost connection leaves the outcome of a COMMIT unknown.
    pub fn execute(&mut self, script: &str) -> Result<(), Error> {
        self.connection.query(&self.url, script).map(drop)
    }
}

/// Rows of a statement on any server, each column as text; NULL is the empty text.
///
/// # Errors
/// Returns the error of the client, for example while the server starts.
pub fn query(url: &str, statement: &str) -> Result<Vec<Vec<String>>, Error> {
    Connection::new().query(url, statement)
}

impl Drop for Database {
    fn drop(&mut self) {
        // After a failure the database remains for inspection.
        if !std::thread::panicking() {
            let statement = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
            until(&statement, TIMEOUT, || Connection::new().query(&self.server, &statement).ok());
        }
    }
}

impl Connection {
    fn new() -> Self {
        Self { runtime: Builder::new_current_thread().enable_all().build().expect("a runtime"), client: None }
    }

    fn query(&mut self, url: &str, statement: &str) -> Result<Vec<Vec<String>>, Error> {
        let Self { runtime, client } = self;
        let result = runtime.block_on(async {
            let client = match client {
                Some(client) => client,
                None => {
                    let (opened, driver) = tokio_postgres::connect(url, NoTls).await?;
                    tokio::spawn(driver);
                    client.insert(opened)
                }
            };
            client.simple_query(statement).await
        });
        if result.is_err() {
            *client = None;
        }
        result.map(|messages| messages.into_iter().filter_map(row).collect())
    }
}

fn row(message: SimpleQueryMessage) -> Option<Vec<String>> {
    match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|column| row.get(column).unwrap_or_default().to_owned()).collect())
        }
        _ => None,
    }
}

/// The address of another database on the same server.
fn on_server(server: &str, name: &str) -> String {
    let (front, _) = server.rsplit_once('/').expect("an address ends with a database");
    format!("{front}/{name}")
}
