//! Waits for the tasks of clients and writers to end, and aborts the late ones.
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::error::Error;

/// Waits until each task has ended, and aborts those that do not within the time; returns their number.
///
/// # Errors
/// The first error of a task.
pub(super) async fn finish_all(tasks: Vec<JoinHandle<Result<(), Error>>>, limit: Duration) -> Result<usize, Error> {
    let (begin, mut unfinished) = (Instant::now(), 0);
    for mut task in tasks {
        match timeout(limit.saturating_sub(begin.elapsed()), &mut task).await {
            Ok(ended) => ended.map_err(Error::new)??,
            Err(_) => {
                task.abort();
                unfinished += 1;
            }
        }
    }
    Ok(unfinished)
}
