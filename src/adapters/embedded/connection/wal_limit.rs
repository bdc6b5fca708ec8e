//! The limit of SQLite's write-ahead log (WAL). Automatic checkpoints wait for no reader, and a writer reuses the WAL from its start only when no
//! reader uses it: while some reader always does, the WAL grows without end.
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::connection::settings;

/// Length of the WAL, in bytes, from which the writer waits for the readers. Sixteen times the length at which SQLite checkpoints it.
const BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Time for which the writer waits for the readers: they mostly need a few milliseconds.
const READERS_TIMEOUT: Duration = Duration::from_millis(100);

/// Time between two waits, so that long reads take a tenth of the writer's time at most.
const INTERVAL: Duration = Duration::from_secs(1);

/// Keeps the WAL of one database file short.
pub(crate) struct WalLimit {
    path: Option<PathBuf>,
    bytes_max: u64,
    interval: Duration,
    next: Instant,
}

impl WalLimit {
    /// The limit of the WAL of the connection's file.
    pub(crate) fn new(sql: &Connection) -> Self {
        let path = sql.path().map(|path| PathBuf::from(format!("{path}-wal")));
        Self { path, bytes_max: BYTES_MAX, interval: INTERVAL, next: Instant::now() }
    }

    /// Makes the next commit reuse the WAL from its start if it is too long and the readers finish in time. Called between transactions.
    pub(crate) fn enforce(&mut self, sql: &Connection) {
        let length = self.path.as_ref().and_then(|path| path.metadata().ok()).map_or(0, |file| file.len());
        if length <= self.bytes_max || Instant::now() < self.next {
            return;
        }
        // The WAL stays complete without this checkpoint; the next call tries again.
        let _ = settings::restart_wal(sql, READERS_TIMEOUT);
        self.next = Instant::now() + self.interval;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::options::WriterMode;

    /// Transactions of some milliseconds that overlap, so that one is always open, until the flag is set.
    fn always_read(one: &Connection, two: &Connection, end: &AtomicBool) {
        let begin = "BEGIN; SELECT count(*) FROM sqlite_schema;
          WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 20000) SELECT max(x) FROM n";
        one.execute_batch(begin).unwrap();
        while !end.load(Ordering::Acquire) {
            two.execute_batch(begin).unwrap();
            one.execute_batch("COMMIT").unwrap();
            one.execute_batch(begin).unwrap();
            two.execute_batch("COMMIT").unwrap();
        }
    }

    #[test]
    fn wal_stays_short_while_some_reader_is_always_active() {
        const MIB: u64 = 1024 * 1024;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(settings::FILE);
        let sql = settings::open(&path).unwrap();
        settings::for_writing(&sql, 2_048, WriterMode::Inline).unwrap();
        sql.execute_batch("CREATE TABLE t (x BLOB)").unwrap();
        let (one, two) = (settings::open_existing(&path).unwrap(), settings::open_existing(&path).unwrap());
        let end = Arc::new(AtomicBool::new(false));
        let ends = end.clone();
        let reading = std::thread::spawn(move || always_read(&one, &two, &ends));
        let mut limit = WalLimit { bytes_max: 4 * MIB, interval: Duration::ZERO, ..WalLimit::new(&sql) };

        for _ in 0..80 {
            sql.execute_batch("INSERT INTO t VALUES (zeroblob(1048576))").unwrap();
            limit.enforce(&sql);
        }
        end.store(true, Ordering::Release);
        reading.join().unwrap();

        let length = limit.path.unwrap().metadata().unwrap().len();
        assert!(length < 40 * MIB, "{length} bytes after 80 MiB were written");
    }

    #[test]
    fn long_read_delays_the_writer_only_for_a_moment() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(settings::FILE);
        let sql = settings::open(&path).unwrap();
        settings::for_writing(&sql, 2_048, WriterMode::Inline).unwrap();
        sql.execute_batch("CREATE TABLE t (x BLOB)").unwrap();
        let reader = settings::open_existing(&path).unwrap();
        reader.execute_batch("BEGIN; SELECT count(*) FROM t").unwrap();
        let mut limit = WalLimit { bytes_max: 0, ..WalLimit::new(&sql) };

        for _ in 0..100 {
            sql.execute_batch("INSERT INTO t VALUES (zeroblob(100))").unwrap();
            limit.enforce(&sql);
        }

        let rows: u32 = sql.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap();
        assert_eq!(rows, 100, "the writer went on during the read");
        let wait_ms: i64 = sql.pragma_query_value(None, "busy_timeout", |row| row.get(0)).unwrap();
        assert_eq!(wait_ms, 5_000, "a write still waits for another process");
    }
}
