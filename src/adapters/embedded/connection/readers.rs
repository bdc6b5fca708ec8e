//! Connections for reads, each on its own thread. A read begins after its call, so it sees every commit whose caller has returned.
use std::sync::Arc;
use std::time::Duration;

use ports::Error;
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::connection::completion::{CompleteOnDrop, Completion};
use crate::connection::queue::{PushError, Queue};
use crate::error::{CommandResult, broken, closed};

type Read = Box<dyn FnOnce(&Connection) + Send>;

/// A pool of reading threads with one bounded queue.
pub(crate) struct Readers {
    queue: Arc<Queue<Read>>,
    done: Vec<Arc<Completion>>,
}

impl Readers {
    /// Starts one thread for each connection. At most `capacity` reads wait.
    pub(crate) fn new(connections: Vec<Connection>, capacity: usize) -> std::io::Result<Self> {
        let queue = Arc::new(Queue::<Read>::new(capacity));
        let mut done = Vec::with_capacity(connections.len());
        for (number, sql) in connections.into_iter().enumerate() {
            let flag = Arc::new(Completion::default());
            let (reads, completion) = (queue.clone(), CompleteOnDrop(flag.clone()));
            let body = move || {
                let _completion = completion;
                read_all(sql, &reads);
            };
            std::thread::Builder::new().name(format!("posthaste-reader-{number}")).spawn(body)?;
            done.push(flag);
        }
        Ok(Self { queue, done })
    }

    /// Runs `read` on one snapshot of the file.
    ///
    /// # Errors
    /// [`Error::Overloaded`] when the queue is full; [`Error::Unreachable`] after the store was closed.
    pub(crate) async fn read<T, F>(&self, operation: &'static str, read: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> CommandResult<T> + Send + 'static,
    {
        let (reply, result) = oneshot::channel();
        let job: Read = Box::new(move |sql| {
            // The caller may have dropped its receiver.
            let _ = reply.send(snapshot(sql, read).map_err(|error| error.to_port_error(operation)));
        });
        match self.queue.put(job) {
            Ok(()) => {}
            Err(PushError::Full) => return Err(Error::Overloaded(format!("{operation}: the readers' queue is full"))),
            Err(PushError::Closed) => return Err(closed(operation)),
        }
        result.await.unwrap_or_else(|_| Err(Error::Unreachable(format!("{operation}: a reader stopped"))))
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

fn read_all(sql: Connection, reads: &Queue<Read>) {
    loop {
        // One at a time, so that an idle thread can take the next read.
        let Some(read) = reads.take(1).pop_front() else { return };
        read(&sql);
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

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
