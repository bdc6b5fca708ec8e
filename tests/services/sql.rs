//! PostgreSQL seen without the service: databases of one's own, and what really stands in their tables.
use std::sync::Mutex;
use std::time::Duration;

use kit::wait::until;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, Error, NoTls, SimpleQueryMessage};

/// Longest that PostgreSQL may take to be there again.
const PATIENCE: Duration = Duration::from_secs(30);

/// A database for one story. Dropped, it is gone.
pub struct Database {
    server: String,
    name: String,
    link: Mutex<Link>,
}

/// A connection, and what drives it.
struct Link {
    runtime: Runtime,
    client: Option<Client>,
}

impl Database {
    /// A new, empty one.
    pub fn create(server: &str, name: &str) -> Self {
        Link::new().ask(server, &format!("CREATE DATABASE {name}")).expect("PostgreSQL answers");
        Self { server: server.to_owned(), name: name.to_owned(), link: Mutex::new(Link::new()) }
    }

    /// Where it is.
    pub fn url(&self) -> String {
        on_server(&self.server, &self.name)
    }

    /// What a statement answers: rows of columns as text, NULL as an empty one.
    pub fn rows(&self, statement: &str) -> Vec<Vec<String>> {
        let (mut link, url) = (self.link.lock().expect("not poisoned"), self.url());
        // A connection that was cut is made anew.
        until(statement, PATIENCE, || link.ask(&url, statement).ok())
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // After a failure it stays, for whoever wants to look into it.
        if !std::thread::panicking() {
            let gone = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
            Link::new().ask(&self.server, &gone).expect("PostgreSQL answers");
        }
    }
}

impl Link {
    fn new() -> Self {
        Self { runtime: Builder::new_current_thread().enable_all().build().expect("a runtime"), client: None }
    }

    fn ask(&mut self, url: &str, statement: &str) -> Result<Vec<Vec<String>>, Error> {
        let Self { runtime, client } = self;
        let answered = runtime.block_on(async {
            let client = match client {
                Some(client) => client,
                None => {
                    let (made, connection) = tokio_postgres::connect(url, NoTls).await?;
                    tokio::spawn(connection);
                    client.insert(made)
                }
            };
            client.simple_query(statement).await
        });
        if answered.is_err() {
            *client = None;
        }
        answered.map(|messages| messages.into_iter().filter_map(row).collect())
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

/// Host, port and user of a server's address, with another database behind them.
fn on_server(server: &str, name: &str) -> String {
    let (front, _) = server.rsplit_once('/').expect("an address ends with a database");
    format!("{front}/{name}")
}
