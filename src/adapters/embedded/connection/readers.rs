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
    sql.prepare_cached("COMMIT")?.execute([])?;
    result
}

fn read_all(sql: Connection, reads: &Queue<Read>) {
    loop {
        // One at a time, so that an idle thread can take the next read.
        let Some(read) = reads.take(1).pop_front() else { return };
        read(&sql);
    }
}
