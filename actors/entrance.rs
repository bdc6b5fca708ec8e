//! The way into the shards: keeps the standing queue before the store short, by refusing commands that would only make all of them wait.
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use app::error::CommandError;
use app::policy::shedding::Shedding;
use parking_lot::Mutex;
use telemetry::Metrics;
use tokio::time::{Instant, sleep};

/// How long a refusal is held back. A client that asks again at once would otherwise cost as much as one that is served: refusals alone kept
/// two cores busy, and those who were let in waited four times as long.
const HOLD: Duration = Duration::from_millis(500);
/// Refusals are held back up to so much longer, each its own time: who was refused together would come back together, and again.
const SPREAD: Duration = Duration::from_millis(1_024);

/// Who may come in.
pub(crate) struct Entrance {
    opened: Instant,
    shedding: Mutex<Shedding>,
    refused: AtomicU32,
    metrics: Arc<Metrics>,
}

impl Entrance {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        let shedding = Shedding::default();
        metrics.orders_in_flight_limit.set(shedding.limit().into());
        Self { opened: Instant::now(), shedding: Mutex::new(shedding), refused: AtomicU32::new(0), metrics }
    }

    /// Comes in, at once or not at all.
    ///
    /// # Errors
    /// Too many are in already, told after a while; nothing was changed.
    pub(crate) async fn enter(&self) -> Result<Visit<'_>, CommandError> {
        if let Some(visit) = self.visit() {
            return Ok(visit);
        }
        self.metrics.orders_shed_count.inc();
        sleep(hold(self.refused.fetch_add(1, Relaxed))).await;
        Err(CommandError::Busy)
    }

    fn visit(&self) -> Option<Visit<'_>> {
        let enters = self.shedding.lock().enter();
        enters.then(|| Visit { entrance: self, came: Instant::now(), reached: false })
    }
}

/// How long the nth refusal is held back: multiples of the golden ratio leave no gaps and no heaps (Weyl; Knuth, TAOCP 6.4).
fn hold(nth: u32) -> Duration {
    HOLD + SPREAD * (nth.wrapping_mul(0x9E37_79B9) >> 22) / 1_024
}

/// One command that was let in. It leaves when this is dropped, also where its client went away before.
pub(crate) struct Visit<'a> {
    entrance: &'a Entrance,
    came: Instant,
    reached: bool,
}

impl Visit<'_> {
    /// Leaves; `reached` where the command went all the way to the store and was carried out.
    pub(crate) fn end(mut self, reached: bool) {
        self.reached = reached;
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        let Entrance { opened, shedding, metrics, .. } = self.entrance;
        let now = Instant::now();
        let mut shedding = shedding.lock();
        let before = shedding.limit();
        shedding.leave(now - *opened, self.reached.then(|| now - self.came));
        if shedding.limit() != before {
            metrics.orders_in_flight_limit.set(shedding.limit().into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many commands at once, each of which the store answers after a second.
    async fn crowd(entrance: &Entrance, size: usize) -> usize {
        let visits: Vec<Visit<'_>> = (0..size).filter_map(|_| entrance.visit()).collect();
        sleep(Duration::from_secs(1)).await;
        let inside = visits.len();
        visits.into_iter().for_each(|visit| visit.end(true));
        inside
    }

    #[test]
    fn who_is_refused_together_does_not_come_back_together() {
        let mut tenths = [0; 10];
        for nth in 0..1_000 {
            tenths[((hold(nth) - HOLD).as_secs_f64() / SPREAD.as_secs_f64() * 10.0) as usize] += 1;
        }
        assert!(tenths.iter().all(|tenth| (95..=105).contains(tenth)), "{tenths:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_that_stands_lets_fewer_in_and_tells_the_others_after_a_while() {
        let entrance = Entrance::new(Metrics::new());
        let burst = crowd(&entrance, 4_000).await;
        assert!((100..1_000).contains(&burst), "{burst}");
        let inside = crowd(&entrance, 4_000).await;
        assert!(inside < burst / 2, "{inside} of {burst}");

        let mut visits = Vec::new();
        let begun = Instant::now();
        let refused = loop {
            match entrance.enter().await {
                Ok(visit) => visits.push(visit),
                Err(refused) => break refused,
            }
        };
        assert_eq!((refused, begun.elapsed()), (CommandError::Busy, HOLD));
        assert_eq!(entrance.metrics.orders_shed_count.get(), 1);
        assert_eq!(entrance.metrics.orders_in_flight_limit.get(), i64::try_from(visits.len()).unwrap());

        // A client that goes away makes room, and says nothing about the store.
        visits.pop();
        assert!(entrance.enter().await.is_ok());
    }
}
