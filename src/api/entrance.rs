//! The ways to the store: keeps the standing queue before each short, by refusing requests that would only make all of them wait.
use std::time::Duration;

use app::policy::load_shedding::{AdaptiveLimit, ConcurrencyLimits};
use parking_lot::Mutex;
use telemetry::{IntCounter, IntGauge, Metrics};
use tokio::time::{Instant, sleep};

use crate::error::Problem;

/// How long a refusal is held back. A client that asks again at once would otherwise cost as much as one that is served: refusals alone kept
/// two cores busy, and those who were let in waited four times as long.
const HOLD: Duration = Duration::from_millis(500);
/// Refusals are held back up to so much longer, each its own time: who was refused together would come back together, and again.
const SPREAD: Duration = Duration::from_secs(1);

/// One way each for each kind of request that takes its own time: a crowd on one is no queue on the others.
pub(crate) struct Entrances {
    /// Creates and changes.
    pub(crate) changes: Entrance,
    /// One order.
    pub(crate) reads: Entrance,
    /// Lists and pages.
    pub(crate) lists: Entrance,
}

impl Entrances {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        Self {
            changes: Entrance::new("change", ConcurrencyLimits::CHANGES, metrics),
            reads: Entrance::new("read", ConcurrencyLimits::READS, metrics),
            lists: Entrance::new("list", ConcurrencyLimits::LISTS, metrics),
        }
    }
}

/// Who may come in.
pub(crate) struct Entrance {
    opened: Instant,
    shedding: Mutex<AdaptiveLimit>,
    refused: IntCounter,
    limit: IntGauge,
}

impl Entrance {
    fn new(kind: &str, room: ConcurrencyLimits, metrics: &Metrics) -> Self {
        let shedding = AdaptiveLimit::new(room);
        let (refused, limit) = (metrics.orders_shed_count.with([kind]), metrics.orders_in_flight_limit.with([kind]));
        limit.set(shedding.limit().into());
        Self { opened: Instant::now(), shedding: Mutex::new(shedding), refused, limit }
    }

    /// Comes in, at once or not at all.
    ///
    /// # Errors
    /// Too many are in already, told after a while; nothing was changed.
    pub(crate) async fn enter(&self) -> Result<Visit<'_>, Problem> {
        if let Some(visit) = self.visit() {
            return Ok(visit);
        }
        self.refused.inc();
        sleep(HOLD + SPREAD.mul_f64(rand::random())).await;
        Err(Problem::held_back("too many requests of this kind are waiting; nothing was changed", 1))
    }

    fn visit(&self) -> Option<Visit<'_>> {
        let enters = self.shedding.lock().try_acquire();
        enters.then(|| Visit { entrance: self, came: Instant::now(), reached: false })
    }
}

/// One request that was let in. It leaves when this is dropped, also where its client went away before.
pub(crate) struct Visit<'a> {
    entrance: &'a Entrance,
    came: Instant,
    reached: bool,
}

impl Visit<'_> {
    /// Leaves; `reached` where the request went all the way to the store and was carried out.
    pub(crate) fn end(mut self, reached: bool) {
        self.reached = reached;
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        let Entrance { opened, shedding, limit, .. } = self.entrance;
        let now = Instant::now();
        let mut shedding = shedding.lock();
        let before = shedding.limit();
        shedding.release(now - *opened, self.reached.then(|| now - self.came));
        if shedding.limit() != before {
            limit.set(shedding.limit().into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    /// So many at once, each of which the store answers after a second.
    async fn crowd(entrance: &Entrance, size: usize) -> usize {
        let visits: Vec<Visit<'_>> = (0..size).filter_map(|_| entrance.visit()).collect();
        sleep(Duration::from_secs(1)).await;
        let inside = visits.len();
        visits.into_iter().for_each(|visit| visit.end(true));
        inside
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_that_stands_lets_fewer_in_and_tells_the_others_after_a_while() {
        let metrics = Metrics::new();
        let Entrances { changes: entrance, reads, .. } = Entrances::new(&metrics);
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
        assert_eq!(refused.kind, Kind::Infrastructure);
        assert!((HOLD..=HOLD + SPREAD).contains(&begun.elapsed()), "{:?}", begun.elapsed());
        assert_eq!(metrics.orders_shed_count.with(["change"]).get(), 1);
        assert_eq!(metrics.orders_in_flight_limit.with(["change"]).get(), i64::try_from(visits.len()).unwrap());
        assert_eq!(reads.limit.get(), metrics.orders_in_flight_limit.with(["read"]).get());
        assert!(reads.visit().is_some(), "a crowd that changes is none that reads");

        // A client that goes away makes room, and says nothing about the store.
        visits.pop();
        assert!(entrance.enter().await.is_ok());
    }
}
