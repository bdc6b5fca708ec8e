//! Access to the one writing connection: a bounded queue to its thread, or a direct call.
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ports::Error;
use rusqlite::Connection;

use crate::connection::completion::{CompleteOnDrop, Completion};
use crate::connection::group_commit::{ClosureCommand, SavepointMode, WriteContext, WriterCommand, WritingConnection};
use crate::connection::queue::{PushError, Queue};
use crate::connection::readers::snapshot;
use crate::connection::wal_limit::WalLimit;
use crate::error::{CommandResult, closed};

/// Runs write commands one after another.
pub(crate) enum Writer {
    /// On a dedicated thread with group commit.
    Thread {
        /// Commands that wait for the thread.
        queue: Arc<Queue<Box<dyn WriterCommand>>>,
        /// Set when the thread has ended.
        done: Arc<Completion>,
    },
    /// On the calling thread. `None` after the store was closed.
    Inline(Mutex<Option<WritingConnection>>),
}

impl Writer {
    /// Starts the writing thread. At most `capacity` commands wait, and at most `group_max` share a commit.
    pub(crate) fn start_thread(
        connection: WritingConnection,
        capacity: usize,
        group_max: usize,
    ) -> std::io::Result<Self> {
        let queue = Arc::new(Queue::new(capacity));
        let done = Arc::new(Completion::default());
        let (commands, completion) = (queue.clone(), CompleteOnDrop(done.clone()));
        let body = move || {
            // Declared first, so that it is dropped last: the flag means that the connection is closed.
            let _completion = completion;
            run_commands(connection, &commands, group_max.max(1));
        };
        std::thread::Builder::new().name("posthaste-writer".into()).spawn(body)?;
        Ok(Self::Thread { queue, done })
    }

    /// Runs a command, possibly in one transaction with others. Its changes are durable when this returns.
    ///
    /// # Errors
    /// [`Error::Overloaded`] when the queue is full; [`Error::Unknown`] when the thread ended before the command's commit was confirmed.
    pub(crate) async fn call<T, F>(
        &self,
        operation: &'static str,
        savepoint_mode: SavepointMode,
        command: F,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&mut WriteContext<'_>) -> CommandResult<T> + Send + 'static,
    {
        let (command, result) = ClosureCommand::new(operation, savepoint_mode, command);
        match self {
            Writer::Thread { queue, .. } => match queue.push(Box::new(command)) {
                Ok(()) => {}
                Err(PushError::Full) => {
                    return Err(Error::Overloaded(format!("{operation}: the writer's queue is full")));
                }
                Err(PushError::Closed) => return Err(closed(operation)),
            },
            Writer::Inline(connection) => match connection.lock().as_mut() {
                Some(connection) => connection.run(VecDeque::from([Box::new(command) as Box<dyn WriterCommand>])),
                None => return Err(closed(operation)),
            },
        }
        result.await.unwrap_or_else(|_| {
            Err(Error::Unknown(format!("{operation}: the writer stopped before the command completed")))
        })
    }

    /// Reads on the writing connection. Inline mode only, which has no other connection.
    pub(crate) fn read_inline<T>(
        &self,
        operation: &'static str,
        read: impl FnOnce(&Connection) -> CommandResult<T>,
    ) -> Result<T, Error> {
        match self {
            Writer::Inline(connection) => match connection.lock().as_ref() {
                Some(connection) => snapshot(&connection.sql, read).map_err(|error| error.to_port_error(operation)),
                None => Err(closed(operation)),
            },
            Writer::Thread { .. } => Err(Error::Broken(format!("{operation}: no reader"))),
        }
    }

    /// Share of the queue in use, 0.0..=1.0.
    pub(crate) fn saturation(&self) -> f64 {
        match self {
            Writer::Thread { queue, .. } => queue.saturation(),
            Writer::Inline(_) => 0.0,
        }
    }

    /// Refuses further commands. Queued commands still run.
    pub(crate) fn close(&self) {
        match self {
            Writer::Thread { queue, .. } => queue.close(),
            // Without a checkpoint, which would wait for the readers of a running service and keep its writes waiting meanwhile. If no other
            // connection is open, SQLite checkpoints when this one closes.
            Writer::Inline(connection) => drop(connection.lock().take()),
        }
    }

    /// Waits for at most `limit` until the thread has run its last command; returns whether it has.
    pub(crate) async fn finished(&self, limit: Duration) -> bool {
        match self {
            Writer::Thread { done, .. } => done.wait(limit).await,
            Writer::Inline(_) => true,
        }
    }

    /// As [`Writer::finished`], but blocks the calling thread.
    pub(crate) fn finished_blocking(&self, limit: Duration) -> bool {
        match self {
            Writer::Thread { done, .. } => done.wait_blocking(limit),
            Writer::Inline(_) => true,
        }
    }
}

/// Runs the commands of the queue until it is closed and empty.
fn run_commands(mut connection: WritingConnection, commands: &Queue<Box<dyn WriterCommand>>, group_max: usize) {
    let mut wal_limit = WalLimit::new(&connection.sql);
    loop {
        let group = commands.take(group_max);
        if group.is_empty() {
            break;
        }
        connection.run(group);
        wal_limit.enforce(&connection.sql);
    }
    checkpoint(&connection);
}

/// Checkpoints the write-ahead log, so that a copy of the file is complete. After a failure the next opening repeats it.
fn checkpoint(connection: &WritingConnection) {
    let _ = connection.sql.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)");
}
