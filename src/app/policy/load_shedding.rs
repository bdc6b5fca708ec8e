//! Load shedding: an adaptive limit of concurrent requests that keeps the standing queue before the store short.
//!
//! A queue that empties now and then is a burst and needs no measure; a standing queue only adds latency (Nichols and Jacobson, CoDel,
//! 2012). CoDel uses the minimum wait of an interval. Here there is no single queue, and some requests are fast by chance while most wait:
//! the queue is standing when fewer than one request in four is fast. The limit follows from Little's law: the throughput of the interval times
//! the target latency.
//!
//! The target depends on overload. While few requests are rejected, a longer wait increases throughput, because commits share their cost.
//! When many are rejected all the same, a longer wait helps no request: admitted ones then take hardly longer than usual.
use std::time::Duration;

/// The service is overloaded when more than one request is rejected for this many completed ones.
const OVERLOAD_RATIO: u32 = 16;
/// Lower limit of the baseline latency: a store in memory would leave no time to wait at all.
const BASELINE_LATENCY_MIN: Duration = Duration::from_millis(1);
/// Shortest interval after which the limit is adapted.
const INTERVAL: Duration = Duration::from_millis(200);
/// Fewest completed requests in an interval that allow a decision.
const COMPLETED_MIN: u32 = 16;
/// The queue is standing when fewer than one completed request in this many was fast.
const FAST_RATIO: u32 = 4;

/// Bounds and start values of an [`AdaptiveLimit`].
#[derive(Clone, Copy, Debug)]
pub struct ConcurrencyLimits {
    /// Limit before any measurement, and while there is no standing queue.
    burst: u32,
    /// Lowest limit: enough requests to use the store fully. A slow store is not faster with fewer.
    floor: u32,
    /// Lowest limit under overload.
    overload_floor: u32,
    /// Latency above which a request has waited in a standing queue.
    wait_max: Duration,
    /// Usual latency before any measurement.
    baseline_latency: Duration,
}

impl ConcurrencyLimits {
    /// Creates and changes. Requests share the cost of a commit: 128 fill one on a slow disk, 32 justify one. At ten thousand requests a second
    /// a burst waits 25 ms; the wait for a few commits of a usual disk is not a queue.
    pub const CHANGES: Self =
        Self { burst: 256, floor: 128, overload_floor: 32, wait_max: ms(15), baseline_latency: ms(5) };
    /// Reads of one order: no more at once than a pool has connections, or a machine has cores.
    pub const READS: Self =
        Self { burst: 256, floor: 32, overload_floor: 16, wait_max: ms(15), baseline_latency: ms(5) };
    /// Lists: a thousand orders are a third of a megabyte and some milliseconds of a core, so a few at once use it fully.
    pub const LISTS: Self =
        Self { burst: 128, floor: 16, overload_floor: 8, wait_max: ms(100), baseline_latency: ms(20) };
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A limit of concurrent requests that adapts to measured latency. Times are since the service's start.
#[derive(Clone, Debug)]
pub struct AdaptiveLimit {
    limits: ConcurrencyLimits,
    limit: u32,
    in_flight: u32,
    /// Latency of a request while none is rejected.
    baseline_latency: Duration,
    overloaded: bool,
    /// Start of the interval, later by the time in which no request was in flight.
    since: Duration,
    interval: IntervalStats,
    /// When the last request in flight ended; `None` while one is in flight.
    idle_since: Option<Duration>,
}

/// Counts of one interval.
#[derive(Clone, Debug, Default)]
struct IntervalStats {
    completed: u32,
    fast: u32,
    total_latency: Duration,
    rejected: u32,
    /// Whether no request was in flight at some time: a queue that empties is a burst.
    emptied: bool,
}

impl AdaptiveLimit {
    /// Starts with the burst limit, without measurements.
    pub fn new(limits: ConcurrencyLimits) -> Self {
        let (since, interval) = (Duration::ZERO, IntervalStats::default());
        Self {
            limits,
            limit: limits.burst,
            in_flight: 0,
            baseline_latency: limits.baseline_latency,
            overloaded: false,
            since,
            interval,
            idle_since: Some(Duration::ZERO),
        }
    }

    /// Admits a request or rejects it. The caller must [`release`](Self::release) each admitted one.
    pub fn try_acquire(&mut self, now: Duration) -> bool {
        if let Some(idle_since) = self.idle_since.take() {
            self.end_idle_time(now.saturating_sub(idle_since), now);
        }
        let admitted = self.in_flight < self.limit;
        self.in_flight += u32::from(admitted);
        self.interval.rejected += u32::from(!admitted);
        admitted
    }

    /// Idle time counts neither as time of the interval, in which requests would have been completed, nor as overload: after a whole interval
    /// without a request no queue is left, and what was rejected before says nothing about the next burst. Latencies without a rejected request
    /// are kept: they are the usual ones, also where requests come seldom.
    fn end_idle_time(&mut self, idle: Duration, now: Duration) {
        self.since += idle;
        if idle < INTERVAL {
            return;
        }
        if self.interval.rejected > 0 {
            (self.since, self.interval) = (now, IntervalStats::default());
        }
        self.overloaded = false;
        self.limit = self.limit.max(self.limits.burst);
    }

