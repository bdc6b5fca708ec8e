//! Connections for reads, each on its own thread. A read begins after its call, so it sees every commit whose caller has returned.
use std::sync::Arc;
use std::time::Duration;

use ports::Error;
use rusqlite::{Connection, ErrorCode};
use tokio::sync::oneshot;

use crate::connection::completion::{CompleteOnDrop, Completion};
use crate::connection::queue::{PushError, Queue};
use crate::connection::read_interrupt::ReadInterrupt;
use crate::error::{CommandResult, WriteError, broken, closed};

type Read = Box<dyn FnOnce(&Connection, &ReadInterrupt) + Send>;

/// A pool of reading threads with one bounded queue.
pub(crate) struct Readers {
    queue: Arc<Queue<Read>>,
    done: Vec<Arc<Completion>>,
    time_max: Duration,
}

impl Readers {
    /// Starts one thread for each connection. At most `capacity` reads wait, and each may take `time_max` after its wait.
    pub(crate) fn new(connections: Vec<Connection>, capacity: usize, time_max: Duration) -> std::io::Result<Self> {
        let queue = Arc::new(Queue::<Read>::new(capacity));
        let mut done = Vec::with_capacity(connections.len());
        for (number, mut sql) in connections.into_iter().enumerate() {
            let interrupt = ReadInterrupt::install(&mut sql).map_err(std::io::Error::other)?;
            let flag = Arc::new(Completion::default());
            let (reads, completion) = (queue.clone(), CompleteOnDrop(flag.clone()));
            let body = move || {
                let _completion = completion;
                run_reads(&sql, &interrupt, &reads);
            };
            std::thread::Builder::new().name(format!("posthaste-reader-{number}")).spawn(body)?;
            done.push(flag);
        }
        Ok(Self { queue, done, time_max })
    }

    /// Runs `read` on one snapshot of the file. Cancel-safe: a read whose caller has gone does not begin, or is interrupted.
    ///
    /// # Errors
    /// [`Error::Overloaded`] when the queue is full; [`Error::Unreachable`] when the read took too long, or after the store was closed.
    pub(crate) async fn read<T, F>(&self, operation: &'static str, read: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> CommandResult<T> + Send + 'static,
    {
        let (reply, result) = oneshot::channel();
        let caller = Arc::new(());
        let (waiting, time_max) = (Arc::downgrade(&caller), self.time_max);
        let job: Read = Box::new(move |sql, interrupt| {
            if waiting.strong_count() == 0 {
                return;
            }
            let limited = |sql: &Connection| {
                let _limited = interrupt.limit(waiting, time_max);
                read(sql)
            };
            // The caller may have dropped its receiver.
            let _ = reply.send(snapshot(sql, limited).map_err(|error| port_error(&error, operation, time_max)));
        });
        match self.queue.push(job) {
            Ok(()) => {}
            Err(PushError::Full) => return Err(Error::Overloaded(format!("{operation}: the readers' queue is full"))),
            Err(PushError::Closed) => return Err(closed(operation)),
        }
        let result = result.await;
        drop(caller);
        result.unwrap_or_else(|_| Err(Error::Unreachable(format!("{operation}: a reader stopped"))))
    }

    /// Refuses further reads. Queued reads still run.
    pub(crate) fn close(&self) {
        self.queue.close();
    }

    /// Blocks until the threads have ended, for at most `limit` each.
    pub(crate) fn finished_blocking(&self, limit: Duration) {
        self.done.iter().for_each(|done| {
            done.wait_blocking(limit);
        });
    }

    /// Waits until the threads have ended, for at most `limit` each.
    pub(crate) async fn finished(&self, limit: Duration) {
        for done in &self.done {
            done.wait(limit).await;
        }
    }
}

/// Runs `read` in one transaction, so that all its statements see the same state of the file.
pub(crate) fn snapshot<T>(sql: &Connection, read: impl FnOnce(&Connection) -> CommandResult<T>) -> CommandResult<T> {
    sql.prepare_cached("BEGIN")?.execute([])?;
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| read(sql)))
        .unwrap_or_else(|_| Err(broken("a defect stopped the read")));
    if result.is_ok() {
        sql.prepare_cached("COMMIT")?.execute([])?;
    } else if !sql.is_autocommit() {
        // SQLite rolls back by itself after some errors, such as SQLITE_IOERR. The caller receives the error of the read.
        let _ = sql.execute_batch("ROLLBACK");
    }
    result
}

