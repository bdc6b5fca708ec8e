//! The rows that still wait for the relay, or are parked, after the last fault.
use std::fmt::Display;
use std::time::Duration;

use ports::outbox::RowCounts;
use tokio::time::Instant;

use crate::error::Error;

/// Time between two reads of the counts.
const READ_INTERVAL: Duration = Duration::from_millis(100);

/// Rows that are left when the time for recovery is over.
#[derive(Debug, PartialEq)]
pub(super) struct RemainingRows {
    pub waiting: u64,
    pub parked: u64,
}

/// Reads the counts until no row waits, for at most this time, and returns the last ones. Instances that recover keep the store busy, so a failed
/// read is repeated.
///
/// # Errors
/// The last read failed.
pub(super) async fn await_drained<E: Display>(
    depth: impl AsyncFn() -> Result<RowCounts, E>,
    timeout: Duration,
) -> Result<RemainingRows, Error> {
    let begin = Instant::now();
    loop {
        let depth = depth().await;
        let is_over = begin.elapsed() > timeout;
        match depth {
            Ok(depth) => {
                let waiting = depth.pending + depth.in_flight + depth.failed;
                if waiting == 0 || is_over {
                    return Ok(RemainingRows { waiting, parked: depth.parked });
                }
            }
            Err(error) if is_over => return Err(Error::new(error)),
            Err(_) => {}
        }
        tokio::time::sleep(READ_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(120);

    /// Reads the counts; each read takes the next result, and the last one remains.
    async fn drained(results: &[Result<u64, &'static str>]) -> Result<RemainingRows, String> {
        let reads = Cell::new(0);
        let depth = async || {
            let result = results[reads.replace((reads.get() + 1).min(results.len() - 1))];
            result.map(|pending| RowCounts { pending, parked: 1, ..RowCounts::default() })
        };
        await_drained(depth, TIMEOUT).await.map_err(|error| error.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn failed_read_is_repeated_until_no_row_waits() {
        let result = drained(&[Ok(2), Err("slow"), Ok(1), Err("slow"), Ok(0)]).await;

        assert_eq!(result, Ok(RemainingRows { waiting: 0, parked: 1 }));
    }

    #[tokio::test(start_paused = true)]
    async fn last_read_is_the_result_when_the_time_is_over() {
        for (results, expected) in [
            ([Err("slow"), Ok(2)], Ok(RemainingRows { waiting: 2, parked: 1 })),
            ([Ok(2), Err("slow")], Err("slow".to_owned())),
        ] {
            let begin = Instant::now();
            assert_eq!(drained(&results).await, expected);
            assert!(begin.elapsed() > TIMEOUT && begin.elapsed() < 2 * TIMEOUT, "{:?}", begin.elapsed());
        }
    }
}
