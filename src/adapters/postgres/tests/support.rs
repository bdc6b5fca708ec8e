//! A server to test on, databases of one's own, and a hand on the store's clock.
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use ports::partitions::InstanceId;
use postgres::{Options, Postgres};
use tokio_postgres::{Client, NoTls};

/// Fewer than an installation has by default, so that a database is made quickly.
pub const PARTITIONS: u32 = 4;

/// Where the server is.
///
/// # Panics
/// With the command that starts one, when nobody said where.
pub fn server() -> String {
    std::env::var("POSTHASTE_TEST_POSTGRES").unwrap_or_else(|_| {
        panic!("POSTHASTE_TEST_POSTGRES is not set: run `make test`, or `make services` first, which starts a server and tells its URL")
    })
}

/// The server's URL with another database.
pub fn url(database: &str) -> String {
    let server = server();
    let (front, options) =
        server.split_once('?').map_or((server.as_str(), String::new()), |(front, rest)| (front, format!("?{rest}")));
    let (place, _) = front.rsplit_once('/').expect("the URL ends with a database");
    format!("{place}/{database}{options}")
}

/// The same database through a pooler in transaction mode, where somebody started one and told its place (`host:port`).
pub fn pooled(url: &str) -> String {
    let Ok(pooler) = std::env::var("POSTHASTE_TEST_PGBOUNCER") else { return url.to_string() };
    let (user, rest) = url.rsplit_once('@').expect("the URL names a user");
    let (_, path) = rest.split_once('/').expect("the URL names a database");
    format!("{user}@{pooler}/{path}")
}

/// A connection that is no store's.
pub async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("the server is there");
    tokio::spawn(connection);
    client
}

/// A database of a test's own. A migrated one is emptied and lent out again afterwards, because making and dropping one takes longer
/// than most cases; another is dropped with the value.
pub struct Database {
    pub name: String,
    pub url: String,
    lent: bool,
}

/// Migrated databases that nobody uses right now.
static FREE: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl Database {
    /// An empty one, without a schema.
    pub async fn empty() -> Self {
        Self::like("template0", false).await
    }

    /// One with the schema that a test may change as it likes.
    pub async fn own() -> Self {
        Self::like(template().await, false).await
    }

    /// One with the schema, and nothing in it.
    pub async fn migrated() -> Self {
        let free = FREE.lock().expect("no case dies here").pop();
        let Some(name) = free else { return Self::like(template().await, true).await };
        let database = Self { url: url(&name), name, lent: true };
        database.clear().await;
        database
    }

    async fn like(template: &str, lent: bool) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("posthaste_test_{}_{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        let text = format!("CREATE DATABASE {name} TEMPLATE {template}");
        connect(&server()).await.batch_execute(&text).await.expect("a database can be made");
        Self { url: url(&name), name, lent }
    }

    /// Ends whoever is still connected, waits until they are gone, and empties all tables.
    async fn clear(&self) {
        let client = self.client().await;
        let text = "SELECT pg_terminate_backend(pid, 20000) FROM pg_stat_activity
                    WHERE datname = current_database() AND pid <> pg_backend_pid()";
        client.batch_execute(text).await.expect("they can be ended");
        let tables = "DO $$ DECLARE t text; BEGIN
               FOR t IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename NOT LIKE 'outbox_archive_%'
                   AND tablename NOT IN ('posthaste_migration', 'installation') LOOP EXECUTE 'DELETE FROM ' || t; END LOOP;
               UPDATE installation SET archive_forgotten = 0;
               INSERT INTO outbox_lease (partition) SELECT generate_series(0, partitions - 1) FROM installation;
             END $$";
        client.batch_execute(tables).await.expect("tables can be emptied");
    }

    /// Options for a service on it.
    pub fn options(&self, instance: &str) -> Options {
        let options = Options::new(self.url.as_str(), InstanceId(instance.into()));
        Options { partitions: PARTITIONS, pool: 6, committers: 2, relays: 2, ..options }
    }

    /// A store on it.
    pub async fn store(&self, instance: &str) -> Postgres {
        Postgres::open(self.options(instance)).await.expect("a migrated database can be opened")
    }

    /// A connection to it that is no store's.
    pub async fn client(&self) -> Client {
        connect(&self.url).await
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if self.lent && !std::thread::panicking() {
            FREE.lock().expect("no case dies here").push(self.name.clone());
        } else {
            discard(vec![self.name.clone()]);
        }
    }
}

/// Drops databases in a thread: a value may be dropped where nothing may be waited for.
fn discard(names: Vec<String>) {
    let dropped = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let server = connect(&server()).await;
            for name in names {
                // What is left is a database more on a throw-away server.
                let _ = server.batch_execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
            }
        });
    });
    let _ = dropped.join();
}

/// A migrated database to copy, made once for all cases of this process.
async fn template() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    static MADE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _one = MADE.lock().await;
    if NAME.get().is_none() {
        let server = connect(&server()).await;
        drop_leftovers(&server).await;
        let name = format!("posthaste_test_{}_template", std::process::id());
        server.batch_execute(&format!("CREATE DATABASE {name} TEMPLATE template0")).await.expect("made");
        let options = Options { partitions: PARTITIONS, ..Options::new(url(&name), InstanceId("template".into())) };
        postgres::migrate(&options).await.expect("an empty database can be migrated");
        NAME.set(name).expect("nobody else makes it");
    }
    NAME.get().expect("it was made")
}

/// Databases of test processes that are gone: nobody could drop the lent ones when they ended.
async fn drop_leftovers(server: &Client) {
    let text =
        "SELECT datname::text, split_part(datname, '_', 3) FROM pg_database WHERE datname LIKE 'posthaste\\_test\\_%'";
    let rows = server.query(text, &[]).await.expect("databases are listed");
    let gone = rows.iter().filter(|row| !std::path::Path::new(&format!("/proc/{}", row.get::<_, String>(1))).exists());
    discard(gone.map(|row| row.get(0)).collect());
}

/// Lets the store's clock run on, by moving what it measures into the past.
pub async fn advance(client: &Client, by: Duration) {
    let by = format!("interval '{} milliseconds'", by.as_millis());
    let text = format!(
        "BEGIN;
         UPDATE member SET seen_at = seen_at - {by};
         UPDATE outbox_lease SET expires_at = expires_at - {by} WHERE expires_at IS NOT NULL;
         UPDATE outbox SET next_attempt_at = next_attempt_at - {by} WHERE next_attempt_at IS NOT NULL;
         UPDATE outbox_waiting SET due = due - {by} WHERE due IS NOT NULL;
         UPDATE outbox_event SET created_at = created_at - {by};
         UPDATE outbox_archive SET sent_at = sent_at - {by};
         UPDATE mark SET created_at = created_at - {by};
         UPDATE idempotency SET until = until - {by};
         UPDATE processed_events SET processed_at = processed_at - {by};
         UPDATE redriven_letter SET taken_at = taken_at - {by};
         COMMIT"
    );
    client.batch_execute(&text).await.expect("time passes");
}

/// Looks until a look finds something.
///
/// # Panics
/// When it finds nothing in twenty seconds.
pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = std::time::Instant::now();
    let mut looks = tokio::time::interval(Duration::from_millis(5));
    loop {
        looks.tick().await;
        if let Some(found) = look().await {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "waited in vain for: {what}");
    }
}
