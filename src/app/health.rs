//! What the service knows about its own health: written by the managers each round, read by health checks without a wait.
use std::sync::{Arc, RwLock};
use std::time::Duration;

use domain::Timestamp;
use ports::outbox::Depth;

use crate::policy::backpressure::{PressureInputs, PressureStage};

/// One dependency's last probes.
#[derive(Clone, Debug, PartialEq)]
pub struct Component {
    /// `db`, `broker`, `redis`.
    pub name: &'static str,
    /// Whether it counts as up: its failures have not reached the threshold.
    pub up: bool,
    /// Whether it gates the region.
    pub gates: bool,
    /// How long its last answer took.
    pub latency: Duration,
    /// Why it last failed.
    pub detail: Option<String>,
}

/// The whole picture.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HealthSnapshot {
    /// Start-up is over: the tree runs, the partitions are taken.
    pub started: bool,
    /// A stop was asked for.
    pub draining: bool,
    /// The region takes no writes.
    pub passive: bool,
    /// Dependencies, as configured.
    pub components: Vec<Component>,
    /// Why the store takes no writes although it answers: a full disk, a quota. Seen by the first write that meets it, gone with the
    /// next probe that finds room.
    pub no_room: Option<String>,
    /// Pressure: its level, its factors, and what is done about it.
    pub stage: PressureStage,
    /// What it was judged by.
    pub inputs: PressureInputs,
    /// The outbox, as last measured.
    pub depth: Depth,
    /// When that was.
    pub measured_at: Option<Timestamp>,
    /// Partitions this instance holds.
    pub partitions_owned: usize,
    /// `closed`, `half-open`, `open`.
    pub breaker: &'static str,
    /// Whether a broker is configured at all.
    pub broker_configured: bool,
}

/// The picture, shared. Writers replace fields under a short lock; readers take an `Arc` of the whole.
#[derive(Clone, Default)]
pub struct HealthBoard(Arc<RwLock<Arc<HealthSnapshot>>>);

impl HealthBoard {
    /// The picture as last painted.
    pub fn read(&self) -> Arc<HealthSnapshot> {
        Arc::clone(&self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// Changes some of it.
    pub fn update(&self, change: impl FnOnce(&mut HealthSnapshot)) {
        let mut slot = self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        change(Arc::make_mut(&mut slot));
    }
}
