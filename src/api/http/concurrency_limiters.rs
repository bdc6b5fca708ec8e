//! Load shedding: refuses requests that would only lengthen the queue before the store.
use std::time::Duration;

use app::policy::load_shedding::{self, AdaptiveLimit};
use parking_lot::Mutex;
use telemetry::{IntCounter, IntGauge, Metrics};
use tokio::time::{Instant, sleep};

use crate::error::Problem;

/// Delay of a refusal: a client that retries at once costs as much as one that is served. Undelayed refusals kept two cores
/// busy and made admitted requests four times slower.
const REFUSAL_DELAY: Duration = Duration::from_millis(500);
/// Upper bound of the random additional delay: clients that are refused together must not retry together.
const REFUSAL_JITTER: Duration = Duration::from_secs(1);

/// The time between a refusal and its response; `random` is in 0.0..1.0. At most half of the request timeout, whose expiry would report an
/// unknown outcome of a change.
fn refusal_delay(random: f64, request_timeout: Duration) -> Duration {
    let share = (request_timeout / 2).div_duration_f64(REFUSAL_DELAY + REFUSAL_JITTER).min(1.0);
    (REFUSAL_DELAY + REFUSAL_JITTER.mul_f64(random)).mul_f64(share)
}

/// A limiter for each class of requests with similar durations: overload of one class does not refuse the others.
pub(crate) struct ConcurrencyLimiters {
    /// Limits creates and changes.
    pub(crate) changes: ConcurrencyLimiter,
    /// Limits reads of one order.
    pub(crate) reads: ConcurrencyLimiter,
    /// Limits lists and pages.
    pub(crate) lists: ConcurrencyLimiter,
}

impl ConcurrencyLimiters {
    pub(crate) fn new(metrics: &Metrics, request_timeout: Duration) -> Self {
        let limiter = |class, limits| ConcurrencyLimiter::new(class, limits, metrics, request_timeout);
        Self {
            changes: limiter("change", load_shedding::ConcurrencyLimits::CHANGES),
            reads: limiter("read", load_shedding::ConcurrencyLimits::READS),
            lists: limiter("list", load_shedding::ConcurrencyLimits::LISTS),
        }
    }
}

/// Limits the requests of one class that are in progress.
pub(crate) struct ConcurrencyLimiter {
    started: Instant,
    request_timeout: Duration,
    adaptive_limit: Mutex<AdaptiveLimit>,
    refused: IntCounter,
    limit: IntGauge,
}

impl ConcurrencyLimiter {
    fn new(
        class: &str,
        limits: load_shedding::ConcurrencyLimits,
        metrics: &Metrics,
        request_timeout: Duration,
    ) -> Self {
        let adaptive_limit = AdaptiveLimit::new(limits);
        let (refused, limit) = (metrics.orders_shed_count.with([class]), metrics.orders_in_flight_limit.with([class]));
        limit.set(adaptive_limit.limit().into());
        Self { started: Instant::now(), request_timeout, adaptive_limit: Mutex::new(adaptive_limit), refused, limit }
    }

    /// Acquires a permit without waiting for one.
    ///
    /// # Errors
    /// 503 after the refusal delay when the limit is reached; nothing was changed.
    pub(crate) async fn acquire(&self) -> Result<RequestPermit<'_>, Problem> {
        if let Some(permit) = self.try_acquire() {
            return Ok(permit);
        }
        self.refused.inc();
        sleep(refusal_delay(rand::random(), self.request_timeout)).await;
        Err(Problem::unavailable("too many requests of this kind are waiting; nothing was changed", 1))
    }

    fn try_acquire(&self) -> Option<RequestPermit<'_>> {
        let admitted = self.change_limit(|limit| limit.try_acquire(self.started.elapsed()));
        admitted.then(|| RequestPermit { limiter: self, acquired_at: Instant::now(), reached_store: false })
    }

    /// Applies a change, and shows the new limit in the metric.
    fn change_limit<T>(&self, change: impl FnOnce(&mut AdaptiveLimit) -> T) -> T {
        let mut adaptive_limit = self.adaptive_limit.lock();
        let before = adaptive_limit.limit();
        let result = change(&mut adaptive_limit);
        if adaptive_limit.limit() != before {
            self.limit.set(adaptive_limit.limit().into());
        }
        result
    }
}

/// The permit of an admitted request. Dropping it releases the permit, also when the client has disconnected.
pub(crate) struct RequestPermit<'a> {
    limiter: &'a ConcurrencyLimiter,
    acquired_at: Instant,
    reached_store: bool,
}

impl RequestPermit<'_> {
    /// Releases the permit. Only requests that the store executed (`reached_store`) measure its queue.
    pub(crate) fn release(mut self, reached_store: bool) {
        self.reached_store = reached_store;
    }
}

impl Drop for RequestPermit<'_> {
    fn drop(&mut self) {
        let now = Instant::now();
        let latency = self.reached_store.then(|| now - self.acquired_at);
        self.limiter.change_limit(|limit| limit.release(now - self.limiter.started, latency));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    /// Sends `size` requests at once, each of which the store answers after a second; returns how many were admitted.
    async fn burst(limiter: &ConcurrencyLimiter, size: usize) -> usize {
        let permits: Vec<RequestPermit<'_>> = (0..size).filter_map(|_| limiter.try_acquire()).collect();
        sleep(Duration::from_secs(1)).await;
        let admitted = permits.len();
        permits.into_iter().for_each(|permit| permit.release(true));
        admitted
    }

    #[test]
    fn refusals_are_sent_within_half_of_the_request_timeout() {
        let delays =
            |timeout| [0.0, 1.0].map(|random| refusal_delay(random, Duration::from_millis(timeout)).as_millis());
        assert_eq!(delays(10_000), [500, 1_500]);
        assert_eq!(delays(3_000), [500, 1_500]);
        assert_eq!(delays(1_200), [200, 600]);
        assert_eq!(delays(300), [50, 150]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_persistent_queue_lowers_the_limit_and_refusals_are_delayed() {
        let metrics = Metrics::new();
        let ConcurrencyLimiters { changes: limiter, reads, .. } =
            ConcurrencyLimiters::new(&metrics, Duration::from_secs(10));
        let first = burst(&limiter, 4_000).await;
        assert!((100..1_000).contains(&first), "{first}");
        let second = burst(&limiter, 4_000).await;
        assert!(second < first / 2, "{second} of {first}");

        let mut permits = Vec::new();
        let started = Instant::now();
        let refused = loop {
            match limiter.acquire().await {
                Ok(permit) => permits.push(permit),
                Err(refused) => break refused,
            }
        };
        assert_eq!(refused.code, ErrorCode::Infrastructure);
        let delays = REFUSAL_DELAY..=REFUSAL_DELAY + REFUSAL_JITTER;
        assert!(delays.contains(&started.elapsed()), "{:?}", started.elapsed());
        assert_eq!(metrics.orders_shed_count.with(["change"]).get(), 1);
        assert_eq!(metrics.orders_in_flight_limit.with(["change"]).get(), i64::try_from(permits.len()).unwrap());
        assert_eq!(reads.limit.get(), metrics.orders_in_flight_limit.with(["read"]).get());
        assert!(reads.try_acquire().is_some(), "overload of changes does not refuse reads");

        // A disconnected client frees its permit and measures nothing.
        permits.pop();
        assert!(limiter.acquire().await.is_ok());

        drop(permits);
        sleep(Duration::from_secs(1)).await;
        assert_eq!(burst(&limiter, 200).await, 200, "a pause has ended the queue");
    }
}
