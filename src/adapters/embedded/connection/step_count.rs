//! Counts the steps of SQLite's virtual machine for tests: the cost of statements, independent of the speed of the machine.
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::Connection;

use crate::connection::migrations::{self, Installation};
use crate::connection::settings;
use crate::options::WriterMode;

/// Steps between two calls of the progress handler, each of which adds as many. A statement with fewer steps may add nothing.
const STEP_INTERVAL: u64 = 100;

/// The steps that a connection has made.
#[derive(Clone, Default)]
pub(crate) struct StepCount(Arc<AtomicU64>);

impl StepCount {
    /// The steps of the statements that `run` executes.
    pub(crate) fn measure<T>(&self, run: impl FnOnce() -> T) -> (T, u64) {
        let before = self.0.load(Ordering::Relaxed);
        let result = run();
        (result, self.0.load(Ordering::Relaxed) - before)
    }
}

/// A connection to a new store with four outbox partitions, and the count of its steps.
pub(crate) fn counted_store(folder: &Path) -> (Connection, StepCount) {
    let mut sql = settings::open(&folder.join(settings::FILE)).expect("opened");
    settings::for_writing(&sql, 16 * 1024, WriterMode::Inline).expect("configured");
    migrations::migrate(&mut sql, 0, &Installation { id: None, partitions: 4 }).expect("migrated");
    let count = StepCount::default();
    let counter = count.0.clone();
    let handler = move || {
        counter.fetch_add(STEP_INTERVAL, Ordering::Relaxed);
        false
    };
    sql.progress_handler(STEP_INTERVAL as i32, Some(handler)).expect("counted");
    (sql, count)
}
