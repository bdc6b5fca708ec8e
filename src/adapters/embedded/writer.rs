//! The way to the one connection that writes: a bounded queue to its thread, or a call on the spot.
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ports::Error;
use rusqlite::Connection;

use crate::done::{Done, RaiseOnDrop};
use crate::engine::{Call, Engine, Job, Manners, Work};
use crate::error::Answer;
use crate::queue::{Queue, Refused};
use crate::readers::snapshot;

/// Runs commands, one after another.
pub(crate) enum Writer {
    /// On a thread, in groups.
    Thread {
        /// Commands that wait.
        queue: Arc<Queue<Box<dyn Job>>>,
        /// Raised when the thread has ended.
        done: Arc<Done>,
    },
    /// On the calling thread. `None` once closed.
    Inline(Mutex<Option<Engine>>),
}

impl Writer {
    /// Starts the thread.
    pub(crate) fn thread(engine: Engine, capacity: usize, group_max: usize) -> std::io::Result<Self> {
        let queue = Arc::new(Queue::new(capacity));
        let done = Arc::new(Done::default());
        let (jobs, raised) = (queue.clone(), RaiseOnDrop(done.clone()));
        let body = move || {
            // Named first, so that it is dropped last: the flag says that the connection is closed.
            let _raised = raised;
            write_all(engine, &jobs, group_max.max(1));
        };
        std::thread::Builder::new().name("posthaste-writer".into()).spawn(body)?;
        Ok(Self::Thread { queue, done })
    }

    /// Runs a command in a transaction of its own or shared with others; durable when it answers.
    pub(crate) async fn call<T, F>(&self, doing: &'static str, manners: Manners, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&mut Work<'_>) -> Answer<T> + Send + 'static,
    {
        let (call, answer) = Call::new(doing, manners, work);
        match self {
            Writer::Thread { queue, .. } => match queue.put(Box::new(call)) {
                Ok(()) => {}
                Err(Refused::Full) => return Err(Error::Overloaded(format!("{doing}: the writer's queue is full"))),
                Err(Refused::Closed) => return Err(shut(doing)),
            },
            Writer::Inline(engine) => match engine.lock().as_mut() {
                Some(engine) => engine.run(VecDeque::from([Box::new(call) as Box<dyn Job>])),
                None => return Err(shut(doing)),
            },
        }
        answer.await.unwrap_or_else(|_| Err(Error::Unknown(format!("{doing}: the writer stopped before it answered"))))
    }

    /// Reads on the writing connection; only inline, where there is no other.
    pub(crate) fn read_inline<T>(
        &self,
        doing: &'static str,
        read: impl FnOnce(&Connection) -> Answer<T>,
    ) -> Result<T, Error> {
        match self {
            Writer::Inline(engine) => match engine.lock().as_ref() {
                Some(engine) => snapshot(&engine.sql, read).map_err(|trouble| trouble.told(doing)),
                None => Err(shut(doing)),
            },
            Writer::Thread { .. } => Err(Error::Broken(format!("{doing}: no reader"))),
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

fn write_all(mut engine: Engine, jobs: &Queue<Box<dyn Job>>, group_max: usize) {
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

pub(crate) fn shut(doing: &str) -> Error {
    Error::Unreachable(format!("{doing}: the store is closed"))
}
