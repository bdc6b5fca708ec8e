//! The way to the one connection that writes: a bounded queue to its thread, or a call on the spot.
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ports::Error;
use rusqlite::Connection;

use crate::connection::completion::{CompleteOnDrop, Completion};
use crate::connection::group_commit::{ClosureCommand, Engine, Isolation, WriteContext, WriterCommand};
use crate::connection::queue::{PushError, Queue};
use crate::connection::readers::snapshot;
use crate::error::{CommandResult, closed};

/// Runs commands, one after another.
pub(crate) enum Writer {
    /// On a thread, in groups.
    Thread {
        /// Commands that wait.
        queue: Arc<Queue<Box<dyn WriterCommand>>>,
        /// Raised when the thread has ended.
        done: Arc<Completion>,
    },
    /// On the calling thread. `None` once closed.
    Inline(Mutex<Option<Engine>>),
}

impl Writer {
    /// Starts the thread.
    pub(crate) fn thread(engine: Engine, capacity: usize, group_max: usize) -> std::io::Result<Self> {
        let queue = Arc::new(Queue::new(capacity));
        let done = Arc::new(Completion::default());
        let (jobs, raised) = (queue.clone(), CompleteOnDrop(done.clone()));
        let body = move || {
            // Named first, so that it is dropped last: the flag says that the connection is closed.
            let _raised = raised;
            write_all(engine, &jobs, group_max.max(1));
        };
        std::thread::Builder::new().name("posthaste-writer".into()).spawn(body)?;
        Ok(Self::Thread { queue, done })
    }

    /// Runs a command in a transaction of its own or shared with others; durable when it answers.
    pub(crate) async fn call<T, F>(&self, operation: &'static str, isolation: Isolation, context: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&mut WriteContext<'_>) -> CommandResult<T> + Send + 'static,
    {
        let (call, answer) = ClosureCommand::new(operation, isolation, context);
        match self {
            Writer::Thread { queue, .. } => match queue.put(Box::new(call)) {
                Ok(()) => {}
                Err(PushError::Full) => {
                    return Err(Error::Overloaded(format!("{operation}: the writer's queue is full")));
                }
                Err(PushError::Closed) => return Err(closed(operation)),
            },
            Writer::Inline(engine) => match engine.lock().as_mut() {
                Some(engine) => engine.run(VecDeque::from([Box::new(call) as Box<dyn WriterCommand>])),
                None => return Err(closed(operation)),
            },
        }
        answer
            .await
            .unwrap_or_else(|_| Err(Error::Unknown(format!("{operation}: the writer stopped before it answered"))))
    }

    /// Reads on the writing connection; only inline, where there is no other.
    pub(crate) fn read_inline<T>(
        &self,
        operation: &'static str,
        read: impl FnOnce(&Connection) -> CommandResult<T>,
    ) -> Result<T, Error> {
        match self {
            Writer::Inline(engine) => match engine.lock().as_ref() {
                Some(engine) => snapshot(&engine.sql, read).map_err(|error| error.to_port_error(operation)),
                None => Err(closed(operation)),
            },
            Writer::Thread { .. } => Err(Error::Broken(format!("{operation}: no reader"))),
        }
    }

    /// How full the queue is.
    pub(crate) fn fill(&self) -> f64 {
        match self {
            Writer::Thread { queue, .. } => queue.fill(),
            Writer::Inline(_) => 0.0,
        }
    }

    /// Takes no more commands; those that wait are still run.
    pub(crate) fn shut(&self) {
        match self {
            Writer::Thread { queue, .. } => queue.close(),
            Writer::Inline(engine) => {
                if let Some(engine) = engine.lock().take() {
                    checkpoint(&engine);
                }
            }
        }
    }

    /// Waits for the last command; says whether it was done in time.
    pub(crate) async fn finished(&self, limit: Duration) -> bool {
        match self {
            Writer::Thread { done, .. } => done.wait(limit).await,
            Writer::Inline(_) => true,
        }
    }

    /// As [`Writer::finished`], on this thread.
    pub(crate) fn finished_blocking(&self, limit: Duration) -> bool {
        match self {
            Writer::Thread { done, .. } => done.wait_blocking(limit),
            Writer::Inline(_) => true,
        }
    }
}

fn write_all(mut engine: Engine, jobs: &Queue<Box<dyn WriterCommand>>, group_max: usize) {
    loop {
        let group = jobs.take(group_max);
        if group.is_empty() {
            break;
        }
        engine.run(group);
    }
    checkpoint(&engine);
}

/// Moves the log into the file, so that an operator finds one file. What fails here fails harmlessly: the next opening does it.
fn checkpoint(engine: &Engine) {
    let _ = engine.sql.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)");
}