    /// Ends an admitted request. `latency` is `None` for a request that did not reach the store: it shows nothing about the queue.
    pub fn release(&mut self, now: Duration, latency: Option<Duration>) {
        self.in_flight -= 1;
        if self.in_flight == 0 {
            self.idle_since = Some(now);
            self.interval.emptied = true;
        }
        let Some(latency) = latency else { return };
        self.interval.completed += 1;
        self.interval.fast += u32::from(latency <= self.target());
        self.interval.total_latency += latency;
        let elapsed = now.saturating_sub(self.since);
        if self.interval.completed >= COMPLETED_MIN && elapsed >= INTERVAL {
            self.adapt(elapsed);
            (self.since, self.interval) = (now, IntervalStats::default());
        }
    }

    /// The target latency of a request.
    fn target(&self) -> Duration {
        if self.overloaded {
            self.baseline_latency * 3 / 2
        } else {
            self.limits.wait_max.max(self.baseline_latency * 2)
        }
    }

    fn adapt(&mut self, elapsed: Duration) {
        let IntervalStats { completed, fast, total_latency, rejected, emptied } = self.interval;
        if rejected == 0 {
            self.update_baseline(total_latency / completed);
        }
        let most_waited =
            if self.overloaded { total_latency / completed > self.target() } else { fast < completed / FAST_RATIO };
        let overload_began = !self.overloaded && rejected > completed / OVERLOAD_RATIO;
        self.overloaded = rejected > completed / OVERLOAD_RATIO;
        self.limit = if !emptied && (most_waited || overload_began) {
            self.lowered(f64::from(completed) / elapsed.as_secs_f64())
        } else {
            self.raised()
        };
    }

    /// A moving average, so that one slow interval changes the baseline little.
    fn update_baseline(&mut self, latency: Duration) {
        self.baseline_latency =
            (self.baseline_latency * 15 + latency.clamp(BASELINE_LATENCY_MIN, self.baseline_latency * 2)) / 16;
    }

    fn lowered(&self, completed_per_s: f64) -> u32 {
        let floor = if self.overloaded { self.limits.overload_floor } else { self.limits.floor };
        let fit = (completed_per_s * self.target().as_secs_f64()) as u32;
        fit.min(self.limit).max(floor)
    }

    /// Grows in steps while requests are rejected, because the rejected ones would return all at once. At least a burst is admitted where none is
    /// rejected, and where the queue has emptied.
    fn raised(&self) -> u32 {
        let IntervalStats { rejected, emptied, .. } = self.interval;
        let grown = if rejected > 0 { self.limit.saturating_add(self.limit / 4) } else { self.limit };
        if rejected == 0 || emptied { grown.max(self.limits.burst) } else { grown }
    }

