//! Health probes: whether a dependency responds, and how fast.
use std::time::Duration;

use async_trait::async_trait;

use crate::error::Error;

/// Health probe of one dependency.
#[async_trait]
pub trait Probe: Send + Sync {
    /// Name in health reports and metrics: `db`, `broker` or `redis`.
    fn name(&self) -> &'static str;

    /// Checks the dependency by a call that needs its real work (a write path, a controller), not only an open port.
    /// The caller sets the timeout.
    async fn check(&self) -> Result<ProbeReport, Error>;

    /// Share of its capacity (a pool, a queue) in use, 0.0..=1.0; `None` where it has none. Computed locally, so it is known even while the
    /// dependency does not respond.
    fn saturation(&self) -> Option<f64> {
        None
    }
}

/// Result of a successful probe.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProbeReport {
    /// Time until the dependency responded.
    pub latency: Duration,
}
