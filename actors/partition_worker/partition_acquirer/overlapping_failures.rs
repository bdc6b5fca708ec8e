//! Gives calls to the broker that fail at the same time the same failure id: sixty partitions that wait for a broker report one failure.
use std::future::Future;

use parking_lot::Mutex;
use ports::Error;
use ports::broker::{BrokerFailure, FailureId};
use tokio::time::Instant;

/// The last failure, and when it was first seen.
#[derive(Default)]
pub struct OverlappingFailures(Mutex<Option<(Instant, FailureId)>>);

impl OverlappingFailures {
    /// Makes a call. A failure of a call that began before the last failure was seen has the same id: it adds no information about the broker.
    pub async fn call<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, BrokerFailure> {
        let started_at = Instant::now();
        call.await.map_err(|error| self.failed(started_at, error))
    }

    fn failed(&self, started_at: Instant, error: Error) -> BrokerFailure {
        let mut last = self.0.lock();
        match *last {
            Some((seen, id)) if started_at < seen => BrokerFailure { id, error },
            _ => {
                let failure = BrokerFailure::from(error);
                *last = Some((Instant::now(), failure.id));
                failure
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn fails_after(failures: &OverlappingFailures, millis: u64) -> FailureId {
        let call = async {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            Err::<(), Error>(Error::Unreachable("no broker".into()))
        };
        failures.call(call).await.expect_err("it fails").id
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_overlap_report_one_failure_and_later_calls_another() {
        let failures = OverlappingFailures::default();

        let (first, second) = tokio::join!(fails_after(&failures, 10), fails_after(&failures, 15));
        let third = fails_after(&failures, 10).await;
        let fourth = fails_after(&failures, 10).await;

        assert_eq!(first, second);
        assert!(third != first && fourth != third);
    }
}
