//! Writers of other services: transactions of every shape on PostgreSQL, each recorded in the writer's own table. The record commits with the
//! event, so the table also decides a commit whose reply was lost.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;

use kit::clock::SeededRng;
use kit::wait::pause;
use ports::clock::Rng;
use tokio_postgres::Error;

use crate::harness::backend::Backend;
use crate::harness::database::DatabaseSession;

/// Keys that all writers share, so that they wait for each other's transactions. They are in the order in which `publish_all` locks them,
/// and every transaction keeps to it: no two of them deadlock.
pub const KEYS: [&str; 6] =
    ["0190163d-8694-739b-aea5-966c26f8ad90", "customer 7", "customer 8", "k", "Ärger/ä", "東京"];
/// Value of the header `tenant` of every event.
pub const TENANT: &str = "blue";
pub const SQL_TYPE: &str = "CustomerMoved";
pub const SQL_CONTENT_TYPE: &str = "application/octet-stream";

/// The position is drawn while the transaction holds the lock of its key: the positions of a key ascend in the order of its commits.
const TABLE: &str = "CREATE SEQUENCE customer_position; CREATE TABLE customer_change
  (event_id uuid PRIMARY KEY, key text NOT NULL, position bigint NOT NULL, writer integer NOT NULL)";
/// Duration of a long transaction in seconds: longer than a lease of the tests.
const LONG_SECONDS: u32 = 4;
/// Pause of a writer between two transactions.
const PAUSE: Duration = Duration::from_millis(20);

/// A committed event as its writer recorded it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlChange {
    pub event_id: String,
    pub key: String,
    pub position: u64,
    pub writer: u8,
}

/// The value that a writer gives its events.
pub fn sql_value(writer: u8) -> [u8; 2] {
    [writer, 0xff]
}

/// Every event of a committed transaction, in the order in which the writers got the locks of their keys.
pub fn changes(backend: &Backend) -> Vec<SqlChange> {
    let rows = backend.database.rows("SELECT event_id, key, position, writer FROM customer_change ORDER BY position");
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let change = |row: Vec<String>| SqlChange {
        event_id: row[0].clone(),
        key: row[1].clone(),
        position: number(&row[2]),
        writer: number(&row[3]).try_into().expect("the number of a writer"),
    };
    rows.into_iter().map(change).collect()
}

/// Running writers, each with a thread and a session of its own. Dropped, they end after their transactions.
pub struct SqlWriters {
    ended: Arc<AtomicBool>,
    completed: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

impl SqlWriters {
    /// Creates the writers' table and starts this number of them. The schema of the service must exist.
    pub fn start(backend: &Backend, topic: &str, number: u8, seed: u64) -> Self {
        backend.database.rows(TABLE);
        let (ended, completed) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let spawn = |writer: u8| {
            let writer = SqlWriter {
                session: backend.database.session(),
                topic: topic.to_owned(),
                number: writer,
                rng: SeededRng::new(seed.wrapping_add(u64::from(writer))),
            };
            let (ended, completed) = (Arc::clone(&ended), Arc::clone(&completed));
            std::thread::spawn(move || writer.run(&ended, &completed))
        };
        let threads = (0..number).map(spawn).collect();
        Self { ended, completed, threads }
    }

    /// Number of transactions whose end the server has confirmed.
    pub fn completed(&self) -> usize {
        self.completed.load(SeqCst)
    }

    /// Waits for each writer's current transaction.
    pub fn finish(mut self) {
        self.ended.store(true, SeqCst);
        for thread in std::mem::take(&mut self.threads) {
            thread.join().expect("no statement of a writer failed");
        }
    }
}

impl Drop for SqlWriters {
    fn drop(&mut self) {
        self.ended.store(true, SeqCst);
    }
}

/// The shape of a transaction.
#[derive(Clone, Copy, Debug)]
enum TransactionShape {
    Commit,
    Rollback,
    /// Events of two keys after a savepoint are undone; the transaction commits.
    UndoneSavepoint,
    /// Three events of two keys in one call.
    Batch,
    Long,
}

impl TransactionShape {
    /// Few are long: the other writers and HTTP requests of the same key wait for each of them.
    fn of(draw: u64) -> Self {
        match draw % 64 {
            0 => Self::Long,
            1..=8 => Self::Rollback,
            9..=20 => Self::UndoneSavepoint,
            21..=32 => Self::Batch,
            _ => Self::Commit,
        }
    }

