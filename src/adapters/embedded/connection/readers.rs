//! Connections that read, each on a thread of its own. A read begins after the call, so it sees every commit that was answered.
use std::sync::Arc;
use std::time::Duration;

use ports::Error;
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::connection::completion::{CompleteOnDrop, Completion};
use crate::connection::queue::{PushError, Queue};
use crate::error::{CommandResult, broken, closed};

type Read = Box<dyn FnOnce(&Connection) + Send>;

/// A small pool.
pub(crate) struct Readers {
    queue: Arc<Queue<Read>>,
    done: Vec<Arc<Completion>>,
}

impl Readers {
    /// One thread for each connection.
    pub(crate) fn new(connections: Vec<Connection>, capacity: usize) -> std::io::Result<Self> {
        let queue = Arc::new(Queue::<Read>::new(capacity));
        let mut done = Vec::with_capacity(connections.len());
        for (number, sql) in connections.into_iter().enumerate() {
            let flag = Arc::new(Completion::default());
            let (reads, raised) = (queue.clone(), CompleteOnDrop(flag.clone()));
            let body = move || {
                let _raised = raised;
                read_all(sql, &reads);
            };
            std::thread::Builder::new().name(format!("posthaste-reader-{number}")).spawn(body)?;
            done.push(flag);
        }
        Ok(Self { queue, done })
    }

    /// Reads one snapshot.
    pub(crate) async fn read<T, F>(&self, operation: &'static str, read: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> CommandResult<T> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job: Read = Box::new(move |sql| {
            let result = snapshot(sql, read).map_err(|error| error.to_port_error(operation));
            // A caller that has gone away no longer wants to know.
            let _ = reply.send(result);
        });
        match self.queue.put(job) {
            Ok(()) => {}
            Err(PushError::Full) => return Err(Error::Overloaded(format!("{operation}: the readers' queue is full"))),
            Err(PushError::Closed) => return Err(closed(operation)),
        }
        answer.await.unwrap_or_else(|_| Err(Error::Unreachable(format!("{operation}: a reader stopped"))))
    }

    /// Takes no more reads.
    pub(crate) fn shut(&self) {
        self.queue.close();
    }

    /// Waits for the threads on this one.
    pub(crate) fn finished_blocking(&self, limit: Duration) {
        self.done.iter().for_each(|done| {
            done.wait_blocking(limit);
        });
    }

    /// Waits for the threads in a task.
    pub(crate) async fn finished(&self, limit: Duration) {
        for done in &self.done {
            done.wait(limit).await;
        }
    }
}

/// Several statements of one read must see one state of the file.
pub(crate) fn snapshot<T>(sql: &Connection, read: impl FnOnce(&Connection) -> CommandResult<T>) -> CommandResult<T> {
    sql.prepare_cached("BEGIN")?.execute([])?;
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| read(sql)))
        .unwrap_or_else(|_| Err(broken("a defect stopped the read")));
    sql.prepare_cached("COMMIT")?.execute([])?;
    result
}

fn read_all(sql: Connection, reads: &Queue<Read>) {
    loop {
        // One at a time: the next read may go to another thread.
        let Some(read) = reads.take(1).pop_front() else { return };
        read(&sql);
    }
}