/// The error for the caller of a read, which may have been interrupted.
fn port_error(error: &WriteError, operation: &str, time_max: Duration) -> Error {
    match error {
        WriteError::Sql(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
            Error::Unreachable(format!("{operation}: the read was interrupted after {time_max:?}"))
        }
        error => error.to_port_error(operation),
    }
}

/// Runs the reads of the queue until it is closed and empty.
fn run_reads(sql: &Connection, interrupt: &ReadInterrupt, reads: &Queue<Read>) {
    loop {
        // One at a time, so that an idle thread can take the next read.
        let Some(read) = reads.take(1).pop_front() else { return };
        read(sql, interrupt);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rusqlite::ffi;

    use super::*;

    fn readers(time_max: Duration) -> Readers {
        let connections = (0..2).map(|_| Connection::open_in_memory().expect("opened")).collect();
        Readers::new(connections, 1_000, time_max).expect("started")
    }

    /// A read that ends only when it is interrupted.
    fn endless(sql: &Connection) -> CommandResult<i64> {
        let count = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n";
        Ok(sql.query_row(count, [], |row| row.get(0))?)
    }

    #[tokio::test]
    async fn reads_without_a_caller_keep_no_later_read_waiting() {
        let readers = Arc::new(readers(Duration::from_secs(3_600)));
        let begun = Arc::new(AtomicUsize::new(0));
        let abandoned: Vec<_> = (0..100)
            .map(|_| {
                let (readers, begun) = (readers.clone(), begun.clone());
                let read = move |sql: &Connection| {
                    begun.fetch_add(1, Ordering::SeqCst);
                    endless(sql)
                };
                tokio::spawn(async move { readers.read("slow", read).await })
            })
            .collect();
        while begun.load(Ordering::SeqCst) < 2 || readers.queue.saturation() < 0.098 {
            tokio::task::yield_now().await;
        }

        // Those that wait first: a reader that becomes free takes the next one.
        for call in abandoned.into_iter().rev() {
            call.abort();
            assert!(call.await.is_err(), "it was dropped");
        }
        readers.read("next", |_| Ok(())).await.expect("the readers are free");

        assert_eq!(begun.load(Ordering::SeqCst), 2, "the reads that waited never began");
    }

    #[tokio::test]
    async fn read_that_takes_too_long_is_interrupted() {
        let readers = readers(Duration::ZERO);

        let error = readers.read("list", endless).await.expect_err("interrupted");

        assert!(matches!(&error, Error::Unreachable(message) if message.starts_with("list: ")), "{error}");
        readers.read("next", |_| Ok(())).await.expect("the connection reads again");
    }

    /// Ends the transaction as SQLite does, and returns an I/O error.
    fn fail_after_own_rollback(sql: &Connection) -> CommandResult<()> {
        sql.execute_batch("ROLLBACK")?;
        Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_IOERR_READ), None).into())
    }

    #[test]
    fn failed_read_returns_its_own_error_and_ends_its_transaction() {
        let sql = Connection::open_in_memory().expect("opened");
        type Read = fn(&Connection) -> CommandResult<()>;
        let failures: [(Read, &str); 3] = [
            (fail_after_own_rollback, "disk I/O error"),
            (|_| Err(broken("the row is damaged")), "the row is damaged"),
            (|_| panic!("a defect"), "a defect stopped the read"),
        ];
        for (read, expected) in failures {
            let error = snapshot(&sql, read).expect_err("it fails").to_port_error("list");

            assert!(error.to_string().contains(expected), "{error}");
            assert!(sql.is_autocommit(), "{expected}");
        }
        snapshot(&sql, |_| Ok(())).expect("the connection reads again");
    }
}
