//! The service's own health: the managers update it at intervals, and health checks read it without a call to a dependency.
use std::sync::{Arc, RwLock};
use std::time::Duration;

use domain::Timestamp;
use ports::outbox::RowCounts;

use crate::policy::backpressure::{PressureInputs, PressureStage, PressureThresholds};

/// An unsent event that is older than this is reported, whatever its cause: the relay sends an event within seconds, retries included, unless
/// something is wrong.
pub const UNSENT_AGE_NOTABLE: Duration = Duration::from_secs(60);

/// Health of one dependency, from its last probes.
#[derive(Clone, Debug, PartialEq)]
pub struct Component {
    /// `db`, `broker` or `redis`.
    pub name: &'static str,
    /// Whether its consecutive failures are below the threshold.
    pub up: bool,
    /// Whether its failure makes the region passive.
    pub gates: bool,
    /// Time that its last successful probe took.
    pub latency: Duration,
    /// Error of the last probe, if it failed.
    pub detail: Option<String>,
}

/// The health of the service at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HealthSnapshot {
    /// Whether start-up is complete: the actor tree runs and partitions are acquired.
    pub started: bool,
    /// Whether a shutdown has begun.
    pub draining: bool,
    /// Whether the region is PASSIVE and rejects writes.
    pub passive: bool,
    /// Configured dependencies and their health.
    pub components: Vec<Component>,
    /// Error of a store that responds but has no free space (a full disk, a quota). The first write that fails sets it, the next successful
    /// probe clears it.
    pub storage_full: Option<String>,
    /// Present stage of the measures against pressure.
    pub stage: PressureStage,
    /// Measurements from which the stage was derived.
    pub inputs: PressureInputs,
    /// Values from which each of these measurements raises the level.
    pub thresholds: PressureThresholds,
    /// Outbox depth at the last measurement.
    pub depth: RowCounts,
    /// Time of that measurement.
    pub measured_at: Option<Timestamp>,
    /// Number of partitions whose lease this instance holds.
    pub partitions_owned: usize,
    /// State of the broker's circuit breaker: `closed`, `half-open` or `open`.
    pub breaker: &'static str,
    /// Time from which the open breaker allows its next probe; `None` unless it is open.
    pub breaker_probe_at: Option<Timestamp>,
    /// Whether a broker is configured.
    pub broker_configured: bool,
}

/// Age from which the last count of the rows is out of date: longer than the pause between two counts of a large backlog.
const MEASUREMENT_VALID: Duration = Duration::from_secs(30);

impl HealthSnapshot {
    /// Age of the oldest unsent event at this time. While the rows cannot be counted, the one at the last count is taken to be unsent still.
    pub fn oldest_unsent(&self, now: Timestamp) -> Option<Duration> {
        let since = self.measured_at.map_or(Duration::ZERO, |measured_at| now.since(measured_at));
        let aged = if since > MEASUREMENT_VALID { since } else { Duration::ZERO };
        self.depth.oldest_unsent.map(|age| age + aged)
    }

    /// Whether orders may be written: no shutdown has begun, the region is ACTIVE, the pressure is below CRITICAL, and the store has space.
    pub fn accepts_writes(&self) -> bool {
        !self.draining && !self.passive && self.stage != PressureStage::Rejection && self.storage_full.is_none()
    }
}

/// The shared health snapshot. Writers replace fields under a short lock; readers get an `Arc` of the whole.
#[derive(Clone, Default)]
pub struct SharedHealth(Arc<RwLock<Arc<HealthSnapshot>>>);

impl SharedHealth {
    /// The latest snapshot. Waits at most while a writer replaces fields.
    pub fn read(&self) -> Arc<HealthSnapshot> {
        Arc::clone(&self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// Changes fields of the snapshot.
    pub fn update(&self, change: impl FnOnce(&mut HealthSnapshot)) {
        let mut slot = self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        change(Arc::make_mut(&mut slot));
    }

    /// Records that a write found the store full: readiness fails with the first such write, not only with the next round of probes.
    pub fn record_full_store(&self, detail: &str) {
        self.update(|snapshot| snapshot.storage_full = Some(detail.to_owned()));
    }
}
