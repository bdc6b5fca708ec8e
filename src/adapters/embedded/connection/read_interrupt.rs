//! Interrupts a read that takes too long or whose caller is gone: other reads wait for its connection.
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rusqlite::Connection;

/// Steps of SQLite's virtual machine between two checks: well below a millisecond, and a check costs less than a hundredth of them.
const STEPS: i32 = 4_000;

/// Interrupts the reads of one connection.
pub(crate) struct ReadInterrupt {
    running: Arc<Mutex<Option<RunningRead>>>,
}

struct RunningRead {
    /// Alive as long as the caller waits.
    caller: Weak<()>,
    deadline: Instant,
}

impl RunningRead {
    fn must_stop(&self) -> bool {
        self.caller.strong_count() == 0 || Instant::now() >= self.deadline
    }
}

impl ReadInterrupt {
    /// Installs SQLite's progress handler on the connection.
    pub(crate) fn install(sql: &mut Connection) -> rusqlite::Result<Self> {
        let running: Arc<Mutex<Option<RunningRead>>> = Arc::default();
        let current = running.clone();
        sql.progress_handler(STEPS, Some(move || current.lock().as_ref().is_some_and(RunningRead::must_stop)))?;
        Ok(Self { running })
    }

    /// Applies to the statements that run until the returned value is dropped. The end of the transaction must not be among them: a ROLLBACK that
    /// is interrupted leaves it open.
    pub(crate) fn limit(&self, caller: Weak<()>, time_max: Duration) -> LimitedRead<'_> {
        *self.running.lock() = Some(RunningRead { caller, deadline: Instant::now() + time_max });
        LimitedRead(self)
    }
}

/// A read that may be interrupted.
pub(crate) struct LimitedRead<'a>(&'a ReadInterrupt);

impl Drop for LimitedRead<'_> {
    fn drop(&mut self) {
        *self.0.running.lock() = None;
    }
}
