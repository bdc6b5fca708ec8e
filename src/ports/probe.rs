//! Is a dependency there, and how quickly does it answer?
use std::time::Duration;

use async_trait::async_trait;

use crate::error::Error;

/// One dependency's pulse.
#[async_trait]
pub trait Probe: Send + Sync {
    /// Its name in health and metrics: `db`, `broker` or `redis`.
    fn name(&self) -> &'static str;

    /// Asks for a sign of life that needs the dependency's real work (a write path, a controller), not just an open port.
    /// The caller sets the time limit.
    async fn check(&self) -> Result<ProbeReport, Error>;

    /// How much of its capacity is in use right now, 0.0..=1.0, where it has one (a pool, a queue). Known without asking the dependency,
    /// so it costs nothing and is true also while that does not answer.
    fn saturation(&self) -> Option<f64> {
        None
    }
}

/// A sign of life.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProbeReport {
    /// How long the answer took.
    pub latency: Duration,
}
