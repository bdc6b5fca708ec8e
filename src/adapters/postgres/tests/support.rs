//! Databases on the test server, and moving the store's clock forward.
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use kit::wait::scaled;
use ports::partitions::InstanceId;
use postgres::{Options, Postgres};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};

/// Fewer partitions than the default, so that a database is created quickly.
pub const PARTITIONS: u32 = 4;

/// Longest time for which the template of the databases may be in use.
const TEMPLATE_IN_USE_MAX: Duration = Duration::from_secs(20);

/// The URL of the test server.
///
/// # Panics
/// If the variable is not set; the message names the command that starts a server.
pub fn server() -> String {
    std::env::var("POSTHASTE_TEST_POSTGRES").unwrap_or_else(|_| {
        panic!("POSTHASTE_TEST_POSTGRES is not set: run `make test`, or `make services` first, which starts a server and prints its URL")
    })
}

/// The server's URL with another database.
pub fn url(database: &str) -> String {
    let server = server();
    let (base, options) =
        server.split_once('?').map_or((server.as_str(), String::new()), |(base, rest)| (base, format!("?{rest}")));
    let (host, _) = base.rsplit_once('/').expect("the URL ends with a database");
    format!("{host}/{database}{options}")
}

/// The URL through PgBouncer in transaction mode, which POSTHASTE_TEST_PGBOUNCER names (`host:port`).
///
/// # Panics
/// If the variable is not set; the message names the command that starts one.
pub fn pooled(url: &str) -> String {
    let pooler = std::env::var("POSTHASTE_TEST_PGBOUNCER").unwrap_or_else(|_| {
        panic!("POSTHASTE_TEST_PGBOUNCER is not set: run `make test`, or `make services` first, which starts PgBouncer")
    });
    let (user, rest) = url.rsplit_once('@').expect("the URL names a user");
    let (_, path) = rest.split_once('/').expect("the URL names a database");
    format!("{user}@{pooler}/{path}")
}

/// Opens a connection that belongs to no store.
pub async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("the server accepts connections");
    tokio::spawn(connection);
    client
}

/// A test's own database. A migrated one is emptied and reused by a later test, because creating and dropping one takes longer than most
/// tests; any other is dropped with the value.
pub struct Database {
    pub name: String,
    pub url: String,
    reusable: bool,
}

/// Migrated databases that no test uses.
static FREE: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl Database {
    /// A database without a schema.
    pub async fn empty() -> Self {
        Self::copy("template0", false).await
    }

    /// A database without a schema in which the lower case of `I` is not `i`.
    pub async fn with_turkish_locale() -> Self {
        Self::copy("template0 ENCODING 'UTF8' LOCALE_PROVIDER icu ICU_LOCALE 'tr-TR'", false).await
    }

    /// A database without a schema and without an encoding.
    pub async fn ascii() -> Self {
        Self::copy("template0 ENCODING 'SQL_ASCII' LOCALE 'C'", false).await
    }

    /// A migrated database whose schema the test may change.
    pub async fn own() -> Self {
        Self::copy(template().await, false).await
    }

    /// A migrated database without rows.
    pub async fn migrated() -> Self {
        let free = FREE.lock().expect("no holder of the lock panics").pop();
        let Some(name) = free else { return Self::copy(template().await, true).await };
        let database = Self { url: url(&name), name, reusable: true };
        database.clear().await;
        database
    }

    async fn copy(template: &str, reusable: bool) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("posthaste_test_{}_{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        let (text, client) = (format!("CREATE DATABASE {name} TEMPLATE {template}"), connect(&server()).await);
        // A session that has just left the template, or an autovacuum worker, may still be in it. PostgreSQL waits for it for five seconds.
        let started = Instant::now();
        while let Err(error) = client.batch_execute(&text).await {
            let is_in_use = error.code() == Some(&SqlState::OBJECT_IN_USE);
            assert!(is_in_use && started.elapsed() < scaled(TEMPLATE_IN_USE_MAX), "databases can be created: {error}");
        }
        Self { url: url(&name), name, reusable }
    }

    /// Ends all other sessions, waits until they have ended, and empties all tables.
    async fn clear(&self) {
        let client = self.client().await;
        let text = "SELECT pg_terminate_backend(pid, 20000) FROM pg_stat_activity
                    WHERE datname = current_database() AND pid <> pg_backend_pid()";
        client.batch_execute(text).await.expect("sessions can be ended");
        let tables = "DO $$ DECLARE t text; BEGIN
               FOR t IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename NOT LIKE 'outbox_archive_%'
                   AND tablename NOT IN ('posthaste_migration', 'installation') LOOP EXECUTE 'DELETE FROM ' || t; END LOOP;
               UPDATE installation SET archive_forgotten = 0, internal_topics = '{}';
               INSERT INTO outbox_lease (partition) SELECT generate_series(0, partitions - 1) FROM installation;
             END $$";
        client.batch_execute(tables).await.expect("tables can be emptied");
    }

    /// Options for a service on this database.
    pub fn options(&self, instance: &str) -> Options {
        let options = Options::new(self.url.as_str(), InstanceId(instance.into()));
        Options {
            partitions: PARTITIONS,
            pool: 6,
            committers: 2,
            relay_connections: 2,
            // Tests hold locks against these, also while a busy machine pauses them, and many callers wait for few connections.
            lock_timeout: scaled(options.lock_timeout * 2),
            statement_timeout: scaled(options.statement_timeout * 2),
            resolve_timeout: scaled(options.resolve_timeout),
            checkout_timeout: scaled(options.checkout_timeout * 10),
            connect_timeout: scaled(options.connect_timeout),
            close_timeout: scaled(options.close_timeout),
            ..options
        }
    }

    /// Opens a store on this database.
    pub async fn store(&self, instance: &str) -> Postgres {
        Postgres::open(self.options(instance)).await.expect("a migrated database can be opened")
    }

    /// Opens a connection to this database that belongs to no store.
    pub async fn client(&self) -> Client {
        connect(&self.url).await
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if self.reusable && !std::thread::panicking() {
            FREE.lock().expect("no holder of the lock panics").push(self.name.clone());
        } else {
            discard(vec![self.name.clone()]);
        }
    }
}