    /// The present limit of concurrent requests.
    pub fn limit(&self) -> u32 {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ConcurrencyLimits = ConcurrencyLimits::CHANGES;

    /// Simulates a store that completes `per_ms` requests each millisecond in arrival order, and clients that repeat a completed request at
    /// once, and a rejected one after 0.5 to 1.5 s. Returns the limit and the longest latency of the last half second.
    fn serve(limiter: &mut AdaptiveLimit, clients: u32, per_ms: u32, time: Duration) -> (u32, Duration) {
        let (mut queue, mut longest) = (std::collections::VecDeque::new(), Duration::ZERO);
        let (started_at, mut rejected) = (limiter.since, 0);
        let millis = time.as_millis() as usize;
        let mut arriving = vec![0; millis + 1_502];
        arriving[0] = clients;
        for at in 0..millis {
            let now = started_at + ms(at as u64);
            for _ in 0..arriving[at] {
                if limiter.try_acquire(now) {
                    queue.push_back(now);
                } else {
                    rejected += 1;
                    arriving[at + 500 + rejected * 618 % 1_000] += 1;
                }
            }
            let now = now + ms(1);
            for arrival in queue.drain(..queue.len().min(per_ms as usize)) {
                longest = if at + 500 > millis { longest.max(now - arrival) } else { Duration::ZERO };
                limiter.release(now, Some(now - arrival));
                arriving[at + 1] += 1;
            }
        }
        queue.iter().for_each(|_| limiter.release(started_at + time, None));
        (limiter.limit(), longest)
    }

    #[test]
    fn above_capacity_admitted_requests_stay_within_the_target_latency() {
        let mut limiter = AdaptiveLimit::new(LIMITS);

        let (limit, longest) = serve(&mut limiter, 900, 40, ms(5_000));

        assert!((480..=800).contains(&limit), "{limit}");
        assert!(longest <= LIMITS.wait_max * 3 / 2, "{longest:?}");
        assert!(!limiter.overloaded);
    }

    #[test]
    fn under_overload_admitted_requests_take_hardly_longer_than_usual() {
        let mut limiter = AdaptiveLimit::new(LIMITS);
        let (_, baseline_latency) = serve(&mut limiter, 320, 40, ms(10_000));
        assert_eq!(baseline_latency, ms(8));

        let (limit, longest) = serve(&mut limiter, 10_000, 40, ms(10_000));

        assert!(longest <= baseline_latency * 2, "{longest:?}");
        assert!((320..=640).contains(&limit), "{limit}");
        assert!(
            limiter.baseline_latency.abs_diff(baseline_latency) < ms(1),
            "latency under overload does not count as usual: {:?}",
            limiter.baseline_latency
        );
    }

    #[test]
    fn no_request_is_rejected_below_capacity_or_in_a_burst() {
        let mut limiter = AdaptiveLimit::new(LIMITS);

        assert_eq!(serve(&mut limiter, 140, 10, ms(5_000)).0, LIMITS.burst);
        let burst = (0..5_000).filter(|_| limiter.try_acquire(ms(5_000))).count();
        assert_eq!(burst, LIMITS.burst as usize);
    }

    #[test]
    fn limit_grows_to_what_the_store_can_use() {
        let mut limiter = AdaptiveLimit::new(LIMITS);

        let (limit, _) = serve(&mut limiter, 2_000, 400, ms(5_000));

        assert!(limit >= 2_000, "{limit}");
    }

    #[test]
    fn limit_recovers_by_itself_and_never_falls_below_its_floor() {
        let mut limiter = AdaptiveLimit::new(LIMITS);
        let (limit, _) = serve(&mut limiter, 5_000, 1, ms(3_000));
        assert_eq!(limit, LIMITS.overload_floor, "a very slow store under overload");
        let (limit, _) = serve(&mut limiter, 140, 1, ms(3_000));
        assert_eq!(limit, LIMITS.floor, "a very slow store");

        serve(&mut limiter, 5_000, 40, ms(5_000));

        assert!(limiter.limit() >= 200, "{}", limiter.limit());
    }

    #[test]
    fn store_that_is_always_slow_keeps_its_limit() {
        let mut limiter = AdaptiveLimit::new(LIMITS);
        for n in 1..2_000 {
            assert!(limiter.try_acquire(ms(100) * (n - 1)));
            limiter.release(ms(100) * n, Some(ms(100)));
        }
        assert!(limiter.target() >= ms(190), "{:?}", limiter.target());
        assert_eq!(limiter.limit(), LIMITS.burst);
    }

    #[test]
    fn slow_store_that_is_seldom_used_keeps_its_limit_when_load_begins() {
        let mut limiter = AdaptiveLimit::new(LIMITS);
        for n in 0..2_000 {
            assert!(limiter.try_acquire(ms(500) * n));
            limiter.release(ms(500) * n + ms(60), Some(ms(60)));
        }

        // Each of 200 clients repeats its request as soon as it is completed, which takes as long as before.
        let start = ms(1_000_000);
        let began_at = |round: u32| move |client: u32| start + ms(60) * round + ms(60) * client / 200;
        assert!((0..200).all(|client| limiter.try_acquire(began_at(0)(client))));
        for round in 0..50 {
            for client in 0..200 {
                let now = began_at(round + 1)(client);
                limiter.release(now, Some(ms(60)));
                assert!(limiter.try_acquire(now), "round {round}, client {client}, limit {}", limiter.limit());
            }
        }
    }

    /// Requests that arrive together every second, at a store that completes 2 each millisecond.
    #[test]
    fn bursts_below_the_burst_limit_are_admitted_whole_also_after_overload() {
        let mut limiter = AdaptiveLimit::new(LIMITS);
        serve(&mut limiter, 5_000, 2, ms(3_000));
        assert!(limiter.limit() < 200, "{}", limiter.limit());

        for second in 10..40 {
            let now = ms(1_000 * second);
            let admitted = (0..200).filter(|_| limiter.try_acquire(now)).count();
            assert_eq!(admitted, 200, "burst {second}");
            for n in 1..=200 {
                let latency = ms(n / 2);
                limiter.release(now + latency, Some(latency));
            }
        }
    }

    #[test]
    fn short_pauses_between_bursts_do_not_count_as_slow_service() {
        let mut limiter = AdaptiveLimit::new(LIMITS);
        for burst in 0..100 {
            let now = ms(250 * burst);
            let admitted = (0..200).filter(|_| limiter.try_acquire(now)).count();
            assert_eq!(admitted, 200, "burst {burst}");
            for n in 1..=200 {
                let latency = ms(n / 2);
                limiter.release(now + latency, Some(latency));
            }
        }
        assert_eq!(limiter.limit(), LIMITS.burst);
    }

    #[test]
    fn requests_that_did_not_reach_the_store_are_not_measured() {
        let mut limiter = AdaptiveLimit::new(LIMITS);
        for n in 0..1_000 {
            assert!(limiter.try_acquire(ms(n)));
            limiter.release(ms(n), None);
        }
        assert_eq!((limiter.in_flight, limiter.interval.completed), (0, 0));
    }
}