    fn script(self, topic: &str, keys: [&str; 2], writer: u8) -> String {
        let [event, other] = keys.map(|key| publish(topic, key, writer));
        match self {
            Self::Commit => format!("BEGIN; {event}; COMMIT"),
            Self::Rollback => format!("BEGIN; {event}; ROLLBACK"),
            Self::UndoneSavepoint => {
                format!("BEGIN; {event}; SAVEPOINT s; {event}; {other}; ROLLBACK TO s; {event}; COMMIT")
            }
            Self::Batch => format!("BEGIN; {}; COMMIT", publish_all(topic, keys, writer)),
            Self::Long => format!("BEGIN; {event}; SELECT pg_sleep({LONG_SECONDS}); COMMIT"),
        }
    }
}

/// Publishes an event and records it. The materialized part is evaluated first: the position is drawn under the lock of the key.
fn publish(topic: &str, key: &str, writer: u8) -> String {
    format!(
        "WITH published AS MATERIALIZED (SELECT posthaste.publish(topic => '{topic}', key => '{key}', type => '{SQL_TYPE}',
           payload => '\\x{writer:02x}ff'::bytea, content_type => '{SQL_CONTENT_TYPE}', headers => '{{\"tenant\": \"{TENANT}\"}}') AS id)
         INSERT INTO customer_change SELECT id, '{key}', nextval('customer_position'), {writer} FROM published"
    )
}

/// Publishes two events of the first key and one of the second, and records them.
fn publish_all(topic: &str, [first, second]: [&str; 2], writer: u8) -> String {
    let keys = format!("ARRAY['{first}', '{second}', '{first}']");
    let three = |value: String| format!("array_fill({value}, ARRAY[3])");
    let (topics, types) = (three(format!("'{topic}'::text")), three(format!("'{SQL_TYPE}'::text")));
    let payloads = three(format!("'\\x{writer:02x}ff'::bytea"));
    let headers = three(format!("'{{\"tenant\": \"{TENANT}\"}}'::jsonb"));
    let content_types = three(format!("'{SQL_CONTENT_TYPE}'::text"));
    format!(
        "WITH published AS MATERIALIZED (SELECT posthaste.publish_all(topics => {topics}, keys => {keys}, types => {types},
           payloads => {payloads}, headers => {headers}, content_types => {content_types}) AS ids)
         INSERT INTO customer_change SELECT one.id, one.key, nextval('customer_position'), {writer}
           FROM published, unnest(published.ids, {keys}) AS one (id, key)"
    )
}

struct SqlWriter {
    session: DatabaseSession,
    topic: String,
    number: u8,
    rng: SeededRng,
}

impl SqlWriter {
    fn run(mut self, ended: &AtomicBool, completed: &AtomicUsize) {
        while !ended.load(SeqCst) {
            let shape = TransactionShape::of(self.rng.next_u64());
            let script = shape.script(&self.topic, self.keys(), self.number);
            match self.session.execute(&script) {
                Ok(()) => {
                    completed.fetch_add(1, SeqCst);
                }
                Err(error) => assert!(is_outage(&error), "writer {}: {error:?} for {script}", self.number),
            }
            pause(PAUSE);
        }
    }

    /// Two different keys in the order of [`KEYS`].
    fn keys(&self) -> [&'static str; 2] {
        let random_below = |limit: usize| (self.rng.next_u64() % limit as u64) as usize;
        let first = random_below(KEYS.len() - 1);
        [KEYS[first], KEYS[first + 1 + random_below(KEYS.len() - 1 - first)]]
    }
}

/// Whether the connection was lost or the server ends or starts: the next transaction connects again.
fn is_outage(error: &Error) -> bool {
    let is_outage_code = |code: &str| code.starts_with("08") || ["57P01", "57P02", "57P03"].contains(&code);
    error.code().is_none_or(|code| is_outage_code(code.code()))
}