/// Drops databases in a thread of its own, because `Drop` cannot await.
fn discard(names: Vec<String>) {
    let dropped = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let server = connect(&server()).await;
            for name in names {
                // A database that cannot be dropped stays on a throw-away server.
                let _ = server.batch_execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
            }
        });
    });
    let _ = dropped.join();
}

/// The migrated database that others are copied from, created once per process.
async fn template() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    static CREATING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _creating = CREATING.lock().await;
    if NAME.get().is_none() {
        let server = connect(&server()).await;
        drop_leftovers(&server).await;
        let name = format!("posthaste_test_{}_template", std::process::id());
        server
            .batch_execute(&format!("CREATE DATABASE {name} TEMPLATE template0"))
            .await
            .expect("databases can be created");
        let options = Options { partitions: PARTITIONS, ..Options::new(url(&name), InstanceId("template".into())) };
        postgres::migrate(&options).await.expect("an empty database can be migrated");
        NAME.set(name).expect("the mutex admits one creator");
    }
    NAME.get().expect("it was created above")
}

/// Drops the databases of test processes that have ended: a process does not drop its reusable ones.
async fn drop_leftovers(server: &Client) {
    let text =
        "SELECT datname::text, split_part(datname, '_', 3) FROM pg_database WHERE datname LIKE 'posthaste\\_test\\_%'";
    let rows = server.query(text, &[]).await.expect("databases are listed");
    let gone = rows.iter().filter(|row| !std::path::Path::new(&format!("/proc/{}", row.get::<_, String>(1))).exists());
    discard(gone.map(|row| row.get(0)).collect());
}

/// Opens a store with an instance id that was released a moment ago: the server may still be about to end the session that held it.
pub async fn reopened(options: Options) -> Postgres {
    until("the instance id is free", async || Postgres::open(options.clone()).await.ok()).await
}

/// Moves the store's clock forward, by moving every stored time into the past.
pub async fn advance(client: &Client, by: Duration) {
    let by = format!("interval '{} milliseconds'", by.as_millis());
    let text = format!(
        "BEGIN;
         UPDATE relay_instance SET seen_at = seen_at - {by};
         UPDATE outbox_lease SET expires_at = expires_at - {by} WHERE expires_at IS NOT NULL;
         UPDATE outbox_lease SET claimed_at = claimed_at - {by} WHERE claimed_at IS NOT NULL;
         UPDATE outbox SET next_attempt_at = next_attempt_at - {by}, last_attempt_at = last_attempt_at - {by}
           WHERE next_attempt_at IS NOT NULL OR last_attempt_at IS NOT NULL;
         UPDATE outbox_waiting SET due = due - {by} WHERE due IS NOT NULL;
         UPDATE outbox_event SET created_at = created_at - {by};
         UPDATE outbox_archive SET sent_at = sent_at - {by}, claimed_at = claimed_at - {by};
         UPDATE idempotency_record SET created_at = created_at - {by};
         UPDATE idempotency SET until = until - {by};
         UPDATE processed_events SET processed_at = processed_at - {by};
         UPDATE redriven_dead_letter SET taken_at = taken_at - {by};
         COMMIT"
    );
    client.batch_execute(&text).await.expect("times can be moved");
}

/// Repeats `attempt` until it returns something.
///
/// # Panics
/// If it returns nothing for twenty seconds.
pub async fn until<T>(what: &str, attempt: impl AsyncFnMut() -> Option<T>) -> T {
    until_within(Duration::from_secs(20), what, attempt).await
}

/// Repeats `attempt` until it returns something.
///
/// # Panics
/// If it returns nothing for the scaled limit.
pub async fn until_within<T>(limit: Duration, what: &str, mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    let started = Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    loop {
        ticks.tick().await;
        if let Some(found) = attempt().await {
            return found;
        }
        assert!(started.elapsed() < scaled(limit), "not reached within {limit:?}, scaled: {what}");
    }
}

/// Waits until autovacuum works on a table, which must keep it busy for minutes. Autovacuum looks at a database once a minute.
pub async fn until_autovacuum_works(client: &Client, table: &str) {
    let works = "SELECT 1 FROM pg_locks l JOIN pg_stat_activity a USING (pid)
        WHERE l.relation = to_regclass($1) AND a.backend_type = 'autovacuum worker' AND l.granted";
    let limit = Duration::from_secs(180);
    until_within(limit, "autovacuum works on the table", async || client.query_opt(works, &[&table]).await.unwrap())
        .await;
}
